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
_UTC = ("utc", "gmt", "z")
_OFFSET = re.compile(r"(?:utc|gmt)?[+-]\d{1,2}(?::?\d\d)?")
_MEANS_ANOTHER = frozenset((
    *("am", "pm", "a.m", "p.m", "tomorrow", "tonight", "local", "o'clock"),
    *("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    *("cet", "cest", "eet", "eest", "wet", "west", "bst", "msk", "ist", "pst", "pdt", "mst", "mdt", "cst", "cdt"),
    *("est", "edt", "pt", "et", "jst", "kst", "sgt", "hkt", "aest", "aedt"),
))  # fmt: skip
"""Words that make another time of a time of day before them: halves and days, zones that people write short."""
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
    words = text.lower().split()
    if words and all(_SPAN.fullmatch(word) for word in words):
        return _moved(now, _sum(words))
    if words[-1:] and words[-1] in _UTC:
        words.pop()
    if len(words) == 2 and _DAY.fullmatch(words[0]) and _CLOCK.fullmatch(words[1]):
        words = [f"{words[0]}T{words[1]:0>5}"]
    if len(words) != 1:
        return None
    there = _of_day(words[0], now)
    return there + timedelta(days=1) if there is not None else _of_date(words[0])


def length(words: Sequence[str]) -> int:
    """How many of these words say an instant ahead: "2h 30m", "9:00 UTC", "2026-12-01 09:00"; 0 when they do not."""
    spans = next((number for number, word in enumerate(words) if not is_span(word)), len(words))
    if spans or not words or not is_moment(words[0]):
        return spans
    is_split = "t" not in words[0] and len(words) > 1 and _DAY.fullmatch(words[0]) and _CLOCK.fullmatch(words[1])
    used = 2 if is_split else 1
    return used + (words[used : used + 1] != [] and words[used] in _UTC)


def is_of_another(moment_: str, behind: str) -> bool:
    """Whether the words behind a moment make another one of it: "9:00" and "CET", "tomorrow", "on friday"; "2h" and
    "until 9:00".
    """
    words = [word.lower().rstrip("?!.,:;") for word in behind.split()[:2]]
    if not words:
        return False
    lead = words[0] in ("until", "till", "from", "to", "on", "at")
    word = words[-1] if lead else words[0]
    if is_moment(word):
        return True
    if is_span(moment_.rsplit(maxsplit=1)[-1]):
        return False
    return word in _MEANS_ANOTHER or _OFFSET.fullmatch(word) is not None


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
