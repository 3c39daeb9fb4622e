"""Runs commands on this machine; the other transports stand on it when nothing is outside of them.

No shell and no wrapper is between: a child gets a session of its own, so that all of it can be ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

from bot.domain.errors import FleetError, HopError, TimedOut
from bot.ports import Channel, Completed
from bot.transports._argv import encoded, named
from bot.transports._talk import GRACE, Capture, Listener, Talk

LABEL = "this machine"
# The bot's own keys are none of its children's business.
_PRIVATE = ("SLACK_",)


class _Child(asyncio.SubprocessProtocol):
    """Carries one child process: its pipes to a listener, and its end."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.SubprocessTransport | None = None
        self.done = asyncio.Event()
        self.pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of asyncio's, it only has the same methods
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)  # noqa: S101 - the pipes are opened as bytes
        (self._listener.out if fd == 1 else self._listener.err)(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1:
            self._listener.eof()

    def process_exited(self) -> None:
        status = self._transport.get_returncode() if self._transport else None
        if status is not None:
            self._listener.exited(status if status >= 0 else 128 - status)
        self.done.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._listener.gone()

    def pause_writing(self) -> None:
        self._listener.blocked(is_blocked=True)

    def resume_writing(self) -> None:
        self._listener.blocked(is_blocked=False)

    def write(self, data: bytes) -> None:
        pipe = cast("asyncio.WriteTransport | None", self._pipe(0))
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def write_eof(self) -> None:
        pipe = cast("asyncio.WriteTransport | None", self._pipe(0))
        if pipe is not None and not pipe.is_closing():
            pipe.write_eof()

    def pause(self) -> None:
        pipe = cast("asyncio.ReadTransport | None", self._pipe(1))
        if pipe is not None and not pipe.is_closing():
            pipe.pause_reading()

    def resume(self) -> None:
        pipe = cast("asyncio.ReadTransport | None", self._pipe(1))
        if pipe is not None and not pipe.is_closing():
            pipe.resume_reading()

    async def end(self) -> None:
        """End whatever of it is still there, politely first, and let go of its pipes."""
        if not self.done.is_set():
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self.done.wait()
            # Its children may have outlived it, or it may have ignored the first signal.
            self._signal(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self.done.wait()
        if self._transport is not None:
            self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        # sudo's child may be another user's: its own time limit ends it then.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport else None


class Local:
    """This machine as a transport."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._open: set[LocalChannel] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        capture = Capture()
        try:
            child = await self._start(argv, capture)
        except OSError as exc:
            return _not_started(argv, exc)
        child.write(stdin)
        child.write_eof()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                status = await capture.end()
        except TimeoutError:
            raise TimedOut(f"{named(argv)} did not end within {timeout.total_seconds():g} s on {LABEL}") from None
        finally:
            await self._end(child)
        if status is None:
            raise HopError(LABEL, f"lost {named(argv)}: nobody knows how it ended")
        return Completed(status, bytes(capture.stdout), bytes(capture.stderr))

    async def open(self, argv: Sequence[str]) -> Channel:
        talk = Talk(LABEL)
        try:
            child = await self._start(argv, talk)
        except OSError as exc:
            ended = _not_started(argv, exc)
            talk.err(ended.stderr)
            talk.exited(ended.status)
            talk.gone()
            return LocalChannel(talk, None, self._open)
        talk.carry(child)
        return LocalChannel(talk, child, self._open)

    async def close(self) -> None:
        for channel in tuple(self._open):
            await channel.close()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _start(self, argv: Sequence[str], listener: Listener) -> _Child:
        # A task of its own: asyncio, cancelled while it starts a process, kills that process alone, leaves what the
        # process has started by then, and may wait for ever.
        starting = asyncio.create_task(self._spawn(encoded(argv), listener))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._behind(_end_late(starting))
            raise

    async def _spawn(self, parts: Sequence[bytes], listener: Listener) -> _Child:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(listener), *parts, start_new_session=True, env=self._child_environment()
        )
        return child

    def _child_environment(self) -> dict[str, str]:
        own = os.environ if self._environment is None else self._environment
        return {key: value for key, value in own.items() if not key.startswith(_PRIVATE)}

    async def _end(self, child: _Child) -> None:
        # A task of its own: whoever gave up waiting must not leave the child half ended.
        await asyncio.shield(self._behind(child.end()))

    def _behind(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


async def _end_late(starting: asyncio.Task[_Child]) -> None:
    try:
        child = await starting
    except OSError:
        return
    await child.end()


class LocalChannel:
    """A child process that is talked to."""

    def __init__(self, talk: Talk, child: _Child | None, registry: set[LocalChannel]) -> None:
        self._talk = talk
        self._child = child
        self._registry = registry
        self.ended_by_itself = child is None
        registry.add(self)

    async def send(self, data: bytes) -> None:
        await self._talk.send(data)

    async def receive(self) -> bytes:
        return await self._talk.receive()

    async def close(self) -> None:
        self._registry.discard(self)
        if self._child is None:
            return
        child, self._child = self._child, None
        try:
            self.ended_by_itself = await self._talk.ends(within=GRACE)
        finally:
            await asyncio.shield(asyncio.create_task(child.end()))

    @property
    def errors(self) -> bytes:
        return self._talk.errors


def _not_started(argv: Sequence[str], exc: OSError) -> Completed:
    """As a shell has it: 127 for what is not there, 126 for what can't be run."""
    if isinstance(exc, FileNotFoundError):
        return Completed(127, stderr=f"{named(argv)}: not found".encode())
    if isinstance(exc, PermissionError | NotADirectoryError) or exc.errno in _NO_PROGRAM:
        return Completed(126, stderr=f"{named(argv)}: {exc.strerror}".encode())
    raise FleetError(f"{LABEL} can't start {named(argv)}: {exc.strerror}") from exc


_NO_PROGRAM = (8, 13, 21)  # ENOEXEC, EACCES, EISDIR
