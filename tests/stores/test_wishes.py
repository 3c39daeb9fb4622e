"""Wishes come back as they were, with a number of their own, until they are removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert

from bot.domain.operation import Where
from bot.domain.wishes import Goal, Until, Wish
from bot.stores.sql import Database
from bot.stores.tables import wishes
from bot.stores.wishes import SqlWishes
from tests.jumping import START

UP = Wish("U1", Where("C1", "t1"), Goal(Until.UP, ("gpu3", "gpu4")), START, START + timedelta(hours=24))
DONE = replace(UP, user="U2", goal=Goal(Until.DONE, operation="op-3", title="Restart gpu3 · no_buffer"))


def test_wishes_outlive_the_bot_until_they_are_removed(tmp_path: Path) -> None:
    database = Database.file(tmp_path / "upbot.db")
    first, second = SqlWishes(database).add(UP), SqlWishes(database).add(DONE)
    assert first.number != second.number
    database.close()
    store = SqlWishes(Database.file(tmp_path / "upbot.db"))
    assert first == replace(UP, number=first.number)
    assert second == replace(DONE, number=second.number)
    assert store.all() == ((first, second), ())
    store.remove(first.number)
    store.remove(first.number)
    assert store.all() == ((second,), ())


def test_a_wish_that_can_not_be_read_takes_no_other_with_it() -> None:
    database = Database("sqlite://")
    with database.connection() as connection:
        connection.execute(insert(wishes).values(value="{}"))
    second = SqlWishes(database).add(UP)
    assert SqlWishes(database).all() == ((second,), (1,))
