"""Draws a chart as SVG: for a phone's width first, on a light card that stands on light and on dark alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from html import escape

from bot.domain.charting import Band, Chart, Kind, Panel, Row, Series, legend
from bot.domain.phrases import about

WIDTH = 500
LEFT, RIGHT = 58, 18
UPPER, LOWER = 188, 74
_TEXT = 'font-family="DejaVu Sans"'
_INK, _SOFT, _GRID, _CARD = "#1d1c1d", "#5b5a5c", "#dcdad6", "#fbfaf7"
_MARKS = {Kind.OPERATION: "#0072B2", Kind.ALERT: "#B84300"}
_LETTER = 0.62
"""How wide a letter is on average, of its height."""
_LONGEST_NAME = 22
_Height = Callable[[float], float]


def drawing(chart: Chart) -> str:
    """The whole picture as SVG."""
    return _Drawing(chart).text()


def _said(text: str, most: int = 60) -> str:
    """Foreign text as XML's: shortened, without what XML can't hold."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")


def _text(x: float, y: float, text: str, size: int = 15, *, colour: str = _INK, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT} font-size="{size}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
    )


def _wide(text: str, size: float) -> float:
    return len(text) * size * _LETTER


class _Drawing:
    """Where everything lies, from the top down."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.since, self.until = chart.since.timestamp(), chart.until.timestamp()
        self.parts: list[str] = []

    def text(self) -> str:
        y = 28.0
        self.parts.append(_text(16, y, _said(self.chart.title), 19))
        self.parts.append(
            _text(WIDTH - 16, y, f"{self.chart.until.astimezone(UTC):%b %-d, %H:%M} UTC", colour=_SOFT, anchor="end")
        )
        y = self._legend(y + 26)
        y = self._labels(y)
        top = y + 4
        upper, lower = self.chart.panels
        self._spans(top, top + UPPER)
        self._panel(upper, top, UPPER)
        caption = top + UPPER + 28
        self.parts.append(_text(16, caption, _said(lower.caption, 49), colour=_SOFT))
        begin = caption + 18
        self._spans(begin, begin + LOWER)
        self._panel(lower, begin, LOWER)
        bottom = begin + LOWER
        self._marks(top, top + UPPER, begin, bottom)
        self.parts.extend(self._times(bottom + 21))
        height = bottom + 32
        card = (
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.1f}" rx="8" fill="{_CARD}" '
            'stroke="#8a8886" stroke-opacity="0.55"/>'
        )
        size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        return "".join([head, card, *self.parts, "</svg>"])

    # Above the panels

    def _legend(self, y: float) -> float:
        x = 16.0
        for one in legend(self.chart):
            name = _short(one.name)
            width = 34 + _wide(name, 15) + 14
            if x > 16 and x + width > WIDTH - 8:
                x, y = 16.0, y + 23
            if isinstance(one, Band):
                self.parts.append(
                    f'<rect x="{x:.1f}" y="{y - 12:.1f}" width="26" height="13" fill="{one.colour}" '
                    f'fill-opacity="{one.opacity + 0.08:.2f}"/>'
                )
            else:
                self.parts.append(f'<path d="M{x:.1f} {y - 5:.1f}h26" {_stroke(one)}/>')
            self.parts.append(_text(x + 33, y, _said(name)))
            x += width
        return y + 12

    def _labels(self, y: float) -> float:
        """The names of marks, in two rows at most; a mark without room keeps its sign."""
        ends = [0.0, 0.0]
        rows = 0
        for mark in sorted(self.chart.marks, key=lambda one: one.at):
            at = max(self._x(mark.at.timestamp()), LEFT)
            label = _short(mark.label, 30)
            width = _wide(label, 14) + 20
            x = min(at - 7, WIDTH - 8 - width)
            row = next((number for number, end in enumerate(ends) if x >= end), None)
            if row is None:
                continue
            ends[row] = x + width + 6
            rows = max(rows, row + 1)
            line = y + 12 + row * 20
            self.parts.append(_sign(mark.kind, x + 7, line - 5))
            self.parts.append(_text(x + 17, line, _said(label), 14, colour=_MARKS[mark.kind]))
        return y + 12 + rows * 20 - (8 if rows else 12)

    # The panels

    def _x(self, at: float) -> float:
        share = (at - self.since) / max(self.until - self.since, 1.0)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def _xs(self, size: int) -> list[float]:
        step = self.chart.step.total_seconds()
        return [self._x(min(self.since + (place + 0.5) * step, self.until)) for place in range(size)]

    def _panel(self, panel: Panel, top: float, height: float) -> None:
        highest = panel.ticks[-1]

        def y(value: float) -> float:
            return top + height * (1 - min(value / highest, 1.0))

        for tick in panel.ticks:
            self.parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="{_GRID if tick else _SOFT}"/>')
            self.parts.append(_text(LEFT - 8, y(tick) + 5, about(tick), colour=_SOFT, anchor="end"))
        for band in panel.bands:
            for path in _areas(self._xs(len(band.lows)), band.lows, band.highs, y):
                self.parts.append(f'<path d="{path}" fill="{band.colour}" fill-opacity="{band.opacity}"/>')
        for one in panel.series:
            path = _line(self._xs(len(one.values)), one.values, y)
            if path:
                self.parts.append(f'<path d="{path}" {_stroke(one)}/>')

    def _spans(self, top: float, bottom: float) -> None:
        """While an alert is on, the field behind it is tinted."""
        for mark in self.chart.marks:
            if mark.kind is Kind.ALERT:
                left = self._x(mark.at.timestamp())
                right = self._x((mark.until or self.chart.until).timestamp())
                self.parts.append(
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 1):.1f}" '
                    f'height="{bottom - top:.1f}" fill="#D55E00" fill-opacity="0.10"/>'
                )

    def _marks(self, *edges: float) -> None:
        for mark in self.chart.marks:
            if mark.at < self.chart.since:
                continue
            x = self._x(mark.at.timestamp())
            top, upper, lower, bottom = edges
            self.parts.append(
                f'<path d="M{x:.1f} {top:.1f}V{upper:.1f}M{x:.1f} {lower:.1f}V{bottom:.1f}" '
                f'stroke="{_MARKS[mark.kind]}" stroke-width="1.4" stroke-dasharray="2 3"/>'
            )

    def _times(self, y: float) -> Iterator[str]:
        for at, label in self.chart.ticks:
            x = self._x(at.timestamp())
            yield f'<path d="M{x:.1f} {y - 21:.1f}v5" stroke="{_SOFT}"/>'
            yield _text(min(x, WIDTH - 8 - _wide(label, 15) / 2), y, label, colour=_SOFT, anchor="middle")


def _short(name: str, most: int = _LONGEST_NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _stroke(one: Series) -> str:
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    return (
        f'fill="none" stroke="{one.colour}" stroke-width="{one.width}" stroke-opacity="{one.opacity}" '
        f'stroke-linejoin="round"{dash}'
    )


def _sign(kind: Kind, x: float, y: float) -> str:
    shape = "M0 -6L6 0L0 6L-6 0Z" if kind is Kind.OPERATION else "M-6 -5H6L0 6Z"
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{shape}" fill="{_MARKS[kind]}"/>'


def _line(xs: Sequence[float], row: Row, y: _Height) -> str:
    """A path that breaks where nothing is known; a value alone is a short dash."""
    parts: list[str] = []
    is_down = False
    for place, (x, value) in enumerate(zip(xs, row, strict=True)):
        if value is None:
            is_down = False
            continue
        parts.append(f"{'L' if is_down else 'M'}{x:.1f} {y(value):.1f}")
        if not is_down and (place + 1 == len(row) or row[place + 1] is None):
            parts.append("h1.5")
        is_down = True
    return "".join(parts)


def _areas(xs: Sequence[float], lows: Row, highs: Row, y: _Height) -> Iterator[str]:
    run: list[tuple[float, float, float]] = []
    for x, low, high in [*zip(xs, lows, highs, strict=True), (0.0, None, None)]:
        if low is not None and high is not None:
            run.append((x, y(low), y(high)))
        elif run:
            there = "L".join(f"{at:.1f} {upper:.1f}" for at, _, upper in run)
            back = "L".join(f"{at:.1f} {lower:.1f}" for at, lower, _ in reversed(run))
            yield f"M{there}L{back}Z"
            run = []
