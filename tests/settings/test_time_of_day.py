"""When the report is told: times of day as people write them."""

from __future__ import annotations

from datetime import time

import pytest

from bot.domain.errors import ConfigError
from bot.settings import parse_fleet
from tests.settings.test_mistakes import KNOWN, RIGHT


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("8:00", time(8)),
        ("08:00", time(8)),
        ('"23:30"', time(23, 30)),
        ("0:05", time(0, 5)),
        ("8:00 UTC", time(8)),
        ("19:45", time(19, 45)),
        ("", None),
    ],
)
def test_a_time_of_day_is_read_with_and_without_quotes(text: str, at: time | None) -> None:
    fleet = parse_fleet(f"{RIGHT}\nlimits:\n  report_at: {text}\n".encode(), "f.yaml", **KNOWN)
    assert fleet.limits.report_at == at


@pytest.mark.parametrize("text", ["8", "25:00", "8:60", "8 o'clock", "[8]", "true", "8:00:00", "-1"])
def test_what_is_no_time_of_day_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.report_at: must be a time of day in UTC, such as 8:00, not "):
        parse_fleet(f"{RIGHT}\nlimits:\n  report_at: {text}\n".encode(), "f.yaml", **KNOWN)
