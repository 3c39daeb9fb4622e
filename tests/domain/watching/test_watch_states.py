from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.watching.samples import JobSample
from bot.domain.watching.watch import Watch
from tests.domain.watching.watched_fleet import Fleet, said, trained

ALL = tuple(f"gpu{number}" for number in range(8))
GIB = float(1 << 30)


def test_a_server_that_can_not_be_read_is_down_within_twenty_seconds_and_up_when_it_makes_tokens():
    fleet = Fleet()
    watch = trained(fleet)
    before = fleet.at
    fleet["gpu4"].is_lost = True
    changes = fleet.go(watch, minutes=5)
    assert said(changes) == [("firing", "down", ("gpu4",))]
    assert changes[0].at - before <= timedelta(seconds=20)
    assert changes[0].alert.evidence == {"lost_reads": 60, "is_seen_dead": False, "for_seconds": 295.0} | {
        "lost_reads": changes[0].alert.evidence["lost_reads"],
        "for_seconds": changes[0].alert.evidence["for_seconds"],
    }
    fleet["gpu4"].is_lost = False
    fleet.restart("gpu4")
    assert said(fleet.go(watch, minutes=2)) == [("resolved", "down", ("gpu4",))]


def test_a_server_that_is_seen_to_be_dead_needs_two_looks():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu4"].extras = {"is_dead": True}
    assert said(fleet.go(watch, seconds=5)) == []
    changes = fleet.go(watch, seconds=5)
    assert said(changes) == [("firing", "down", ("gpu4",))]
    assert changes[0].alert.evidence["is_seen_dead"] is True


def test_a_server_on_its_way_up_is_not_up():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu4"].extras = {"is_dead": True}
    fleet.go(watch, minutes=1)
    fleet["gpu4"].extras = {"is_starting": True}
    fleet["gpu4"].running = 0
    fleet.restart("gpu4")
    assert said(fleet.go(watch, minutes=4)) == []
    fleet["gpu4"].extras = {}
    assert said(fleet.go(watch, minutes=1)) == [("resolved", "down", ("gpu4",))]


def test_a_crash_of_the_fleet_is_one_alert():
    fleet = Fleet()
    watch = trained(fleet)
    for name in ALL[:5]:
        fleet[name].is_lost = True
    told = fleet.go(watch, seconds=10)
    for name in ALL[5:]:
        fleet[name].is_lost = True
    told += fleet.go(watch, minutes=3)
    assert said(told) == [("firing", "down", ALL[:5]), ("joined", "down", ALL[5:])]
    assert len({change.alert.id for change in told}) == 1
    fleet.every(is_lost=False)
    assert said(fleet.go(watch, minutes=1)) == [("resolved", "down", ALL)]


def test_single_lost_reads_are_nothing():
    fleet = Fleet()
    watch = trained(fleet)
    told = []
    for number in range(60):
        lost = fleet[f"gpu{number % 8}"]
        lost.is_lost = True
        told += fleet.go(watch, seconds=10)
        lost.is_lost = False
        told += fleet.go(watch, seconds=10)
    assert said(told) == []


def test_requests_without_tokens_are_a_hang_within_thirty_seconds():
    fleet = Fleet()
    watch = trained(fleet)
    before = fleet.at
    fleet["gpu2"].speed, fleet["gpu2"].prompts, fleet["gpu2"].queued = 0.0, 0.0, 4
    changes = fleet.go(watch, minutes=5)
    assert said(changes) == [("firing", "hung", ("gpu2",))]
    assert changes[0].at - before <= timedelta(seconds=25)
    assert changes[0].alert.since - before <= timedelta(seconds=5)
    assert changes[0].alert.evidence["queued"] == 4
    fleet["gpu2"].speed, fleet["gpu2"].prompts, fleet["gpu2"].queued = 1.0, 1000.0, 0
    assert said(fleet.go(watch, minutes=10)) == [("resolved", "hung", ("gpu2",))]


def test_a_gauge_that_stays_for_half_a_minute_after_the_last_request_is_no_hang():
    fleet = Fleet()
    watch = trained(fleet)
    fleet.every(speed=0.0, prompts=0.0)
    told = fleet.go(watch, seconds=30)
    fleet.every(running=0)
    told += fleet.go(watch, minutes=10)
    assert said(told) == []


def test_a_long_prefill_is_no_hang():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu2"].speed, fleet["gpu2"].queued = 0.0, 2
    assert ("firing", "hung", ("gpu2",)) not in said(fleet.go(watch, minutes=3))


def test_counters_that_often_stand_still_ask_for_more_before_they_mean_a_hang():
    fleet = Fleet(1)
    watch = trained(fleet)
    server, told = fleet["gpu0"], []
    server.prompts, server.queued = 0.0, 1
    for _ in range(40):
        server.speed = 0.0
        told += fleet.go(watch, seconds=15)
        server.speed = 4.0
        told += fleet.go(watch, seconds=5)
    server.speed = 0.0
    told += fleet.go(watch, seconds=25)
    assert ("firing", "hung", ("gpu0",)) not in said(told)
    assert ("firing", "hung", ("gpu0",)) in said(fleet.go(watch, seconds=30))


def test_a_queue_beside_free_seats_is_starved():
    fleet = Fleet()
    fleet.every(running=37, queued=9)
    watch = Watch()
    assert said(fleet.go(watch, minutes=30)) == []
    fleet["gpu6"].running = 22
    changes = fleet.go(watch, minutes=2)
    assert said(changes) == [("firing", "starved", ("gpu6",))]
    assert changes[0].alert.evidence["usual_seats"] == pytest.approx(37)
    assert changes[0].alert.evidence["running"] == 22
    fleet["gpu6"].running = 37
    assert said(fleet.go(watch, minutes=2)) == [("resolved", "starved", ("gpu6",))]


def test_a_server_whose_seats_were_always_fewer_than_it_says_is_not_starved():
    fleet = Fleet(seats=64)
    fleet.every(running=37, queued=9)
    assert said(fleet.go(Watch(), hours=1)) == []


def test_a_full_cache_explains_a_queue_beside_free_seats():
    fleet = Fleet()
    fleet.every(running=37, queued=9)
    watch = Watch()
    fleet.go(watch, minutes=30)
    fleet["gpu6"].running, fleet["gpu6"].extras = 22, {"kv_usage": 0.97}
    assert said(fleet.go(watch, minutes=5)) == []


def test_a_server_that_comes_up_again_and_again_is_a_crash_loop():
    fleet = Fleet()
    watch = trained(fleet)
    told = []
    for _ in range(3):
        fleet["gpu1"].is_lost = True
        told += fleet.go(watch, minutes=1)
        fleet["gpu1"].is_lost = False
        fleet.restart("gpu1")
        told += fleet.go(watch, minutes=2)
    firing = [change for change in told if change.did.value == "firing"]
    assert [change.alert.cause.value for change in firing] == ["down", "crash_loop"]
    assert firing[-1].alert.evidence["restarts"] == 3
    assert said(fleet.go(watch, minutes=30)) == [("resolved", "crash_loop", ("gpu1",))]


def test_errors_in_a_part_of_the_requests_are_told():
    fleet = Fleet(2)
    watch = trained(fleet)
    told = []
    for number in range(60):
        fleet["gpu0"].extras = {"requests_total": 20.0 * number, "errors_total": 3.0 * number}
        told += fleet.go(watch, seconds=10)
    assert said(told) == [("firing", "error_rate", ("gpu0",))]
    assert told[0].alert.evidence["share"] == pytest.approx(0.15)


def test_clocks_held_down_are_told_when_the_pace_does_not_show_it_yet():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu0"].extras = {"clock_limits": ("hw slowdown",)}
    changes = fleet.go(watch, minutes=3)
    assert said(changes) == [("firing", "gpu_clock_limited", ("gpu0",))]
    fleet["gpu0"].extras = {}
    assert said(fleet.go(watch, minutes=1)) == [("resolved", "gpu_clock_limited", ("gpu0",))]


def test_memory_that_grows_towards_its_limit_is_told_hours_before():
    fleet = Fleet(1, step=15.0)
    watch = trained(fleet)
    told = []
    for minute in range(120):
        fleet["gpu0"].extras = {"memory_bytes": (40 + minute * 0.1) * GIB, "memory_limit_bytes": 64 * GIB}
        told += fleet.go(watch, minutes=1)
    assert said(told) == [("firing", "memory_leak", ("gpu0",))]
    assert told[0].alert.evidence["bytes_an_hour"] == pytest.approx(6 * GIB, rel=0.1)
    fleet.restart("gpu0")
    fleet["gpu0"].extras = {"memory_bytes": 20 * GIB, "memory_limit_bytes": 64 * GIB}
    assert said(fleet.go(watch, minutes=5)) == [("resolved", "memory_leak", ("gpu0",))]


def test_memory_that_only_swings_is_no_leak():
    fleet = Fleet(1, step=15.0)
    watch = trained(fleet)
    told = []
    for minute in range(180):
        fleet["gpu0"].extras = {"memory_bytes": (50 + minute % 12) * GIB, "memory_limit_bytes": 64 * GIB}
        told += fleet.go(watch, minutes=1)
    assert said(told) == []


def test_a_job_that_gets_nothing_done_is_stalled_and_its_end_is_a_note():
    fleet = Fleet()
    watch = trained(fleet)
    told = []
    for minute in range(20):
        fleet.jobs = {"datagen": JobSample(is_running=True, done=100 * minute, total=2000)}
        told += fleet.go(watch, minutes=1)
    assert said(told) == []
    changes = fleet.go(watch, minutes=7)
    assert said(changes) == [("firing", "job_stalled", ("datagen",))]
    fleet.jobs = {"datagen": JobSample(is_running=True, done=1950, total=2000)}
    assert said(fleet.go(watch, minutes=1)) == [("resolved", "job_stalled", ("datagen",))]
    fleet.jobs = {"datagen": JobSample(is_running=False, done=2000, total=2000)}
    assert said(fleet.go(watch, minutes=30)) == [("note", "job_finished", ("datagen",))]


def test_a_job_that_is_stopped_on_purpose_is_not_stalled():
    fleet = Fleet()
    watch = trained(fleet)
    fleet.jobs = {"datagen": JobSample(is_running=True, done=100, total=2000)}
    fleet.go(watch, minutes=1)
    fleet.planned_jobs = frozenset({"datagen"})
    assert said(fleet.go(watch, minutes=20)) == []
