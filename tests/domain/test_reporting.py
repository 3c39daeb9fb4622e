"""What came of a stretch of time, in words."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.course import Point
from bot.domain.facts import JobFacts, JobState
from bot.domain.message import plain
from bot.domain.reporting import report
from bot.domain.tally import tally
from bot.domain.watching.alerts import Alert, State
from bot.domain.watching.causes import Cause
from tests.jumping import START

SINCE = START - timedelta(days=1)
EVERYONE = [f"gpu{number}" for number in range(8)]
DAY = 86_400.0


def course(down: float = 0, starting: float = 0, span: float = DAY) -> list[Point]:
    at = START.timestamp()
    return [Point(at, span, (span - down - starting) * 640, span - down - starting, down, starting)]


def alert(number: int, cause: Cause, servers: tuple[str, ...], ago: float, lasted: float | None) -> Alert:
    since = START - timedelta(hours=ago)
    until = None if lasted is None else since + timedelta(minutes=lasted)
    state = State.FIRING if until is None else State.RESOLVED
    return Alert(f"{cause.value}-{number}", cause, servers, since, state, fired_at=since, resolved_at=until)


def told(courses: dict[str, list[Point]], alerts: tuple[Alert, ...] = (), target: float | None = None, jobs=()) -> str:
    return plain(report(tally(courses, alerts, SINCE, START), EVERYONE, target, jobs, START))


def test_a_quiet_day_is_two_lines() -> None:
    assert told({name: course() for name in EVERYONE}, target=6250) == snapshot("""\
442M tokens in the last 24 h · 5.1k tok/s on average, 82 % of 6.25k: target missed
all 8 were always up
no alerts\
""")


def test_a_bad_night_names_who_was_away_the_longest_alert_and_the_job() -> None:
    courses = {name: course() for name in EVERYONE}
    courses["gpu3"] = course(down=600, starting=75)
    courses["gpu5"] = course(down=10, starting=74)
    courses["gpu6"] = course(down=10)  # one look that failed
    alerts = (
        alert(1, Cause.DOWN, ("gpu3",), 5, 11),
        alert(2, Cause.SLOW_SERVER, ("gpu5", "gpu6"), 3, 42),
        alert(3, Cause.STARVED, ("gpu1",), 0.2, None),
        alert(4, Cause.DOWN, ("other9",), 2, 10),
        alert(5, Cause.DOWN, ("gpu1",), 30, 10),
        alert(6, Cause.PROMPT_HEAVY, ("gpu1",), 2, 10),
        Alert("down-7", Cause.DOWN, ("gpu1",), START),  # never told
    )
    job = JobFacts("datagen", START, JobState.RUNNING, 61_204, 193_000, 3_900.0, timedelta(hours=9))
    assert told(courses, alerts, 6250, (job,)) == snapshot("""\
442M tokens in the last 24 h · 5.1k tok/s on average, 82 % of 6.25k: target missed
not up: gpu3 down 10 m and starting 1 m 15 s, gpu5 starting 1 m 14 s · the other 6 always were
3 alerts, 1 still on; the longest: gpu5, gpu6 are slow, 42 m
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · 9 h to go\
""")


def test_one_alert_that_is_still_on_is_named() -> None:
    one = alert(1, Cause.SLOW_FLEET, (), 1, None)
    assert told({"gpu0": course()}, (one,)).splitlines()[-1] == "1 alert: the fleet is slow, 1 h and still on"


def test_a_job_that_stood_still_counts() -> None:
    one = alert(1, Cause.JOB_STALLED, ("datagen",), 3, 30)
    assert told({"gpu0": course()}, (one,)).splitlines()[-1] == "1 alert: job datagen stands still, 30 m"


def test_many_that_were_away_are_cut() -> None:
    courses = {name: course(down=60 * (number + 1)) for number, name in enumerate(EVERYONE)}
    assert told(courses).splitlines()[1] == snapshot(
        "not up: gpu7 down 8 m, gpu6 down 7 m, gpu5 down 6 m, gpu4 down 5 m, gpu3 down 4 m, 3 more"
    )


def test_what_was_watched_only_for_a_part_says_so_and_nothing_is_no_zero() -> None:
    assert told({"gpu0": course(span=3600)}).startswith("2.3M tokens in the 1 h watched of the last 24 h · 640 tok/s")
    assert told({}) == "Nothing was recorded in the last 24 h."
