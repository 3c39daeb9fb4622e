"""What the rules are shown of each server at one reading."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.watching.limits import Limits
from bot.domain.watching.noise import Means, Noise
from bot.domain.watching.pace import Pace
from bot.domain.watching.track import Track
from bot.domain.watching.usual import Usual

_LATELY = 15.0
"""Seconds over which it is said what a server makes now."""
_FEW = 1.5
"""Below so many running requests, how many run at two instants says little about how many ran between them."""


@dataclass(frozen=True, slots=True)
class Look:
    """One server at one reading.

    ``paces`` are over the limits' windows, ``others`` the median log ratio of the other servers over the same ones,
    ``bounds`` how far the log ratio may fall there. ``now`` is in steady seconds, ``at`` the instant that it stands
    for. ``misses_needed`` is how many lost reads in a row mean down today.
    """

    name: str
    track: Track
    usual: Usual
    now: float
    at: datetime
    step: float
    misses_needed: int
    paces: Sequence[Pace | None] = ()
    bounds: Sequence[float] = ()
    others: Sequence[float | None] = ()
    fine: int = 0

    def heaviness(self, seconds: float) -> float:
        """Prompt tokens to a running request over the last seconds, as a multiple of the usual; 0: not known."""
        prompts = running = 0.0
        for step in reversed(self.track.steps):
            if step.end <= self.now - seconds:
                break
            prompts += step.prompts * step.span
            running += max(step.running, 1.0) * step.span
        usual = self.usual.heaviness
        return prompts / running / usual if running and usual > 0 else 0.0

    @property
    def rate(self) -> float:
        """Tokens a second over the last steps; nought where nothing runs, whatever a health check has generated."""
        if self.track.last is None or not self.track.last.running:
            return 0.0
        steps = [step for step in self.track.steps if step.end > self.now - _LATELY]
        seconds = sum(step.span for step in steps)
        return sum(step.tokens for step in steps) / seconds if seconds else 0.0

    def since(self, steady: float) -> datetime:
        """The instant of a steady second."""
        return self.at - timedelta(seconds=max(0.0, self.now - steady))


@dataclass(frozen=True, slots=True)
class FleetLook:
    """All servers that may be judged by their pace, and the median of their log ratios by window."""

    looks: Mapping[str, Look]
    medians: Sequence[Pace | None]
    bounds: Sequence[float]
    at: datetime
    now: float


def bounds(
    paces: Sequence[Pace | None], usual: tuple[Noise, Means], limits: Limits, known: tuple[float, float]
) -> list[float]:
    """How far the log ratio may fall in each window; further where the load is new or the counters are noisy."""
    found = []
    noise, means = usual
    for number, ((_, share), pace) in enumerate(zip(limits.windows, paces, strict=True)):
        if pace is None:
            found.append(-math.inf)
            continue
        floor = math.log(share)
        if pace.running < _FEW and not noise.is_known(number, pace.running):
            floor = -math.inf
        elif pace.running < max(known[0] * 0.8, _FEW):
            floor = min(floor, math.log(0.5))
        elif pace.running > known[1] * 1.6:
            floor = min(floor, math.log(0.7))
        found.append(min(floor, means.of(number) - limits.scatter * noise.of(number, pace.running)))
    return found


def median_of_others(name: str, paces: Mapping[str, Sequence[Pace | None]], windows: int) -> list[float | None]:
    """The median log ratio of all the others by window; None where nobody else may be judged."""
    found: list[float | None] = []
    for number in range(windows):
        values = [pace.value for other, row in paces.items() if other != name and (pace := row[number]) is not None]
        found.append(statistics.median(values) if values else None)
    return found
