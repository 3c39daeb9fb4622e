"""What looks have shown comes back with what was before an instant, and old rows go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.errors import StoreError
from bot.domain.facts import JobState
from bot.domain.readiness import Readiness
from bot.stores.changes import SqlChanges
from bot.stores.sql import Database
from tests.jumping import START


def at(minutes: int) -> timedelta:
    return timedelta(minutes=minutes)


CHANGES = [
    ReadinessChange("gpu0", START, Readiness.READY),
    ReadinessChange("gpu1", START, Readiness.READY),
    ReadinessChange("gpu0", START + at(10), Readiness.CRASHED, "cuda_oom"),
    ReadinessChange("gpu0", START + at(12), Readiness.STARTING, "loading weights"),
    ReadinessChange("gpu0", START + at(15), Readiness.READY),
]
MARKS = [
    JobMark("datagen", START, JobState.RUNNING, 100, 1000),
    JobMark("datagen", START + at(10), JobState.STOPPED, 200, 1000),
    JobMark("datagen", START + at(15), JobState.RUNNING),
]


@pytest.fixture
def store() -> SqlChanges:
    """A store with a crash in it."""
    store = SqlChanges(Database("sqlite://"))
    store.add(CHANGES, MARKS)
    return store


def test_the_newest_of_each_comes_back(store: SqlChanges) -> None:
    changes, marks = store.last()
    assert sorted(changes, key=lambda one: one.server) == [CHANGES[4], CHANGES[1]]
    assert marks == (MARKS[2],)


def test_since_an_instant_comes_with_what_was_before_it(store: SqlChanges) -> None:
    assert store.since(START + at(11)) == ((CHANGES[1], *CHANGES[2:]), tuple(MARKS[1:]))
    assert store.since(START - at(1)) == (tuple(CHANGES), tuple(MARKS))
    later = store.since(START + at(60))
    assert (set(later[0]), later[1]) == ({CHANGES[4], CHANGES[1]}, (MARKS[2],))


def test_a_change_that_cannot_be_read_is_an_error_and_no_crash() -> None:
    database = Database("sqlite://")
    SqlChanges(database).add(CHANGES, MARKS)
    with database.connection() as connection:
        connection.exec_driver_sql("UPDATE changes SET readiness = 'splendid'")
    with pytest.raises(StoreError, match="a stored change of gpu"):
        SqlChanges(database).last()
    with database.connection() as connection:
        connection.exec_driver_sql("DELETE FROM changes")
        connection.exec_driver_sql("UPDATE job_marks SET value = '[]'")
    with pytest.raises(StoreError, match="a stored mark of job datagen can't be read"):
        SqlChanges(database).last()


def test_only_so_many_are_kept() -> None:
    database = Database("sqlite://")
    store = SqlChanges(database, keep=10)
    for minute in range(20):
        store.add([ReadinessChange("gpu0", START + at(minute), Readiness.READY)], [])
    changes, _ = store.since(START - at(1))
    assert [one.at for one in changes] == [START + at(minute) for minute in range(10, 20)]
