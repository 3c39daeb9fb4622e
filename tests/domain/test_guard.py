"""What the guard says of a server before it is ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.facts import Load, Movement, ServerFacts
from bot.domain.guard import rate

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
STILL = Movement(still_since=NOW - timedelta(seconds=9))


@pytest.mark.parametrize(
    ("load", "movement", "expected"),
    [
        (Load(running=8, tokens_per_second=671.0), Movement(tokens_per_second=640.0), 640.0),
        (Load(running=8, tokens_per_second=671.0), Movement(), 671.0),
        (Load(running=8, tokens_per_second=671.0), STILL, 0.0),
        (Load(running=8, tokens_per_second=671.0, counts_at_end=True), STILL, 671.0),
        (Load(running=8, tokens_per_second=0.0), Movement(), None),
        (Load(running=0, tokens_per_second=671.0), STILL, 0.0),
        (Load(), Movement(), None),
    ],
)
def test_the_rate_is_what_was_measured_and_a_stale_gauge_is_not_believed(load, movement, expected):
    assert rate(ServerFacts("gpu3", NOW, load=load, movement=movement)) == expected
