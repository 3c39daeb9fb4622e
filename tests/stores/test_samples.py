"""What the watcher has read comes back, gets coarser with age, and stays small."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from bot.domain.errors import StoreError
from bot.domain.watching.alerts import Alert, State
from bot.domain.watching.causes import Cause
from bot.domain.watching.samples import JobSample, Reading, Sample
from bot.stores.samples import KEEP, KEEP_READINGS, MINUTE, TEN_MINUTES, SqlSamples
from bot.stores.sql import Database
from bot.stores.tables import courses, past_alerts, readings
from tests.jumping import START


class Writer:
    """Adds readings of some servers, each so many seconds."""

    def __init__(self, samples: SqlSamples, servers: int = 2, step: float = 5) -> None:
        self.samples = samples
        self.names = [f"gpu{number}" for number in range(servers)]
        self.step = step
        self.at = START
        self.tokens = 0.0

    def go(self, dead: frozenset[str] = frozenset(), **span: float) -> None:
        for _ in range(round(timedelta(**span).total_seconds() / self.step)):
            self.tokens += 600 * self.step
            self.at += timedelta(seconds=self.step)
            sample = Sample(self.tokens, running=32, queued=1, max_running=37, kv_usage=0.21)
            servers = {name: Sample(is_dead=True) if name in dead else sample for name in self.names}
            jobs = {"datagen": JobSample(is_running=True, done=7)}
            self.samples.add(Reading(self.at, servers, frozenset(self.names), jobs=jobs), {"gpu0": 640.0})


@pytest.fixture
def database() -> Database:
    return Database("sqlite://")


def rows(database: Database, step: int) -> int:
    with database.connection() as connection:
        return connection.execute(select(func.count()).where(courses.c.step == step)).scalar() or 0


def test_whole_readings_come_back_as_they_were_also_those_that_are_not_written_yet(database: Database) -> None:
    samples = SqlSamples(database)
    writer = Writer(samples)
    writer.go(minutes=3)
    found = list(samples.readings(START + timedelta(minutes=1)))
    assert len(found) == 25
    assert found[-1].servers["gpu1"] == Sample(writer.tokens, running=32, queued=1, max_running=37, kv_usage=0.21)
    assert found[-1].jobs == {"datagen": JobSample(is_running=True, done=7)}
    assert [one.at for one in found] == sorted(one.at for one in found)


def test_another_process_reads_what_was_written_and_a_flush_loses_nothing(database: Database) -> None:
    samples = SqlSamples(database)
    Writer(samples).go(minutes=2.5)
    samples.flush()
    assert len(list(SqlSamples(database).readings(START))) == 30


def test_a_course_of_two_hours_comes_in_minutes_with_the_newest_seconds(database: Database) -> None:
    samples = SqlSamples(database)
    writer = Writer(samples)
    writer.go(hours=2)
    writer.go(frozenset({"gpu1"}), seconds=20)
    found = samples.since(START, ["gpu0", "gpu1"])
    assert set(found) == {"gpu0", "gpu1"}
    assert 119 <= len(found["gpu0"]) <= 123
    middle = found["gpu0"][60]
    assert middle.rate == (600.0, 600.0, 600.0)
    assert (middle.running, middle.queued, middle.kv_usage) == ((32, 32, 32), (1, 1, 1), (0.21, 0.21, 0.21))
    assert (middle.max_running, middle.expected) == (37, 640.0)
    assert sum(one.down for one in found["gpu1"]) == 20
    assert found["gpu0"][-1].at == writer.at.timestamp()


def test_a_short_course_comes_in_the_steps_of_the_readings(database: Database) -> None:
    samples = SqlSamples(database)
    writer = Writer(samples)
    writer.go(hours=1)
    found = samples.since(writer.at - timedelta(minutes=10), ["gpu0"])
    assert set(found) == {"gpu0"}
    assert [(one.span, one.expected) for one in found["gpu0"]] == [(5.0, 640.0)] * 120


def test_with_age_courses_get_coarser_and_nothing_is_lost_or_counted_twice(database: Database) -> None:
    samples = SqlSamples(database)
    writer = Writer(samples, step=30)
    writer.go(days=3)
    assert rows(database, MINUTE) <= KEEP[MINUTE] / timedelta(seconds=MINUTE) + 11
    found = samples.since(START)["gpu0"]
    assert {round(one.span) for one in found[5:200]} == {TEN_MINUTES}
    assert sum(one.tokens for one in found) == pytest.approx(writer.tokens, rel=2e-4)
    assert [one.at for one in found] == sorted({one.at for one in found})
    assert next(samples.readings(START)).at >= writer.at - KEEP_READINGS - timedelta(minutes=11)


def test_a_bot_that_was_away_for_a_day_goes_on_where_it_was(database: Database) -> None:
    first = Writer(SqlSamples(database))
    first.go(minutes=25)
    first.samples.flush()
    second = Writer(SqlSamples(database))
    second.at, second.tokens = first.at + timedelta(days=1), first.tokens
    second.go(minutes=25)
    found = second.samples.since(START - timedelta(minutes=1))["gpu0"]
    assert sum(one.span for one in found) == pytest.approx(2 * 1500 - 10)
    assert rows(database, TEN_MINUTES) in (5, 6)


def test_a_clock_that_jumps_ahead_and_back_leaves_no_rows_for_ever(database: Database) -> None:
    samples = SqlSamples(database)
    writer = Writer(samples, servers=1, step=30)
    writer.at += timedelta(days=400)
    writer.go(minutes=30)
    writer.at = START
    writer.go(minutes=30)
    assert sum(one.tokens for one in samples.since(START)["gpu0"]) > 0
    writer.go(days=5)
    assert rows(database, MINUTE) <= 1.5 * KEEP[MINUTE] / timedelta(seconds=MINUTE)


def test_readings_that_are_too_many_bytes_go_early_but_two_hours_stay(database: Database) -> None:
    samples = SqlSamples(database, most_bytes=10_000)
    writer = Writer(samples)
    writer.go(hours=5)
    oldest = next(samples.readings(START)).at
    assert timedelta(hours=2) <= writer.at - oldest <= timedelta(hours=2, minutes=12)


def test_alerts_that_are_over_are_kept_once_each(database: Database) -> None:
    samples = SqlSamples(database)
    one = Alert("down-1", Cause.DOWN, ("gpu3",), START, State.RESOLVED, {"lost_reads": 3}, fired_at=START)
    samples.ended(one)  # not over yet
    samples.ended(
        Alert("down-1", Cause.DOWN, ("gpu3",), START, State.RESOLVED, resolved_at=START + timedelta(minutes=1))
    )
    again = Alert("down-1", Cause.DOWN, ("gpu3",), START, State.RESOLVED, resolved_at=START + timedelta(minutes=4))
    samples.ended(again)
    assert samples.alerts(START) == (again,)
    assert samples.alerts(START + timedelta(minutes=5)) == ()
    with database.connection() as connection:
        assert connection.execute(select(func.count()).select_from(past_alerts)).scalar() == 1


@pytest.mark.parametrize("value", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_row_that_is_spoiled_is_named(database: Database, value: bytes) -> None:
    samples = SqlSamples(database)
    Writer(samples).go(hours=1)
    with database.connection() as connection:
        connection.execute(update(courses).values(value=value))
        connection.execute(update(readings).values(value=b"x"))
    with pytest.raises(StoreError, match="of what the watcher has read can't be read"):
        samples.since(START)
    with pytest.raises(StoreError, match="of what the watcher has read can't be read"):
        list(samples.readings(START))


def test_a_full_disk_loses_a_minute_and_no_more(tmp_path: Path) -> None:
    database = Database.file(tmp_path / "upbot.db")
    samples = SqlSamples(database)
    writer = Writer(samples)
    writer.go(minutes=5)
    with database.connection() as connection:
        connection.exec_driver_sql("ALTER TABLE readings RENAME TO gone")
    lost = 0
    for _ in range(24):
        try:
            writer.go(seconds=5)
        except StoreError:
            lost += 1
    assert lost == 2
    with database.connection() as connection:
        connection.exec_driver_sql("ALTER TABLE gone RENAME TO readings")
    writer.go(minutes=5)
    assert len(list(samples.readings(START))) == (12 - 2) * 12
