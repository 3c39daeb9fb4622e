"""How many tokens a second so many running requests usually give: learned in bins, extended by b/(a + c·b).

The two-parameter curve alone can be told what it was never shown, but it is wrong for engines with a knee or with
speculative decoding; bins alone know nothing of loads that were not seen yet. So bins hold what was measured, the
curve only bridges between and beyond them, and beyond the highest known load what is expected lies half way between
"it grows on as fitted" and "it has reached its height". Below the lowest known load a request is expected to be no
slower than there. A bin is a ratio of sums, so that counters which move in lumps average out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

PER_OCTAVE = 4
PLACES = 48
"""Bins up to 4,095 running requests, four to the octave of (1 + requests)."""

_ENOUGH = 60.0
_MEMORY = 48 * 3600.0
_SHRINK = 900.0
_LOADS = tuple(max(2 ** (place / PER_OCTAVE) - 1, 0.05) for place in range(PLACES))


def place_of(running: float) -> float:
    """Where a load lies among the bins."""
    return min(math.log2(1 + running) * PER_OCTAVE, PLACES - 1.001)


class Bins:
    """What was measured: by load, the tokens, the requests' seconds that they took, and for how long it was seen."""

    __slots__ = ("_demands", "_spans", "_tokens", "seconds")

    def __init__(self) -> None:
        self._tokens = [0.0] * PLACES
        self._demands = [0.0] * PLACES
        self._spans = [0.0] * PLACES
        self.seconds = 0.0

    def learn(self, running: float, tokens: float, demand: float, span: float, memory: float = _MEMORY) -> None:
        """Take ``tokens`` made by ``demand`` request-seconds at a load of ``running`` for ``span`` seconds."""
        place = round(place_of(running))
        seen = self._spans[place]
        if seen > memory:
            kept = 1 - span / memory
            self._tokens[place] *= kept
            self._demands[place] *= kept
            self._spans[place] = seen * kept
        self._tokens[place] += tokens
        self._demands[place] += demand
        self._spans[place] += span
        self.seconds += span

    def known(self, enough: float = _ENOUGH) -> list[tuple[int, float, float]]:
        """Bins that were seen long enough: place, log of tokens a second and request, seconds seen."""
        return [
            (place, math.log(self._tokens[place] / self._demands[place]), self._spans[place])
            for place in range(PLACES)
            if self._spans[place] >= enough and self._tokens[place] > 0 and self._demands[place] > 0
        ]

    def dump(self) -> list[list[float]]:
        """As plain numbers, for the store."""
        rows = zip(self._tokens, self._demands, self._spans, strict=True)
        return [[place, *row] for place, row in enumerate(rows) if row[2]]

    def load(self, rows: Sequence[Sequence[float]]) -> None:
        """The other way round; places that do not exist are left out."""
        for place, tokens, demand, span in rows:
            if 0 <= int(place) < PLACES:
                spot = int(place)
                self._tokens[spot], self._demands[spot], self._spans[spot] = tokens, demand, span
        self.seconds = sum(self._spans)


class Table:
    """A finished curve: the log pace at each place, and the range of loads that was really seen."""

    __slots__ = ("_log_paces", "high", "low")

    def __init__(self, log_paces: list[float], low: float, high: float) -> None:
        self._log_paces = log_paces
        self.low = low
        self.high = high

    def pace(self, running: float) -> float:
        """Tokens a second of one request when so many run."""
        where = place_of(running)
        place = int(where)
        below, above = self._log_paces[place], self._log_paces[place + 1]
        return math.exp(below + (where - place) * (above - below))

    def log_pace(self, place: int) -> float:
        """The log of the pace in one bin."""
        return self._log_paces[place]


def fit(bins: Bins) -> Table | None:
    """The curve through the bins; None while none was seen long enough."""
    known = bins.known(300.0) or bins.known()
    if not known:
        return None
    a, c = _parametric(known)
    lows = [-math.log(a + c * load) for load in _LOADS]
    corrections = [(place, pace - lows[place]) for place, pace, _ in known]
    paces = [base + bend for base, bend in zip(lows, _between(corrections), strict=True)]
    first, last = known[0][0], known[-1][0]
    paces[:first] = [paces[first]] * first
    for place in range(last + 1, PLACES):
        flat = paces[last] + math.log(_LOADS[last] / _LOADS[place])
        paces[place] = (flat + paces[place]) / 2
    return Table(paces, _LOADS[first], _LOADS[last])


def adapt(shared: Table, own: Bins) -> Table:
    """The shared curve bent to one server's own bins, as far as those were seen often."""
    known = own.known()
    if not known:
        return shared
    apart = [(place, pace - shared.log_pace(place), min(seconds, 3600.0)) for place, pace, seconds in known]
    level = sum(gap * weight for _, gap, weight in apart) / sum(weight for _, _, weight in apart)
    bends = _between([(place, (gap - level) * weight / (weight + _SHRINK)) for place, gap, weight in apart])
    paces = [shared.log_pace(place) + level + bends[place] for place in range(PLACES)]
    return Table(paces, shared.low, shared.high)


def _parametric(known: list[tuple[int, float, float]]) -> tuple[float, float]:
    """The a and c of 1/pace = a + c·b by least squares, neither of them negative."""
    points = [(_LOADS[place], math.exp(-pace), min(weight, 1800.0)) for place, pace, weight in known]
    total = sum(weight for *_, weight in points)
    load = sum(b * weight for b, _, weight in points) / total
    slow = sum(y * weight for _, y, weight in points) / total
    spread = sum(weight * (b - load) ** 2 for b, _, weight in points)
    slope = sum(weight * (b - load) * (y - slow) for b, y, weight in points) / spread if spread > 0 else 0.0
    slope = max(slope, 0.0)
    if slow - slope * load <= 0:
        return slow * 0.02, slow * 0.98 / load
    return slow - slope * load, slope


def _between(points: list[tuple[int, float]]) -> list[float]:
    """Values at all places: straight lines between the known ones, level beyond them."""
    values = [points[0][1]] * PLACES
    for (left, low), (right, high) in pairwise(points):
        for place in range(left, right + 1):
            values[place] = low + (high - low) * (place - left) / (right - left)
    values[points[-1][0] :] = [points[-1][1]] * (PLACES - points[-1][0])
    return values
