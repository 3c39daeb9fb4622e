"""Carries operations out: one step after the other, written down before it is begun, told as it goes.

What is intended is saved before it is done, so that after a kill -9 the operation is found again and its current
step is run once more; steps are done by looking, so nothing happens twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from bot.domain.errors import FleetError, StepFailed, StoreError, UpbotError
from bot.domain.facts import Process, Sight
from bot.domain.fleet import Server
from bot.domain.holds import Held, unasked
from bot.domain.leases import Hold
from bot.domain.message import bold, says
from bot.domain.needs import Needs
from bot.domain.operation import InTheWay, Operation, State, StepState, Where, begin, claims, in_the_way, rolls_beside
from bot.domain.plan import (
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Plan,
    Prove,
    PutBack,
    StartServers,
    StopJob,
    TakeOut,
    TakeOver,
)
from bot.ports import Chat, Operations, Place
from bot.runtime.acting import Teller
from bot.runtime.comparing import Comparer
from bot.runtime.ledger import Ledger, Live
from bot.runtime.scribe import Scribe
from bot.runtime.steps import Steps
from bot.runtime.tasks import Tasks
from bot.runtime.telling import Narrator, StepTeller
from bot.text import ends, progress

_log = structlog.get_logger(__name__)

AGAIN = timedelta(seconds=3)
TAKE_LIMIT = timedelta(seconds=15)
"""So long an operation that is taken over has to come to its end by itself."""
TAKE_POLL = timedelta(milliseconds=100)
FORGET = timedelta(minutes=30)
_REMEMBERED = 200


class Executor:
    """Runs operations, each in a task of its own."""

    def __init__(self, steps: Steps, chat: Chat, operations: Operations, tasks: Tasks, scribe: Scribe) -> None:
        self._steps = steps
        self._store = operations
        self._clock = steps.clock
        self._tasks = tasks
        self._scribe = scribe
        self._ledger = Ledger(operations, steps.clock, tasks)
        self._narrator = Narrator(chat, self._ledger, steps.starts, steps.clock, tasks)
        self._comparer = Comparer(steps, self._narrator, self._ledger)
        self._live: dict[str, Live] = {}
        self.when_lost: Callable[[Operation, Sequence[str]], Awaitable[None]] | None = None
        self.holds: Callable[[], Sequence[Hold]] = tuple
        self.take_over: Callable[[Operation, TakeOver, Teller], Awaitable[None]] | None = None

    def live(self) -> tuple[Operation, ...]:
        """The operations at work, as they stand."""
        return tuple(one.op for one in self._live.values() if one.op.is_live)

    def untold(self) -> tuple[Operation, ...]:
        """The operations whose end was not told yet, as they stand; for those who wait to read it."""
        return tuple(one.op for one in self._live.values() if not one.is_end_told)

    def known(self) -> tuple[str, ...]:
        """The ids of the newest operations that were written down, also those that have ended."""
        return tuple(op.id for op in self._store.recent(_REMEMBERED))

    async def begin(
        self, plan: Plan, *, by: str, where: Place, copies: Sequence[Place] = (), question: str | None = None
    ) -> Operation:
        """Write the operation down and start it; over when it has told so.

        InTheWay when another one works on the same things; Held when somebody holds them who was not asked; StoreError
        when it, or the audit, can't be written. From the check to the task nothing is waited for: of two that come at
        once only one begins, and a caller who goes away in between leaves none behind that is written down and never
        run. ``question`` is the code of the question that was pressed.
        """
        claimed = claims(plan, self._steps.fleet())
        if (other := in_the_way(claimed, self.live())) is not None:
            raise InTheWay(*other)
        if (other := rolls_beside(plan, self.live())) is not None:
            raise InTheWay(*other)
        if (hold := unasked(plan, self._steps.fleet(), self.holds())) is not None:
            raise Held(hold)
        pace = self._steps.fleet().limits.progress_every
        op = begin(
            plan,
            id=self._store.next_id(),
            by=by,
            at=self._clock.now(),
            where=Where(where.channel, where.thread),
            pace=pace,
            claims=claimed,
        )
        op = replace(op, copies=tuple(Where(one.channel, one.thread) for one in copies))
        self._scribe.begins(op, question)
        self._store.save(op)
        live = Live(op)
        self._live[op.id] = live
        self._launch(live, self._begun(live))
        await live.has_head.wait()
        return live.op

    async def _begun(self, live: Live) -> None:
        try:
            await self._narrator.head(live)
        finally:
            live.has_head.set()
        await self._run(live)

    def resume(self) -> int:
        """Go on with what was at work when the bot ended; how many that are."""
        self._scribe.catch_up(self._store.recent(20))
        for op in self._store.live():
            live = Live(op)
            self._live[op.id] = live
            self._launch(live, self._come_back(live))
        for op in self._store.recent(20):
            if op.ended_at is not None and self._clock.now() - op.ended_at < FORGET:
                self._tasks.spawn(self._after_the_end(Live(op)), name=f"after {op.id}")
        return len(self._live)

    async def _after_the_end(self, live: Live) -> None:
        """What the bot was killed before: telling the end, and what the change has brought."""
        if not live.op.is_end_told:
            await self._look_around(live)
            await self._tell_end(live)
        await self._comparer.compare(live)

    async def _come_back(self, live: Live) -> None:
        if live.op.where.message is None:  # killed before it was posted, or before it was known where
            await self._narrator.head(live)
        await self._narrator.thread(live, progress.came_back(live.op, self._clock.now()))
        await self._run(live)

    def _launch(self, live: Live, work: Coroutine[Any, Any, None]) -> None:
        live.task = self._tasks.spawn(work, name=f"operation {live.op.id}")
        live.task.add_done_callback(lambda task: self._fell(live, task))

    def _fell(self, live: Live, task: asyncio.Task[None]) -> None:
        """A fault of ours has ended the task, which is logged: say so, and don't be busy for ever."""
        if task.cancelled() or not isinstance(error := task.exception(), Exception):
            return
        self._live.pop(live.op.id, None)
        if live.op.is_live:
            told = StepFailed(f"that is a fault of mine: {type(error).__name__}; it is in my log")
            self._tasks.spawn(self._fail(live, told), name=f"fault in {live.op.id}")

    def cancel(self, target: str | None, channel: str, by: str) -> tuple[Operation, ...]:
        """Ask operations to end: the one of that id, or all in this channel. They report themselves.

        Before anything was touched the operation ends at once. Later the step at work is broken off, except that
        what was launched is still followed and proved.
        """
        ended = []
        for live in list(self._live.values()):
            op = live.op
            if op.state is not State.RUNNING or target not in (None, op.id):
                continue
            if target is None and op.where.channel != channel:
                continue
            self._ledger.note(live, replace(op.to(State.CANCELLING), stopper=by))
            live.cancelled_at = self._clock.now()
            number = op.current
            is_following = number is not None and isinstance(op.plan.steps[number], (StartServers, Prove))
            if live.step is not None and not is_following:
                live.step.cancel()
            ended.append(live.op)
        return tuple(ended)

    def leave(self, target: str | None, channel: str) -> tuple[Operation, ...]:
        """Of what is being cancelled already, end the following too: what was launched is left as it is.

        Not right after the first cancel: two people may say it in the same breath.
        """
        left, now = [], self._clock.now()
        for live in self._live.values():
            is_meant = live.op.id == target or (target is None and live.op.where.channel == channel)
            number = live.op.current
            is_following = number is not None and isinstance(live.op.plan.steps[number], (StartServers, Prove))
            is_following = is_following or live.is_returning
            is_again = live.cancelled_at is None or now - live.cancelled_at >= AGAIN
            if is_meant and is_again and is_following and live.op.state is State.CANCELLING and live.step is not None:
                live.is_left = True
                live.step.cancel()
                left.append(live.op)
        return tuple(left)

    async def take(self, id_: str, by: str) -> Operation | None:
        """End an operation for whoever takes over what it holds; None when it is over already.

        The step at work is broken off, whatever it is, and what was launched is left as it is. One that does not come
        to its end within `TAKE_LIMIT` is given up: it holds nothing more, whatever its step still waits for.
        """
        live = self._live.get(id_)
        if live is None or not live.op.is_live:
            return None
        self.cancel(id_, live.op.where.channel, by)
        live.is_left = True
        if live.step is not None and not live.step.cancelling():
            live.step.cancel()
        until = self._clock.now() + TAKE_LIMIT
        while live.op.is_live and self._clock.now() < until:
            await self._clock.sleep(TAKE_POLL)
        if live.op.is_live:
            self._give_up(live)
        return live.op

    def _give_up(self, live: Live) -> None:
        """It waits for something that does not come: it is over all the same, and no step of it is begun any more."""
        number, now = live.op.current, self._clock.now()
        _log.warning("operation_given_up", operation=live.op.id, step=number)
        op = live.op if number is None else live.op.with_step(number, StepState.SKIPPED)
        self._ledger.note(live, op.to(State.CANCELLED, at=now, outcome="cancelled"))
        self._live.pop(live.op.id, None)
        if live.task is not None:
            live.task.cancel()
        self._scribe.ended(live.op)
        self._tasks.spawn(self._tell_end(live), name=f"end of {live.op.id}")

    def set_pace(self, channel: str, every: timedelta | None) -> tuple[Operation, ...]:
        """Change how often the operations in a channel report."""
        changed = []
        for live in self._live.values():
            if live.op.is_live and live.op.where.channel == channel:
                self._ledger.note(live, replace(live.op, pace=every))
                changed.append(live.op)
        return tuple(changed)

    # The run

    async def _run(self, live: Live) -> None:
        structlog.contextvars.bind_contextvars(operation=live.op.id)
        _log.info("operation_begins", title=live.op.plan.title, by=live.op.by)
        telling = self._tasks.spawn(self._narrator.keep_telling(live), name=f"telling {live.op.id}")
        try:
            await self._steps_in_turn(live)
        except (FleetError, StoreError, KeyError) as error:
            await self._fail(live, error)
        finally:
            telling.cancel()
        live.is_end_told = True
        _log.info("operation_ended", state=live.op.state.value, outcome=live.op.outcome)
        self._scribe.ended(live.op)
        await self._go_back(live)
        await self._comparer.compare(live)
        self._live.pop(live.op.id, None)

    async def _go_back(self, live: Live) -> None:
        """Start what did not start with the last good profile, where the profile says so; once an operation."""
        op = live.op
        gone = [name for name, _ in op.lost if name in op.launched]
        is_wanted = op.plan.goes_back and op.plan.back_to is not None and op.state is not State.CANCELLED
        if is_wanted and gone and self.when_lost is not None:
            await self._narrator.say(live, ends.goes_back(op, gone))
            try:
                await self.when_lost(op, gone)
            except UpbotError as error:
                await self._narrator.say(live, says(bold("Not gone back: "), str(error)))

    async def _steps_in_turn(self, live: Live) -> None:
        for number, step in enumerate(live.op.plan.steps):
            is_behind = live.op.progress[number].state in (StepState.DONE, StepState.SKIPPED)
            if is_behind or isinstance(step, (CompareThroughput, ComparePeers)):
                continue
            is_wanted = live.op.state is State.RUNNING or (
                isinstance(step, Prove) and set(step.servers) & set(live.op.launched) and not live.is_left
            )
            if not is_wanted or (live.op.plan.stops_on_failure and live.op.lost):
                self._ledger.note(live, live.op.with_step(number, StepState.SKIPPED))
                continue
            was_touched = live.op.touched
            self._begin_step(live, number)
            await self._narrator.redraw(live)
            if live.op.state is not State.RUNNING and not isinstance(step, Prove):  # cancelled while that was shown
                op = live.op.with_step(number, StepState.SKIPPED)
                self._ledger.note(live, replace(op, touched=was_touched))
                continue
            if not await self._one_step(live, number):
                continue
            self._ledger.note(live, live.op.with_step(number, StepState.DONE))
            await self._narrator.redraw(live)
        await self._end(live)

    def _begin_step(self, live: Live, number: int) -> None:
        """What ends something, and whatever comes before anything was touched, is begun only when it is written.

        Once something has died the rest goes on all the same: a full disk must not leave neither server. Starts are
        done by looking, so a bot that was killed meanwhile starts nothing twice.
        """
        op = live.op.with_step(number, StepState.RUNNING)
        ends = isinstance(op.plan.steps[number], (StopJob, TakeOut, EndServers, EndForeign))
        if ends or not live.op.touched:
            self._ledger.change(live, op)
        else:
            self._ledger.note(live, op)

    async def _one_step(self, live: Live, number: int) -> bool:
        """Whether the step came to its end; False when it was broken off by a cancel."""
        live.step = asyncio.ensure_future(self._act(live, number))
        try:
            await live.step
        except asyncio.CancelledError:
            if live.op.state is not State.CANCELLING:
                raise
            self._ledger.note(live, live.op.with_step(number, StepState.SKIPPED))
            return False
        finally:
            live.step = None
        return True

    async def _act(self, live: Live, number: int) -> None:
        step, teller = live.op.plan.steps[number], StepTeller(self._narrator, live, number)
        if not isinstance(step, TakeOver):
            await self._steps.act(live.op, number, teller)
        elif self.take_over is not None:
            await self.take_over(live.op, step, teller)

    async def _give_back(self, live: Live) -> None:
        """However it ends: what it took out of a router and still lives goes back in."""
        number = live.op.current
        has_tried = number is not None and isinstance(live.op.plan.steps[number], PutBack)
        if not live.op.out or has_tried or live.is_left:
            return
        live.is_returning = True
        live.step = asyncio.ensure_future(self._steps.give_back(live.op, StepTeller(self._narrator, live, None)))
        try:
            await live.step
        except asyncio.CancelledError:
            if not live.is_left:
                raise
        except (FleetError, StoreError, KeyError) as error:
            _log.warning("not_given_back", error=str(error))
        finally:
            live.step, live.is_returning = None, False

    async def _end(self, live: Live) -> None:
        is_lost = bool(live.op.lost) and (not live.op.survivors or live.op.plan.stops_on_failure)
        if is_lost or live.op.state is State.CANCELLING:
            await self._give_back(live)
        now = self._clock.now()
        if live.op.state is State.CANCELLING:
            await self._look_around(live)
            self._ledger.note(live, live.op.to(State.CANCELLED, at=now, outcome="cancelled"))
            await self._tell_end(live)
            return
        state = State.FAILED if is_lost else State.DONE
        self._ledger.note(live, live.op.to(state, at=now, outcome="failed" if is_lost else "done"))
        await self._tell_end(live)

    async def _tell_end(self, live: Live) -> None:
        await self._narrator.redraw(live)
        op, now = live.op, live.op.ended_at or self._clock.now()
        is_cancelled = op.state is State.CANCELLED
        told = ends.cancelled(op, live.views) if is_cancelled else ends.finished(op, live.proofs, now)
        await self._narrator.say(live, told)
        self._ledger.note(live, replace(op, is_end_told=True))

    async def _fail(self, live: Live, error: Exception) -> None:
        _log.warning("operation_failed", error=str(error))
        await self._give_back(live)
        number, now = live.op.current, self._clock.now()
        why = f"{error.args[0]} is not in the fleet file any more" if isinstance(error, KeyError) else str(error)
        op = live.op if number is None else live.op.with_step(number, StepState.FAILED)
        op = op.to(State.FAILED, at=now, outcome=why)
        self._ledger.note(live, op)
        await self._tell_end(live)

    async def adopt(self, server: str, process: Process) -> None:
        """Put a process that somebody started by hand on record as ours; it goes on as it is."""
        await self._steps.hands.adopt(self._steps.fleet().server(server), process)

    async def look(self, servers: Sequence[Server]) -> Sight:
        """One whole look, with what tells how healthy they are."""
        return await self._steps.look(servers, Needs(load=True, log=True))

    async def _look_around(self, live: Live) -> None:
        fleet = self._steps.fleet()
        sight = await self.look([server for server in fleet.servers if server.name in live.op.plan.servers])
        self._narrator.saw(live, sight.servers)
