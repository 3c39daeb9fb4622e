"""When a person means: "2h", "1d", "03:12", "2026-11-30", "2026-11-30T03:12". Times of day are in UTC.

Of the past a time of day is the last such moment (said at 01:00, 03:12 was yesterday), ahead it is the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

USUAL_PAST = timedelta(hours=24)
"""What is meant by the past when nobody says when."""

_SPAN = re.compile(r"(?P<number>\d{1,4})(?P<unit>s|m|min|h|d|w)", re.IGNORECASE)
_CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?:t\d\d:\d\d)?", re.IGNORECASE)
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def is_moment(word: str) -> bool:
    """Whether a word is one that says when."""
    return any(pattern.fullmatch(word) for pattern in (_SPAN, _CLOCK, _DAY))


def moment(text: str, now: datetime) -> datetime | None:
    """The instant that is meant; None when it is none. Several spans add up ("1d 12h")."""
    words = text.split()
    if not words:
        return None
    if all(_SPAN.fullmatch(word) for word in words):
        return _moved(now, -_sum(words))
    return _of_day(words[0], now) or _of_date(words[0]) if len(words) == 1 else None


def is_span(word: str) -> bool:
    """Whether a word says how long."""
    return _SPAN.fullmatch(word) is not None


def ahead(text: str, now: datetime) -> datetime | None:
    """The instant ahead that is meant; a date may be past already. None when it is none; several spans add up."""
    words = text.split()
    if words and all(_SPAN.fullmatch(word) for word in words):
        return _moved(now, _sum(words))
    if len(words) != 1:
        return None
    there = _of_day(words[0], now)
    return there + timedelta(days=1) if there is not None else _of_date(words[0])


def time_of_day(at: datetime, now: datetime) -> str:
    """An instant ahead as one would type it, with its zone: "09:00 UTC", beyond a day "2026-12-02 09:00 UTC"."""
    there = at.astimezone(UTC)
    return f"{there:%H:%M} UTC" if at - now < timedelta(days=1) else f"{there:%Y-%m-%d %H:%M} UTC"


def _sum(words: Sequence[str]) -> timedelta:
    return sum((_span(word) for word in words), timedelta())


def _moved(now: datetime, by: timedelta) -> datetime | None:
    """None where the calendar ends."""
    try:
        return now + by
    except OverflowError:
        return None


def _span(word: str) -> timedelta:
    match = _SPAN.fullmatch(word)
    assert match is not None  # noqa: S101 - the caller has looked; this is for the type checker
    return int(match["number"]) * _UNITS[match["unit"].lower()]


def _of_day(word: str, now: datetime) -> datetime | None:
    match = _CLOCK.fullmatch(word)
    if match is None:
        return None
    there = datetime.combine(now.date(), time(int(match["hour"]), int(match["minute"])), UTC)
    return there if there <= now else there - timedelta(days=1)


def _of_date(word: str) -> datetime | None:
    try:
        if len(word) == len("2026-11-30"):
            return datetime.combine(date.fromisoformat(word), time(), UTC)
        return datetime.fromisoformat(word.upper()).replace(tzinfo=UTC)
    except ValueError:
        return None
