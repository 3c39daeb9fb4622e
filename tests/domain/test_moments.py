"""When a person means, said in a word or two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.moments import ahead, is_moment, moment, time_of_day

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("2h", datetime(2026, 11, 30, 1, 0, tzinfo=UTC)),
        ("90s", datetime(2026, 11, 30, 2, 58, 30, tzinfo=UTC)),
        ("10min", datetime(2026, 11, 30, 2, 50, tzinfo=UTC)),
        ("1d 12h", datetime(2026, 11, 28, 15, 0, tzinfo=UTC)),
        ("1W", datetime(2026, 11, 23, 3, 0, tzinfo=UTC)),
        ("02:59", datetime(2026, 11, 30, 2, 59, tzinfo=UTC)),
        ("3:00", NOW),
        ("03:12", datetime(2026, 11, 29, 3, 12, tzinfo=UTC)),
        ("2026-11-29", datetime(2026, 11, 29, tzinfo=UTC)),
        ("2026-11-29t23:30", datetime(2026, 11, 29, 23, 30, tzinfo=UTC)),
    ],
)
def test_spans_times_of_day_and_dates_are_understood(text: str, then: datetime) -> None:
    assert moment(text, NOW) == then
    assert all(is_moment(word) for word in text.split())


@pytest.mark.parametrize(
    "text", ["", "2", "h", "25:00", "3:60", "2 hours", "2h ago", "2h 03:12", "2026-13-01", "12345h", "-2h", "gpu3"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert moment(text, NOW) is None


@given(st.text(max_size=30), st.integers(-10_000, 10_000))
def test_any_text_is_a_time_or_none(text: str, days: int) -> None:
    moment(text, NOW + timedelta(days=days))


@given(st.from_regex(r"[0-9]{1,4}(s|m|min|h|d|w)|[0-9:]{4,5}|\d{4}-\d\d-\d\d", fullmatch=True))
def test_what_is_nearly_a_time_is_one_or_none(text: str) -> None:
    then = moment(text, NOW)
    assert then is None or then.tzinfo is not None


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("9:00", datetime(2026, 11, 30, 9, 0, tzinfo=UTC)),
        ("03:00", datetime(2026, 12, 1, 3, 0, tzinfo=UTC)),
        ("02:59", datetime(2026, 12, 1, 2, 59, tzinfo=UTC)),
        ("2h", datetime(2026, 11, 30, 5, 0, tzinfo=UTC)),
        ("1h 30m", datetime(2026, 11, 30, 4, 30, tzinfo=UTC)),
        ("2026-12-01T09:00", datetime(2026, 12, 1, 9, 0, tzinfo=UTC)),
        ("2026-11-29", datetime(2026, 11, 29, tzinfo=UTC)),
    ],
)
def test_ahead_a_time_of_day_is_the_next_one(text: str, then: datetime) -> None:
    assert ahead(text, NOW) == then


@pytest.mark.parametrize("text", ["", "noon", "2h 9:00", "9:00 10:00", "9999w " * 66])
def test_what_is_no_time_ahead_is_none(text: str) -> None:
    assert ahead(text, NOW) is None


def test_what_lies_beyond_the_calendar_is_no_time() -> None:
    assert moment("9999w " * 66, NOW) is None


def test_an_instant_ahead_is_told_with_its_zone() -> None:
    assert time_of_day(datetime(2026, 11, 30, 9, 0, tzinfo=UTC), NOW) == "09:00 UTC"
    assert time_of_day(datetime(2026, 12, 2, 9, 0, tzinfo=UTC), NOW) == "2026-12-02 09:00 UTC"
