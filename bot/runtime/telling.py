"""Tells how an operation goes: the message that is kept current, the notes in its thread, what can't wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from bot.domain.errors import ChatError, StoreError, UpbotError
from bot.domain.eta import NOTHING_KNOWN, Outlook, outlook, together
from bot.domain.facts import ServerFacts
from bot.domain.kernel_caches import NOT_SEEN, CacheState
from bot.domain.message import Message, line, plain_line
from bot.domain.plan import StartServers
from bot.domain.readiness import Readiness, judge
from bot.domain.records import StartRecord
from bot.domain.routing import Taken
from bot.ports import Chat, Clock, Place, Ref, Starts
from bot.runtime.ledger import Ledger, Live
from bot.runtime.tasks import Tasks
from bot.text import progress
from bot.text.operations import Proof, View

_log = structlog.get_logger(__name__)

REDRAW = timedelta(seconds=3)
SHORTEST = timedelta(milliseconds=50)


class Narrator:
    """Says what operations do, where they were asked for and to whoever reads along."""

    def __init__(self, chat: Chat, ledger: Ledger, starts: Starts, clock: Clock, tasks: Tasks) -> None:
        self._chat = chat
        self.ledger = ledger
        self._starts = starts
        self._clock = clock
        self._tasks = tasks

    async def keep_telling(self, live: Live) -> None:
        """Redraw the head as it changes; a note each so often, in between only what others say at once."""
        usual = live.op.pace or REDRAW
        last = live.op.started_at + usual * ((self._clock.now() - live.op.started_at) // usual)
        while live.op.is_live:
            pace = live.op.pace
            due = last + pace if pace is not None else None
            left = due - self._clock.now() if due is not None else REDRAW
            await self._clock.sleep(max(min(REDRAW, left), SHORTEST))
            now = self._clock.now()
            if live.op.pace is not None and now - last >= live.op.pace:
                last += live.op.pace * ((now - last) // live.op.pace)
                await self.thread(live, progress.note(live.op, live.views, now, self._outlook(live)))
            await self.redraw(live)

    def saw(self, live: Live, facts: Mapping[str, ServerFacts]) -> None:
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
            self._tasks.spawn(self.thread(live, progress.all_ready(live.op, now)), name="all ready")

    def phase_seen(self, live: Live, server: str, facts: ServerFacts) -> None:
        """Note since when a server is in its phase."""
        phase = facts.diagnosis.phase if facts.diagnosis is not None else None
        known = live.phases.get(server)
        if known is None or known[0] is not phase:
            live.phases[server] = (phase, self._clock.now())

    def _outlook(self, live: Live) -> Outlook:
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
            caches = live.caches.get(order.server, NOT_SEEN)
            known.append(outlook(starts, order.server, order.profile, phase, now - since, caches=caches))
        return together(known)

    def _recent_starts(self) -> Sequence[StartRecord]:
        """What is remembered of starts; nothing where it can't be read, since then less is told and no more."""
        try:
            return self._starts.recent(200)
        except StoreError as error:
            _log.warning("starts_not_read", error=str(error))
            return ()

    def tell_at_once(self, live: Live, message: Message) -> None:
        """Say something in the thread that can't wait."""
        self._tasks.spawn(self.thread(live, message), name=f"telling at once {live.op.id}")

    async def head(self, live: Live) -> None:
        """Post the message that is kept current."""
        message = progress.head(live.op, live.views, self._clock.now(), NOTHING_KNOWN)
        ref = await self._post(Place(live.op.where.channel, live.op.where.thread), message)
        if ref is not None:
            live.shown = message
            self.ledger.note(live, replace(live.op, where=replace(live.op.where, message=ref.id)))
        await self._copy(live, message)

    async def redraw(self, live: Live) -> None:
        """Bring the head up to date, if it shows anything else."""
        where = live.op.where
        message = progress.head(live.op, live.views, self._clock.now(), self._outlook(live))
        if where.message is None or message == live.shown:
            return
        live.shown = message
        try:
            await self._chat.edit(Ref(where.channel, where.message, where.thread), message)
        except ChatError as error:
            _log.warning("progress_not_shown", error=str(error))

    async def thread(self, live: Live, message: Message) -> None:
        """Say it in the thread of the operation."""
        where = live.op.where
        await self._post(Place(where.channel, where.thread or where.message), message)
        await self._copy(live, message)

    async def say(self, live: Live, message: Message) -> None:
        """Say it as a new message where the operation was asked for."""
        await self._post(Place(live.op.where.channel, live.op.where.thread), message)
        await self._copy(live, message)

    async def _copy(self, live: Live, message: Message) -> None:
        for where in live.op.copies:
            await self._post(Place(where.channel, where.thread), message)

    async def _post(self, place: Place, message: Message) -> Ref | None:
        try:
            return await self._chat.post(place, message)
        except UpbotError as error:
            _log.warning("not_told", error=str(error), headline=plain_line(message.headline))
            return None


@dataclass(frozen=True, slots=True)
class StepTeller:
    """What one step says of itself while it acts (the port of `bot.runtime.steps`); without a number, an end."""

    narrator: Narrator
    live: Live
    number: int | None

    def note(self, text_: str) -> None:
        if self.number is not None and self.live.op.progress[self.number].note != text_:
            state = self.live.op.progress[self.number].state
            self.narrator.ledger.note(self.live, self.live.op.with_step(self.number, state, text_))

    def saw(self, facts: Mapping[str, ServerFacts]) -> None:
        self.narrator.saw(self.live, facts)

    def lost(self, server: str, why: str) -> None:
        self.narrator.ledger.note(self.live, self.live.op.without(server, why))

    def crashed(self, server: str, why: str, facts: ServerFacts) -> None:
        self.narrator.tell_at_once(self.live, progress.crashed(self.live.op, server, why, facts))

    def said(self, text_: str) -> None:
        self.narrator.tell_at_once(self.live, Message(line(text_)))

    def asked(self, server: str, at: datetime) -> None:
        op = self.live.op
        self.narrator.ledger.note(self.live, replace(op, asked=(*op.asked, (server, at))))

    def launched(self, server: str) -> None:
        op = self.live.op
        self.narrator.ledger.note(self.live, replace(op, launched=(*op.launched, server)))

    def proved(self, proof: Proof) -> None:
        self.live.proofs.append(proof)

    def phase_seen(self, server: str, facts: ServerFacts) -> None:
        self.narrator.phase_seen(self.live, server, facts)

    def takes(self, taken: Taken, *, is_sure: bool = True) -> None:
        ledger = self.narrator.ledger
        (ledger.change if is_sure else ledger.note)(self.live, self.live.op.with_taken(taken))

    def found_caches(self, server: str, state: CacheState) -> None:
        self.live.caches[server] = state


def _has_crashed(view: View) -> bool:
    return view.diagnosis is not None and view.diagnosis.is_crashed
