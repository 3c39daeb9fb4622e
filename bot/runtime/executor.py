"""Carries operations out: one step after the other, written down before it is begun, told as it goes.

What is intended is saved before it is done, so that after a kill -9 the operation is found again and its current
step is run once more; steps are done by looking, so nothing happens twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from bot.domain.diagnosis import Phase
from bot.domain.errors import ChatError, FleetError, StepFailed, StoreError, UpbotError
from bot.domain.eta import NOTHING_KNOWN, Outlook, outlook, together
from bot.domain.facts import Process, ServerFacts, Sight
from bot.domain.fleet import Server
from bot.domain.guard import rate
from bot.domain.message import Message, bold, line, plain_line, says
from bot.domain.needs import Needs
from bot.domain.operation import InTheWay, Operation, State, StepState, Where, begin, in_the_way
from bot.domain.plan import (
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Plan,
    Prove,
    StartServers,
    StopJob,
)
from bot.domain.readiness import Readiness, judge
from bot.domain.records import StartRecord
from bot.ports import Chat, Operations, Place, Ref
from bot.runtime.scribe import Scribe
from bot.runtime.steps import Steps
from bot.runtime.tasks import Tasks
from bot.text import comparing, ends, progress
from bot.text.operations import Proof, View, comparison

_log = structlog.get_logger(__name__)

REDRAW = timedelta(seconds=3)
AGAIN = timedelta(seconds=3)
SHORTEST = timedelta(milliseconds=50)
MEASURE = timedelta(seconds=10)
FORGET = timedelta(minutes=30)
_REMEMBERED = 200
SAVE_AGAIN = timedelta(seconds=5)
"""So often an operation that could not be written down is tried again."""


@dataclass(slots=True)
class _Live:
    """What is known of an operation beyond what is stored."""

    op: Operation
    views: dict[str, View] = field(default_factory=dict)
    proofs: list[Proof] = field(default_factory=list)
    phases: dict[str, tuple[Phase | None, datetime]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    step: asyncio.Task[None] | None = None
    shown: Message | None = None
    cancelled_at: datetime | None = None
    is_left: bool = False
    is_all_ready_told: bool = False
    is_end_told: bool = False
    is_saving_later: bool = False
    has_head: asyncio.Event = field(default_factory=asyncio.Event)


class Executor:
    """Runs operations, each in a task of its own."""

    def __init__(self, steps: Steps, chat: Chat, operations: Operations, tasks: Tasks, scribe: Scribe) -> None:
        self._steps = steps
        self._chat = chat
        self._store = operations
        self._starts = steps.starts
        self._clock = steps.clock
        self._tasks = tasks
        self._scribe = scribe
        self._live: dict[str, _Live] = {}
        self.when_lost: Callable[[Operation, Sequence[str]], Awaitable[None]] | None = None

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

        InTheWay when another one works on the same things; StoreError when it, or the audit, can't be written. From
        the check to the task nothing is waited for: of two that come at once only one begins, and a caller who goes
        away in between leaves none behind that is written down and never run. ``question`` is the code of the
        question that was pressed.
        """
        if (other := in_the_way(plan, self.live())) is not None:
            raise InTheWay(other)
        pace = self._steps.fleet().limits.progress_every
        op = begin(
            plan,
            id=self._store.next_id(),
            by=by,
            at=self._clock.now(),
            where=Where(where.channel, where.thread),
            pace=pace,
        )
        op = replace(op, copies=tuple(Where(one.channel, one.thread) for one in copies))
        self._scribe.begins(op, question)
        self._store.save(op)
        live = _Live(op)
        self._live[op.id] = live
        self._launch(live, self._begun(live))
        await live.has_head.wait()
        return live.op

    async def _begun(self, live: _Live) -> None:
        try:
            await self._head(live)
        finally:
            live.has_head.set()
        await self._run(live)

    def resume(self) -> int:
        """Go on with what was at work when the bot ended; how many that are."""
        self._scribe.catch_up(self._store.recent(20))
        for op in self._store.live():
            live = _Live(op)
            self._live[op.id] = live
            self._launch(live, self._come_back(live))
        for op in self._store.recent(20):
            if op.ended_at is not None and self._clock.now() - op.ended_at < FORGET:
                self._tasks.spawn(self._after_the_end(_Live(op)), name=f"after {op.id}")
        return len(self._live)

    async def _after_the_end(self, live: _Live) -> None:
        """What the bot was killed before: telling the end, and what the change has brought."""
        if not live.op.is_end_told:
            await self._look_around(live)
            await self._tell_end(live)
        await self._compare(live)

    async def _come_back(self, live: _Live) -> None:
        await self._thread(live, progress.came_back(live.op, self._clock.now()))
        await self._run(live)

    def _launch(self, live: _Live, work: Coroutine[Any, Any, None]) -> None:
        live.task = self._tasks.spawn(work, name=f"operation {live.op.id}")
        live.task.add_done_callback(lambda task: self._fell(live, task))

    def _fell(self, live: _Live, task: asyncio.Task[None]) -> None:
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
            self._note(live, replace(op.to(State.CANCELLING), stopper=by))
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
            is_again = live.cancelled_at is None or now - live.cancelled_at >= AGAIN
            if is_meant and is_again and is_following and live.op.state is State.CANCELLING and live.step is not None:
                live.is_left = True
                live.step.cancel()
                left.append(live.op)
        return tuple(left)

    def set_pace(self, channel: str, every: timedelta | None) -> tuple[Operation, ...]:
        """Change how often the operations in a channel report."""
        changed = []
        for live in self._live.values():
            if live.op.is_live and live.op.where.channel == channel:
                self._note(live, replace(live.op, pace=every))
                changed.append(live.op)
        return tuple(changed)

    async def drop_all(self) -> None:
        """End all tasks without ending the operations: they are resumed at the next start."""
        for live in self._live.values():
            for task in (live.task, live.step):
                if task is not None:
                    task.cancel()

    # The run

    async def _run(self, live: _Live) -> None:
        structlog.contextvars.bind_contextvars(operation=live.op.id)
        _log.info("operation_begins", title=live.op.plan.title, by=live.op.by)
        telling = self._tasks.spawn(self._keep_telling(live), name=f"telling {live.op.id}")
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
        await self._compare(live)
        self._live.pop(live.op.id, None)

    async def _go_back(self, live: _Live) -> None:
        """Start what did not start with the last good profile, where the profile says so; once an operation."""
        op = live.op
        gone = [name for name, _ in op.lost if name in op.launched]
        is_wanted = op.plan.goes_back and op.plan.back_to is not None and op.state is not State.CANCELLED
        if is_wanted and gone and self.when_lost is not None:
            await self._say(live, ends.goes_back(op, gone))
            try:
                await self.when_lost(op, gone)
            except UpbotError as error:
                await self._say(live, says(bold("Not gone back: "), str(error)))

    async def _steps_in_turn(self, live: _Live) -> None:
        for number, step in enumerate(live.op.plan.steps):
            is_behind = live.op.progress[number].state in (StepState.DONE, StepState.SKIPPED)
            if is_behind or isinstance(step, (CompareThroughput, ComparePeers)):
                continue
            is_wanted = live.op.state is State.RUNNING or (
                isinstance(step, Prove) and live.op.launched and not live.is_left
            )
            if not is_wanted or (live.op.plan.stops_on_failure and live.op.lost):
                self._note(live, live.op.with_step(number, StepState.SKIPPED))
                continue
            self._begin_step(live, number)
            await self._redraw(live)
            if not await self._one_step(live, number):
                continue
            self._note(live, live.op.with_step(number, StepState.DONE))
            await self._redraw(live)
        await self._end(live)

    def _begin_step(self, live: _Live, number: int) -> None:
        """What ends something, and whatever comes before anything was touched, is begun only when it is written.

        Once something has died the rest goes on all the same: a full disk must not leave neither server. Starts are
        done by looking, so a bot that was killed meanwhile starts nothing twice.
        """
        op = live.op.with_step(number, StepState.RUNNING)
        ends = isinstance(op.plan.steps[number], (StopJob, EndServers, EndForeign))
        if ends or not live.op.touched:
            self._change(live, op)
        else:
            self._note(live, op)

    async def _one_step(self, live: _Live, number: int) -> bool:
        """Whether the step came to its end; False when it was broken off by a cancel."""
        live.step = asyncio.ensure_future(self._steps.act(live.op, number, _Telling(self, live, number)))
        try:
            await live.step
        except asyncio.CancelledError:
            if live.op.state is not State.CANCELLING:
                raise
            self._note(live, live.op.with_step(number, StepState.SKIPPED))
            return False
        finally:
            live.step = None
        return True

    async def _end(self, live: _Live) -> None:
        now = self._clock.now()
        if live.op.state is State.CANCELLING:
            await self._look_around(live)
            self._note(live, live.op.to(State.CANCELLED, at=now, outcome="cancelled"))
            await self._tell_end(live)
            return
        is_lost = bool(live.op.lost) and (not live.op.survivors or live.op.plan.stops_on_failure)
        state = State.FAILED if is_lost else State.DONE
        self._note(live, live.op.to(state, at=now, outcome="failed" if is_lost else "done"))
        await self._tell_end(live)

    async def _tell_end(self, live: _Live) -> None:
        await self._redraw(live)
        op, now = live.op, live.op.ended_at or self._clock.now()
        is_cancelled = op.state is State.CANCELLED
        told = ends.cancelled(op, live.views) if is_cancelled else ends.finished(op, live.proofs, now)
        await self._say(live, told)
        self._note(live, replace(op, is_end_told=True))

    async def _fail(self, live: _Live, error: Exception) -> None:
        _log.warning("operation_failed", error=str(error))
        number, now = live.op.current, self._clock.now()
        why = f"{error.args[0]} is not in the fleet file any more" if isinstance(error, KeyError) else str(error)
        op = live.op if number is None else live.op.with_step(number, StepState.FAILED)
        op = op.to(State.FAILED, at=now, outcome=why)
        self._note(live, op)
        await self._tell_end(live)

    async def _compare(self, live: _Live) -> None:
        """After its minutes, say what the change has brought; a bot that was away meanwhile says it late."""
        op, step = live.op, comparison(live.op.plan)
        if step is None or op.state is not State.DONE or not op.survivors or op.is_compared:
            return
        await self._clock.sleep((op.ended_at or self._clock.now()) + step.after - self._clock.now())
        names = op.survivors if isinstance(step, CompareThroughput) else (step.server, *step.peers)
        servers = [server for server in self._steps.fleet().servers if server.name in names]
        try:
            total, facts = await self._steps.rates(servers, MEASURE)
        except FleetError as error:
            await self._thread(live, says(f"Nothing can be compared: {error}"))
        else:
            self._keep_speeds(op, facts)
            if isinstance(step, CompareThroughput):
                await self._thread(live, comparing.throughput(op, facts, total))
            else:
                await self._thread(live, comparing.beside_its_peers(op, step, facts))
        self._note(live, replace(live.op, is_compared=True))

    def _keep_speeds(self, op: Operation, facts: Mapping[str, ServerFacts]) -> None:
        """Note beside the starts how fast they decode; what ran before is noted beside its own start."""
        known = [(one.server, one.profile, one.tokens_per_second, one.running) for one in op.plan.before]
        known += [(name, seen.profile, rate(seen), seen.load.running) for name, seen in facts.items()]
        try:
            for server, profile, speed, running in known:
                if profile is not None and speed and running:
                    self._starts.measured(server, profile, speed, speed / running)
        except StoreError as error:
            _log.warning("speed_not_kept", error=str(error))

    async def adopt(self, server: str, process: Process) -> None:
        """Put a process that somebody started by hand on record as ours; it goes on as it is."""
        await self._steps.hands.adopt(self._steps.fleet().server(server), process)

    async def look(self, servers: Sequence[Server]) -> Sight:
        """One whole look, with what tells how healthy they are."""
        return await self._steps.look(servers, Needs(load=True, log=True))

    async def _look_around(self, live: _Live) -> None:
        fleet = self._steps.fleet()
        sight = await self.look([server for server in fleet.servers if server.name in live.op.plan.servers])
        self.saw(live, sight.servers)

    # Telling

    async def _keep_telling(self, live: _Live) -> None:
        """Redraw the head as it changes; a note each so often, in between only what others say at once."""
        usual = live.op.pace or REDRAW
        last = live.op.started_at + usual * ((self._clock.now() - live.op.started_at) // usual)
        while True:
            pace = live.op.pace
            due = last + pace if pace is not None else None
            left = due - self._clock.now() if due is not None else REDRAW
            await self._clock.sleep(max(min(REDRAW, left), SHORTEST))
            now = self._clock.now()
            if live.op.pace is not None and now - last >= live.op.pace:
                last += live.op.pace * ((now - last) // live.op.pace)
                await self._thread(live, progress.note(live.op, live.views, now, self._outlook(live)))
            await self._redraw(live)

    def saw(self, live: _Live, facts: Mapping[str, ServerFacts]) -> None:
        """Keep what was seen for the next redraw; tell at once when the last one is ready."""
        now = self._clock.now()
        for name, seen in facts.items():
            if name in live.op.plan.servers:
                live.views[name] = View(name, judge(seen, now), seen)
        number = live.op.current
        is_starting = number is not None and isinstance(live.op.plan.steps[number], StartServers)
        left = [live.views.get(name) for name in live.op.survivors]
        is_all = all(view is not None and view.verdict.readiness is Readiness.READY for view in left)
        if is_starting and left and is_all and not live.is_all_ready_told and not live.op.plan.stops_on_failure:
            live.is_all_ready_told = True
            self._tasks.spawn(self._thread(live, progress.all_ready(live.op, now)), name="all ready")

    def phase_seen(self, live: _Live, server: str, facts: ServerFacts) -> None:
        """Note since when a server is in its phase."""
        phase = facts.diagnosis.phase if facts.diagnosis is not None else None
        known = live.phases.get(server)
        if known is None or known[0] is not phase:
            live.phases[server] = (phase, self._clock.now())

    def _outlook(self, live: _Live) -> Outlook:
        """How the starts that are under way go on, by the history of each."""
        number = live.op.current
        step = live.op.plan.steps[number] if number is not None else None
        if not isinstance(step, StartServers):
            return NOTHING_KNOWN
        now, starts = self._clock.now(), self._recent_starts()
        known: list[Outlook] = []
        for order in step.orders:
            view = live.views.get(order.server)
            is_over = view and (view.verdict.readiness is Readiness.READY or _has_crashed(view))
            if order.server not in live.op.survivors or is_over:
                continue
            phase, since = live.phases.get(order.server, (None, now))
            known.append(outlook(starts, order.server, order.profile, phase, now - since))
        return together(known)

    def _recent_starts(self) -> Sequence[StartRecord]:
        """What is remembered of starts; nothing where it can't be read, since then less is told and no more."""
        try:
            return self._starts.recent(200)
        except StoreError as error:
            _log.warning("starts_not_read", error=str(error))
            return ()

    def tell_at_once(self, live: _Live, message: Message) -> None:
        """Say something in the thread that can't wait."""
        self._tasks.spawn(self._thread(live, message), name=f"telling at once {live.op.id}")

    async def _head(self, live: _Live) -> None:
        message = progress.head(live.op, live.views, self._clock.now(), NOTHING_KNOWN)
        ref = await self._post(Place(live.op.where.channel, live.op.where.thread), message)
        if ref is not None:
            live.shown = message
            self._note(live, replace(live.op, where=replace(live.op.where, message=ref.id)))
        await self._copy(live, message)

    async def _redraw(self, live: _Live) -> None:
        where = live.op.where
        message = progress.head(live.op, live.views, self._clock.now(), self._outlook(live))
        if where.message is None or message == live.shown:
            return
        live.shown = message
        try:
            await self._chat.edit(Ref(where.channel, where.message, where.thread), message)
        except ChatError as error:
            _log.warning("progress_not_shown", error=str(error))

    async def _thread(self, live: _Live, message: Message) -> None:
        where = live.op.where
        await self._post(Place(where.channel, where.thread or where.message), message)
        await self._copy(live, message)

    async def _say(self, live: _Live, message: Message) -> None:
        await self._post(Place(live.op.where.channel, live.op.where.thread), message)
        await self._copy(live, message)

    async def _copy(self, live: _Live, message: Message) -> None:
        for where in live.op.copies:
            await self._post(Place(where.channel, where.thread), message)

    async def _post(self, place: Place, message: Message) -> Ref | None:
        try:
            return await self._chat.post(place, message)
        except UpbotError as error:
            _log.warning("not_told", error=str(error), headline=plain_line(message.headline))
            return None

    def _change(self, live: _Live, op: Operation) -> None:
        """Save first: what can't be written is not begun."""
        self._store.save(op)
        live.op = op

    def _note(self, live: _Live, op: Operation) -> None:
        """What is only told, or ends something of ours, goes on when it can't be written, and is written later."""
        live.op = op
        try:
            self._store.save(op)
        except StoreError as error:
            _log.warning("operation_not_saved", operation=op.id, error=str(error))
            if not live.is_saving_later:
                live.is_saving_later = True
                self._tasks.spawn(self._save_later(live), name=f"save {op.id} later")

    async def _save_later(self, live: _Live) -> None:
        """Until it is written: an end that was told must not be begun again by the next start of the bot."""
        while live.is_saving_later:
            await self._clock.sleep(SAVE_AGAIN)
            with contextlib.suppress(StoreError):
                self._store.save(live.op)
                live.is_saving_later = False

    def change(self, live: _Live, op: Operation) -> None:
        """A change that a step's teller makes: saved as well as can be, and worth a redraw at the next turn."""
        self._note(live, op)


def _has_crashed(view: View) -> bool:
    return view.diagnosis is not None and view.diagnosis.is_crashed


@dataclass(frozen=True, slots=True)
class _Telling:
    """One step's teller."""

    executor: Executor
    live: _Live
    number: int

    def note(self, text_: str) -> None:
        if self.live.op.progress[self.number].note != text_:
            state = self.live.op.progress[self.number].state
            self.executor.change(self.live, self.live.op.with_step(self.number, state, text_))

    def saw(self, facts: Mapping[str, ServerFacts]) -> None:
        self.executor.saw(self.live, facts)

    def lost(self, server: str, why: str) -> None:
        self.executor.change(self.live, self.live.op.without(server, why))

    def crashed(self, server: str, why: str, facts: ServerFacts) -> None:
        self.executor.tell_at_once(self.live, progress.crashed(self.live.op, server, why, facts))

    def said(self, text_: str) -> None:
        self.executor.tell_at_once(self.live, Message(line(text_)))

    def launched(self, server: str) -> None:
        op = self.live.op
        self.executor.change(self.live, replace(op, launched=(*op.launched, server)))

    def proved(self, proof: Proof) -> None:
        self.live.proofs.append(proof)

    def phase_seen(self, server: str, facts: ServerFacts) -> None:
        self.executor.phase_seen(self.live, server, facts)
