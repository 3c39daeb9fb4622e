"""Keeps people's holds: puts and ends them, tells when their time is over, and passes on what is taken over.

From a check to what is written nothing is waited for: of two who want the same at once one gets it, the other hears
who has it. What is held is written down; a hold whose time has come holds nothing, whether anybody has told so or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import structlog

from bot.domain.command import EndHold, PutHold
from bot.domain.errors import StoreError, UpbotError, UserError
from bot.domain.fleet import Fleet
from bot.domain.holds import not_held, released_words, servers_words
from bot.domain.leases import REASON, Hold, alive, claims_of, unreadable
from bot.domain.message import Mention, Message, Part, bold, line, plain_line, says
from bot.domain.moments import time_of_day
from bot.domain.operation import Operation, State
from bot.domain.phrases import span
from bot.domain.plan import StartServers, TakeOver
from bot.engines._reading.redact import redact
from bot.ports import Chat, Clock, Holds, Place
from bot.runtime.acting import Teller
from bot.runtime.executor import Executor
from bot.runtime.scribe import Scribe
from bot.runtime.tasks import Tasks

_log = structlog.get_logger(__name__)

END_AGAIN = timedelta(minutes=1)
"""So often an end that could not be written down is tried again; it holds nothing meanwhile."""


class Holding:
    """People's holds, as they stand."""

    def __init__(  # noqa: PLR0917 - the machine's parts, given once by the composition root
        self,
        fleet: Callable[[], Fleet],
        store: Holds,
        executor: Executor,
        chat: Chat,
        clock: Clock,
        tasks: Tasks,
        scribe: Scribe,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._executor = executor
        self._chat = chat
        self._clock = clock
        self._tasks = tasks
        self._scribe = scribe
        self._seen: tuple[Hold, ...] | None = None
        self._waiting: dict[str, asyncio.Task[None]] = {}
        executor.holds, executor.take_over = self.live, self.take_over

    def live(self) -> tuple[Hold, ...]:
        """Those that hold now; those last seen where the state can't be read, since what is held stays held.

        StoreError when it never could be: nobody knows then what is held, so nothing may be taken to be free.
        """
        try:
            seen = self._read()
        except StoreError as error:
            if self._seen is None:
                raise
            _log.warning("holds_not_read", error=str(error))
            seen = self._seen
        return alive(seen, self._clock.now())

    def _read(self) -> tuple[Hold, ...]:
        """All that was not ended; of what can't be read any more, as it was last seen or else as what it may be."""
        holds, unread = self._store.current()
        known = {hold.id: hold for hold in self._seen or ()}
        now, fleet = self._clock.now(), self._fleet()
        self._seen = (*holds, *(known.get(id_) or unreadable(id_, fleet, now) for id_ in unread))
        for hold in self._seen:
            self._wait_for(hold)
        return self._seen

    def resume(self) -> None:
        """After a restart: tell of each when its time is over, also of those whose time came meanwhile."""
        try:
            self._read()
        except StoreError as error:
            _log.warning("holds_not_read", error=str(error))

    def put(self, wanted: PutHold, words: str, user: str, place: Place) -> Message:
        """Hold servers for a person; UserError says who has them, StoreError that it can't be written down."""
        fleet, now, by = self._fleet(), self._clock.now(), self._fleet().name_of(user)
        holds = self.live()
        operations = self._executor.live()
        refused = not_held(fleet, wanted.servers, by=by, holds=holds, operations=operations, now=now)
        if refused is not None:
            raise UserError(plain_line(refused.headline))
        where = self._place_of(place)
        hold = Hold(
            self._store.next_id(),
            wanted.servers,
            claims_of(fleet, wanted.servers),
            by,
            now,
            wanted.until,
            redact(wanted.reason),
            user,
            where.channel,
            where.thread,
        )
        self._scribe.held(hold.servers, f"{hold.id} until {time_of_day(hold.until, now)}", words, user, place)
        mine = [one for one in holds if one.by == by and set(one.servers) & set(hold.servers)]
        self._change(*_cut(mine, hold.servers), hold)
        self._wait_for(hold)
        who = servers_words(hold.servers, fleet)
        until = f"until {time_of_day(hold.until, now)}, in {span(hold.until - now)}"
        return says(bold(f"Held: {who}"), f" by {by} {until}" + (f": {hold.reason}" if hold.reason else ""))

    def end(self, wanted: EndHold, words: str, user: str, place: Place) -> Message:
        """End holds, or the part of them on some servers; what has ended meanwhile is no error."""
        holds = [hold for hold in self.live() if hold.id in wanted.holds]
        if not holds:
            return says("That hold is over already.")
        servers = wanted.servers or [name for hold in holds for name in hold.servers]
        free = released_words(holds, wanted.servers, self._fleet())
        self._scribe.held(servers, f"released {free}", words, user, place)
        self._change(*_cut(holds, servers))
        return says(bold("Released: "), free, ".")

    # Taking over

    async def take_over(self, op: Operation, step: TakeOver, teller: Teller) -> None:
        """Do the one step of a takeover, by looking: what is over already, or passed on already, is left."""
        told = [await self._rob(id_, op) for id_ in step.operations]
        told += [await self._pass_on(id_, op, step) for id_ in step.holds]
        teller.note(" · ".join(told))

    async def _rob(self, id_: str, op: Operation) -> str:
        robbed = await self._executor.take(id_, op.by)
        if robbed is None or robbed.state is not State.CANCELLED:
            return f"{id_} was over already"
        steps = zip(robbed.plan.steps, robbed.progress, strict=True)
        # A launch that was broken off may have reached its host all the same, so a step that was begun counts.
        has_begun = any(isinstance(one, StartServers) and done.note for one, done in steps)
        left = "what it has launched is left as it is" if has_begun else "it has launched nothing"
        told = f"{robbed.plan.title} ({id_}) is cancelled, {left}"
        await self._tell_robbed(robbed.owner, "", Place(robbed.where.channel, robbed.where.thread), op, told)
        return told

    async def _pass_on(self, id_: str, op: Operation, step: TakeOver) -> str:
        now, fleet = self._clock.now(), self._fleet()
        hold = next((one for one in self.live() if one.id == id_), None)
        servers = hold.shares(frozenset(claims_of(fleet, step.servers))) if hold is not None else ()
        if hold is None or (part := hold.only(servers)) is None:
            return f"{id_} was over already"
        reason = f"taken over from {hold.by}" + (f" ({hold.reason})" if hold.reason else "")
        channel, thread = op.where.channel, op.where.thread
        mine = replace(part, id=self._store.next_id(), by=op.by, user="", since=now, reason=reason[:REASON])
        mine = replace(mine, channel=channel, thread=thread)
        ended, kept = _cut([hold], servers)
        self._change(ended, kept, mine)
        self._wait_for(mine)
        self._scribe.hold_ended(hold, f"{part.what} taken over by {op.by}")
        who = servers_words(servers, fleet)
        told = f"{who} held by {op.by} until {time_of_day(mine.until, now)}, was {hold.by}'s"
        await self._tell_robbed(hold.by, hold.user, Place(hold.channel, hold.thread), op, told)
        return told

    async def _tell_robbed(self, who: str, user: str, place: Place, op: Operation, what: str) -> None:
        if who != op.by:
            told = line(self._mention(who, user), f": {op.by} has taken over from you. {what}.")
            await self._say(self._place_of(place), Message(told))

    def _mention(self, who: str, user: str) -> Part | str:
        """A person by the id that the chat knows them by, so that they are notified; else by their name."""
        person = self._fleet().person(who)
        ids = person.ids if person is not None else ()
        if not ids and any(who in (team.members or ()) for team in self._fleet().teams):
            return Mention(who)  # nobody by name: the chat's own id
        if user in ids or not ids:
            return Mention(user) if user and user != who else who
        return Mention(ids[0])

    # Time

    def _wait_for(self, hold: Hold) -> None:
        if hold.id not in self._waiting:
            self._waiting[hold.id] = self._tasks.spawn(self._over(hold), name=f"hold {hold.id}")

    async def _over(self, hold: Hold) -> None:
        """When its time is over say so, if it still is what it was."""
        while (left := hold.until - self._clock.now()) > timedelta():  # a clock may be set while we sleep
            await self._clock.sleep(left)
        while True:
            try:
                found = next((one for one in self._read() if one.id == hold.id), None)
                if found is None:
                    return
                self._change([hold.id], [])
                break
            except StoreError as error:
                _log.warning("hold_end_not_written", hold=hold.id, error=str(error))
                await self._clock.sleep(END_AGAIN)
        self._scribe.hold_ended(found, "its time was over")
        who = servers_words(found.servers, self._fleet())
        told = says(f"{found.by}'s hold on {who} is over", f" ({found.reason})." if found.reason else ".")
        await self._say(self._place_of(Place(found.channel, found.thread)), told)

    # Small things

    def _change(self, ended: Collection[str], kept: Sequence[Hold], new: Hold | None = None) -> None:
        written = [*kept, *([new] if new is not None else [])]
        self._store.change(ended, written, self._clock.now())
        behind = {*ended, *(hold.id for hold in written)}
        self._seen = (*(one for one in self._seen or () if one.id not in behind), *written)
        for id_ in ended:
            waiting = self._waiting.pop(id_, None)
            if waiting is not None and waiting is not asyncio.current_task():
                waiting.cancel()

    def _place_of(self, place: Place) -> Place:
        """Where something can be told later: a channel of the fleet, also for what was said at the door."""
        channels = self._fleet().channels
        if not channels or self._fleet().channel(place.channel) is not None:
            return place
        return Place(next(iter(channels[0].ids), channels[0].name))

    async def _say(self, place: Place, message: Message) -> None:
        try:
            await self._chat.post(place, message)
        except UpbotError as error:
            _log.warning("hold_not_told", error=str(error))


def _cut(holds: Sequence[Hold], servers: Collection[str]) -> tuple[list[str], list[Hold]]:
    """Holds without these servers: the ids of those of which nothing is left, and what is left of the others."""
    left = [(hold.id, hold.without(servers)) for hold in holds]
    return [id_ for id_, rest in left if rest is None], [rest for _, rest in left if rest is not None]
