"""Points between readings, and points put together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.course import Point, in_steps, merged, plain_of, point_of, step
from bot.domain.watching.samples import Reading, Sample

AT = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


def reading(seconds: float, **servers: Sample) -> Reading:
    return Reading(AT + timedelta(seconds=seconds), servers, frozenset({"gpu0", "gpu1"}))


def test_a_step_has_the_tokens_between_two_readings_and_what_the_second_shows() -> None:
    before = reading(0, gpu0=Sample(tokens_total=1000, process=(7, 1)), gpu1=Sample(tokens_total=5))
    now = reading(5, gpu0=Sample(4000, running=30, queued=2, max_running=37, kv_usage=0.5, process=(7, 1)))
    assert step(before, now, {"gpu0": 655.0}) == {
        "gpu0": Point(
            now.at.timestamp(), 5.0, 3000, 5.0, max_running=37, expected=655.0,
            rate=(600.0, 600.0, 600.0), running=(30, 30, 30), queued=(2, 2, 2), kv_usage=(0.5, 0.5, 0.5),
        ),
        "gpu1": Point(now.at.timestamp(), 5.0, down=5.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Sample(4000), Sample(10)),
        (Sample(4000, process=(7, 1)), Sample(9000, process=(8, 2))),
        (Sample(), Sample(10)),
        (Sample(10), Sample()),
    ],
)
def test_over_a_restart_or_without_a_counter_no_rate_is_told(old: Sample, new: Sample) -> None:
    point = step(reading(0, gpu0=old), reading(5, gpu0=new), {})["gpu0"]
    assert (point.rate, point.tokens, point.measured, point.down) == (None, 0.0, 0.0, 0.0)


def test_dead_and_starting_are_told_apart() -> None:
    now = reading(5, gpu0=Sample(is_dead=True), gpu1=Sample(is_starting=True))
    found = step(reading(0), now, {})
    assert (found["gpu0"].down, found["gpu1"].starting, found["gpu1"].down) == (5.0, 5.0, 0.0)


@pytest.mark.parametrize("seconds", [0, -3600, 3600])
def test_a_pause_or_a_clock_that_jumped_gives_nothing(seconds: float) -> None:
    one = Sample(tokens_total=1)
    assert step(reading(0, gpu0=one), reading(seconds, gpu0=one), {}) == {}
    assert step(None, reading(0, gpu0=one), {}) == {}


def test_a_reading_that_saw_nobody_says_nothing_of_anybody() -> None:
    assert step(reading(0, gpu0=Sample(1)), reading(5), {}) == {}


def test_merged_is_weighted_by_time_and_keeps_the_extremes() -> None:
    slow = Point(10, 10, 1000, 10, rate=(100, 90, 110), running=(10, 10, 10), expected=200.0)
    fast = Point(15, 5, 2000, 5, rate=(400, 380, 420), running=(40, 40, 40), max_running=37)
    gone = Point(20, 5, down=5)
    assert merged([slow, fast, gone]) == Point(
        20, 20, 3000, 15, 5, 0, 37, 200.0, rate=(200.0, 90, 420), running=(20.0, 10, 40)
    )


points = st.builds(
    lambda at, rate: Point(at, 5.0, rate * 5, 5.0, rate=(rate, rate, rate)),
    st.integers(1, 400).map(lambda number: number * 5.0),
    st.floats(0, 1e6),
)


@given(st.lists(points, min_size=1, max_size=50, unique_by=lambda one: one.at), st.sampled_from([10.0, 60.0, 600.0]))
def test_steps_lose_no_token_and_no_second(found: list[Point], length: float) -> None:
    found.sort()
    steps = in_steps(found, length)
    assert sum(one.tokens for one in steps) == pytest.approx(sum(one.tokens for one in found))
    assert sum(one.span for one in steps) == pytest.approx(sum(one.span for one in found))
    assert all(one.span <= length for one in steps)
    assert in_steps(steps, length) == steps


def test_plain_values_come_back() -> None:
    one = Point(20, 20, 3000, 15, 5, 0, 37, 200.0, (200.0, 90, 420), (20.0, 10, 40), None, (0.2, 0.1, 0.3), None)
    assert point_of(20, 20, plain_of(one)) == one
    with pytest.raises((ValueError, TypeError)):
        point_of(20, 20, [1, 2])
