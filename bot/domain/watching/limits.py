"""What counts as wrong: the thresholds of every rule, each with the reason for its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from bot.domain.watching.causes import Cause


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds. Shares are fractions of 1.

    ``windows`` are how long a drop has to last and to what share of the usual the pace has to fall in it: a deep one
    is told early, a shallow one when it has lasted. ``scatter`` is how many times the usual scatter it must exceed
    besides. ``apart`` is how far a server must stand below the others to be the slow one rather than one of a slow
    fleet. ``recovered`` is the share that proves a recovery. ``hung_after`` holds where requests wait or come in,
    ``hung_after_quiet`` where the number of running requests may be a stale gauge. ``misses`` are the fewest lost
    reads in a row that mean down; where reads are lost often it takes more. ``hold`` is how many readings in a row a
    rule must find something, one where the cause is not named.
    """

    windows: tuple[tuple[timedelta, float], ...] = (
        (timedelta(seconds=60), 0.75),
        (timedelta(seconds=120), 0.79),
        (timedelta(seconds=300), 0.83),
    )
    scatter: float = 5.0
    apart: float = 0.86
    recovered: float = 0.88
    hung_after: timedelta = timedelta(seconds=20)
    hung_after_quiet: timedelta = timedelta(seconds=40)
    misses: int = 3
    starved_share: float = 0.82
    starved_for: timedelta = timedelta(seconds=30)
    crashes: int = 3
    crashes_within: timedelta = timedelta(minutes=30)
    error_share: float = 0.05
    errors_at_least: int = 10
    clock_limited_for: timedelta = timedelta(seconds=60)
    memory_full_within: timedelta = timedelta(hours=12)
    memory_share: float = 0.5
    job_stalled_for: timedelta = timedelta(minutes=5)
    hold: Mapping[Cause, int] = field(default_factory=lambda: {Cause.SLOW_SERVER: 3, Cause.SLOW_FLEET: 3})
    proof: int = 3
    joins_within: timedelta = timedelta(seconds=60)
    reopens_within: timedelta = timedelta(minutes=5)
    grace_after_plan: timedelta = timedelta(minutes=3)
