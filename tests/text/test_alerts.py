"""How alerts are told, each cause at its begin and at its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot

from bot.domain.message import plain
from bot.domain.watching.alerts import Alert, Change, Did, State
from bot.domain.watching.causes import Cause
from bot.text import alerts as text

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVERYONE = [f"gpu{number}" for number in range(8)]
OVER = replace(Alert("down-1", Cause.DOWN, ("gpu3",), NOON, State.RESOLVED), resolved_at=NOON + timedelta(minutes=4))


def headline(alert: Alert) -> str:
    return plain(text.alert(alert, EVERYONE, NOON + timedelta(hours=1), None)).splitlines()[0]


def ended(cause: Cause, *servers: str, rate: float | None = 671.2, end: str | None = None) -> str:
    after = {"end": end} if end is not None else {"rate": rate}
    return headline(replace(OVER, cause=cause, servers=servers or ("gpu3",), after=after))


def test_each_end_is_told_as_a_person_would():
    servers = {cause: ended(cause) for cause in Cause if not cause.is_note and cause is not Cause.JOB_STALLED}
    assert {cause.value: said for cause, said in servers.items()} == snapshot(
        {
            "down": "🟢 gpu3 is back: 671 tok/s after 4 m down",
            "hung": "🟢 gpu3 generates again: 671 tok/s after 4 m hung",
            "crash_loop": "🟢 gpu3 stays up after 4 m of crashes",
            "starved": "🟢 gpu3 is fed again: 671 tok/s after 4 m starved",
            "slow_fleet": "🟢 the fleet is fast again: 671 tok/s after 4 m slow",
            "slow_server": "🟢 gpu3 is fast again: 671 tok/s after 4 m slow",
            "error_rate": "🟢 gpu3 answers without errors after 4 m of errors",
            "gpu_clock_limited": "🟢 gpu3: GPU clock free again after 4 m",
            "memory_leak": "🟢 gpu3: host memory grows no more after 4 m",
            "alertmanager": "🟢 an alert: gpu3: over after 4 m",
        }
    )


def test_several_servers_are_told_together_with_the_sum_of_what_they_make():
    assert [ended(cause, "gpu3", "gpu4", "gpu5", rate=2013.0) for cause in (Cause.DOWN, Cause.HUNG)] == snapshot(
        ["🟢 gpu3-gpu5 are back: 2k tok/s after 4 m down", "🟢 gpu3-gpu5 generate again: 2k tok/s after 4 m hung"]
    )


def test_one_that_came_back_and_has_nothing_to_do_is_said_to_be_idle():
    assert [ended(cause, rate=0.0) for cause in (Cause.DOWN, Cause.HUNG)] == snapshot(
        ["🟢 gpu3 is back after 4 m down, idle", "🟢 gpu3 is back after 4 m hung, idle"]
    )


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("moving", snapshot("🟢 job datagen gets on again after 4 m at a standstill")),
        ("done", snapshot("🟢 job datagen is done after 4 m at a standstill")),
        ("stopped", snapshot("🟢 job datagen was stopped after 4 m at a standstill")),
    ],
)
def test_a_job_that_stood_still_goes_on_or_has_ended(end, said):
    assert ended(Cause.JOB_STALLED, "datagen", end=end) == said


def test_an_alert_that_was_kept_before_its_end_had_numbers_is_told_without():
    assert headline(OVER) == snapshot("🟢 gpu3 is back after 4 m down")


def test_a_server_whose_name_has_a_dash_is_one():
    assert headline(replace(OVER, servers=("box1-0",))) == snapshot("🟢 box1-0 is back after 4 m down")


def test_what_was_wrong_stays_below_its_end():
    evidence = {"rate": 412.0, "usual_rate": 671.0, "running": 32.0, "others_fine": 7}
    evidence |= {"clock_limits": ("hw_thermal_slowdown",), "temperature_c": 92.0}
    one = replace(OVER, cause=Cause.SLOW_SERVER, evidence=evidence, after={"rate": 668.0})
    assert plain(text.alert(one, EVERYONE, NOON, None)) == snapshot("""\
🟢 gpu3 is fast again: 668 tok/s after 4 m slow
before: 412 tok/s where 671 is usual at 32 running · 7 others fine
GPU clock limited: thermal slowdown, 92 °C\
""")


def test_why_a_dead_server_died_is_told_where_its_log_or_its_exit_says_it():
    one = replace(OVER, state=State.FIRING, resolved_at=None)
    deaths = [{"is_seen_dead": True}, {"is_seen_dead": True, "why": "out of GPU memory"}]
    said = [plain(text.alert(replace(one, evidence=death), EVERYONE, NOON, None)).splitlines()[1] for death in deaths]
    assert said == snapshot(["no process there", "no process there: out of GPU memory"])


def test_a_fault_that_comes_back_is_said_to_have_happened_again():
    change = Change(Did.RETURNED, NOON, replace(OVER, state=State.FIRING), ("gpu3",))
    assert plain(text.told(change, EVERYONE, NOON + timedelta(minutes=9))) == snapshot(
        "gpu3 is down again, 9 m after it began"
    )
