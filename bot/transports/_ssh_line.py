"""One warm ssh connection and the commands that run over it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

import asyncssh

from bot.transports._talk import GRACE, Listener

# sshd's MaxSessions is 10 by default. Two stay free: for ending what is left, and for sessions whose end sshd
# has not noticed yet.
SESSIONS = 8
SPARES = 2
TALKS = 6


class LineDead(Exception):
    """The connection is gone; nothing that was asked for has been started."""


class LineFull(Exception):
    """The far side gives no (further) session; the text says why."""


class Place:
    """A place for a session on a line; it becomes free once, whoever says so first."""

    def __init__(self) -> None:
        self._after: list[Callable[[], None]] = []

    def and_then(self, act: Callable[[], None]) -> None:
        """What happens when it becomes free."""
        self._after.append(act)

    def free(self) -> None:
        """The session is over, or never began."""
        after, self._after = self._after, []
        for act in after:
            act()


class Session(asyncssh.SSHClientSession[bytes]):
    """Carries one command of a line: its pipes to a listener, and its end."""

    def __init__(self, listener: Listener, place: Place) -> None:
        self._listener = listener
        self._place = place
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._is_eof = False
        self._is_over = asyncio.Event()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        (self._listener.err if datatype else self._listener.out)(data)

    def eof_received(self) -> bool:
        self._listener.eof()
        return True

    def exit_status_received(self, status: int) -> None:
        self._listener.exited(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:  # noqa: ARG002 - asyncssh's signature
        self._listener.exited(_status_of(signal))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's signature
        self._is_over.set()
        self._listener.gone()
        self._place.free()

    def pause_writing(self) -> None:
        self._listener.blocked(is_blocked=True)

    def resume_writing(self) -> None:
        self._listener.blocked(is_blocked=False)

    def write(self, data: bytes) -> None:
        if self._channel is not None and not self._channel.is_closing():
            with suppress(OSError):
                self._channel.write(data)

    def write_eof(self) -> None:
        if self._channel is not None and not self._channel.is_closing() and not self._is_eof:
            self._is_eof = True
            with suppress(OSError):
                self._channel.write_eof()

    def pause(self) -> None:
        if self._channel is not None:
            self._channel.pause_reading()

    def resume(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()

    def close(self) -> None:
        """Close without waiting; the session's place is free once the far side has closed too."""
        if self._channel is not None and not self._is_over.is_set():
            # A channel that is not being read never sees the other side's close.
            self._channel.resume_reading()
            self._channel.close()

    async def closed(self) -> None:
        """Close, and wait a little for the far side to do so."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._is_over.wait()


class Line:
    """A connection that stands, and its places for sessions."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection
        self._places = asyncio.Semaphore(SESSIONS)
        self._spares = asyncio.Semaphore(SPARES)
        self._used = 0
        self._talks = 0
        self._late: set[asyncio.Task[Session]] = set()

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """For what goes through it to other hosts."""
        return self._connection

    @property
    def is_dead(self) -> bool:
        return self._connection.is_closed()

    async def begin(self, text: str, listener: Listener) -> Session:
        """Start a command when there is a place for it; LineDead or LineFull when it was not started."""
        while True:
            place = await self._place()
            try:
                return await self._start(text, listener, place)
            except LineFull:
                if self._used <= 1:
                    place.free()
                    raise
                # The far side allows fewer sessions than we thought: this place is gone for good, wait for another.
                self._used -= 1
            except LineDead:
                place.free()
                raise

    async def begin_talk(self, text: str, listener: Listener) -> Session:
        """Start a command that stays; some places are always left for those that don't."""
        if self._talks >= TALKS:
            raise LineFull(f"all {TALKS} places for lasting channels are taken")
        self._talks += 1
        place: Place | None = None
        try:
            place = await self._place()
            place.and_then(self._free_talk)
            return await self._start(text, listener, place)
        except (LineDead, LineFull):
            if place is not None:
                place.free()
            raise
        except asyncio.CancelledError:
            if place is None:
                self._free_talk()
            raise

    async def begin_spare(self, text: str, listener: Listener) -> Session:
        """Start a short command outside of the counted places: for ending what is left of another."""
        await self._spares.acquire()
        place = Place()
        place.and_then(self._spares.release)
        try:
            return await self._start(text, listener, place)
        except (LineDead, LineFull):
            place.free()
            raise

    async def close(self) -> None:
        """Close at once; commands that run over it see it as lost."""
        self._connection.abort()
        with suppress(OSError, asyncssh.Error):
            await self._connection.wait_closed()
        if self._late:
            await asyncio.wait(self._late)

    async def _start(self, text: str, listener: Listener, place: Place) -> Session:
        # A task of its own: when the caller gives up while sshd is still opening the session, the session is closed
        # as soon as it stands, instead of taking a place on the far side for ever.
        task = asyncio.create_task(self._open(text, listener, place))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._late.add(task)
            task.add_done_callback(lambda done: self._forsake(done, place))
            raise

    async def _open(self, text: str, listener: Listener, place: Place) -> Session:
        try:
            _, session = await self._connection.create_session(
                lambda: Session(listener, place),
                text.encode("utf-8", "surrogateescape"),  # type: ignore[arg-type]
            )
        except asyncssh.ChannelOpenError as exc:
            if self.is_dead or "connection closed" in exc.reason.lower():
                raise LineDead from exc
            raise LineFull(exc.reason) from exc
        except (asyncssh.Error, OSError) as exc:
            raise LineDead from exc
        assert isinstance(session, Session)  # noqa: S101 - what the factory makes
        return session

    def _forsake(self, task: asyncio.Task[Session], place: Place) -> None:
        self._late.discard(task)
        if task.cancelled() or task.exception() is not None:
            place.free()
        else:
            task.result().close()

    async def _place(self) -> Place:
        await self._places.acquire()
        self._used += 1
        place = Place()
        place.and_then(self._free)
        return place

    def _free(self) -> None:
        self._used -= 1
        self._places.release()

    def _free_talk(self) -> None:
        self._talks -= 1


def _status_of(name: str) -> int:
    """As a shell has it: 128 and the signal's number; for a signal that is unknown here, 128."""
    number = signal.Signals.__members__.get(f"SIG{name}")
    return 128 + (int(number) if number is not None else 0)
