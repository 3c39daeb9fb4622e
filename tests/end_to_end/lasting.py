"""What lasts when the bot dies: eight simulated servers, their job in tmux, a workspace, a stranger's server beside them.

All are processes of their own. What happened is read from the world's own records: the machine's journal of starts,
signals and ends, the GPUs' memory, /proc, and the messages of the channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import multiprocessing
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml

from bot.demo.fleet import SimulatedFleet
from bot.demo.machine import Entry, Happening
from bot.demo.workspace import Workspace
from tests.end_to_end.demo import Demo, wait
from tests.end_to_end.mortal import Moment, Mortality, live
from tests.end_to_end.stage import looping, opened

SPEED = 60.0
BO = "U0BO"
BOTS = multiprocessing.get_context("forkserver")
BOTS.set_forkserver_preload(["__main__", "tests.end_to_end.mortal"])
REQUESTS = "2"
"""Requests that the job keeps open with each server: enough to run, and little to compute."""

STRANGER = """
import json, os, signal, sys
every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
with open(sys.argv[1], "a") as journal:
    if os.geteuid() == 0:
        os.setgid(65534), os.setuid(65534)
    print("here", file=journal, flush=True)
    while True:
        got = signal.sigwaitinfo(every)
        print(signal.Signals(got.si_signo).name, "from pid", got.si_pid, file=journal, flush=True)
"""


class LightFleet(SimulatedFleet):
    """The demo's fleet under a job that asks for little."""

    def job_arguments(self) -> tuple[str, ...]:
        words = super().job_arguments()
        number = words.index("--concurrency") + 1
        return (*words[:number], REQUESTS, *words[number + 1 :])

    def file(self) -> str:
        """The fleet file."""
        values = yaml.safe_load(self.fleet_file())
        for profile in values["profiles"].values():
            profile["job_concurrency"] = int(REQUESTS)
        values["limits"] = {"compare_after": "10 s"}
        return yaml.safe_dump(values, sort_keys=False)


@dataclass
class World:
    """Everything but the bot, and the bot as long as it lives."""

    folder: Path
    fleet: LightFleet
    workspace: Workspace
    do: Callable[[Coroutine[Any, Any, Any]], Any]
    stranger: subprocess.Popen[bytes]
    bot: BaseProcess | None = None
    channel: Demo = field(init=False)
    turn: int = 0
    is_good: bool = True

    def __post_init__(self) -> None:
        self.channel = Demo(self.workspace.url, self.folder, None)  # type: ignore[arg-type] # no demo: only its API
        self.fleet_path.write_text(self.fleet.file())

    @property
    def fleet_path(self) -> Path:
        return self.folder / "fleet.yaml"

    @property
    def state(self) -> Path:
        """The bot's state: a new one each turn."""
        return self.folder / f"state{self.turn}"

    @property
    def acts(self) -> Path:
        """Where a mortal bot notes its acts."""
        return self.folder / f"acts{self.turn}"

    @property
    def _log(self) -> Path:
        return self.folder / f"bot{self.turn}.log"

    @property
    def log(self) -> str:
        """What the bots of this turn have written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # The bot

    def start_bot(self, moment: Moment | None = None, *, again: bool = False) -> None:
        """A bot, until it is connected, or dead; ``again``: its moment may come before any press."""
        fate = Mortality(moment, self.acts, is_armed=again)
        bot = BOTS.Process(target=live, args=(self.environment(), self._log, fate), daemon=True)
        (self.state / "ask.sock").unlink(missing_ok=True)
        bot.start()
        self.bot = bot
        deadline = time.monotonic() + 30
        while not (self.state / "ask.sock").exists() or not self.workspace.connected:
            if again and bot.exitcode == -signal.SIGKILL:
                return
            assert bot.exitcode is None, self.log
            assert time.monotonic() < deadline, self.log
            wait(0.02)

    def environment(self) -> dict[str, str]:
        """What every bot of this turn needs in its environment."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("UPBOT_", "SLACK_"))}
        return {
            **{name: value for name, value in ours.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "UPBOT_FLEET": str(self.fleet_path),
            "UPBOT_STATE": str(self.state),
            "SLACK_BOT_TOKEN": self.workspace.bot_token,
            "SLACK_APP_TOKEN": self.workspace.app_token,
            "SLACK_API_URL": self.workspace.api_url,
        }

    def bot_dies(self, moment: Moment, within: float = 40) -> None:
        """Wait until it has ended itself."""
        assert self.bot is not None
        self.bot.join(within)
        assert self.bot.exitcode is not None, f"never came to {moment}; it came to:\n{self.acts.read_text()}"
        assert self.bot.exitcode == -signal.SIGKILL, f"{moment}: {self.bot.exitcode}\n{self.log}"
        self.bot = None

    def end_bot(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the bot, if there is one."""
        if self.bot is None or self.bot.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.bot.pid, number)
        self.bot.join(20)
        status, self.bot = self.bot.exitcode, None
        assert status == 0 or number is signal.SIGKILL, f"{status}\n{self.log}"

    def operations_at_work(self) -> int:
        """How many operations the state that a dead bot has left holds as being at work."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state / 'upbot.db'}?mode=ro", uri=True)) as database:
            query = "select count(*) from operations where state in ('running', 'cancelling')"
            return int(database.execute(query).fetchone()[0])

    # What people do

    def press(self, card: dict[str, Any], label: str) -> None:
        """Bo presses. When the app dies of it Slack tries again for a while and then tells him: nobody waits for that."""

        def pressing() -> None:
            with contextlib.suppress(OSError):  # HTTP errors among them
                self.channel.press(card["ts"], label, "bo")

        threading.Thread(target=pressing, daemon=True).start()

    def press_again(self, card: dict[str, Any], label: str, user: str = BO) -> None:
        """Press a button of a message as it once was, as somebody's screen may still show it."""
        rows = [block for block in card["blocks"] if block["type"] == "actions"]
        buttons = [(row["block_id"], one) for row in rows for one in row["elements"]]
        block, button = next((row, one) for row, one in buttons if one["text"]["text"] == label)
        where = self.workspace.room.channel("fleet").id
        payload = {
            "type": "block_actions",
            "trigger_id": f"1.2.{time.monotonic_ns()}",
            "user": {"id": user},
            "channel": {"id": where},
            "container": {"type": "message", "message_ts": card["ts"], "channel_id": where},
            "message": {"ts": card["ts"], "text": card["text"]},
            "actions": [{**button, "block_id": block, "action_ts": f"{time.time():.6f}"}],
        }
        assert self.do(self.workspace.ask("interactive", payload)) is not None, "a press was not acknowledged"

    # What the world knows

    def servers(self) -> dict[int, list[Entry]]:
        """The living servers by port."""
        found: dict[int, list[Entry]] = {port: [] for port in self.fleet.ports}
        for entry in self.fleet.machine.living("engine"):
            found.setdefault(entry.port, []).append(entry)
        return found

    def job(self) -> int:
        """The job's pid, as soon as it has written itself down: its terminal has it sooner."""
        deadline = time.monotonic() + 15
        while not (jobs := self.fleet.machine.living("job")):
            assert time.monotonic() < deadline, f"no job runs\n{self.log}"
            wait(0.02)
        assert len(jobs) == 1, jobs
        return jobs[0].pid

    def profile_of(self, pid: int) -> str:
        """With which profile a server runs, by its command line."""
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        return words[words.index("--mamba-scheduler-strategy") + 1]

    @property
    def strangers_signals(self) -> str:
        """What was sent to the server of somebody else."""
        return (self.folder / "stranger").read_text()


@dataclass(frozen=True, slots=True)
class Before:
    """How the world stood before a restart."""

    profile: str
    servers: dict[int, Entry]
    job: int
    happenings: int

    @staticmethod
    def of(world: World) -> Before:
        """As it stands, which must be in order."""
        servers = world.servers()
        assert all(len(found) == 1 for found in servers.values()), servers
        profiles = {world.profile_of(found[0].pid) for found in servers.values()}
        assert len(profiles) == 1, profiles
        now = {port: found[0] for port, found in servers.items()}
        return Before(profiles.pop(), now, world.job(), len(world.fleet.machine.journal()))

    def since(self, world: World) -> list[Happening]:
        """What has happened from then on."""
        return world.fleet.machine.journal()[self.happenings :]


@contextlib.contextmanager
def lasting(folder: Path, count: int = 8) -> Iterator[World]:
    """The world, from its start until nothing of it is left."""
    with own_ports(count) as base, looping() as do, opened(do) as workspace, stranger(folder) as somebody:
        fleet = LightFleet(folder / "home", base, SPEED, count=count, session=f"upbot-kills-{base}")
        asyncio.run(fleet.start())
        try:
            asyncio.run(fleet.wait_ready())
            world = World(folder, fleet, workspace, do, somebody)
            try:
                yield world
            finally:
                world.end_bot(signal.SIGKILL)
        finally:
            asyncio.run(fleet.stop())


@contextlib.contextmanager
def own_ports(count: int) -> Iterator[int]:
    """The first of so many free ports that no other world takes as long as this one lasts, though its servers end."""
    found = ((base, _taken(base, count)) for base in range(12_000, 20_000, 10))
    base, handle = next((base, handle) for base, handle in found if handle is not None)
    try:
        yield base
    finally:
        os.close(handle)


def _taken(base: int, count: int) -> int | None:
    """The lock on these ports; None when another world has it, or somebody a port."""
    handle = os.open(Path(tempfile.gettempdir()) / f"upbot-ports-{base}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for port in range(base, base + count):
            socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def stranger(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another user's `sglang.launch_server` (ours, where we may not be another): it notes every signal and its sender."""
    module = folder / "somebody" / "sglang"
    module.mkdir(parents=True)
    (module / "launch_server.py").write_text(STRANGER)
    journal = folder / "stranger"
    argv = (sys.executable, "-m", "sglang.launch_server", str(journal), "--model-path", "m", "--port", "65000")
    environment = {**os.environ, "PYTHONPATH": str(module.parent)}
    process = subprocess.Popen(argv, env=environment, start_new_session=True)
    while not journal.exists() or not journal.read_text():
        assert process.poll() is None, "the stranger's server did not start"
        wait(0.02)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def draining(port: int) -> Iterator[None]:
    """A client of a server that asks for more than it can wait for: its drain has no end."""
    body = b'{"text": "go on", "sampling_params": {"max_new_tokens": 100000}, "stream": true}'
    head = (
        f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head.encode() + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        yield


def described(happenings: list[Happening]) -> str:
    """A journal for people."""
    return "\n".join(f"{one.role} {one.port or ''} pid {one.pid} {one.what}" for one in happenings)
