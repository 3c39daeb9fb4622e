"""How far the usual strays: what a drop is measured against, so that noisy counters ask for more before they alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence

_GROUPS = 14
_HELD_FOR = 20.0
"""How many windows the prior counts for."""

_MEMORY = 2000.0
_FAR = 4.0
_OFF_MOST = 0.05
_MEAN_OVER = 1800.0


class Noise:
    """The downward scatter of log ratios around their own slow mean, by kind of window and by load.

    Around its own mean, since a server that loses pace for days must not pass for a noisy one.
    """

    __slots__ = ("_prior", "_rows")

    def __init__(self, windows: int, prior: float) -> None:
        self._prior = prior
        self._rows = [[[_HELD_FOR, -1.0] for _ in range(_GROUPS)] for _ in range(windows)]

    def learn(self, window: int, running: float, apart: float, weight: float) -> None:
        """Take how far the log ratio of one window was from its mean; far ones count as far, not as how far.

        ``weight`` is the part of the window that is new: windows overlap, and each second counts once.
        """
        row = self._row(window, running)
        seen, variance = row
        apart = max(-_FAR * math.sqrt(variance), min(0.0, apart))
        row[0] = min(seen + weight, _MEMORY)
        row[1] = variance + weight / (seen + weight) * (2 * apart * apart - variance)

    def of(self, window: int, running: float) -> float:
        """The scatter of the log ratio there."""
        return math.sqrt(self._row(window, running)[1])

    def is_known(self, window: int, running: float) -> bool:
        """Whether it was really seen there, for more than the prior counts."""
        return self._row(window, running)[0] > 3 * _HELD_FOR

    def _row(self, window: int, running: float) -> list[float]:
        row = self._rows[window][min(int(math.log2(1 + running) * 1.5), _GROUPS - 1)]
        if row[1] < 0:
            row[1] = (self._prior * (1 + 3 / math.sqrt(1 + running))) ** 2
        return row

    def dump(self) -> list[list[list[float]]]:
        """As plain numbers, for the store."""
        return [[list(row) for row in rows] for rows in self._rows]

    def load(self, rows: Sequence[Sequence[Sequence[float]]]) -> None:
        """The other way round."""
        for mine, theirs in zip(self._rows, rows, strict=False):
            for place, row in enumerate(theirs[:_GROUPS]):
                mine[place] = [float(number) for number in row]


class Means:
    """The slow means of log ratios, one for each kind of window; what went far is a loss, not a habit."""

    __slots__ = ("_values",)

    def __init__(self, windows: int) -> None:
        self._values: list[float | None] = [None] * windows

    def learn(self, window: int, value: float, span: float) -> float:
        """Take a log ratio that was seen for ``span`` seconds more; how far it is from the mean."""
        mean = self._values[window]
        if mean is None:
            self._values[window] = value
            return 0.0
        self._values[window] = mean + span / _MEAN_OVER * (value - mean)
        return value - mean

    def of(self, window: int) -> float:
        """The mean, as far as it may shift what is alarming."""
        return max(-_OFF_MOST, min(_OFF_MOST, self._values[window] or 0.0))


class Slope:
    """How much a second cause (prompts, context) takes off the pace: a line learned from what it did within minutes.

    Only its quick ups and downs count: slow ones go along with load, which the curve knows already.
    """

    __slots__ = ("_co", "_held", "_mean", "_most", "_var", "value")

    def __init__(self, most: float, held: float = 1e-12) -> None:
        self.value = 0.0
        self._most = most
        self._held = held
        self._mean = 0.0
        self._co = 0.0
        self._var = 0.0

    def learn(self, cause: float, slow: float, excess: float, weight: float) -> None:
        """Take a cause, its slow mean, and the excess of tokens over what was expected (a fraction)."""
        apart = cause - slow
        self._co = self._co * (1 - weight * 1e-5) + weight * apart * max(-0.6, min(0.6, excess))
        self._var = self._var * (1 - weight * 1e-5) + weight * apart * apart
        self._mean += weight * 1e-4 * (cause - self._mean)

    def settle(self, step: float = 0.25) -> None:
        """Move the line towards what was seen; called now and then."""
        held = (20_000.0 * self._mean * self._mean * 0.05) + self._held
        change = -self._co / (self._var + held)
        self.value = max(0.0, min(self._most, self.value + step * change))
        self._co *= 1 - step
