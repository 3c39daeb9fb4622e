"""Tells people, by name and once, what they wanted to be told, as the watcher's looks show it.

Looks and not operations decide, so a start made by hand counts too. A wish is kept until it has been told: a bot
that is killed in that instant tells it twice rather than never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from bot.domain.errors import ChatError, StoreError, UserError
from bot.domain.facts import Sight
from bot.domain.fleet import Fleet
from bot.domain.message import Message
from bot.domain.needs import Needs
from bot.domain.operation import Operation, Where
from bot.domain.wishes import KEPT, MOST, Goal, Wish, come_true, mine
from bot.ports import Chat, Clock, Eyes, Operations, Place, Wishes
from bot.runtime.tasks import Tasks
from bot.text import wishes as text

_log = structlog.get_logger(__name__)

AGAIN = timedelta(seconds=5)
"""So long after a chat's refusal it is tried again, each time twice as long, up to `RARELY`."""
RARELY = timedelta(minutes=10)
GIVEN_UP = timedelta(hours=1)
"""So long past its time one is forgotten that the chat never took: its channel may be gone."""
RECENT = 50


@dataclass(slots=True)
class Promises:
    """Keeps the wishes of everybody."""

    fleet: Callable[[], Fleet]
    store: Wishes
    operations: Operations
    live: Callable[[], tuple[Operation, ...]]
    eyes: Eyes
    chat: Chat
    clock: Clock
    tasks: Tasks
    _open: dict[int, Wish] = field(default_factory=dict)
    _telling: set[int] = field(default_factory=set)
    _refused: dict[int, timedelta] = field(default_factory=dict)
    """How long is waited for the next try to tell it."""
    _told: set[int] = field(default_factory=set)
    """Told, though the store could not be told."""
    _in_vain: set[str] = field(default_factory=set)
    """The channels of callers whose wish did not come true."""

    def load(self, is_lost: Callable[[Wish], bool]) -> None:
        """Know again what was promised before the bot ended; of callers who are gone nothing is kept."""
        try:
            wishes, unread = self.store.all()
            for wish in wishes:
                if is_lost(wish):
                    self.store.remove(wish.number)
                else:
                    self._open[wish.number] = wish
        except StoreError as error:
            _log.warning("wishes_not_read", error=str(error))
            return
        if unread:
            self.tasks.spawn(self._tell_lost(unread), name="wishes lost")

    async def _tell_lost(self, unread: tuple[int, ...]) -> None:
        """Whose they were can't be read either, so the channel hears of it, once."""
        for channel in self.fleet().channels[:1]:
            try:
                await self.chat.post(Place(next(iter(channel.ids), channel.name)), text.lost(len(unread)))
            except ChatError as error:
                _log.warning("wishes_lost_not_told", error=str(error))
                return
        self._told.update(unread)
        self._forget_told()

    def of(self, user: str) -> tuple[Wish, ...]:
        """What a person waits for."""
        return mine(self._open.values(), self.fleet(), user)

    def promise(self, goal: Goal, user: str, place: Place) -> Wish:
        """Wait for it; StoreError when it can't be kept, UserError when they wait for enough already."""
        if len(self.of(user)) >= MOST:  # several that come in one breath were all decided before
            raise UserError(f"you wait for {MOST} things already")
        now = self.clock.now()
        wish = self.store.add(Wish(user, Where(place.channel, place.thread), goal, now, now + KEPT))
        self._open[wish.number] = wish
        return wish

    def forget(self, user: str) -> int:
        """Wait no longer for anything of that person; how many things it were."""
        found = self.of(user)
        for wish in found:
            self._remove(wish)
        return len(found)

    def leave(self, place: Place) -> int:
        """A caller is gone, and nobody there is told any more; how many things it had waited for."""
        found = [one for one in self._open.values() if one.where.channel == place.channel]
        for wish in found:
            self._remove(wish)
        self._in_vain.discard(place.channel)
        return len(found)

    def waits_in(self, place: Place) -> bool:
        """Whether somebody there is still to be told something."""
        return any(one.where.channel == place.channel for one in self._open.values())

    def came_true_in(self, place: Place) -> bool:
        """Whether nothing was waited for there in vain."""
        return place.channel not in self._in_vain

    async def look(self) -> None:
        """One look for a bot that nobody else looks for."""
        fleet, sight = self.fleet(), Sight(self.clock.now())
        async for sight in self.eyes.look(fleet.servers, jobs=fleet.jobs, needs=Needs(load=True, log=True)):  # noqa: B007 - the last one
            pass
        self.take(sight)

    def take(self, sight: Sight) -> None:
        """Tell what this look shows to be so, what has waited for too long, and what there is no more."""
        self._forget_told()
        if not self._open:
            return
        operations = self._operations()
        for wish in list(self._open.values()):
            if operations is None and wish.goal.operation is not None:
                continue
            message = self._due(wish, sight, operations or self.live())
            if message is not None and wish.number not in self._telling:
                self._telling.add(wish.number)
                self.tasks.spawn(self._tell(wish, message), name=f"wish {wish.number}")

    def _operations(self) -> tuple[Operation, ...] | None:
        """Those at work and, where somebody waits for one, those that ended lately; None when nobody can say."""
        if all(wish.goal.operation is None for wish in self._open.values()):
            return self.live()
        try:
            return (*self.live(), *self.operations.recent(RECENT))
        except StoreError as error:
            _log.warning("operations_not_read", error=str(error))
            return None

    def _due(self, wish: Wish, sight: Sight, operations: tuple[Operation, ...]) -> Message | None:
        fleet = self.fleet()
        everyone = [server.name for server in fleet.servers]
        missing = [name for name in wish.goal.servers if name not in everyone]
        if wish.goal.job is not None and fleet.job(wish.goal.job) is None:
            missing = [f"job {wish.goal.job}"]
        if (reached := come_true(wish.goal, sight, operations, everyone)) is not None and not missing:
            return text.came_true(wish, reached)
        if not missing and self.clock.now() < wish.expires_at:
            return None
        self._in_vain.add(wish.where.channel)
        return text.gone(wish, missing) if missing else text.given_up(wish, everyone)

    async def _tell(self, wish: Wish, message: Message) -> None:
        try:
            await self.chat.post(Place(wish.where.channel, wish.where.thread), message)
        except ChatError as error:
            _log.warning("wish_not_told", error=str(error))
            if self.clock.now() > wish.expires_at + GIVEN_UP:
                self._remove(wish)
                return
            wait = self._refused.get(wish.number, AGAIN)
            self._refused[wish.number] = min(2 * wait, RARELY)
            await self.clock.sleep(wait)
        else:
            self._remove(wish)
        finally:
            self._telling.discard(wish.number)

    def _remove(self, wish: Wish) -> None:
        if self._open.get(wish.number) is wish:  # else it was taken back meanwhile, and its number may be another's
            del self._open[wish.number]
            self._refused.pop(wish.number, None)
            self._told.add(wish.number)
            self._forget_told()

    def _forget_told(self) -> None:
        """Take out of the store what is over; what it does not take now it is asked again."""
        for number in list(self._told):
            try:
                self.store.remove(number)
            except StoreError as error:
                _log.warning("wish_not_removed", error=str(error))
                return
            self._told.discard(number)
