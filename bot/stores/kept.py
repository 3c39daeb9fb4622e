"""What the watcher remembers: the alerts that were told, and what it has learned, as texts by name."""

from __future__ import annotations

from datetime import timedelta

from cattrs import BaseValidationError
from cattrs.preconf.json import JsonConverter, make_converter
from sqlalchemy import insert, select, update

from bot.domain.errors import StoreError
from bot.domain.watching.alerts import Alert, Book
from bot.domain.watching.causes import Value
from bot.stores import tables
from bot.stores.sql import Database


class SqlKept:
    """Texts by name, and a book of alerts as such a text."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._json = _converter()

    def get(self, name: str) -> str | None:
        query = select(tables.kept.c.value).where(tables.kept.c.name == name)
        with self._database.connection() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else str(found)

    def put(self, name: str, text: str) -> None:
        with self._database.connection() as connection:
            changed = connection.execute(update(tables.kept).where(tables.kept.c.name == name).values(value=text))
            if not changed.rowcount:
                connection.execute(insert(tables.kept).values(name=name, value=text))

    def book_text(self, book: Book) -> str:
        """A book as JSON."""
        return str(self._json.dumps(book))

    def book_of(self, text: str) -> Book:
        """A book from its JSON; StoreError when it is none."""
        try:
            return self._json.loads(text, Book)
        except (ValueError, KeyError, TypeError, BaseValidationError) as error:
            raise StoreError("the kept alerts can't be read") from error

    def alert_text(self, alert: Alert) -> str:
        """One alert as JSON."""
        return str(self._json.dumps(alert))

    def alert_of(self, text: str) -> Alert:
        """One alert from its JSON; StoreError when it is none."""
        try:
            return self._json.loads(text, Alert)
        except (ValueError, KeyError, TypeError, BaseValidationError) as error:
            raise StoreError("a kept alert can't be read") from error


def _converter() -> JsonConverter:
    converter = make_converter()
    converter.register_unstructure_hook(timedelta, lambda span: span.total_seconds())
    converter.register_structure_hook(timedelta, lambda seconds, _: timedelta(seconds=seconds))
    # A number, a word or a list of names of an alert's evidence: JSON tells them apart by itself.
    converter.register_structure_hook(Value, lambda value, _: tuple(value) if isinstance(value, list) else value)
    return converter
