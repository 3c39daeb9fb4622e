"""What people hold, in SQL; an ended one stays for a while, so that no id is given twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, func, insert, select, update

from bot.domain.leases import Hold
from bot.stores.sql import Database
from bot.stores.tables import holds as _holds

KEEP = 2_000
"""So many of the newest are kept, ended or not; there are never more at once than servers."""


class SqlHolds:
    """Remembers holds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next_id(self) -> str:
        query = select(func.max(_holds.c.number))
        with self._database.connection() as connection:
            return f"h-{(connection.execute(query).scalar() or 0) + 1}"

    def current(self) -> tuple[tuple[Hold, ...], tuple[str, ...]]:
        query = select(_holds.c.id, _holds.c.value).where(_holds.c.ended_at.is_(None)).order_by(_holds.c.number)
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        found, unread = self._database.readable(Hold, ((row.id, row.value) for row in rows))
        return tuple(found.values()), tuple(unread)

    def change(self, ended: Collection[str], kept: Sequence[Hold], at: datetime) -> None:
        with self._database.connection() as connection:
            for id_ in ended:
                connection.execute(update(_holds).where(_holds.c.id == id_).values(ended_at=at))
            for hold in kept:
                value = self._database.text_of(hold)
                changed = connection.execute(update(_holds).where(_holds.c.id == hold.id).values(value=value))
                if not changed.rowcount:
                    added = connection.execute(insert(_holds).values(id=hold.id, value=value))
                    oldest = (added.inserted_primary_key or (0,))[0] - KEEP
                    is_old = (_holds.c.number <= oldest) & _holds.c.ended_at.is_not(None)
                    connection.execute(delete(_holds).where(is_old))
