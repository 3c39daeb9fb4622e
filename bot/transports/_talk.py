"""The near ends of a running command's pipes: one that captures everything, one that is talked to.

Both are told what happens (``Listener``) by whatever carries the command, a process here or an ssh session,
and tell the carrier what to do (``Carrier``). Nothing here knows which it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from bot.domain.errors import HopError

OUTPUT_LIMIT = 8 * 1024 * 1024
ERROR_LIMIT = 256 * 1024
ERROR_TAIL = 16 * 1024
UNREAD_LIMIT = 1024 * 1024
# A command that has ended while something it left behind still holds its pipes is not waited for longer than this.
LINGER = 0.3
# How long a channel's command has to end by itself once its stdin is closed.
GRACE = 1.0


class Carrier(Protocol):
    """What a running command's pipes hang on."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Listener(Protocol):
    """Who is told what a running command does; every call returns at once."""

    def out(self, data: bytes) -> None: ...
    def err(self, data: bytes) -> None: ...
    def eof(self) -> None:
        """Its stdout has come to its end."""
        ...

    def exited(self, status: int) -> None: ...
    def gone(self) -> None:
        """Nothing more will come; without a status before it the line was lost."""
        ...

    def blocked(self, *, is_blocked: bool) -> None:
        """Its stdin takes no more for now, or takes again."""
        ...


class Capture:
    """Keeps the start of what a command writes, and how it ends."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.status: int | None = None
        self._spoke = asyncio.Event()
        self._gone = asyncio.Event()
        self._exited = asyncio.Event()

    def out(self, data: bytes) -> None:
        self._spoke.set()
        self.stdout += data[: max(0, OUTPUT_LIMIT - len(self.stdout))]

    def err(self, data: bytes) -> None:
        self.stderr += data[: max(0, ERROR_LIMIT - len(self.stderr))]

    def eof(self) -> None:
        """Its end is what counts."""

    def exited(self, status: int) -> None:
        self.status = status
        self._exited.set()

    def gone(self) -> None:
        self._spoke.set()
        self._gone.set()
        self._exited.set()

    def blocked(self, *, is_blocked: bool) -> None:
        """The whole input is in memory already."""

    async def speaks(self, within: float) -> None:
        """Wait for the first of its output, or its end, for at most that many seconds."""
        await _within(within, self._spoke)

    async def end(self) -> int | None:
        """Wait for the status; None when the line was lost before there was one."""
        await self._exited.wait()
        await _within(LINGER, self._gone)
        return self.status


class Talk:
    """A channel's near end: what was not read yet, bounded by pausing the other side; the last of its stderr."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.status: int | None = None
        self._carrier: Carrier | None = None
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._errors = bytearray()
        self._is_eof = False
        self._is_paused = False
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._over = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def carry(self, carrier: Carrier) -> None:
        """Say what the pipes hang on; once, before anything is sent."""
        self._carrier = carrier

    def out(self, data: bytes) -> None:
        self._unread.append(data)
        self._size += len(data)
        self._news.set()
        if self._carrier is not None and self._size > UNREAD_LIMIT and not self._is_paused:
            self._is_paused = True
            self._carrier.pause()

    def err(self, data: bytes) -> None:
        self._errors += data
        del self._errors[:-ERROR_TAIL]

    def eof(self) -> None:
        self._is_eof = True
        self._news.set()

    def exited(self, status: int) -> None:
        self.status = status
        self._ended.set()
        self._writable.set()

    def gone(self) -> None:
        self._over.set()
        self._ended.set()
        self._writable.set()
        self.eof()

    def blocked(self, *, is_blocked: bool) -> None:
        if is_blocked and not self._ended.is_set():
            self._writable.clear()
        else:
            self._writable.set()

    @property
    def errors(self) -> bytes:
        """The last that it wrote to stderr."""
        return bytes(self._errors)

    async def send(self, data: bytes) -> None:
        """Write to the command; HopError when it has ended or the line is lost."""
        await self._writable.wait()
        if self._carrier is None or self._ended.is_set():
            raise HopError(self.label, "has ended the command that was talked to")
        self._carrier.write(data)

    async def receive(self) -> bytes:
        """What has come since the last time, waiting for at least one byte; b"" at the end."""
        while not self._unread and not self._is_eof:
            self._news.clear()
            await self._news.wait()
        data = b"".join(self._unread)
        self._unread.clear()
        self._size = 0
        if self._is_paused and self._carrier is not None:
            self._is_paused = False
            self._carrier.resume()
        return data

    async def ends(self, within: float) -> bool:
        """Close its stdin; whether it ended by itself in that many seconds."""
        if self._carrier is not None and not self._ended.is_set():
            self._carrier.write_eof()
            # What it still writes must not keep it from ending.
            if self._is_paused:
                self._is_paused = False
                self._carrier.resume()
        has_ended = await _within(within, self._ended)
        if has_ended:
            # The last of its stderr may be on its way still.
            await _within(LINGER, self._over)
        return has_ended


async def _within(seconds: float, event: asyncio.Event) -> bool:
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
