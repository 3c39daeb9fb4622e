"""A chart of tokens a second and of running requests, as values; `bot.domain.svg` draws them.

Up to twelve servers have a line each; of more, the middle half and the middle eight tenths are bands, and only those
that are the matter or stand far below have lines. Colours are those of Okabe and Ito, which people who see red
and green alike can tell apart; whatever has a colour has a dash, a width or a name of its own besides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from bot.domain.course import Point
from bot.domain.phrases import about, count, listing, names, span

MANY = 12
MOST_ODD = 4
MOST_STEPS = 120
ODD_BELOW = 0.75
"""A server below this share of the middle one is drawn by name among many."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
ODD_COLOURS = ("#D55E00", "#CC79A7", "#E69F00", "#000000")
CROWD = "#7A94A6"
USUAL = "#333333"
RUNNING = "#0072B2"
WAITING = "#D55E00"
_DASHES = ("", "7 4", "2 3")
_STEPS = (5, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400)
_TICKS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)

Row = tuple[float | None, ...]
"""A value for each step of the time; None where nothing is known."""


class Kind(Enum):
    """What a mark is about."""

    OPERATION = "operation"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: an operation, or an alert with its end (None: it is on)."""

    kind: Kind
    at: datetime
    label: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A line. An empty ``name`` is in no legend."""

    name: str
    colour: str
    values: Row
    width: float = 2.0
    dash: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """What lies between two rows."""

    name: str
    colour: str
    opacity: float
    lows: Row
    highs: Row


@dataclass(frozen=True, slots=True)
class Panel:
    """One field with its axis; ``ticks`` are values, the last one its height."""

    caption: str
    ticks: tuple[float, ...]
    series: tuple[Series, ...]
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A whole chart. ``steps`` values from ``since`` on, ``step`` apart; ``alt`` is the same in words."""

    title: str
    since: datetime
    until: datetime
    step: timedelta
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...] = ()
    ticks: tuple[tuple[datetime, str], ...] = ()
    alt: str = ""


@dataclass(frozen=True, slots=True)
class _Grid:
    """The steps of time, and servers' rows on them."""

    since: float
    step: float
    size: int

    def row(self, points: Iterable[Point], value: Callable[[Point], tuple[float, float] | None]) -> Row:
        """The mean of values by weight in each step."""
        sums, weights = [0.0] * self.size, [0.0] * self.size
        for point in points:
            found = value(point)
            place = int((point.at - 1e-6 - self.since) // self.step)
            if found is not None and found[1] > 0 and 0 <= place < self.size:
                sums[place] += found[0] * found[1]
                weights[place] += found[1]
        return tuple(total / weight if weight else None for total, weight in zip(sums, weights, strict=True))


def chart(
    courses: Mapping[str, Sequence[Point]],
    everyone: Sequence[str],
    since: datetime,
    until: datetime,
    *,
    subject: Sequence[str] = (),
    marks: Sequence[Mark] = (),
) -> Chart:
    """The chart of these servers; ``everyone`` is their order in the fleet, ``subject`` those that are the matter."""
    order = [name for name in everyone if courses.get(name)]
    about_these = [name for name in order if name in subject]
    if not about_these or len(about_these) == len(order) or len(about_these) > MOST_ODD:
        about_these = []
    grid = _grid(courses, order, since, until)
    rates = {name: grid.row(courses[name], _rate) for name in order}
    usual = _usual(grid, courses, about_these or order)
    who = names(about_these or order, list(everyone)) if order else "nothing"
    return Chart(
        f"tok/s a server, {span(until - since)}",
        since,
        until,
        timedelta(seconds=grid.step),
        (_rate_panel(order, rates, about_these, usual), _running_panel(grid, courses, about_these or order, who)),
        tuple(one for one in marks if (one.until or until) >= since and one.at <= until),
        _time_ticks(since, until),
        _alt(who, rates, about_these or order, usual, until - since),
    )


def _grid(courses: Mapping[str, Sequence[Point]], order: Sequence[str], since: datetime, until: datetime) -> _Grid:
    length = (until - since).total_seconds()
    spans = [point.span for name in order[:3] for point in courses[name][-200:]]
    least = max(length / MOST_STEPS, statistics.median(spans) if spans else 0.0)
    step = float(next((one for one in _STEPS if one >= least * 0.99), _STEPS[-1]))
    return _Grid(since.timestamp(), step, max(1, math.ceil(length / step)))


def _rate(point: Point) -> tuple[float, float] | None:
    """Tokens a second; a server that is dead or on its way makes none."""
    known = point.measured + point.down + point.starting
    return (point.tokens / known, known) if known else None


def _usual(grid: _Grid, courses: Mapping[str, Sequence[Point]], whose: Sequence[str]) -> Row:
    rows = [grid.row(courses[name], lambda one: (one.expected, one.span) if one.expected else None) for name in whose]
    return _middle(rows, grid.size)


def _middle(rows: Sequence[Row], size: int) -> Row:
    found: list[float | None] = []
    for place in range(size):
        known = [row[place] for row in rows]
        values = [value for value in known if value is not None]
        found.append(statistics.median(values) if values else None)
    return tuple(found)


def _rate_panel(order: Sequence[str], rates: Mapping[str, Row], subject: Sequence[str], usual: Row) -> Panel:
    bands: tuple[Band, ...] = ()
    size = len(usual)
    if len(order) > MANY:
        odd = list(subject) or _odd(order, rates, size)
        crowd = [name for name in order if name not in odd]
        bands, series = _crowd(crowd, rates, size)
        series += [_odd_line(name, rates[name], place) for place, name in enumerate(odd)]
    elif subject:
        others = [name for name in order if name not in subject]
        told = f"the other {len(others)}" if len(others) > 1 else others[0]
        series = [
            Series("" if place else told, CROWD, rates[name], 1.3, opacity=0.75) for place, name in enumerate(others)
        ]
        series += [_odd_line(name, rates[name], place) for place, name in enumerate(subject)]
    else:
        series = [
            Series(name, COLOURS[place % len(COLOURS)], rates[name], 1.9, _DASHES[place // len(COLOURS)])
            for place, name in enumerate(order)
        ]
    if any(value is not None for value in usual):
        series.append(Series("usual", USUAL, usual, 1.6, "3 4"))
    highest = max((value for one in series for value in one.values if value is not None), default=0.0)
    highest = max([highest, *(value for band in bands for value in band.highs if value is not None)])
    return Panel("tok/s a server", _value_ticks(highest), tuple(series), bands)


def _odd_line(name: str, row: Row, place: int) -> Series:
    return Series(name, ODD_COLOURS[place], row, 2.8, ("", "9 4", "3 3", "9 3 2 3")[place])


def _odd(order: Sequence[str], rates: Mapping[str, Row], size: int) -> list[str]:
    """The servers that stand furthest below the middle one, by their best of the shares over an eighth of the time."""
    middle = _middle([rates[name] for name in order], size)
    least = max(2, size // 40)
    worst: list[tuple[float, str]] = []
    for name in order:
        shares = sorted(
            value / other for value, other in zip(rates[name], middle, strict=True) if value is not None and other
        )
        if len(shares) >= least and shares[least - 1] < ODD_BELOW:
            worst.append((shares[least - 1], name))
    return [name for _, name in sorted(worst, key=lambda one: one[0])[:MOST_ODD]]


def _crowd(crowd: Sequence[str], rates: Mapping[str, Row], size: int) -> tuple[tuple[Band, ...], list[Series]]:
    rows: list[list[float | None]] = [[], [], [], [], []]
    for place in range(size):
        values = sorted(value for name in crowd if (value := rates[name][place]) is not None)
        for row, share in zip(rows, (0.1, 0.25, 0.5, 0.75, 0.9), strict=True):
            row.append(_share_of(values, share) if values else None)
    low, lower, middle, higher, high = (tuple(row) for row in rows)
    bands = (
        Band(f"8 in 10 of {len(crowd)}", RUNNING, 0.16, low, high),
        Band("half of them", RUNNING, 0.30, lower, higher),
    )
    return bands, [Series("the middle one", RUNNING, middle, 2.2)]


def _share_of(values: Sequence[float], share: float) -> float:
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def _running_panel(grid: _Grid, courses: Mapping[str, Sequence[Point]], whose: Sequence[str], who: str) -> Panel:
    running = _total([grid.row(courses[name], lambda one: _mean(one.running, one)) for name in whose], grid.size)
    waiting = _total([grid.row(courses[name], lambda one: _mean(one.queued, one)) for name in whose], grid.size)
    series = [Series("", RUNNING, running, 2.0)]
    caption = f"requests running, {who}"
    if any(waiting):
        series.append(Series("", WAITING, waiting, 1.8, "5 3"))
        caption = f"requests running, waiting (dashed), {who}"
    highest = max((value for one in series for value in one.values if value is not None), default=0.0)
    return Panel(caption, _value_ticks(highest, 2), tuple(series))


def _mean(stat: tuple[float, float, float] | None, point: Point) -> tuple[float, float] | None:
    return (stat[0], point.span) if stat is not None else None


def _total(rows: Sequence[Row], size: int) -> Row:
    found: list[float | None] = []
    for place in range(size):
        values = [value for row in rows if (value := row[place]) is not None]
        found.append(sum(values) if values else None)
    return tuple(found)


def _value_ticks(highest: float, wanted: int = 4) -> tuple[float, ...]:
    """0 and round values up to one that nothing exceeds."""
    least = max(highest, 1.0) / wanted
    scale = 10.0 ** math.floor(math.log10(least))
    step = next(one * scale for one in (1, 2, 2.5, 5, 10) if one * scale >= least * 0.999)
    return tuple(step * place for place in range(math.ceil(max(highest, 1.0) / step - 1e-3) + 1))


def _time_ticks(since: datetime, until: datetime) -> tuple[tuple[datetime, str], ...]:
    """Round times of day in UTC, five at most; days where they are far apart."""
    length = (until - since).total_seconds()
    step = next((one for one in _TICKS if length / one <= 5), _TICKS[-1])
    first = math.ceil(since.timestamp() / step) * step
    found = []
    for seconds in range(first, int(until.timestamp()) + 1, step):
        at = datetime.fromtimestamp(seconds, UTC)
        found.append((at, f"{at:%H:%M}" if step < 86_400 and (at.hour or at.minute) else f"{at:%b} {at.day}"))
    return tuple(found)


def _alt(who: str, rates: Mapping[str, Row], whose: Sequence[str], usual: Row, length: timedelta) -> str:
    middle = _middle([rates[name] for name in whose], len(usual))
    known = [value for value in middle if value is not None]
    if not known:
        return f"tok/s over {span(length)}: nothing was recorded"
    each = "" if len(whose) == 1 else " each"
    parts = [f"{about(known[0])} tok/s{each} at first, {about(known[-1])} at the end"]
    parts.append(f"between {about(min(known))} and {about(max(known))}")
    if usual[-1] is not None:
        parts.append(f"{about(usual[-1])} is usual now")
    return f"{who} over {span(length)}: {', '.join(parts)}"


def legend(chart_: Chart) -> tuple[Series | Band, ...]:
    """What has a name in the upper panel, lines first."""
    panel = chart_.panels[0]
    return (*(one for one in panel.series if one.name), *panel.bands)


def short(courses: Mapping[str, Sequence[Point]], everyone: Sequence[str]) -> str:
    """What a course says in a few words: "gpu0-gpu7: 5.2k tok/s now, 5.1k on average, 256 running"."""
    order = [name for name in everyone if courses.get(name)]
    if not order:
        return "nothing was recorded"
    last = [courses[name][-1] for name in order]
    now = sum(point.rate[0] for point in last if point.rate is not None)
    running = sum(point.running[0] for point in last if point.running is not None)
    tokens = sum(point.tokens for name in order for point in courses[name])
    longest = max(sum(point.span for point in courses[name]) for name in order)
    off = [name for name in order if courses[name][-1].down]
    words = f"{about(now)} tok/s now, {about(tokens / longest)} on average, {round(running)} running"
    down = f", {count(len(off), 'server')} down ({listing(off[:3])}{' …' if len(off) > 3 else ''})" if off else ""
    return f"{names(order, list(everyone))}: {words}{down}"
