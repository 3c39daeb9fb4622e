"""A steady count of time from a clock that may jump, be set back, or stop being asked for a while.

Everything below counts in these steady seconds (floats, for there are millions of them a day); only what leaves
the package is an instant or a span again.
"""

from __future__ import annotations

import statistics
from collections import deque
from datetime import datetime
from enum import Enum

FORGET_AFTER = 60.0
"""A gap or a jump of more seconds than this makes the recent past worthless."""

_REMEMBERED = 15


class Break(Enum):
    """What lies between two readings."""

    NONE = "none"
    ODD = "odd"  # a step of the clock that no rate may be computed over
    GAP = "gap"  # so long that what was recent is not recent any more


class Timeline:
    """Adds up the spans between readings, taking the usual span where the clock says something odd."""

    __slots__ = ("_last", "_spans", "elapsed", "usual")

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.usual = 5.0
        self._last: datetime | None = None
        self._spans: deque[float] = deque(maxlen=_REMEMBERED)

    def advance(self, at: datetime) -> Break:
        """Go on to a reading; say whether spans that end there can be trusted."""
        last, self._last = self._last, at
        if last is None:
            return Break.GAP
        span = (at - last).total_seconds()
        if 0 < span <= FORGET_AFTER:
            self._spans.append(span)
            self.usual = statistics.median(self._spans)
        kind = self._kind(span)
        self.elapsed += span if kind is Break.NONE else self.usual
        return kind

    def _kind(self, span: float) -> Break:
        if abs(span) > max(FORGET_AFTER, 4 * self.usual):
            return Break.GAP
        if not 0.65 * self.usual <= span <= 1.45 * self.usual:
            return Break.ODD
        return Break.NONE
