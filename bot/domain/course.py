"""The course of servers over time: what lies between two readings as points, and points put together into coarser ones.

Instants and spans are plain seconds here (since 1970, in UTC): weeks of a hundred servers are a million numbers, and
what leaves as words is made of spans and instants again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bot.domain.watching.samples import Reading, Sample

LONGEST_STEP = 90.0
"""Between readings that are further apart nothing is known."""

Stat = tuple[float, float, float]
"""The mean, the lowest and the highest."""


class Point(NamedTuple):
    """One server for a while: ``span`` seconds up to ``at``.

    ``tokens`` were decoded in ``measured`` seconds. ``down`` seconds it was dead or could not be read while others
    could, ``starting`` seconds on its way up. Usages are fractions of 1, ``expected`` is tokens a second.
    """

    at: float
    span: float
    tokens: float = 0.0
    measured: float = 0.0
    down: float = 0.0
    starting: float = 0.0
    max_running: int | None = None
    expected: float | None = None
    rate: Stat | None = None
    running: Stat | None = None
    queued: Stat | None = None
    kv_usage: Stat | None = None
    mamba_usage: Stat | None = None


def step(before: Reading | None, now: Reading, expected: Mapping[str, float]) -> dict[str, Point]:
    """A point for each server, of what lies between two readings; none after a pause or a clock that jumped."""
    if before is None:
        return {}
    at, span = now.at.timestamp(), (now.at - before.at).total_seconds()
    if not 0 < span <= LONGEST_STEP or not now.servers:
        return {}
    names = set(now.servers) | (now.expected or frozenset())
    return {
        name: _point(at, span, before.servers.get(name), now.servers.get(name), expected.get(name)) for name in names
    }


def _point(at: float, span: float, old: Sample | None, new: Sample | None, expected: float | None) -> Point:
    if new is None or new.is_dead:
        return Point(at, span, down=span)
    if new.is_starting:
        return Point(at, span, starting=span, max_running=new.max_running)
    tokens = _made(old, new)
    return Point(
        at,
        span,
        tokens=tokens or 0.0,
        measured=span if tokens is not None else 0.0,
        max_running=new.max_running,
        expected=expected,
        rate=_flat(tokens / span if tokens is not None else None),
        running=_flat(new.running),
        queued=_flat(new.queued),
        kv_usage=_flat(new.kv_usage),
        mamba_usage=_flat(new.mamba_usage),
    )


def _made(old: Sample | None, new: Sample) -> float | None:
    """The tokens between two samples of one process; None where that can't be told."""
    if old is None or old.tokens_total is None or new.tokens_total is None:
        return None
    if old.process is not None and new.process is not None and old.process != new.process:
        return None
    made = new.tokens_total - old.tokens_total
    return made if made >= 0 else None


def _flat(value: float | None) -> Stat | None:
    return None if value is None else (value, value, value)


def merged(points: Sequence[Point], at: float | None = None) -> Point:
    """One point for all of these, which are of one server; ``at`` is its end, that of the last one if not told."""
    measured = sum(one.measured for one in points)
    tokens = sum(one.tokens for one in points)
    rates = [one.rate for one in points if one.rate is not None]
    lowest, highest = min((one[1] for one in rates), default=0.0), max((one[2] for one in rates), default=0.0)
    rate = (tokens / measured, lowest, highest) if measured and rates else None
    caps = [one.max_running for one in points if one.max_running is not None]
    usual = [(one.expected, one.span) for one in points if one.expected is not None]
    return Point(
        points[-1].at if at is None else at,
        sum(one.span for one in points),
        tokens,
        measured,
        sum(one.down for one in points),
        sum(one.starting for one in points),
        caps[-1] if caps else None,
        sum(value * weight for value, weight in usual) / sum(weight for _, weight in usual) if usual else None,
        rate,
        _together([(one.running, one.span) for one in points]),
        _together([(one.queued, one.span) for one in points]),
        _together([(one.kv_usage, one.span) for one in points]),
        _together([(one.mamba_usage, one.span) for one in points]),
    )


def _together(stats: Iterable[tuple[Stat | None, float]]) -> Stat | None:
    known = [(stat, weight) for stat, weight in stats if stat is not None]
    total = sum(weight for _, weight in known)
    if not total:
        return None
    mean = sum(stat[0] * weight for stat, weight in known) / total
    return mean, min(stat[1] for stat, _ in known), max(stat[2] for stat, _ in known)


def in_steps(points: Iterable[Point], length: float) -> list[Point]:
    """The same in steps of so many seconds that begin at whole multiples; the last may be unfinished."""
    groups: dict[int, list[Point]] = {}
    for one in points:
        groups.setdefault(int((one.at - 1e-6) // length), []).append(one)
    return [merged(groups[number]) for number in sorted(groups)]


def plain_of(point: Point) -> list[Any]:
    """A point as short plain JSON values, without its instant and span."""
    return [
        round(point.tokens),
        round(point.measured, 1),
        round(point.down, 1),
        round(point.starting, 1),
        point.max_running,
        None if point.expected is None else round(point.expected, 1),
        *(_rounded(stat, 1) for stat in (point.rate, point.running, point.queued)),
        *(_rounded(stat, 3) for stat in (point.kv_usage, point.mamba_usage)),
    ]


def _rounded(stat: Stat | None, digits: int) -> list[float] | None:
    return None if stat is None else [round(value, digits) for value in stat]


def point_of(at: float, span: float, plain: Sequence[Any]) -> Point:
    """A point from its plain values; ValueError or TypeError when they are none."""
    tokens, measured, down, starting, cap, expected, *stats = plain
    rate, running, queued, kv_usage, mamba_usage = (_stat(one) for one in stats)
    return Point(
        at, span, float(tokens), float(measured), float(down), float(starting), cap, expected,
        rate, running, queued, kv_usage, mamba_usage,
    )  # fmt: skip


def _stat(plain: Any) -> Stat | None:
    if plain is None:
        return None
    mean, low, high = plain
    return float(mean), float(low), float(high)
