"""Whether tokens move between looks, and how fast: the signal that a health endpoint can't fake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.facts import Load, Movement

SHORTEST = timedelta(seconds=1)
"""Two looks closer than this prove neither that something moves nor that it stands still."""
LONGEST = timedelta(seconds=60)
"""Looks further apart than this give no rate: nobody knows how much of the time was idle."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: datetime
    load: Load
    identity: object


class Mover:
    """What one server's counters did since the look before."""

    def __init__(self) -> None:
        self._last: _Sample | None = None
        self._movement = Movement()

    def see(self, load: Load, identity: object, at: datetime) -> Movement:
        """Take a look's numbers; ``identity`` names the process, since another one counts from zero again."""
        last, new = self._last, _Sample(at, load, identity)
        if all(one is None for one in _counters(load)) and load.stamp is None:
            return Movement()
        if last is None or last.identity != identity or at < last.at or _fell(last.load, load):
            self._last, self._movement = new, Movement()
        elif at - last.at >= SHORTEST or (load.running and not last.load.running):
            self._movement = self._compare(last, new)
            self._last = new
        return self._movement

    def _compare(self, last: _Sample, new: _Sample) -> Movement:
        if not new.load.running:
            return Movement()
        if not last.load.running:
            # It began to work in between: from now on something is due.
            return Movement()
        if not _moved(last.load, new.load):
            return Movement(still_since=self._movement.still_since or last.at)
        return Movement(tokens_per_second=_rate(last, new))


def _rate(last: _Sample, new: _Sample) -> float | None:
    before, after = last.load.tokens_total, new.load.tokens_total
    span = new.at - last.at
    if before is None or after is None or not SHORTEST <= span <= LONGEST:
        return None
    return (after - before) / span.total_seconds()


def _moved(last: Load, new: Load) -> bool:
    # Some versions count decoded tokens when a request ends only; prompts, ends and the stamp show life too.
    pairs = [*zip(_counters(last), _counters(new), strict=True), (last.stamp, new.stamp)]
    return any(before != after for before, after in pairs if after is not None and before is not None)


def _fell(last: Load, new: Load) -> bool:
    pairs = zip(_counters(last), _counters(new), strict=True)
    return any(before is not None and after is not None and after < before for before, after in pairs)


def _counters(load: Load) -> tuple[float | None, float | None, float | None]:
    return load.tokens_total, load.prompt_tokens_total, load.requests_total
