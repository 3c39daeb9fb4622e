"""Reads Prometheus text as servers really send it: what can't be read is passed over, never an error.

Only the wanted names are looked at, since an engine's page holds a thousand lines of which ten matter every
five seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_ROW = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*+)[ \t]*+"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*+\")*+)\}[ \t]*+)?"
    r"(?P<value>[^ \t]++)"
)
_LABEL = re.compile(r"(?P<key>[A-Za-z_]\w*+)[ \t]*+=[ \t]*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"")
_ESCAPE = re.compile(r"\\(.)")
_LONGEST_LINE = 16_384
_LARGEST = 1e18
"""No count of tokens or requests is larger; what is, is a broken number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample: its labels and its value, which is finite."""

    labels: Mapping[str, str]
    value: float

    def label(self, key: str) -> str:
        """A label's value, "" where there is none."""
        return self.labels.get(key, "")


@dataclass(frozen=True, slots=True)
class Metrics:
    """The rows of the wanted names, in the order of the page."""

    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[Row, ...]:
        """The rows of a name; () where there is none."""
        return self.rows.get(name, ())

    def __contains__(self, name: str) -> bool:
        return name in self.rows


def read(body: bytes, wanted: Iterable[str]) -> Metrics:
    """Read the wanted names out of a page; NaN, infinite and absurd values count as absent."""
    names = frozenset(wanted)
    found: dict[str, list[Row]] = {}
    for line in body.decode("utf-8", "replace").split("\n"):
        if not line or line[0] == "#" or len(line) > _LONGEST_LINE:
            continue
        name = line.split("{", 1)[0].split(" ", 1)[0].strip()
        if name in names:
            row = _row(line)
            if row is not None:
                found.setdefault(name, []).append(row)
    return Metrics({name: tuple(rows) for name, rows in found.items()})


def _row(line: str) -> Row | None:
    match = _ROW.match(line)
    if match is None:
        return None
    value = _value(match["value"])
    if value is None:
        return None
    labels = {one["key"]: _unescaped(one["value"]) for one in _LABEL.finditer(match["labels"] or "")}
    return Row(labels, value)


def _value(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) <= _LARGEST else None


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def total(rows: Iterable[Row]) -> float | None:
    """The sum, None where there is nothing to sum."""
    values = [row.value for row in rows]
    return sum(values) if values else None


def highest(rows: Iterable[Row]) -> float | None:
    """The largest value, None where there is none."""
    return max((row.value for row in rows), default=None)
