"""Samples that somebody else has read a while before: their own time counts, and none counts twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.watching.samples import Reading, Sample
from bot.domain.watching.timeline import Break
from bot.domain.watching.track import Track
from bot.domain.watching.watch import Watch

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def sample(tokens: float, age: float | None) -> Sample:
    return Sample(tokens_total=tokens, running=32, queued=0, age=age)


def test_a_step_spans_the_time_between_the_samples_not_between_the_readings() -> None:
    track = Track(0.0)
    track.take(sample(0.0, 4.0), 96.0, Break.NONE)
    raw = track.take(sample(10_000.0, 9.0), 111.0, Break.NONE)
    assert raw is not None
    assert (raw.end, raw.span, raw.tokens) == (111.0, 15.0, 10_000.0)


def test_the_same_sample_again_says_nothing_and_an_older_one_is_no_new_process() -> None:
    track = Track(0.0)
    track.take(sample(10_000.0, 4.0), 96.0, Break.NONE)
    assert track.take(sample(10_000.0, 9.0), 96.0, Break.NONE) is None
    assert track.take(sample(9_000.0, 12.0), 94.5, Break.NONE) is None
    assert (track.reads, track.misses, track.still_seconds, len(track.restarts)) == (1, 0, 0.0, 0)


def test_a_sample_of_no_age_is_what_it_was_before() -> None:
    track = Track(0.0)
    track.take(sample(10_000.0, None), 96.0, Break.NONE)
    track.take(sample(9_000.0, None), 96.2, Break.NONE)
    assert len(track.restarts) == 1


@given(st.lists(st.tuples(st.floats(1, 40), st.floats(0, 60) | st.none(), st.floats(-500, 20_000)), max_size=60))
def test_whatever_ages_come_the_watch_goes_on(steps: list[tuple[float, float | None, float]]) -> None:
    watch, at, tokens = Watch(), NOON, 0.0
    for span, age, more in steps:
        at, tokens = at + timedelta(seconds=span), max(0.0, tokens + more)
        watch.take(Reading(at, {"gpu0": sample(tokens, age), "gpu1": sample(tokens, None)}))
    assert set(watch.expected()) <= {"gpu0", "gpu1"}
