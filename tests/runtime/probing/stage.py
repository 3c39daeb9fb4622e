"""What the tests of the probe path share: a fake engine, real little servers, and a machine that can be spoiled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import Answer, Load, Running, Sight
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet, Host, Launch, Limits, Profile, Server
from bot.domain.kernel_caches import KernelCache
from bot.ports import Channel, Completed, Needs
from bot.runtime.prober import Prober
from bot.runtime.probing.line import Line
from bot.runtime.probing.wire import Item, Request
from bot.transports._local import Local

STAND_IN = Path(__file__).with_name("stand_in.py")
SECOND = timedelta(seconds=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeReader:
    """Reads a log of words: READY, CRASH, START."""

    def __init__(self) -> None:
        self.text = b""

    def feed(self, data: bytes) -> None:
        self.text += data

    def diagnosis(self) -> Diagnosis:
        phase = Phase.READY if b"READY" in self.text else Phase.SPAWNED
        return Diagnosis(phase=phase, is_crashed=b"CRASH" in self.text, lines=self.text.count(b"\n"))


class FakeEngine:
    """An engine whose numbers are JSON."""

    name = "fake-engine"
    health_path = "/health"
    instant_paths = ("/ready", "/model_info")
    load_paths = ("/metrics",)
    config_paths = ("/info", "/get_info")
    metric_names = frozenset[str]()
    kernel_caches = (KernelCache("triton", ("$TRITON_CACHE_DIR", "~/.triton/cache"), is_sure=True),)

    def launch_argv(self, server: Server, flags: Flags) -> tuple[str, ...]:
        return (*server.launch.command, "--port", str(server.port), *flags.argv())

    def port_of(self, argv: Sequence[str]) -> int | None:
        port = Flags.parse(argv).value("port") if "fake-engine" in argv else None
        return int(port) if port and port.isdigit() else None

    def flags_of(self, argv: Sequence[str]) -> Flags:
        return Flags.parse(argv)

    def load(self, answers: Mapping[str, Answer]) -> Load:
        answer = answers.get("/metrics")
        return Load(**json.loads(answer.body)) if answer is not None and answer.is_ok else Load()

    def running(self, answers: Mapping[str, Answer]) -> Running:
        told = next((one for one in answers.values() if one.is_ok and b"version" in one.body), None)
        return Running(version=json.loads(told.body)["version"]) if told else Running()

    def caches_used(self, version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
        return self.kernel_caches

    def reader(self) -> FakeReader:
        return FakeReader()


@dataclass
class SteppedClock:
    """A clock that a test sets."""

    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(0)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.asynccontextmanager
async def served(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    """A little server on loopback; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*raw: bytes, delay: float = 0.0, seen: list[bytes] | None = None):
    """Answer each request of a connection with these bytes; then close it when ``raw`` is used up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for one in raw:
            head = await reader.readuntil(b"\r\n\r\n")
            if seen is not None:
                seen.append(head)
            await asyncio.sleep(delay)
            writer.write(one)
            await writer.drain()

    return answer


def ok(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@contextlib.asynccontextmanager
async def lined(transport=None) -> AsyncIterator[Line]:
    line = await Line.open(transport or Local(), "h1")
    try:
        yield line
    finally:
        await line.close()


async def asked(line, request: Request) -> list[Item]:
    items: list[Item] = []
    async with asyncio.timeout(20):
        await line.ask(request, items.append)
    return items


@dataclass
class StandIn:
    """A running stand-in server."""

    port: int
    stage: Path
    process: asyncio.subprocess.Process

    def answers(self, **how: object) -> None:
        told = {f"/{path}": one for path, one in how.items()}
        part = self.stage / "answers.part"
        part.write_text(json.dumps(told))
        part.replace(self.stage / "answers.json")

    @property
    def asked(self) -> list[str]:
        path = self.stage / "asked"
        return path.read_text().splitlines() if path.exists() else []

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


STARTED: list[StandIn] = []
"""Every stand-in of the present test, so that none is left when it fails."""


async def start(stage: Path, *flags: str, port: int | None = None, argv0: str = "fake-engine") -> StandIn:
    """Start a stand-in server and wait until it listens."""
    port = port or free_port()
    await asyncio.to_thread(stage.mkdir, parents=True, exist_ok=True)
    words = (argv0, "--port", str(port), "--stage", str(stage), *flags)
    one = StandIn(port, stage, await asyncio.create_subprocess_exec(sys.executable, "-S", str(STAND_IN), *words))
    STARTED.append(one)
    one.answers(ready={"status": 200, "body": "ok"}, health={"status": 200, "body": ""})
    async with asyncio.timeout(20):
        while True:
            try:
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return one


@dataclass
class World:
    """A fleet on this machine, its prober, and what is spoiled in it."""

    fleet: Fleet
    clock: SteppedClock = field(default_factory=SteppedClock)
    transports: dict[str, object] = field(default_factory=dict)
    jobs: object = None
    prober: Prober = None

    def __post_init__(self) -> None:
        self.prober = Prober(
            fleet=lambda: self.fleet,
            engines={"fake-engine": FakeEngine()},
            transport=self._transport,
            clock=self.clock,
            jobs=self.jobs,
        )

    def _transport(self, host: Host):
        return self.transports.setdefault(host.name, Local())

    async def looks(self, *names: str, jobs=(), **needs: object) -> list[Sight]:
        servers = [self.fleet.server(name) for name in names] if names else self.fleet.servers
        async with asyncio.timeout(40):
            return [one async for one in self.prober.look(servers, jobs=jobs, needs=Needs(**needs))]

    async def facts(self, name: str, **needs: object):
        return (await self.looks(name, **needs))[-1].servers[name]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.prober.close()
        for transport in self.transports.values():
            await transport.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what happens in another process."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing of ours is told when it happens
            await asyncio.sleep(0.02)


def started(pid: int) -> int:
    """A process' start, in ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def server(name: str, port: int, *, stage: Path | None = None, host: str = "h1", **fields: object) -> Server:
    command = (sys.executable, "-S", str(STAND_IN), "fake-engine")
    flags = Flags.of({"stage": str(stage)}) if stage else Flags()
    return replace(Server(name, host, port, "fake-engine", Launch(command, flags)), **fields)


def fleet(*servers: Server, hosts: Sequence[Host] = (), timeout: float = 3.0, profiles: Sequence[Profile] = (), **more):
    limits = Limits(host_timeout=timedelta(seconds=timeout))
    return Fleet(tuple(hosts) or (Host("h1"),), servers, tuple(profiles), limits=limits, **more)


class PlainChannel:
    """A child process and its pipes."""

    errors = b""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, data: bytes) -> None:
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def receive(self) -> bytes:
        return await self.process.stdout.read(1 << 20)

    async def close(self) -> None:
        self.process.stdin.close()
        await self.process.wait()


class Plain:
    """This machine by asyncio's own means, on any loop, for measuring: nothing is bounded or cleaned up."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe)
        stdout, _stderr = await process.communicate()
        return Completed(process.returncode, stdout)

    async def open(self, argv: Sequence[str]) -> PlainChannel:
        pipe = asyncio.subprocess.PIPE
        return PlainChannel(await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 20))

    async def close(self) -> None:
        """Nothing is kept."""


class Spoiled:
    """A transport of this machine on which something is wrong."""

    def __init__(
        self, *, opens: Sequence[str] | None = None, hangs: bool = False, error: Exception | None = None
    ) -> None:
        self._local = Local()
        self._opens = opens
        self._hangs = hangs
        self._error = error
        self.opened: list[Channel] = []
        self.ran: list[tuple[str, ...]] = []

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        self.ran.append(tuple(argv))
        return await self._local.run(argv, stdin=stdin, timeout=timeout)

    async def open(self, argv: Sequence[str]) -> Channel:
        if self._hangs:
            await asyncio.Event().wait()
        if self._error is not None:
            raise self._error
        channel = await self._local.open(self._opens or argv)
        self.opened.append(channel)
        return channel

    async def close(self) -> None:
        await self._local.close()
