"""The life of an alert: pending, firing, acked, silenced, resolved; one table, plain values, nothing but decisions.

An alert ends only when its end was proven: that a rule finds nothing any more (a series ended, nobody asks) proves
nothing. Servers that fail of one cause at one time are one alert. One that comes back soon is the same alert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from bot.domain.watching.causes import Cause, Finding, Value
from bot.domain.watching.limits import Limits


class State(Enum):
    """Where an alert stands."""

    PENDING = "pending"
    FIRING = "firing"
    ACKED = "acked"
    SILENCED = "silenced"
    RESOLVED = "resolved"
    DROPPED = "dropped"


class Event(Enum):
    """What may happen to an alert."""

    CONFIRMED = "confirmed"
    VANISHED = "vanished"
    PROVEN = "proven"
    RETURNED = "returned"
    ACK = "ack"
    SILENCE = "silence"
    UNSILENCE = "unsilence"


NEXT: Mapping[tuple[State, Event], State] = {
    (State.PENDING, Event.CONFIRMED): State.FIRING,
    (State.PENDING, Event.VANISHED): State.DROPPED,
    (State.PENDING, Event.SILENCE): State.SILENCED,
    (State.FIRING, Event.PROVEN): State.RESOLVED,
    (State.FIRING, Event.ACK): State.ACKED,
    (State.FIRING, Event.SILENCE): State.SILENCED,
    (State.ACKED, Event.PROVEN): State.RESOLVED,
    (State.ACKED, Event.ACK): State.ACKED,
    (State.ACKED, Event.SILENCE): State.SILENCED,
    (State.SILENCED, Event.PROVEN): State.RESOLVED,
    (State.SILENCED, Event.ACK): State.SILENCED,
    (State.SILENCED, Event.UNSILENCE): State.FIRING,
    (State.RESOLVED, Event.RETURNED): State.FIRING,
}
"""Everything that may happen; what is not here may not. An ack under a silence is kept for when that ends."""


class Did(Enum):
    """What a change is, for those who tell it.

    Confirmed: an Alertmanager and our own eyes say the same; doubted: it says that all is over, and we do not see that.
    """

    FIRING = "firing"
    JOINED = "joined"
    RESOLVED = "resolved"
    RETURNED = "returned"
    ACKED = "acked"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"
    CONFIRMED = "confirmed"
    DOUBTED = "doubted"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``since`` is when the fault began as far as can be told, ``fired_at`` when it was told.

    ``found`` counts readings in a row that found it while pending, ``proven`` those in a row that showed its end.
    ``joined`` are the servers that came later, in the order of ``servers``' end. ``after`` are the numbers that were
    seen at its end, ``first`` those that it was told with. ``groups`` are an Alertmanager's groups that tell of the same
    thing.
    """

    id: str
    cause: Cause
    servers: tuple[str, ...]
    since: datetime
    state: State = State.PENDING
    evidence: Mapping[str, Value] = field(default_factory=dict)
    found: int = 1
    proven: int = 0
    fired_at: datetime | None = None
    resolved_at: datetime | None = None
    acked_by: str | None = None
    acked_at: datetime | None = None
    silence: str | None = None
    returns: int = 0
    groups: tuple[str, ...] = ()
    after: Mapping[str, Value] = field(default_factory=dict)
    first: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """Whether the fault is taken to be there, told or not."""
        return self.state in (State.FIRING, State.ACKED, State.SILENCED)

    def to(self, event: Event) -> Alert:
        """The alert after an event; ValueError names the state and the event that do not go together."""
        state = NEXT.get((self.state, event))
        if state is None:
            raise ValueError(f"alert {self.id} is {self.state.value}: {event.value} can't happen to it")
        return replace(self, state=state)


@dataclass(frozen=True, slots=True)
class Silence:
    """Somebody does not want to hear of these servers (empty: any) or causes (empty: any) until an instant.

    With ``alerts`` it is about these alone, by id.
    """

    id: str
    until: datetime
    by: str
    at: datetime
    because: str = ""
    servers: frozenset[str] = frozenset()
    causes: frozenset[Cause] = frozenset()
    alerts: frozenset[str] = frozenset()

    def covers(self, alert: Alert, now: datetime) -> bool:
        """Whether all of what an alert is about is silenced now."""
        if now >= self.until or (self.causes and alert.cause not in self.causes):
            return False
        if self.alerts:
            return alert.id in self.alerts
        return not self.servers or (bool(alert.servers) and self.servers.issuperset(alert.servers))


@dataclass(frozen=True, slots=True)
class Change:
    """Something to tell: what happened, when, and the alert as it stands now; ``servers`` are those concerned."""

    did: Did
    at: datetime
    alert: Alert
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """All alerts that live or ended lately, and the silences: everything that a store has to keep of them."""

    alerts: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    next_number: int = 1

    def get(self, alert: str) -> Alert | None:
        """The alert of that id."""
        return next((one for one in self.alerts if one.id == alert), None)

    def on(self, *causes: Cause) -> frozenset[str]:
        """The servers that have an alert of one of these causes, pending ones among them."""
        live = (State.PENDING, State.FIRING, State.ACKED, State.SILENCED)
        return frozenset(
            name for one in self.alerts if one.cause in causes and one.state in live for name in one.servers
        )


Proof = Callable[[Cause, str], Mapping[str, Value] | None]
"""What shows the end of a cause at a server (or job; FLEET for the fleet) in this reading; None: nothing does."""


def advance(
    book: Book, findings: Sequence[Finding], proof: Proof, at: datetime, limits: Limits
) -> tuple[Book, tuple[Change, ...]]:
    """Go on by one reading: what was found in it, and what was proven to be over."""
    changes: list[Change] = []
    silences = tuple(one for one in book.silences if at < one.until)
    alerts: list[Alert] = []
    for alert in book.alerts:
        mine = [one for one in findings if _is_about(one, alert)]
        after = heard(_step(alert, mine, proof, at, limits), silences, at)
        changes += _told(alert, after, at)
        if not _is_past(after, at, limits):
            alerts.append(after)
    number = book.next_number
    for fresh in _grouped(findings, alerts):
        place = _known_elsewhere(fresh, alerts)
        if place is not None:
            alerts[place], seen = _take_over(alerts[place], fresh, at)
            changes += seen
            continue
        place = _joins(fresh, alerts, at, limits)
        if place is not None:
            alerts[place], joined = _join(alerts[place], fresh, at)
            changes += joined
            continue
        need = limits.hold.get(fresh.cause, 1)
        alert = Alert(f"{fresh.cause.value}-{number}", fresh.cause, fresh.servers, fresh.since, evidence=fresh.evidence)
        after = heard(_fire(alert, at) if need <= 1 else alert, silences, at)
        changes += _told(alert, after, at)
        alerts.append(after)
        number += 1
    return Book(tuple(alerts), silences, number), tuple(changes)


def _is_about(finding: Finding, alert: Alert) -> bool:
    if finding.cause is not alert.cause:
        return False
    return finding.cause is Cause.SLOW_FLEET or not set(finding.servers).isdisjoint(alert.servers)


def _step(alert: Alert, findings: Sequence[Finding], proof: Proof, at: datetime, limits: Limits) -> Alert:
    if findings:
        return _found(alert, findings, at, limits)
    if alert.cause is Cause.FOREIGN and (not alert.evidence.get("is_over") or alert.evidence.get("away")):
        return alert
    if alert.state is State.PENDING:
        return alert.to(Event.VANISHED)
    if not alert.is_on:
        return alert
    about = ("",) if alert.cause is Cause.SLOW_FLEET else alert.servers
    ends = [end for name in about if (end := proof(alert.cause, name)) is not None]
    if len(ends) < len(about):
        return replace(alert, proven=0)
    if alert.proven + 1 < limits.proof:
        return replace(alert, proven=alert.proven + 1)
    return replace(alert.to(Event.PROVEN), proven=0, resolved_at=at, after=_together(ends))


def _together(ends: Sequence[Mapping[str, Value]]) -> Mapping[str, Value]:
    """The numbers of all servers: rates are added, of the rest the first server's stand."""
    rates = [rate for end in ends if isinstance(rate := end.get("rate"), (int, float))]
    first = ends[0] if ends else {}
    return {**first, "rate": sum(rates)} if rates else first


def _found(alert: Alert, findings: Sequence[Finding], at: datetime, limits: Limits) -> Alert:
    alert = replace(alert, evidence=findings[0].evidence, proven=0)
    if alert.state is State.PENDING:
        alert = replace(alert, found=alert.found + 1)
        return _fire(alert, at) if alert.found >= limits.hold.get(alert.cause, 1) else alert
    if alert.state is State.RESOLVED:
        return replace(
            alert.to(Event.RETURNED), resolved_at=None, acked_by=None, acked_at=None, returns=alert.returns + 1
        )
    return alert


def _fire(alert: Alert, at: datetime) -> Alert:
    return replace(alert.to(Event.CONFIRMED), fired_at=at, first=alert.evidence)


def heard(alert: Alert, silences: Sequence[Silence], at: datetime) -> Alert:
    """The alert as silences leave it; one that was acked before is acked again when its silence is over."""
    cover = next((one for one in silences if one.covers(alert, at)), None)
    if cover is not None and alert.state in (State.FIRING, State.ACKED):
        return replace(alert.to(Event.SILENCE), silence=cover.id)
    if cover is None and alert.state is State.SILENCED:
        loud = replace(alert.to(Event.UNSILENCE), silence=None)
        return loud.to(Event.ACK) if loud.acked_by is not None else loud
    return alert


def _told(before: Alert, after: Alert, at: datetime) -> list[Change]:
    if before.state is after.state:
        return []
    did = {
        State.FIRING: Did.UNSILENCED if before.state is State.SILENCED else Did.FIRING,
        State.ACKED: Did.UNSILENCED if before.state is State.SILENCED else Did.ACKED,
        State.SILENCED: Did.SILENCED,
        State.RESOLVED: Did.RESOLVED,
    }.get(after.state)
    if did is None:
        return []
    if before.state is State.RESOLVED:
        did = Did.RETURNED if did is Did.FIRING else did
    return [Change(did, at, after, after.servers)]


def _is_past(alert: Alert, at: datetime, limits: Limits) -> bool:
    if alert.state is State.DROPPED:
        return True
    ended = alert.resolved_at
    return alert.state is State.RESOLVED and ended is not None and not (at - limits.reopens_within < ended <= at)


def _grouped(findings: Sequence[Finding], alerts: Sequence[Alert]) -> list[Finding]:
    """What no alert is about yet, one finding a cause."""
    fresh: dict[Cause, Finding] = {}
    for one in findings:
        if any(_is_about(one, alert) for alert in alerts):
            continue
        first = fresh.get(one.cause)
        if first is None:
            fresh[one.cause] = one
        else:
            fresh[one.cause] = replace(first, servers=(*first.servers, *one.servers), since=min(first.since, one.since))
    return list(fresh.values())


def _joins(fresh: Finding, alerts: Sequence[Alert], at: datetime, limits: Limits) -> int | None:
    """The alert that newcomers of the same cause belong to: one that began a moment ago."""
    if fresh.cause is Cause.JOB_STALLED:
        return None
    for place, alert in enumerate(alerts):
        if alert.cause is not fresh.cause or alert.state is State.RESOLVED:
            continue
        began = alert.fired_at
        if began is None or at - limits.joins_within <= began <= at:
            return place
    return None


def _known_elsewhere(fresh: Finding, alerts: Sequence[Alert]) -> int | None:
    """The alert that an Alertmanager has told of the same cause on the same servers."""
    for place, alert in enumerate(alerts):
        is_same = alert.cause is Cause.FOREIGN and alert.evidence.get("cause") == fresh.cause.value
        if alert.is_on and is_same and (not alert.servers or not set(fresh.servers).isdisjoint(alert.servers)):
            return place
    return None


def _take_over(alert: Alert, fresh: Finding, at: datetime) -> tuple[Alert, list[Change]]:
    """What an Alertmanager told is found by our own rules too: from now on these say when it is over."""
    more = tuple(name for name in fresh.servers if name not in alert.servers)
    servers = (*alert.servers, *more) if fresh.cause is not Cause.SLOW_FLEET else fresh.servers
    seen = replace(alert, cause=fresh.cause, servers=servers, evidence=fresh.evidence, proven=0)
    return seen, [Change(Did.CONFIRMED, at, seen, fresh.servers)]


def _join(alert: Alert, fresh: Finding, at: datetime) -> tuple[Alert, list[Change]]:
    grown = replace(alert, servers=(*alert.servers, *fresh.servers), since=min(alert.since, fresh.since))
    return grown, ([Change(Did.JOINED, at, grown, fresh.servers)] if alert.state is not State.PENDING else [])


def newest_firing(book: Book) -> str | None:
    """The id of the alert that fired last of those that nobody has seen yet."""
    return next((one.id for one in reversed(book.alerts) if one.state is State.FIRING), None)


def ack(book: Book, alert: str, by: str, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """Somebody has seen it; KeyError when there is no such alert, ValueError when it is over or not on yet."""
    before = book.get(alert)
    if before is None:
        raise KeyError(alert)
    after = replace(before.to(Event.ACK), acked_by=by, acked_at=at)
    return _with(book, after), (Change(Did.ACKED, at, after, after.servers),)


def silence(book: Book, new: Silence) -> tuple[Book, tuple[Change, ...]]:
    """Say nothing of what it covers until then, beginning with what fires now."""
    return _again(replace(book, silences=(*book.silences, new)), new.at)


def unsilence(
    book: Book, servers: frozenset[str], at: datetime, alerts: frozenset[str] = frozenset()
) -> tuple[Book, tuple[Change, ...]]:
    """End every silence that covers one of these servers or alerts (none of either: all silences)."""

    def ends(one: Silence) -> bool:
        if not servers and not alerts:
            return True
        if one.alerts:
            return not alerts.isdisjoint(one.alerts)
        return bool(servers) and (not one.servers or not servers.isdisjoint(one.servers))

    kept = tuple(one for one in book.silences if not ends(one))
    return _again(replace(book, silences=kept), at)


def _again(book: Book, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    changes: list[Change] = []
    alerts = []
    for before in book.alerts:
        after = heard(before, book.silences, at)
        changes += _told(before, after, at)
        alerts.append(after)
    return replace(book, alerts=tuple(alerts)), tuple(changes)


def _with(book: Book, alert: Alert) -> Book:
    return replace(book, alerts=tuple(alert if one.id == alert.id else one for one in book.alerts))
