from __future__ import annotations

import json
import math
from datetime import timedelta

import pytest

from bot.domain.watching.causes import Cause
from bot.domain.watching.watch import Watch
from tests.domain.watching.watched_fleet import START, Fleet, said, trained

ALL = tuple(f"gpu{number}" for number in range(8))


def test_a_slow_server_is_named_with_its_numbers_and_the_others_are_said_to_be_fine():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu3"].speed = 0.6
    fleet["gpu3"].extras = {"clock_limits": ("thermal slowdown",), "temperature_c": 92.0}
    before = fleet.at
    changes = fleet.go(watch, minutes=2)
    assert said(changes) == [("firing", "slow_server", ("gpu3",))]
    alert = changes[0].alert
    assert changes[0].at - before <= timedelta(seconds=80)
    assert abs((alert.since - before).total_seconds()) <= 10
    assert alert.evidence["share"] == pytest.approx(0.65, abs=0.08)
    assert alert.evidence["usual_rate"] == pytest.approx(641, rel=0.05)
    assert alert.evidence["running"] == 32
    assert alert.evidence["others_fine"] == 7
    assert alert.evidence["clock_limits"] == ("thermal slowdown",)


def test_it_is_resolved_when_its_pace_is_back():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu3"].speed = 0.5
    fleet.go(watch, minutes=5)
    fleet["gpu3"].speed = 1.0
    changes = fleet.go(watch, minutes=3)
    assert said(changes) == [("resolved", "slow_server", ("gpu3",))]
    assert said(fleet.go(watch, minutes=30)) == []


def test_a_slow_server_that_can_not_be_read_any_more_is_not_recovered():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu3"].speed = 0.5
    fleet.go(watch, minutes=3)
    fleet["gpu3"].is_lost = True
    assert said(fleet.go(watch, minutes=30)) == [("firing", "down", ("gpu3",))]
    assert {alert.cause for alert in watch.book.alerts if alert.is_on} == {Cause.SLOW_SERVER, Cause.DOWN}


def test_a_slow_server_that_nobody_asks_any_more_is_not_recovered():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu3"].speed = 0.5
    fleet.go(watch, minutes=3)
    fleet.every(running=0)
    assert said(fleet.go(watch, minutes=30)) == []
    assert [alert.cause for alert in watch.book.alerts] == [Cause.SLOW_SERVER]


def test_all_slow_at_once_is_one_alert_for_the_fleet():
    fleet = Fleet(4)
    watch = trained(fleet)
    fleet.every(speed=0.65)
    assert said(fleet.go(watch, minutes=10)) == [("firing", "slow_fleet", ALL[:4])]
    fleet.every(speed=1.0)
    assert said(fleet.go(watch, minutes=5)) == [("resolved", "slow_fleet", ALL[:4])]


def test_one_server_alone_is_slow_by_what_it_usually_does():
    fleet = Fleet(1)
    watch = trained(fleet)
    fleet["gpu0"].speed = 0.6
    assert said(fleet.go(watch, minutes=2)) == [("firing", "slow_server", ("gpu0",))]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_the_end_of_a_job_is_no_alert_and_neither_is_its_return(size):
    fleet = Fleet(size)
    watch = trained(fleet)
    told = []
    for running in (30, 22, 15, 9, 4, 1, 0):
        fleet.every(running=running)
        told += fleet.go(watch, seconds=10)
    told += fleet.go(watch, minutes=15)
    fleet.every(running=32)
    told += fleet.go(watch, minutes=10)
    assert said(told) == []


def test_a_fault_is_never_learned_as_the_new_normal():
    fleet = Fleet(3)
    watch = trained(fleet)
    fleet["gpu2"].speed = 0.6
    fleet.go(watch, hours=2)
    assert [(alert.cause, alert.is_on) for alert in watch.book.alerts] == [(Cause.SLOW_SERVER, True)]
    assert watch.book.alerts[0].evidence["usual_rate"] == pytest.approx(641, rel=0.05)


def test_a_loss_that_creeps_is_told_in_the_end():
    fleet = Fleet(2, step=15.0)
    watch = trained(fleet)
    told = []
    for percent in range(100, 30, -1):
        fleet["gpu1"].speed = percent / 100
        told += fleet.go(watch, minutes=6)
    assert said(told) == [("firing", "slow_server", ("gpu1",))]


def test_what_drifts_within_hours_is_followed():
    fleet = Fleet(4, step=15.0)
    watch = trained(fleet)
    told = []
    for percent in (*range(100, 78, -1), *range(78, 100)):
        fleet.every(speed=percent / 100)
        told += fleet.go(watch, minutes=10)
    assert said(told) == []


def test_accepted_drafts_that_the_engine_tells_of_explain_a_drop():
    fleet = Fleet()
    fleet.every(extras={"accept_length": 3.0})
    watch = trained(fleet)
    fleet.every(extras={"accept_length": 1.8}, speed=0.6)
    assert said(fleet.go(watch, minutes=10)) == []


def test_contexts_that_the_engine_tells_of_explain_a_drop_that_they_caused_before():
    fleet = Fleet(3)
    watch = trained(fleet)
    swings = [1.0, 1.3, 1.7, 2.0, 1.6, 1.2] * 8
    told = []
    for length in (*swings, 3.0):
        fleet.every(speed=1 - 0.3 * math.log(length), extras={"kv_usage": 0.2 * length})
        told += fleet.go(watch, minutes=4)
    assert said(told) == []
    fleet["gpu1"].speed *= 0.6
    assert said(fleet.go(watch, minutes=2)) == [("firing", "slow_server", ("gpu1",))]


def test_prompt_heavy_traffic_is_a_note():
    fleet = Fleet()
    watch = trained(fleet)
    fleet.every(prompts=9000.0, speed=0.5)
    changes = fleet.go(watch, minutes=10)
    assert said(changes) == [("note", "prompt_heavy", ALL)]
    assert changes[0].alert.evidence["times_the_usual_prompts"] > 3


def test_a_stall_of_seconds_is_nothing():
    fleet = Fleet()
    watch = trained(fleet)
    told = []
    for _ in range(10):
        fleet["gpu2"].speed = 0.0
        told += fleet.go(watch, seconds=10)
        fleet["gpu2"].speed = 1.0
        told += fleet.go(watch, minutes=4)
    assert said(told) == []


def test_an_operation_silences_what_it_causes_and_nothing_else():
    fleet = Fleet()
    watch = trained(fleet)
    fleet.planned = frozenset({"gpu0"})
    fleet["gpu0"].is_lost = True
    fleet["gpu5"].is_lost = True
    assert said(fleet.go(watch, minutes=4)) == [("firing", "down", ("gpu5",))]
    fleet.planned = frozenset()
    assert said(fleet.go(watch, minutes=2)) == []
    assert said(fleet.go(watch, minutes=2)) == [("firing", "down", ("gpu0",))]


def test_another_profile_is_learned_anew_and_the_old_one_is_still_known():
    fleet = Fleet()
    watch = trained(fleet)
    fleet.seats = 72
    fleet.every(running=60, speed=0.6)
    assert said(fleet.go(watch, minutes=40)) == []
    fleet["gpu1"].speed = 0.3
    assert said(fleet.go(watch, minutes=2)) == [("firing", "slow_server", ("gpu1",))]
    fleet["gpu1"].speed = 0.6
    fleet.go(watch, minutes=3)
    fleet.seats = 37
    fleet.every(running=32, speed=1.0)
    fleet.go(watch, minutes=3)
    fleet["gpu1"].speed = 0.6
    assert said(fleet.go(watch, minutes=2)) == [("firing", "slow_server", ("gpu1",))]


def test_what_was_learned_outlives_a_restart_of_the_bot():
    fleet = Fleet()
    first = trained(fleet)
    second = Watch(book=first.book)
    second.load(json.loads(json.dumps(first.dump())))
    fleet["gpu3"].speed = 0.6
    assert said(fleet.go(second, minutes=2)) == [("firing", "slow_server", ("gpu3",))]


def test_an_alert_outlives_a_restart_of_the_bot_and_is_resolved_by_the_next_one():
    fleet = Fleet()
    first = trained(fleet)
    fleet["gpu3"].speed = 0.6
    fleet.go(first, minutes=2)
    second = Watch(book=first.book)
    second.load(first.dump())
    assert said(fleet.go(second, minutes=5)) == []
    fleet["gpu3"].speed = 1.0
    assert said(fleet.go(second, minutes=3)) == [("resolved", "slow_server", ("gpu3",))]


def test_what_was_learned_in_another_form_is_left_alone():
    watch = Watch()
    watch.load({"form": 0})
    assert watch.dump() == Watch().dump()


def test_nothing_is_said_of_a_pace_before_it_is_known():
    fleet, watch = Fleet(), Watch()
    fleet.go(watch, minutes=3)
    fleet["gpu1"].speed = 0.4
    assert said(fleet.go(watch, minutes=5)) == []


@pytest.mark.parametrize(
    "jump", [timedelta(hours=-2), timedelta(seconds=-4), timedelta(seconds=20), timedelta(hours=5)]
)
def test_a_clock_that_jumps_is_no_fault_and_hides_none(jump):
    fleet = Fleet()
    watch = trained(fleet)
    fleet.at += jump
    assert said(fleet.go(watch, minutes=5)) == []
    fleet["gpu3"].speed = 0.6
    fleet.go(watch, seconds=30)
    fleet.at += jump
    assert said(fleet.go(watch, minutes=3)) == [("firing", "slow_server", ("gpu3",))]


def test_a_server_that_is_no_longer_of_the_fleet_is_forgotten_with_its_alert():
    fleet = Fleet()
    watch = trained(fleet)
    fleet["gpu3"].is_lost = True
    fleet.go(watch, minutes=1)
    del fleet.servers["gpu3"]
    assert said(fleet.go(watch, minutes=5)) == []
    assert watch.book.alerts == ()


def test_a_changed_server_is_relearned_when_it_is_said_so():
    fleet = Fleet()
    watch = trained(fleet)
    watch.relearn("gpu3")
    fleet["gpu3"].speed = 0.6
    assert said(fleet.go(watch, minutes=40)) == []
    assert fleet.at > START
