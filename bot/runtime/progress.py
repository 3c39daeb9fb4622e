"""Reads how far a job is from the end of its progress file, and from two looks when it will be done."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.domain.fleet import Progress

READ_LIMIT = 65_536
"""So much of a progress file's end is read, in bytes."""
_LINES = 400
_LINE = 2_000
_MOST = 10**15
_WINDOW = timedelta(minutes=10)
_SPACING = timedelta(seconds=5)
_LONGEST_ETA = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a progress file says; None for what it does not. ``why`` is set when it says nothing at all."""

    done: int | None = None
    total: int | None = None
    rate: float | None = None
    why: str = ""


def read_progress(progress: Progress, data: bytes) -> Reading:
    """Read done, total and rate from the last bytes of the file; never raises, whatever stands there."""
    text = data[-READ_LIMIT:].decode("utf-8", "replace")
    document = _Document(text)
    done = _number(document.find(progress.done))
    total = _number(document.find(progress.total))
    rate = _number(document.find(progress.rate))
    if done is None and total is None:
        return Reading(rate=rate, why="the progress file does not say how far it is")
    return Reading(_whole(done), _whole(total), rate)


class _Document:
    """The text as lines for regular expressions and, parsed when first asked for, as JSON."""

    def __init__(self, text: str) -> None:
        self._lines = [line[:_LINE] for line in re.split(r"[\r\n]+", text) if line.strip()][-_LINES:]
        self._text = text
        self._json: list[Any] | None = None

    def find(self, how: str) -> Any:
        """What a path of keys or a regular expression with a group finds; None where there is nothing."""
        if not how:
            return None
        pattern = _pattern(how)
        return self._search(pattern) if pattern else self._follow(how)

    def _search(self, pattern: re.Pattern[str]) -> str | None:
        # Line by line from the end: the last match counts, and a line's length bounds what a bad pattern costs.
        for line in reversed(self._lines):
            matches = list(pattern.finditer(line))
            if matches:
                return next((group for group in matches[-1].groups() if group is not None), None)
        return None

    def _follow(self, path: str) -> Any:
        if self._json is None:
            self._json = _parsed(self._text, self._lines)
        if not self._json:
            return None
        value = self._json[0]
        for key in path.split("."):
            if isinstance(value, dict):
                value = value.get(key)
            elif (
                isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,6}", key) and -len(value) <= int(key) < len(value)
            ):
                value = value[int(key)]
            else:
                return None
        return value


class Pace:
    """How fast a job's count has grown over the last minutes; a count that goes back begins anew."""

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, int]] = deque()

    def saw(self, at: datetime, done: int) -> None:
        """Note a count."""
        if self._seen and (done < self._seen[-1][1] or at < self._seen[-1][0]):
            self._seen.clear()
        while self._seen and at - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        if not self._seen or at - self._seen[-1][0] >= _SPACING:
            self._seen.append((at, done))

    def forget(self) -> None:
        """Begin anew: while a job stands still its count says nothing about its speed."""
        self._seen.clear()

    def eta(self, at: datetime, done: int, total: int) -> timedelta | None:
        """How long the rest will take at this pace; None while that is not known."""
        if done >= total:
            return timedelta()
        if not self._seen:
            return None
        since, first = self._seen[0]
        grown, spent = done - first, at - since
        if grown <= 0 or spent < _SPACING:
            return None
        seconds = spent.total_seconds() * ((total - done) / grown)
        return timedelta(seconds=round(seconds)) if seconds < _LONGEST_ETA.total_seconds() else None


def _pattern(how: str) -> re.Pattern[str] | None:
    """A regular expression when it holds a group; a word that is no pattern is a path."""
    if "(" not in how:
        return None
    try:
        pattern = re.compile(how)
    except re.error:
        return None
    return pattern if pattern.groups else None


def _parsed(text: str, lines: list[str]) -> list[Any]:
    """The whole text as JSON or, for a file of one object a line, its last line that is one; [] where there is none."""
    candidates = [text, *reversed(lines[-20:])]
    for candidate in candidates:
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict | list):
            return [found]
    return []


def _number(value: Any) -> float | None:
    """A number as JSON or a person writes it ("61,204"); None for anything else, the negative and the endless."""
    if isinstance(value, str):
        text = re.sub(r"(?<=[0-9])[,_ '](?=[0-9]{3})", "", value.strip())
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text, re.ASCII):
            return None
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number <= _MOST else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
