"""Holds come back as they were, and an id is never given twice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bot.domain.leases import Hold, claims_of
from bot.stores.holds import SqlHolds
from bot.stores.sql import Database
from tests.jumping import START
from tests.tester import first_night

HOLD = Hold(
    "h-1",
    ("gpu3", "gpu4"),
    claims_of(first_night(), ["gpu3", "gpu4"]),
    "ana",
    START,
    START + timedelta(hours=6),
    "eval <!channel> \u202e ☃",
    "U1",
    "C1",
    "t1",
)


def test_a_hold_comes_back_as_it_was(tmp_path: Path) -> None:
    SqlHolds(Database.file(tmp_path / "upbot.db")).change([], [HOLD], START)
    store = SqlHolds(Database.file(tmp_path / "upbot.db"))
    assert store.current() == ((HOLD,), ())
    assert [one.of for one in store.current()[0][0].claims] == [one.of for one in HOLD.claims]


def test_what_has_ended_is_not_there_and_its_id_is_not_given_again() -> None:
    store = SqlHolds(Database("sqlite://"))
    assert store.next_id() == "h-1"
    store.change([], [HOLD], START)
    cut = replace(HOLD, servers=("gpu3",))
    store.change([], [cut], START)
    assert store.current() == ((cut,), ())
    store.change(["h-1", "h-99"], [replace(HOLD, id="h-2")], START)
    assert [one.id for one in store.current()[0]] == ["h-2"]
    store.change(["h-2"], [], START)
    assert store.current() == ((), ())
    assert store.next_id() == "h-3"


def test_what_cant_be_read_is_told_by_its_id_and_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    SqlHolds(Database.file(path)).change([], [HOLD, replace(HOLD, id="h-2")], START)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE holds SET value = '{}' WHERE id = 'h-1'")
        raw.commit()
    assert SqlHolds(Database.file(path)).current() == ((replace(HOLD, id="h-2"),), ("h-1",))
