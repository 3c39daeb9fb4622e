"""Keeps an Alertmanager and our book of alerts in step: its alerts in, our silences and (if wished) our alerts out.

Chosen over sending each silence when it is said: every round compares what should stand there with what does, so that
an outage, a lost answer or a restart of either side needs no path of its own. What is known of the other side (ids of
silences, what was sent, when its watchdog was heard) is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from bot.domain.errors import FleetError, StoreError
from bot.domain.fleet import Fleet
from bot.domain.message import Message
from bot.domain.monitors import AlertmanagerPeer
from bot.domain.watching import exchange, foreign
from bot.domain.watching.alerts import Book, Change
from bot.domain.watching.exchange import Outgoing
from bot.domain.watching.foreign import Notification
from bot.domain.watching.limits import Limits
from bot.ports import AlertExchange, Clock, Metrics, Silencer
from bot.runtime.complaint import Complaint
from bot.text import alerts as text

_log = structlog.get_logger(__name__)

ROUND = timedelta(seconds=15)
SEND_AGAIN = timedelta(minutes=1)
GONE_AFTER = timedelta(minutes=3)
"""What it loses by a restart of its own is there again within a minute; what is away for longer is over."""
_NAME = "alertmanager"


class Keep(Protocol):
    """Remembers a few texts by name, over restarts."""

    def get(self, name: str) -> str | None: ...
    def put(self, name: str, text: str) -> None: ...


class BookKeeper(Protocol):
    """Whoever keeps the book of alerts and tells what changes in it."""

    @property
    def book(self) -> Book: ...
    @property
    def planned(self) -> frozenset[str]: ...
    async def change(self, book: Book, changes: Sequence[Change]) -> None: ...
    async def say(self, message: Message) -> None: ...


class Remote(Silencer, AlertExchange, Protocol):
    """An Alertmanager."""


@dataclass(slots=True)
class _Kept:
    """What is known of the other side: its ids of our silences, what it was sent, when its watchdog was heard."""

    silences: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Outgoing] = field(default_factory=dict)
    heard_at: datetime | None = None

    def plain(self) -> str:
        """As JSON; what was sent need not be known for long: it ends there by itself."""
        return json.dumps(
            {"silences": self.silences, "heard_at": self.heard_at.isoformat() if self.heard_at is not None else None}
        )

    @staticmethod
    def of(kept: str) -> _Kept:
        """From JSON; ValueError, KeyError or TypeError when it is none."""
        told: dict[str, Any] = json.loads(kept)
        heard = told["heard_at"]
        silences = {str(ours): str(theirs) for ours, theirs in told["silences"].items()}
        return _Kept(silences, heard_at=datetime.fromisoformat(heard) if heard is not None else None)


class Liaison:
    """Implements `Notified`. ``remote`` and ``metrics`` are given by the composition root, as far as there are any."""

    def __init__(self, fleet: Callable[[], Fleet], keeper: BookKeeper, clock: Clock, keep: Keep) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._clock = clock
        self._keep = keep
        self._kept = _Kept()
        self._lock = asyncio.Lock()
        self._sent_at: datetime | None = None
        self._gone_since: dict[str, datetime] = {}
        self._began_at: datetime | None = None
        self._is_missed = False
        self._absence = Complaint(keeper.say, clock, text.out_of_step, text.in_step)
        self.remote: Remote | None = None
        self.metrics: Metrics | None = None

    def load(self) -> None:
        """Know again what was known of the other side; what can't be read is found out anew."""
        try:
            if (kept := self._keep.get(_NAME)) is not None:
                self._kept = _Kept.of(kept)
        except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("alertmanager_known_anew", error=str(error))

    # What it tells us

    async def notified(self, notification: Notification) -> None:
        """Take what an Alertmanager tells of a group. StoreError when it can't be kept: then it must be told again."""
        peer = self._fleet().alertmanager
        if peer is None:
            return
        now = self._clock.now()
        await self._mind_watchdog(peer, notification, now)
        told = foreign.read(
            notification.without(peer.watchdog), peer.labelling.label, self._fleet().labelled(peer.labelling)
        )
        if told is not None:
            _log.info("alertmanager_told", group=told.group, firing=told.evidence["firing"], servers=told.servers)
            await self._change(*foreign.take(self._keeper.book, told, now, Limits(), self._keeper.planned))
            await self._check_others()

    async def _change(self, book: Book, changes: Sequence[Change]) -> None:
        if book != self._keeper.book:
            await self._keeper.change(book, changes)

    async def _check_others(self) -> None:
        """Look in Prometheus whether instances that are no servers of ours are up, before their end is believed."""
        source = self._fleet().prometheus
        wanted = foreign.awaited(self._keeper.book)
        if not wanted or source is None or self.metrics is None:
            return
        try:
            seen = await self.metrics.scraped(source, wanted, frozenset())
        except FleetError:
            up = None
        else:
            up = {name: one.is_up for name, one in seen.items()}
        try:
            await self._change(*foreign.seen_up(self._keeper.book, up, self._clock.now()))
        except StoreError as error:
            _log.warning("alertmanager_not_kept", error=str(error))

    async def _mind_watchdog(self, peer: AlertmanagerPeer, told: Notification, now: datetime) -> None:
        if any(one.is_firing and one.name == peer.watchdog for one in told.alerts):
            before, self._kept.heard_at = self._kept.heard_at or now, now
            if self._is_missed and peer.watchdog is not None:
                self._is_missed = False
                await self._keeper.say(text.watchdog_back(peer.watchdog, now - before))
            self._save()

    async def _miss_watchdog(self, peer: AlertmanagerPeer, now: datetime) -> None:
        heard_at = max(one for one in (self._kept.heard_at, self._began_at, now - timedelta(days=365)) if one)
        if peer.watchdog is not None and not self._is_missed and now - heard_at > peer.watchdog_within:
            self._is_missed = True
            await self._keeper.say(text.no_watchdog(peer.watchdog, now - heard_at))

    # What we tell it

    async def round(self) -> None:
        """Compare and do what is missing, on both sides; what fails is tried again in the next round."""
        peer = self._fleet().alertmanager
        if peer is None or self.remote is None or self._lock.locked():
            return
        async with self._lock:
            now = self._clock.now()
            self._began_at = self._began_at or now
            await self._miss_watchdog(peer, now)
            try:
                await self._set_silences(self.remote, peer, now)
                await self._send(self.remote, peer, now)
                await self._miss_groups(self.remote, peer, now)
            except FleetError as error:
                if self._absence.since is None:
                    _log.warning("alertmanager_away", why=str(error))
                await self._absence.mind(str(error))
            except StoreError as error:
                _log.warning("alertmanager_not_kept", error=str(error))
            else:
                await self._absence.mind(None)
            await self._check_others()

    async def _set_silences(self, remote: Remote, peer: AlertmanagerPeer, now: datetime) -> None:
        book, fleet = self._keeper.book, self._fleet()
        ours = [one for one in book.silences if now < one.until]
        is_new = any(one.id not in self._kept.silences for one in ours)
        ended = set(self._kept.silences) - {one.id for one in ours}
        if not is_new and not ended:
            return
        there = await remote.silences(peer)
        standing = exchange.to_set(ours, self._kept.silences, there)
        for one in ours:
            if one.id not in standing:
                order = exchange.order(one, book, fleet, peer)
                standing[one.id] = await remote.silence(peer, order) if order is not None else ""
                self._kept.silences[one.id] = standing[one.id]
        alive = {one.id for one in there}
        for name in ended:
            id_ = self._kept.silences[name]
            if id_ in alive:
                await remote.unsilence(peer, id_)
            del self._kept.silences[name]
        self._kept.silences = standing
        self._save()

    async def _send(self, remote: Remote, peer: AlertmanagerPeer, now: datetime) -> None:
        """Send what is on, in time before it would end there; and the end of what ended here, on our proof."""
        if not peer.sends:
            return
        on = exchange.outgoing(self._keeper.book, self._fleet(), peer, now)
        over = {key: exchange.ended(one, now) for key, one in self._kept.sent.items() if key not in on}
        is_due = self._sent_at is None or now - self._sent_at >= SEND_AGAIN or set(on) != set(self._kept.sent)
        if is_due and (on or over):
            await remote.send(peer, [*on.values(), *over.values()])
            self._kept.sent, self._sent_at = on, now

    async def _miss_groups(self, remote: Remote, peer: AlertmanagerPeer, now: datetime) -> None:
        """An end may never be told (of what is silenced there it is not): what is gone there for a while is over."""
        if not any(one.is_on and one.groups for one in self._keeper.book.alerts):
            self._gone_since.clear()
            return
        gone = foreign.gone(self._keeper.book, await remote.fingerprints(peer))
        self._gone_since = {group: self._gone_since.get(group, now) for group in gone}
        for group, since in list(self._gone_since.items()):
            if now - since >= GONE_AFTER:
                del self._gone_since[group]
                await self._change(*foreign.end(self._keeper.book, group, now))

    def _save(self) -> None:
        try:
            self._keep.put(_NAME, self._kept.plain())
        except StoreError as error:
            _log.warning("alertmanager_not_kept", error=str(error))
