"""How spans, numbers and counts are said, the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta


def span(value: timedelta) -> str:
    """A span as people say it: "40 s", "3 m 40 s", "6 h", "2 h 5 m", "3 d 4 h"."""
    seconds = max(0, round(value.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60} s" if seconds % 60 else f"{seconds // 60} m"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} m" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def stopwatch(value: timedelta) -> str:
    """A running time: "0:30", "12:05", "1:02:03"."""
    seconds = max(0, round(value.total_seconds()))
    if seconds < 3600:
        return f"{seconds // 60}:{seconds % 60:02}"
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def about(value: float) -> str:
    """A number as people say it: "671", "3.9k", "392k", "1.2M"."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= limit * 0.9995:
            scaled = value / limit
            text = f"{scaled:.0f}" if scaled >= 99.95 else f"{scaled:.1f}"
            return f"{text.removesuffix('.0')}{unit}"
    return f"{value:.0f}" if value >= 99.5 or value == round(value) else f"{value:.1f}".removesuffix(".0")


def target(value: float) -> str:
    """A number that a person has set, unrounded: "6.25k"."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def exact(value: int) -> str:
    """A whole number with thousands set apart: "61,204"."""
    return f"{value:,}"


def percent(fraction: float) -> str:
    """A fraction of 1 as a percentage: "21 %"."""
    return f"{fraction * 100:.0f} %"


def count(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: "1 server", "8 servers"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listing(words: Iterable[str], last: str = "and") -> str:
    """Words in a row: "a", "a and b", "a, b and c"."""
    items = list(words)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def names(found: Sequence[str], everything: Sequence[str]) -> str:
    """Servers by name, runs shortened ("gpu0-gpu3"), all of many as "all 8"."""
    if len(found) == len(everything) > 2:
        return f"all {len(found)}"
    result: list[str] = []
    order = {name: place for place, name in enumerate(everything)}
    chosen = sorted(found, key=lambda name: order.get(name, len(order)))
    start = 0
    for end in range(1, len(chosen) + 1):
        is_run = end < len(chosen) and order.get(chosen[end], -9) == order.get(chosen[end - 1], -1) + 1
        if not is_run:
            run = chosen[start:end]
            result.extend([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)
            start = end
    return ", ".join(result)
