"""A stretch of time put together: tokens, how long servers were not up, and the alerts that were on in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.course import Point, merged
from bot.domain.watching.alerts import Alert
from bot.domain.watching.causes import Cause


@dataclass(frozen=True, slots=True)
class Tally:
    """A stretch of time: each server's course put together, and the alerts that were on in it."""

    since: datetime
    until: datetime
    servers: Mapping[str, Point]
    alerts: tuple[Alert, ...] = ()

    @property
    def watched(self) -> timedelta:
        """For how long somebody looked."""
        return timedelta(seconds=max((one.span for one in self.servers.values()), default=0.0))

    @property
    def tokens(self) -> float:
        """All tokens that were made."""
        return sum(one.tokens for one in self.servers.values())


def tally(courses: Mapping[str, Sequence[Point]], alerts: Sequence[Alert], since: datetime, until: datetime) -> Tally:
    """Put it together; alerts that were never told, and those of other servers, are left out."""
    wanted = frozenset(courses)
    told: dict[tuple[str, datetime], Alert] = {}
    for one in alerts:
        is_told = one.fired_at is not None and (one.resolved_at is None or one.resolved_at >= since)
        if is_told and is_about(one, wanted):
            told[one.id, one.since] = one
    return Tally(
        since, until, {name: merged(points) for name, points in courses.items() if points}, tuple(told.values())
    )


def is_about(alert: Alert, servers: frozenset[str]) -> bool:
    """Whether an alert is one for these servers: theirs, the fleet's, or a job's; notes are none."""
    if alert.cause.is_note:
        return False
    return alert.cause is Cause.JOB_STALLED or not alert.servers or not servers.isdisjoint(alert.servers)
