"""A host behind ssh as a transport: one warm connection, made when it is first needed and again when it was lost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from weakref import WeakKeyDictionary

import asyncssh

from bot.domain.errors import FleetError, HopError, TimedOut
from bot.ports import Channel, Completed
from bot.transports._argv import encoded, named, quoted
from bot.transports._guard import ENDING, Call, Guard, GuardedChannel, sweep
from bot.transports._ssh_line import Line, LineDead, LineFull, Session
from bot.transports._ssh_options import Files, SshSettings, Target, target
from bot.transports._ssh_words import Address, Known, of_exception, timed_out
from bot.transports._talk import GRACE, Capture, Listener, Talk
from bot.transports._wrapping import OPENING, SWEEPING, Way, last_line, reach

_CONNECTS = 64
# sshd begins to drop connections at ten that have not logged in (MaxStartups); others may be trying, too.
_CONNECTS_A_HOST = 4
# Pauses, in seconds, between the attempts to get a session for ending what is left.
_AGAIN = (0.05, 0.1, 0.2, 0.4, 0.8)


class Gate:
    """How many connects go on at once: over all, and to one address. Kept for each event loop."""

    def __init__(self) -> None:
        self._all: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._each: WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[tuple[str, int], asyncio.Semaphore]] = (
            WeakKeyDictionary()
        )

    async def enter(self, address: Address, stack: AsyncExitStack) -> None:
        """Wait for a turn, which lasts as long as the stack."""
        loop = asyncio.get_running_loop()
        each = self._each.setdefault(loop, defaultdict(lambda: asyncio.Semaphore(_CONNECTS_A_HOST)))
        await stack.enter_async_context(each[address.host, address.port])
        await stack.enter_async_context(self._all.setdefault(loop, asyncio.Semaphore(_CONNECTS)))


class Ssh:
    """One host behind ssh, from this machine."""

    def __init__(self, settings: SshSettings, files: Files, gate: Gate) -> None:
        self._settings = settings
        self._files = files
        self._gate = gate
        self._guard = Guard()
        self._line: Line | None = None
        self._connecting: asyncio.Task[Line] | None = None
        self._jumps: list[Ssh] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._way = Way(settings.label, "sh", list, {}, verb="runs no commands for this login")

    @property
    def label(self) -> str:
        """How a person names it."""
        return self._settings.label

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        encoded(argv)
        call, capture = self._guard.call(timeout), Capture()
        beginning = asyncio.create_task(self._begin(call.text(argv), capture, timeout))
        try:
            session = await asyncio.shield(beginning)
            started = asyncio.get_running_loop().time()
            session.write(stdin)
            session.write_eof()
            async with asyncio.timeout((timeout + ENDING).total_seconds()):
                status = await capture.end()
        except TimeoutError:
            self._abandon(beginning, call, capture)
            raise self._too_late(argv, call, capture) from None
        except asyncio.CancelledError:
            self._abandon(beginning, call, capture)
            raise
        session.close()
        return await self._result(argv, call, capture, status, asyncio.get_running_loop().time() - started)

    async def open(self, argv: Sequence[str]) -> Channel:
        encoded(argv)
        call, talk = self._guard.call(None), Talk(self.label)
        session = await self._begin(call.text(argv), talk, OPENING, is_talk=True)
        talk.carry(session)
        return await reach(GuardedChannel(SshChannel(talk, session), call, self._sweep), self._way)

    async def close(self) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        line, self._line = self._line, None
        if line is not None:
            await line.close()
        await self._leave_jumps()

    async def line(self) -> Line:
        """The connection, made by the first who needs it while the others wait; HopError when it can't be made."""
        if self._line is not None and not self._line.is_dead:
            return self._line
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: asyncio.Task[Line]) -> None:
        self._connecting = None
        # Asking for the exception marks it as seen: all who waited may have given up.
        if not task.cancelled() and task.exception() is None:
            self._line = task.result()

    async def _connect(self) -> Line:
        address = Address(self.label, self._settings.host, self._settings.port or 22)
        aim: Target | None = None
        await self._leave_jumps()
        try:
            aim = target(self._settings, self._files)
            address = aim.address
            async with AsyncExitStack() as stack:
                through = await self._through(aim.jumps)
                await self._gate.enter(address, stack)
                return Line(await asyncssh.connect(**aim.options, tunnel=through.connection if through else None))
        except HopError:
            raise
        except (OSError, asyncssh.Error, ValueError) as exc:
            known = aim.known if aim is not None else Known.NOT
            raise of_exception(address, exc, self._settings.span, known) from exc

    async def _through(self, jumps: Sequence[str]) -> Line | None:
        """The line of the last jump host; each is reached through the ones before it."""
        if not jumps:
            return None
        before = ",".join(jumps[:-1]) or "none"
        settings = self._settings.through(jumps[-1]).model_copy(update={"jump": before})
        self._jumps.append(Ssh(settings, self._files, self._gate))
        return await self._jumps[-1].line()

    async def _leave_jumps(self) -> None:
        jumps, self._jumps = self._jumps, []
        for jump in jumps:
            await jump.close()

    async def _begin(self, text: str, listener: Listener, limit: timedelta, *, is_talk: bool = False) -> Session:
        # A connection that died unnoticed is found out by using it; nothing was started, so one more try is safe.
        for _ in range(2):
            line = await self.line()
            try:
                async with asyncio.timeout((limit + ENDING).total_seconds()):
                    return await (line.begin_talk if is_talk else line.begin)(text, listener)
            except LineDead:
                self._line = None
            except LineFull as exc:
                raise HopError(self.label, f"gives no further session: {last_line(str(exc))}") from exc
            except TimeoutError:
                raise timed_out(Address(self.label, self._settings.host), limit) from None
        raise HopError(self.label, "closed the connection twice as a command was to start")

    async def _result(
        self, argv: Sequence[str], call: Call, capture: Capture, status: int | None, took: float
    ) -> Completed:
        reached = call.reached(bytes(capture.stdout))
        if status is None:
            raise HopError(self.label, f"lost the connection while {named(argv)} ran")
        if reached is None:
            raise self._way.explain(status, bytes(capture.stdout + b"\n" + capture.stderr))
        if call.is_over(status, took):
            await self._sweep(reached.pid)
            raise self._over(argv, call)
        return Completed(status, reached.stdout, call.errors(bytes(capture.stderr)))

    def _too_late(self, argv: Sequence[str], call: Call, capture: Capture) -> FleetError:
        """The answer did not come: the command's fault when it was reached, else the hop's."""
        if call.reached(bytes(capture.stdout)):
            return self._over(argv, call)
        return timed_out(Address(self.label, self._settings.host), call.limit or OPENING)

    def _over(self, argv: Sequence[str], call: Call) -> TimedOut:
        limit = (call.limit or OPENING).total_seconds()
        return TimedOut(f"{named(argv)} did not end within {limit:g} s on {self.label}")

    def _abandon(self, beginning: asyncio.Task[Session], call: Call, capture: Capture) -> None:
        """Nobody waits any more: end the command on the far side and let go of the session, behind the scenes."""

        async def let_go() -> None:
            try:
                session = await beginning
            except FleetError:
                return
            try:
                # It may be about to start.
                await capture.speaks(within=GRACE)
                if reached := call.reached(bytes(capture.stdout)):
                    await self._sweep(reached.pid)
            finally:
                await session.closed()

        task = asyncio.create_task(let_go())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self, pid: int) -> None:
        """End what is left of a command, over the connection that carried it or not at all: numbers are used again."""
        if self._line is None or self._line.is_dead:
            return
        with suppress(LineDead, TimeoutError):
            async with asyncio.timeout(SWEEPING.total_seconds()):
                # The far side may not have noticed yet that another session is over.
                for pause in _AGAIN:
                    if await self._swept(self._line, pid):
                        return
                    await asyncio.sleep(pause)

    async def _swept(self, line: Line, pid: int) -> bool:
        capture = Capture()
        try:
            session = await line.begin_spare(quoted(sweep(pid)), capture)
        except LineFull:
            return False
        session.write_eof()
        await capture.end()
        return True


class SshChannel:
    """A command on the host that is talked to."""

    def __init__(self, talk: Talk, session: Session) -> None:
        self._talk = talk
        self._session = session
        self.ended_by_itself = False

    async def send(self, data: bytes) -> None:
        await self._talk.send(data)

    async def receive(self) -> bytes:
        return await self._talk.receive()

    async def close(self) -> None:
        try:
            self.ended_by_itself = await self._talk.ends(within=GRACE)
        finally:
            await self._session.closed()

    @property
    def errors(self) -> bytes:
        return self._talk.errors
