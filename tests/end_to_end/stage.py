"""A fleet as the first night had it: simulated servers in a container, reached over a real OpenSSH server and `pct`.

The bot runs as a process, with tokens, in a workspace of its own: only the address of Slack's API is another one.
Whatever was started ends with its ``with`` block, by process id; the end of a container's first process ends all in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bot.demo.workspace import Workspace
from bot.domain.fleet import Hop
from bot.runtime.clock import SystemClock
from tests.end_to_end import inside
from tests.end_to_end.demo import ROOT, Demo, wait
from tests.transports.servers import LOOPBACK, Container, Login, container, sshd


@dataclass
class Stage:
    """Everything that is there: the server, the container, the fleet file; and the bot as long as it runs."""

    folder: Path
    login: Login
    container: Container
    fleet: dict[str, Any]
    workspace: Workspace
    bot: subprocess.Popen[bytes] | None = None
    channel: Demo = field(init=False)
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write()
        self.channel = Demo(self.workspace.url, self.folder, None)  # type: ignore[arg-type] # no demo: only its API

    @property
    def file(self) -> Path:
        return self.folder / "fleet.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> str:
        """What the bot has written."""
        return (self.folder / "bot.log").read_text()

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.fleet, sort_keys=False))

    def add_host(self, name: str, port: int, *hops: Hop) -> None:
        """Another host with one server, for what can go wrong on the way."""
        self.fleet["hosts"][name] = {"reach": [reach(hop) for hop in hops]}
        self.fleet["servers"][f"on-{name}"] = {"host": name, "port": str(port), "launch": ["python", "-m", "x"]}
        self.write()

    def environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("UPBOT_", "SLACK_"))}
        return {
            **{name: value for name, value in ours.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "UPBOT_FLEET": str(self.file),
            "UPBOT_STATE": str(self.state),
        }

    def start_bot(self) -> None:
        """`upbot run`, until it is connected."""
        tokens = {"SLACK_BOT_TOKEN": self.workspace.bot_token, "SLACK_APP_TOKEN": self.workspace.app_token}
        environment = {**self.environment(), **tokens, "SLACK_API_URL": self.workspace.api_url}
        with (self.folder / "bot.log").open("ab") as log:
            self.bot = subprocess.Popen(
                (sys.executable, "-m", "bot", "run"), cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while not (self.state / "ask.sock").exists() or not self.workspace.connected:
            assert self.bot.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            wait(0.05)

    def end_bot(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit status."""
        assert self.bot is not None
        self.bot.send_signal(number)
        try:
            return self.bot.wait(20)
        finally:
            self.bot.kill()
            self.bot.wait()
            self.bot = None
            if number is signal.SIGKILL:
                (self.state / "ask.sock").unlink(missing_ok=True)

    def ask(self, *words: str) -> Asked:
        """`upbot ask` as an agent's shell runs it; the caller reads its output, or waits."""
        self.asked.append(Asked(self, words))
        return self.asked[-1]

    def run_inside(self, *argv: str) -> str:
        """Run a command in the container, as `pct exec` does."""
        command = (str(self.container.pct.program), "exec", str(self.container.id), "--", *argv)
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout


class Asked:
    """A running `upbot ask`: its lines as they come, each with the seconds since its start."""

    def __init__(self, stage: Stage, words: tuple[str, ...]) -> None:
        self.lines: list[tuple[float, str]] = []
        self._begun = time.monotonic()
        self.process = subprocess.Popen(
            (sys.executable, "-m", "bot", "ask", *words),
            cwd=ROOT, env=stage.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.took = 0.0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self._begun, line.rstrip("\n")))

    @property
    def text(self) -> str:
        return "\n".join(line for _at, line in self.lines)

    def status(self, within: float = 60) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            return self.process.wait(within)
        finally:
            self.took = time.monotonic() - self._begun
            self.end()

    def end(self) -> None:
        """End it if it has not ended; may be called again."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def until(self, text: str, within: float = 20) -> None:
        """Wait until it has printed this."""
        deadline = time.monotonic() + within
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            wait(0.05)


def reach(hop: Hop) -> dict[str, Any]:
    """A hop as it stands in a fleet file."""
    return {hop.transport: dict(hop.settings)}


@contextlib.contextmanager
def staged(folder: Path, *, count: int, speed: float, **limits: str) -> Iterator[Stage]:
    """Servers that run in a container, an OpenSSH server before it, and a workspace; the bot is not started yet."""
    with sshd(folder) as login, container(folder, 200) as ct, running_workspace() as workspace:
        known = inside.fleet(folder / "home", speed, count)
        fleet = yaml.safe_load(known.fleet_file())
        fleet["hosts"]["ct200"]["reach"] = [reach(login.hop()), reach(ct.hop())]
        fleet["people"]["ana"]["login"] = login.user
        fleet["limits"] = limits
        stage = Stage(folder, login, ct, fleet, workspace)
        _give_tmux_a_place(stage)
        stage.run_inside(
            sys.executable, "-m", "tests.end_to_end.inside", str(folder / "home"), f"{speed:g}", str(count)
        )
        try:
            yield stage
        finally:
            for asked in stage.asked:
                asked.end()
            if stage.bot is not None:
                stage.end_bot(signal.SIGKILL)


def _give_tmux_a_place(stage: Stage) -> None:
    """The container shares the machine's files, and is not to find the machine's own tmux server there."""
    place = f"/tmp/tmux-{os.geteuid()}"
    Path(place).mkdir(mode=0o700, exist_ok=True)
    stage.run_inside("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", place)


@contextlib.contextmanager
def running_workspace() -> Iterator[Workspace]:
    """A workspace on a loop and thread of its own, so that it outlives a bot that is killed."""
    with looping() as do, opened(do) as workspace:
        yield workspace


@contextlib.contextmanager
def looping() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A loop on a thread of its own; what is yielded runs a coroutine there and gives its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextlib.contextmanager
def opened(do: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Workspace]:
    """A workspace on somebody's loop."""
    workspace = Workspace(clock=SystemClock(), port=0)
    do(workspace.start())
    try:
        yield workspace
    finally:
        do(workspace.stop())


@contextlib.contextmanager
def swallowing() -> Iterator[int]:
    """A port that swallows packets: its queue is full, so the kernel drops what asks for a connection."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(3):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(listener.getsockname())
        port: int = listener.getsockname()[1]
        yield port
