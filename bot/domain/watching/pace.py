"""The pace of a server over the last minutes against the usual one, robust against short stalls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from bot.domain.watching.track import Step

NEVER = math.log(0.001)
_COVERED = 0.75
_LEFT_OUT = 3


class Pace(NamedTuple):
    """How fast it went over one window: log of tokens over expected, mean running requests, both rates."""

    value: float
    running: float
    rate: float
    usual: float
    seconds: float


def paces(steps: Sequence[Step], now: float, windows: Sequence[float]) -> list[Pace | None]:
    """The pace over each window that ends now, shortest first; None where too little of it may be judged.

    The slowest steps of a window are left out, a quarter of them and three at most, so that stalls of seconds are no
    slowness.
    """
    found: list[Pace | None] = []
    tally, edge = _Tally(), 0
    for step in reversed(steps):
        middle = step.end - step.span / 2
        while edge < len(windows) and middle < now - windows[edge]:
            found.append(tally.pace(windows[edge]))
            edge += 1
        if edge == len(windows):
            return found
        if not step.is_masked and step.expected > 0:
            tally.add(step)
    return found + [tally.pace(window) for window in windows[edge:]]


class _Tally:
    """The sums over a window that grows into the past."""

    __slots__ = ("_count", "_expected", "_running", "_seconds", "_tokens", "_worst")

    def __init__(self) -> None:
        self._count = 0
        self._seconds = self._tokens = self._expected = self._running = 0.0
        self._worst = [(math.inf, 0.0, 0.0)] * _LEFT_OUT

    def add(self, step: Step) -> None:
        self._count += 1
        self._seconds += step.span
        self._tokens += step.tokens
        self._expected += step.expected
        self._running += (step.low + step.high) / 2 * step.span
        ratio = step.tokens / step.expected
        if ratio < self._worst[-1][0]:
            self._worst[-1] = (ratio, step.tokens, step.expected)
            self._worst.sort()

    def pace(self, window: float) -> Pace | None:
        seconds = self._seconds
        if self._count < 3 or seconds < _COVERED * window:
            return None
        left_out = self._worst[: self._count // 4]
        kept = self._expected - sum(lost for *_, lost in left_out)
        if kept <= 0:
            return None
        ratio = (self._tokens - sum(made for _, made, _ in left_out)) / kept
        value = math.log(ratio) if ratio > 0.001 else NEVER
        return Pace(value, self._running / seconds, self._tokens / seconds, self._expected / seconds, seconds)


def low_since(steps: Sequence[Step], share: float) -> float | None:
    """Since when steps have been below ``share`` of the expected, two good ones in a row apart; steady seconds."""
    since = None
    for later, step in pairwise([*reversed(steps)]):
        if _is_good(later, share) and _is_good(step, share):
            break
        if not _is_good(later, share):
            since = later.end - later.span
    return since


def _is_good(step: Step, share: float) -> bool:
    return step.expected > 0 and step.tokens >= share * step.expected
