"""What came of a stretch of time in words: for `report`, and for the line that is told each morning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.domain.alerting import alert_title
from bot.domain.course import Point
from bot.domain.facts import JobFacts
from bot.domain.message import Line, Lines, Message, bold, line
from bot.domain.phrases import about, count, names, percent, span, target
from bot.domain.tally import Tally
from bot.domain.views import job_line
from bot.domain.watching.alerts import Alert

MOST_AWAY = 5
_NOTHING = 30.0
"""Seconds: a server that was away for less is not told, it is one look that failed."""
_ALL = 0.98
_REACHED = 0.98
"""A target that is missed by less counts as reached."""


def report(
    told: Tally, everyone: Sequence[str], wanted_rate: float | None, jobs: Sequence[JobFacts], now: datetime
) -> Message:
    """The whole answer; ``wanted_rate`` is the target of all these servers in tokens a second."""
    length = timedelta(minutes=round((now - told.since) / timedelta(minutes=1)))
    period = "24 h" if length == timedelta(days=1) else span(length)
    if not told.servers:
        head = line(bold(f"Nothing was recorded in the last {period}."))
        return Message(head, (Lines(tuple(line(job_line(one)) for one in jobs)),) if jobs else ())
    rate = told.tokens / max(told.watched.total_seconds(), 1.0)
    share = f", {percent(rate / wanted_rate)} of {target(wanted_rate)}" if wanted_rate else ""
    share += ": target missed" if wanted_rate and rate < wanted_rate * _REACHED else ""
    is_part = told.watched < (now - told.since) * _ALL
    when = f"the {span(told.watched)} watched of the last {period}" if is_part else f"the last {period}"
    head = line(bold(f"{about(told.tokens)} tokens in {when}"), f" · {about(rate)} tok/s on average{share}")
    lines = (_away(told, everyone), _alerts(told, everyone, now), *(line(job_line(one)) for one in jobs))
    return Message(head, (Lines(lines),))


def _away(told: Tally, everyone: Sequence[str]) -> Line:
    """Who was not up, the longest first, and why: down, or on the way up."""
    order = [name for name in everyone if name in told.servers]
    away = [name for name in order if _seconds(told.servers[name]) >= _NOTHING]
    away.sort(key=lambda name: -_seconds(told.servers[name]))
    if not away:
        return line(f"{names(order, list(everyone))} were always up" if len(order) > 1 else f"{order[0]} was always up")
    alike: dict[str, list[str]] = {}
    for name in away:
        alike.setdefault(_how(told.servers[name]), []).append(name)
    shown = list(alike.items())[:MOST_AWAY]
    parts = [f"{names(members, list(everyone))} {how}" for how, members in shown]
    left = len(away) - sum(len(members) for _, members in shown)
    parts += [f"{left} more"] if left else []
    rest = len(order) - len(away)
    return line("not up: ", ", ".join(parts), f" · the other {rest} always were" if rest else "")


def _seconds(one: Point) -> float:
    return one.down + one.starting


def _how(one: Point) -> str:
    parts = [
        f"{word} {span(timedelta(seconds=seconds))}"
        for word, seconds in (("down", one.down), ("starting", one.starting))
        if seconds >= _NOTHING
    ]
    return " and ".join(parts) or f"away {span(timedelta(seconds=_seconds(one)))}"


def _alerts(told: Tally, everyone: Sequence[str], now: datetime) -> Line:
    if not told.alerts:
        return line("no alerts")

    def length(one: Alert) -> timedelta:
        return (one.resolved_at or now) - one.since

    longest = max(told.alerts, key=length)
    title = alert_title(longest, everyone)
    still = " and still on" if longest.resolved_at is None else ""
    if len(told.alerts) == 1:
        return line(f"1 alert: {title}, {span(length(longest))}{still}")
    on = sum(1 for one in told.alerts if one.resolved_at is None)
    more = f", {on} still on" if on else ""
    return line(f"{count(len(told.alerts), 'alert')}{more}; the longest: {title}, {span(length(longest))}{still}")
