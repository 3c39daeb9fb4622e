"""The warm line to a host's scout: opened once, shared by everybody who asks, given up when it fails.

The scout's source travels over its stdin, not in its command line, so that nobody who looks for processes by
their words finds the one that does the looking.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Protocol

from bot.domain.errors import FleetError, HopError
from bot.ports import Channel, Transport
from bot.runtime.probing.wire import Done, Garbled, Item, Request, read_line

HELLO = b'["upbot-scout",1]'
NOISE_LIMIT = 64 * 1024
LINE_LIMIT = 64 * 1024 * 1024
# In the order in which they import each other.
_MODULES = (
    *("connection", "files", "gets", "sockets", "processes", "gpus"),
    *("sessions", "journal", "kernel", "folders", "workers", "watcher", "loop"),
)
_PACKAGE = "bot.runtime.probing.scout"
_BOOT = """\
import sys
f=open(0,'rb',0,closefd=False)
n=int(f.readline())
s=b''
while len(s)<n:
 d=f.read(n-len(s))
 if not d:sys.exit(0)
 s+=d
exec(compile(s,'scout','exec'))
"""
ARGV = ("python3", "-I", "-S", "-u", "-c", _BOOT)


class NoPython(Exception):
    """The host was reached, but no scout came to life there; ``why`` is what was said instead."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Source(Protocol):
    """Whoever answers requests for one host."""

    @property
    def is_alive(self) -> bool: ...

    async def ask(self, request: Request, tell: Callable[[Item], None]) -> None:
        """Have everything answered, each item told when it is known; HopError when the host is lost meanwhile."""
        ...

    async def close(self) -> None: ...


@cache
def source() -> bytes:
    """The scout as one text: its modules under their own names, and the call that starts it."""
    folder = importlib.resources.files(_PACKAGE)
    modules = [(f"{_PACKAGE}.{name}", folder.joinpath(f"{name}.py").read_text("utf-8")) for name in _MODULES]
    return (
        "import json,sys,types\n"
        f"for name,text in json.loads({json.dumps(modules)!r}):\n"
        " module=types.ModuleType(name)\n"
        " sys.modules[name]=module\n"
        " exec(compile(text,name,'exec'),module.__dict__)\n"
        f"sys.modules[{_PACKAGE + '.loop'!r}].main()\n"
    ).encode()


class Line:
    """A scout that runs, and the requests that it has not answered yet."""

    def __init__(self, channel: Channel, label: str) -> None:
        self._channel = channel
        self._label = label
        self._count = 0
        self._asked: dict[int, tuple[Callable[[Item], None], asyncio.Future[None]]] = {}
        self._hello = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self._sending = asyncio.Lock()
        self._rest = b""
        self._end: Exception = HopError(label, "has lost its scout")
        self.is_alive = True

    @classmethod
    async def open(cls, transport: Transport, label: str) -> Line:
        """Send a scout and wait until it says hello; HopError, or NoPython when it can't live there."""
        channel = await transport.open(ARGV)
        line = cls(channel, label)
        try:
            text = source()
            await line._send(b"%d\n%s" % (len(text), text))
            await line._hello
        except BaseException:
            await line.close()
            raise
        return line

    async def ask(self, request: Request, tell: Callable[[Item], None]) -> None:
        if not self.is_alive:
            raise self._end
        self._count += 1
        number = self._count
        done = asyncio.get_running_loop().create_future()
        self._asked[number] = (tell, done)
        try:
            await self._send(request.line(number))
            await done
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        self.is_alive = False
        self._fail(HopError(self._label, "is not asked any more"))
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        with suppress(FleetError):
            await self._channel.close()

    async def _send(self, data: bytes) -> None:
        try:
            async with self._sending:
                await self._channel.send(data)
        except HopError:
            # Where a scout never came to life, the reader knows better what happened.
            if self._hello.done():
                raise

    async def _read(self) -> None:
        try:
            await self._read_hello()
            await self._read_items()
            self._fail(HopError(self._label, f"ended the look: {self._last_words() or 'its scout is gone'}"))
        except NoPython as exc:
            self._fail(exc)
        except Garbled as exc:
            self._fail(HopError(self._label, f"answered what no scout answers: {exc}"))
        except FleetError as exc:
            self._fail(exc)

    async def _read_hello(self) -> None:
        # A login's start-up files may print anything before it.
        noise = b""
        while HELLO not in noise:
            data = await self._channel.receive()
            if not data:
                raise NoPython(self._last_words())
            noise += data
            if len(noise) > NOISE_LIMIT:
                raise NoPython("too much is printed at login")
        self._rest = noise.partition(HELLO)[2].removeprefix(b"\n")
        self._hello.set_result(None)

    async def _read_items(self) -> None:
        data, pieces, size = self._rest, list[bytes](), 0
        while True:
            size += len(data)
            pieces.append(data)
            if size > LINE_LIMIT:
                raise Garbled("a line without an end")
            if b"\n" in data:
                *lines, rest = b"".join(pieces).split(b"\n")
                pieces, size = [rest], len(rest)
                for line in lines:
                    self._take(line)
            data = await self._channel.receive()
            if not data:
                return

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        for number, item in read_line(line):
            tell, done = self._asked.get(number, (None, None))
            if tell is None or done is None:
                continue
            if done.done():
                continue
            if isinstance(item, Done):
                done.set_result(None)
                continue
            try:
                tell(item)
            except Exception as exc:  # noqa: BLE001 - it is that asker's fault and goes to them; others go on
                done.set_exception(exc)

    def _fail(self, error: Exception) -> None:
        self.is_alive = False
        self._end = error
        waiting = [self._hello, *(done for _tell, done in self._asked.values())]
        for one in waiting:
            if not one.done():
                one.set_exception(error)
                # Whoever gave up waiting has no use for it.
                one.exception()

    def _last_words(self) -> str:
        words = self._channel.errors.decode("utf-8", "replace").strip().splitlines()
        return words[-1][:120] if words else ""
