"""What people want to be told, in SQL."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import delete, insert, select

from bot.domain.wishes import Wish
from bot.stores.sql import Database
from bot.stores.tables import wishes as _wishes


class SqlWishes:
    """Remembers wishes until they are told or taken back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, wish: Wish) -> Wish:
        with self._database.connection() as connection:
            added = connection.execute(insert(_wishes).values(value=self._database.text_of(wish)))
        return replace(wish, number=(added.inserted_primary_key or (0,))[0])

    def all(self) -> tuple[tuple[Wish, ...], tuple[int, ...]]:
        with self._database.connection() as connection:
            rows = connection.execute(select(_wishes).order_by(_wishes.c.number)).all()
        found, unread = self._database.readable(Wish, ((row.number, row.value) for row in rows))
        return tuple(replace(wish, number=number) for number, wish in found.items()), tuple(unread)

    def remove(self, number: int) -> None:
        with self._database.connection() as connection:
            connection.execute(delete(_wishes).where(_wishes.c.number == number))
