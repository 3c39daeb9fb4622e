from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as some

from bot.domain.watching.alerts import Did, State
from bot.domain.watching.samples import Reading, Sample
from bot.domain.watching.timeline import Timeline
from bot.domain.watching.watch import Watch
from tests.domain.watching.watched_fleet import START, Fleet, said, trained

COUNT = some.none() | some.floats(0, 1e9, allow_nan=False)
SMALL = some.none() | some.integers(0, 500)
SAMPLE = some.builds(
    Sample,
    tokens_total=COUNT,
    prompt_tokens_total=COUNT,
    running=SMALL,
    queued=SMALL,
    max_running=SMALL,
    kv_usage=some.none() | some.floats(0, 1),
    accept_length=some.none() | some.floats(0, 10),
    memory_bytes=COUNT,
    memory_limit_bytes=COUNT,
    requests_total=COUNT,
    errors_total=COUNT,
    profile=some.sampled_from([None, "no_buffer", "extra_buffer"]),
    process=some.none() | some.tuples(some.integers(1, 9), some.just(1)),
    is_starting=some.booleans(),
    is_dead=some.booleans(),
)
READING = some.tuples(
    some.integers(-100_000, 100_000) | some.just(5),
    some.dictionaries(some.sampled_from(["gpu0", "gpu1", "gpu2"]), SAMPLE),
    some.none() | some.frozensets(some.sampled_from(["gpu0", "gpu1", "gpu2", "gpu3"])),
    some.frozensets(some.sampled_from(["gpu0", "gpu1"])),
)


@given(some.lists(READING, max_size=60))
@settings(max_examples=40, deadline=None)
def test_no_reading_breaks_the_watcher_and_what_it_tells_hangs_together(steps):
    watch, at = Watch(), START
    live: set[str] = set()
    for seconds, servers, expected, planned in steps:
        at += timedelta(seconds=seconds)
        for change in watch.take(Reading(at, servers, expected, planned)):
            if change.did in (Did.FIRING, Did.RETURNED):
                assert change.alert.id not in live
                live.add(change.alert.id)
            if change.did is Did.RESOLVED:
                live.remove(change.alert.id)
        assert {alert.id for alert in watch.book.alerts if alert.state is State.FIRING} <= live
        assert all(len(set(alert.servers)) == len(alert.servers) for alert in watch.book.alerts)


@given(some.lists(some.integers(-10_000_000, 10_000_000), max_size=200))
def test_steady_time_only_goes_on_and_never_by_a_leap(jumps):
    timeline, at, before = Timeline(), START, 0.0
    timeline.advance(at)
    for jump in jumps:
        at += timedelta(seconds=jump)
        timeline.advance(at)
        assert before < timeline.elapsed <= before + 240
        before = timeline.elapsed


@given(
    some.dictionaries(some.sampled_from(range(0, 120, 5)), some.sampled_from([3, -3, 7, 45, -60, 3600, -3600])),
    some.lists(some.sampled_from([None, None, None, "gpu0", "gpu1"]), min_size=120, max_size=120),
    some.sets(some.integers(0, 119), max_size=2),
)
@settings(max_examples=6, deadline=None)
def test_jumps_of_the_clock_lost_reads_and_restarts_alarm_nobody(jumps, losses, restarts):
    fleet = Fleet(2)
    watch = trained(fleet)
    told, lost_before = [], None
    for number, lost in enumerate(losses):
        fleet.at += timedelta(seconds=jumps.get(number, 0))
        if number in restarts:
            fleet.restart("gpu1")
        if lost is not None and lost != lost_before:
            fleet[lost].is_lost = True
        told += watch.take(fleet.read())
        fleet.every(is_lost=False)
        lost_before = lost
    assert said(told) == []


def test_what_is_kept_does_not_grow():
    fleet = Fleet(2, step=15.0)
    watch = trained(fleet)
    fleet.go(watch, hours=1)
    track = watch._tracks["gpu0"]
    assert len(track.steps) <= 130
    assert len(track._fresh) <= 130
    for number in range(500):
        fleet["gpu0"].extras = {"profile": f"p{number}"}
        fleet.go(watch, seconds=15)
    assert len(watch._usual) <= 10
    assert len(watch._shared) <= 66
