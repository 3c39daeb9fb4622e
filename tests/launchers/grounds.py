"""Where launchers are tried: this machine, one with systemd as its init, and Podman in Docker's place."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bot.domain.facts import Process
from bot.domain.fleet import Launch, Server
from bot.launchers import docker, process, systemd
from bot.ports import Channel, Completed, Launched, Launcher, Transport
from bot.transports._local import Local
from tests import hosts
from tests.launchers import booted, podman

WITHIN = timedelta(seconds=60)


class Inside:
    """A transport that enters another machine by a few words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._local = Local()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        return await self._local.run([*self._words, *argv], stdin=stdin, timeout=timeout)

    async def open(self, argv: Sequence[str]) -> Channel:
        return await self._local.open([*self._words, *argv])

    async def close(self) -> None:
        await self._local.close()


@dataclass(frozen=True)
class Ground:
    """A launcher on a host. ``folder`` is seen by the server under the same path."""

    launcher: Launcher
    host: Transport
    folder: Path
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def state(self) -> str:
        return str(self.folder / "state 'x")

    def server(self, name: str | None = None, **changes: object) -> Server:
        name = name or f"s{secrets.token_hex(4)}"
        values: dict[str, object] = {"log": str(self.folder / "logs %n" / f"{name}.log"), "launch": Launch(("sh",))}
        values["launcher_settings"] = self.settings
        return Server(**{"name": name, "host": "h", "port": 1, "engine": "sglang", **values, **changes})  # type: ignore[arg-type]

    def room(self, name: str) -> Path:
        """A folder for what a server writes."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return place

    async def start(self, server: Server, argv: Sequence[str], env: dict[str, str] | None = None) -> Process:
        """Start it; the process that is on record then."""
        await self.launcher.start(self.host, server, argv, env or {}, self.state)
        pid = (await self.launched(server)).pid
        return await self.process(pid) if pid is not None else Process(0, 0)

    async def launched(self, server: Server) -> Launched:
        return await self.launcher.launched(self.host, server, self.state)

    async def process(self, pid: int) -> Process:
        """The process of that pid as its host shows it; one of start 0 where it is gone."""
        done = await self.host.run(["cat", f"/proc/{pid}/stat", f"/proc/{pid}/cmdline"], timeout=WITHIN)
        if not done.is_ok:
            return Process(pid, 0)
        stat, _, line = done.stdout.decode("utf-8", "replace").partition("\n")
        fields = stat.rpartition(") ")[2].split()
        return Process(pid, 0 if fields[0] in "ZX" else int(fields[19]), tuple(line.split("\0")[:-1]))

    async def lives(self, one: Process) -> bool:
        return (await self.process(one.pid)).identity == one.identity

    async def noted(self, server: Server) -> str:
        """What stands in the file that looks read the exit status from."""
        return hosts.read(Path(self.state) / server.name / "exit").strip()


@contextmanager
def on_process(folder: Path) -> Iterator[Ground]:
    ground = Ground(process.LAUNCHER, Local(), folder)
    try:
        yield ground
    finally:
        for record in Path(ground.state).glob("*/start.json"):
            found = json.loads(record.read_text())
            kernel = hosts.stat(found["pid"])
            if kernel is not None and int(kernel[19]) == found["started"]:
                hosts.end(found["pid"], group=True)


@contextmanager
def on_systemd(folder: Path) -> Iterator[Ground]:
    shared = folder / "shared"
    shared.mkdir()
    with booted.booted(folder, shared) as words:
        yield Ground(systemd.LAUNCHER, Inside(words), shared)


@contextmanager
def on_docker(folder: Path) -> Iterator[Ground]:
    shared = folder / "shared"
    shared.mkdir()
    with podman.podman(folder) as command:
        args = ["--network", "host", "-v", f"{shared}:{shared}"]
        settings = (("image", podman.IMAGE), ("args", json.dumps(args)), ("command", command))
        yield Ground(docker.LAUNCHER, Local(), shared, settings)
