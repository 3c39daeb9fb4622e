"""What goes out to an Alertmanager: our silences and our own alerts, as values in its own terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.domain.fleet import Fleet
from bot.domain.monitors import AlertmanagerPeer
from bot.domain.watching.alerts import Alert, Book, Silence
from bot.domain.watching.causes import Cause
from bot.domain.watching.foreign import OURS

LASTS = timedelta(minutes=5)
"""An alert that we send ends there by itself after so long; it is sent again well before."""
_GRAVE = frozenset({Cause.DOWN, Cause.HUNG, Cause.CRASH_LOOP, Cause.SLOW_FLEET})
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


@dataclass(frozen=True, slots=True)
class Matcher:
    """What a label must be; with ``is_regex`` the value is an anchored regular expression."""

    name: str
    value: str
    is_regex: bool = False


@dataclass(frozen=True, slots=True)
class SilenceOrder:
    """A silence to be set."""

    matchers: tuple[Matcher, ...]
    since: datetime
    until: datetime
    by: str
    comment: str


@dataclass(frozen=True, slots=True)
class RemoteSilence:
    """A silence as an Alertmanager has it, one that has not ended."""

    id: str
    comment: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One of our alerts for one server, until an instant."""

    labels: Mapping[str, str]
    since: datetime
    until: datetime
    annotations: Mapping[str, str] = field(default_factory=dict)


def marker(silence: Silence) -> str:
    """What says in a comment there which of our silences it is: an answer may be lost, and is not to double it."""
    return f"[{OURS} {silence.id}]"


def order(silence: Silence, book: Book, fleet: Fleet, peer: AlertmanagerPeer) -> SilenceOrder | None:
    """One of our silences in an Alertmanager's terms; None where nothing there could be meant."""
    matchers = _of_alerts(silence, book) if silence.alerts else _of_servers(silence.servers, fleet, peer)
    if not matchers:
        return None
    because = f"{silence.because} " if silence.because else ""
    return SilenceOrder(matchers, silence.at, silence.until, silence.by, f"{because}{marker(silence)}")


def _of_servers(names: Iterable[str], fleet: Fleet, peer: AlertmanagerPeer) -> tuple[Matcher, ...]:
    wanted = frozenset(names)
    values = [value for value, name in fleet.labelled(peer.labelling).items() if name in wanted]
    if not values:
        return ()
    if len(values) == 1:
        return (Matcher(peer.labelling.label, values[0]),)
    return (Matcher(peer.labelling.label, "|".join(_literal(value) for value in values), is_regex=True),)


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def _of_alerts(silence: Silence, book: Book) -> tuple[Matcher, ...]:
    """The labels that all alerts of the group have in common; a silence is about one group."""
    for name in sorted(silence.alerts):
        one = book.get(name)
        matchers = one.evidence.get("matchers") if one is not None else None
        if isinstance(matchers, tuple) and matchers:
            pairs = (text.partition("=") for text in matchers)
            return tuple(Matcher(label, value) for label, _, value in pairs)
    return ()


def outgoing(book: Book, fleet: Fleet, peer: AlertmanagerPeer, now: datetime) -> dict[str, Outgoing]:
    """Our own alerts that are on, one a server, by a key that stays the same as long as each lasts."""
    return {
        f"{one.id}/{server}": _outgoing(one, server, fleet, peer, now)
        for one in book.alerts
        if one.is_on and one.cause is not Cause.FOREIGN
        for server in one.servers or ("",)
    }


def _outgoing(one: Alert, server: str, fleet: Fleet, peer: AlertmanagerPeer, now: datetime) -> Outgoing:
    labels = {
        "alertname": f"Upbot{''.join(word.title() for word in one.cause.value.split('_'))}",
        "source": OURS,
        "cause": one.cause.value,
        "severity": "critical" if one.cause in _GRAVE else "warning",
    }
    labelled = {name: value for value, name in fleet.labelled(peer.labelling).items()}
    known = next((each for each in fleet.servers if each.name == server), None)
    if known is not None:
        labels |= {"server": server, "host": known.host, peer.labelling.label: labelled[server]}
    elif server:
        labels["job_name"] = server
    numbers = ", ".join(f"{key} {_short(value)}" for key, value in one.evidence.items() if _is_telling(value))
    annotations = {"summary": f"{server or 'the fleet'}: {one.cause.value.replace('_', ' ')}", "numbers": numbers[:500]}
    return Outgoing(labels, one.since, now + LASTS, annotations)


def _is_telling(value: object) -> bool:
    return value is not None and value not in ("", ()) and not isinstance(value, bool)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:60]


def ended(alert: Outgoing, now: datetime) -> Outgoing:
    """The same, over."""
    return Outgoing(alert.labels, alert.since, now, alert.annotations)


def to_set(silences: Sequence[Silence], known: Mapping[str, str], there: Sequence[RemoteSilence]) -> dict[str, str]:
    """Which of our silences stand there, by our ids: those that we know of, and those that bear our marker."""
    found = {one.id: known[one.id] for one in silences if one.id in known}
    for one in silences:
        mark = marker(one)
        for remote in there:
            if one.id not in found and remote.comment.endswith(mark):
                found[one.id] = remote.id
    return found
