"""Alerts that an Alertmanager tells, with the same life in the same book as our own.

One group is one alert, as it is one message there. What it calls resolved may only have stopped being scraped, so
that counts as a claim: the alert ends when its servers were seen well afterwards (`alerts.advance` with a proof), and
when they are not, that is said once. A group that tells of what our own rules already found joins that alert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.domain.watching.alerts import Alert, Book, Change, Did, Event, State, heard
from bot.domain.watching.causes import PLANNED, Cause, Value
from bot.domain.watching.limits import Limits

OURS = "upbot"
"""The value of the label `source` of alerts that we sent ourselves: what comes back is not told again."""
MOST_SERVERS = 4_096
_MOST_NAMED = 20
_MOST_PRINTS = 200
_MOST_GROUPS = 100
_SUMMARIES = ("summary", "title", "message", "description")
_LONGEST = timedelta(days=365)
_DOWN = frozenset({"instancedown", "targetdown", "serverdown", "endpointdown"})


@dataclass(frozen=True, slots=True)
class Told:
    """One alert as an Alertmanager tells it; all texts are foreign."""

    fingerprint: str
    is_firing: bool
    since: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.labels.get("alertname", "")

    @property
    def is_ours(self) -> bool:
        """Whether we sent it there ourselves."""
        return self.labels.get("source") == OURS


@dataclass(frozen=True, slots=True)
class Notification:
    """What an Alertmanager tells of one group: its alerts, and how many it left out."""

    group: str
    alerts: tuple[Told, ...]
    common: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0

    def without(self, name: str | None) -> Notification:
        """The same without alerts of that name and without those that we sent ourselves."""
        return replace(self, alerts=tuple(one for one in self.alerts if one.name != name and not one.is_ours))


@dataclass(frozen=True, slots=True)
class Heard:
    """A notification as far as it means something here: who fires, what our servers are among them.

    ``others`` are instances that are none of our servers. ``cause`` is the one of ours that it names.
    """

    group: str
    servers: tuple[str, ...]
    others: tuple[str, ...]
    since: datetime
    evidence: Mapping[str, Value]
    cause: Cause | None

    @property
    def is_over(self) -> bool:
        """Whether it tells of an end."""
        return self.evidence.get("firing") == 0


def read(told: Notification, label: str, servers: Mapping[str, str]) -> Heard | None:
    """What a notification means; ``servers`` are our servers' names by their values of ``label``. None: nothing."""
    if not told.alerts:
        return None
    firing = [one for one in told.alerts if one.is_firing]
    about = firing or list(told.alerts)
    names, others = _who(about, label, servers)
    first = about[0]
    evidence: dict[str, Value] = {
        "name": _cut(first.name or "an alert without a name", 80),
        "summary": next((_cut(first.annotations[key], 300) for key in _SUMMARIES if first.annotations.get(key)), ""),
        "severity": _cut(first.labels.get("severity", ""), 30),
        "others": others,
        "firing": len(firing) if firing else told.left_out,
        "prints": tuple(one.fingerprint for one in firing)[:_MOST_PRINTS],
        "matchers": tuple(f"{name}={value}" for name, value in sorted(told.common.items())),
    }
    cause = _cause(first)
    if cause is not None:
        evidence["cause"] = cause.value
    return Heard(told.group, names, others, min(one.since for one in about), evidence, cause)


def _who(about: Iterable[Told], label: str, servers: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names: dict[str, None] = {}
    others: dict[str, None] = {}
    known = set(servers.values())
    for one in about:
        word, named = one.labels.get(label, ""), one.labels.get("server", "")
        if word in servers:
            names[servers[word]] = None
        elif named in known:
            names[named] = None
        elif word:
            others[_cut(word, 80)] = None
    return tuple(names)[:MOST_SERVERS], tuple(others)[:_MOST_NAMED]


def _cause(one: Told) -> Cause | None:
    """The cause of ours that it names by its label `cause`, or by what such alerts are usually called."""
    word = one.labels.get("cause", "")
    found = next((cause for cause in Cause if cause.value == word and not cause.is_note), None)
    if found is Cause.FOREIGN:
        return None
    return Cause.DOWN if found is None and one.name.replace("_", "").lower() in _DOWN else found


def _cut(text: str, length: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1]}…"


def take(
    book: Book, told: Heard, at: datetime, limits: Limits, planned: frozenset[str] = frozenset()
) -> tuple[Book, tuple[Change, ...]]:
    """Go on by one notification; what an operation causes on the ``planned`` servers is kept back (`confirm`)."""
    mine = next((one for one in reversed(book.alerts) if told.group in one.groups), None)
    is_live = mine is not None and (mine.is_on or mine.state is State.PENDING)
    if told.is_over:
        return _over(book, mine, told.group, at) if mine is not None and is_live else (book, ())
    if mine is not None and is_live:
        return _again(book, mine, told, at)
    if (
        mine is not None
        and mine.state is State.RESOLVED
        and mine.cause is Cause.FOREIGN
        and _is_recent(mine, at, limits)
    ):
        back = replace(
            mine.to(Event.RETURNED), resolved_at=None, acked_by=None, acked_at=None, returns=mine.returns + 1
        )
        back = heard(replace(back, evidence=told.evidence, proven=0), book.silences, at)
        return _with(book, back), (Change(Did.RETURNED, at, back, back.servers),)
    if mine is not None and _is_recent(mine, at, limits) and set(told.servers) <= set(mine.servers):
        return book, ()  # our own rules have told it, and have seen its end: an Alertmanager is slower
    same = next((one for one in book.alerts if _is_same(one, told)), None)
    if same is not None:
        joined = replace(same, groups=(*same.groups, told.group)[-_MOST_GROUPS:])
        if joined.state is State.PENDING:  # two that see the same need not wait for a third look
            return _fire(book, joined, at)
        return _with(book, joined), (Change(Did.CONFIRMED, at, joined, told.servers),)
    new = Alert(f"{Cause.FOREIGN.value}-{book.next_number}", Cause.FOREIGN, told.servers, _since(told, at))
    new = replace(new, evidence=told.evidence, groups=(told.group,))
    grown = replace(book, alerts=(*book.alerts, new), next_number=book.next_number + 1)
    return confirm(grown, planned, at)


def confirm(book: Book, planned: frozenset[str], at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """Let fire what no operation explains, or none any more, unless it is over by now."""
    changes: list[Change] = []
    for one in book.alerts:
        if one.cause is not Cause.FOREIGN or one.state is not State.PENDING or one.evidence.get("is_over"):
            continue
        if one.servers and _cause_of(one) in PLANNED and planned.issuperset(one.servers):
            continue
        book, told = _fire(book, one, at)
        changes += told
    return book, tuple(changes)


def _fire(book: Book, one: Alert, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    fired = heard(replace(one.to(Event.CONFIRMED), fired_at=at), book.silences, at)
    did = Did.SILENCED if fired.state is State.SILENCED else Did.FIRING
    return _with(book, fired), (Change(did, at, fired, fired.servers),)


def _cause_of(one: Alert) -> Cause | None:
    """The cause of ours that a foreign alert names."""
    return next((cause for cause in Cause if cause.value == one.evidence.get("cause")), None)


def _since(told: Heard, at: datetime) -> datetime:
    """Since when it fires; a beginning that can't be is now."""
    return told.since if at - _LONGEST < told.since <= at else at


def _is_recent(one: Alert, at: datetime, limits: Limits) -> bool:
    return one.resolved_at is not None and at - limits.reopens_within < one.resolved_at <= at


def _is_same(one: Alert, told: Heard) -> bool:
    """Whether our own rules have found the same cause on the same servers, told or not yet."""
    if not (one.is_on or one.state is State.PENDING) or told.cause is None or one.cause is not told.cause:
        return False
    return one.cause is Cause.SLOW_FLEET or (bool(told.servers) and set(told.servers) <= set(one.servers))


def _again(book: Book, mine: Alert, told: Heard, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """It still fires, maybe for more servers, maybe after it was called over."""
    if mine.cause is not Cause.FOREIGN:
        return book, ()
    more = tuple(name for name in told.servers if name not in mine.servers)
    grown = replace(mine, servers=(*mine.servers, *more), evidence=told.evidence, proven=0)
    is_told = bool(more) and mine.is_on
    return _with(book, grown), ((Change(Did.JOINED, at, grown, more),) if is_told else ())


def _over(book: Book, mine: Alert, group: str, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """It is called over: a claim, for a foreign alert; for one of our own, contradicted by its being on."""
    if mine.cause is not Cause.FOREIGN:
        left = replace(mine, groups=tuple(one for one in mine.groups if one != group))
        return _with(book, left), (Change(Did.DOUBTED, at, left, left.servers),)
    if is_called_over(mine):
        return book, ()
    claimed = replace(mine, evidence={**mine.evidence, "firing": 0, "prints": (), "is_over": True}, proven=0)
    return _with(book, claimed), ()


def is_called_over(one: Alert) -> bool:
    """Whether the Alertmanager says that this foreign alert is over."""
    return one.cause is Cause.FOREIGN and bool(one.evidence.get("is_over"))


def doubt(book: Book, unwell: frozenset[str], at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """Say once of each alert that is called over that its servers are not seen well."""
    changes = []
    for one in book.alerts:
        ill = tuple(name for name in one.servers if name in unwell)
        if one.is_on and is_called_over(one) and ill and not one.evidence.get("is_doubted"):
            doubted = replace(one, evidence={**one.evidence, "is_doubted": True})
            book = _with(book, doubted)
            changes.append(Change(Did.DOUBTED, at, doubted, ill))
    return book, tuple(changes)


def awaited(book: Book) -> tuple[str, ...]:
    """The instances that are no servers of ours and whose end somebody has to check."""
    alerts = (one for one in book.alerts if one.is_on and is_called_over(one))
    found: dict[str, None] = {}
    for one in alerts:
        others = one.evidence.get("others")
        found.update(dict.fromkeys(others if isinstance(others, tuple) else ()))
    return tuple(found)


def seen_up(book: Book, up: Mapping[str, bool] | None, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """Note which of the awaited instances are not up (``up`` is None when that can't be known), and say so once."""
    changes = []
    for one in book.alerts:
        others = one.evidence.get("others")
        if not (one.is_on and is_called_over(one) and isinstance(others, tuple) and others):
            continue
        away = tuple(name for name in others if up is None or not up.get(name, False))
        is_new = bool(away) and up is not None and not one.evidence.get("is_doubted")
        noted = replace(
            one, evidence={**one.evidence, "away": away, "is_doubted": is_new or _is_doubted(one), "is_checked": True}
        )
        book = _with(book, noted)
        if is_new:
            changes.append(Change(Did.DOUBTED, at, noted, ()))
    return book, tuple(changes)


def _is_doubted(one: Alert) -> bool:
    return bool(one.evidence.get("is_doubted"))


def gone(book: Book, prints: frozenset[str]) -> tuple[str, ...]:
    """The groups that fire here and of which an Alertmanager with these fingerprints has nothing any more."""
    found: list[str] = []
    for one in book.alerts:
        mine = one.evidence.get("prints")
        if one.cause is Cause.FOREIGN and one.is_on and isinstance(mine, tuple) and mine and not prints & set(mine):
            found += one.groups
    return tuple(found)


def end(book: Book, group: str, at: datetime) -> tuple[Book, tuple[Change, ...]]:
    """Take a group as called over, since nothing of it is there any more."""
    mine = next((one for one in reversed(book.alerts) if group in one.groups and one.is_on), None)
    return _over(book, mine, group, at) if mine is not None else (book, ())


def _with(book: Book, alert: Alert) -> Book:
    return replace(book, alerts=tuple(alert if one.id == alert.id else one for one in book.alerts))
