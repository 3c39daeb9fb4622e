"""What must outlive the bot, in SQL: operations, questions, starts, and which messages were heard already.

SQLite beside the bot by default. Synchronous on purpose: a write takes less than a millisecond, and a thread
would be passed over by the tests' jumping loop. Values are stored whole, as JSON, beside the columns that are
searched; a field that an older version did not write gets its default.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import structlog
from cattrs import BaseValidationError
from cattrs.preconf.json import JsonConverter, make_converter
from cattrs.strategies import configure_tagged_union
from sqlalchemy import Connection, Select, create_engine, delete, event, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from bot.domain.errors import StoreError
from bot.domain.leases import Hold
from bot.domain.message import Answers, Block, Part, Says
from bot.domain.operation import Asked, Operation, Question, State, Where
from bot.domain.plan import Step
from bot.domain.records import StartRecord
from bot.domain.wishes import Wish
from bot.stores.schema import begin_alone, bring_up, is_current
from bot.stores.tables import operations as _operations
from bot.stores.tables import questions as _questions
from bot.stores.tables import seen as _seen
from bot.stores.tables import starts as _starts

_log = structlog.get_logger(__name__)

KEEP_SEEN = timedelta(hours=24)
KEEP_STARTS = 5_000
KEEP_OPERATIONS = 2_000


_Key = TypeVar("_Key", int, str)
_Value = TypeVar("_Value", Hold, Operation, Question, StartRecord, Wish)


def _converter() -> JsonConverter:
    converter = make_converter()
    converter.register_unstructure_hook(timedelta, lambda span: span.total_seconds())
    converter.register_structure_hook(timedelta, lambda seconds, _: timedelta(seconds=seconds))
    for union in (Part, Says | Answers, Block, Step):  # the inner ones first: an outer one keeps their hooks
        configure_tagged_union(union, converter)
    return converter


class Database:
    """A database and the tables in it; the stores below are its faces.

    ``url`` is SQLAlchemy's ("sqlite:////var/lib/upbot/upbot.db"). Whatever fails in it is a StoreError that names
    the place and the reason.
    """

    def __init__(self, url: str) -> None:
        self._name = url.rpartition("@")[2].removeprefix("sqlite:///")
        self._json = _converter()
        self._engine = create_engine(url)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _tune)
        with self.connection() as connection:
            if is_current(connection, self._name):
                return
        with self.connection(is_alone=True) as connection:
            bring_up(connection, self._name)

    @staticmethod
    def file(path: Path) -> Database:
        """A database in a file, which is made with its folder, for its owner's eyes only."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
        except OSError as error:
            raise StoreError(f"the state can't be kept in {path}: {error.strerror or error}") from error
        return Database(f"sqlite:///{path}")

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def connection(self, *, is_alone: bool = False) -> Iterator[Connection]:
        """A connection in a transaction that is kept when nothing was raised; alone, nobody else writes meanwhile."""
        try:
            with self._engine.begin() as connection:
                if is_alone:
                    begin_alone(connection)
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(f"the state in {self._name} can't be read or written: {reason}") from error

    def text_of(self, value: Hold | Operation | Question | StartRecord | Wish) -> str:
        """A value as JSON."""
        return str(self._json.dumps(value))

    def value_of(self, kind: type[_Value], text: str) -> _Value:
        """A value from its JSON; StoreError when it is not one."""
        try:
            return self._json.loads(text, kind)
        except (ValueError, KeyError, TypeError, BaseValidationError) as error:
            raise StoreError(f"a stored {kind.__name__.lower()} in {self._name} can't be read") from error

    def readable(self, kind: type[_Value], rows: Iterable[tuple[_Key, str]]) -> tuple[dict[_Key, _Value], list[_Key]]:
        """The values of these rows by their keys, and the keys of those that are none: one takes no other with it."""
        values: dict[_Key, _Value] = {}
        unread: list[_Key] = []
        for key, text in rows:
            try:
                values[key] = self.value_of(kind, text)
            except StoreError as error:
                _log.error("row_not_read", key=key, error=str(error))
                unread.append(key)
        return values, unread


class SqlOperations:
    """Remembers operations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next_id(self) -> str:
        query = select(func.max(_operations.c.number))
        with self._database.connection() as connection:
            return f"op-{(connection.execute(query).scalar() or 0) + 1}"

    def save(self, operation: Operation) -> None:
        values = {
            "state": operation.state.value,
            "started_at": operation.started_at,
            "value": self._database.text_of(operation),
        }
        with self._database.connection() as connection:
            changed = connection.execute(update(_operations).where(_operations.c.id == operation.id).values(**values))
            if not changed.rowcount:
                added = connection.execute(insert(_operations).values(id=operation.id, **values))
                oldest = (added.inserted_primary_key or (0,))[0] - KEEP_OPERATIONS
                connection.execute(delete(_operations).where(_operations.c.number <= oldest))

    def live(self) -> tuple[Operation, ...]:
        states = [state.value for state in (State.RUNNING, State.CANCELLING)]
        return self._read(select(_operations).where(_operations.c.state.in_(states)).order_by(_operations.c.number))

    def recent(self, limit: int) -> tuple[Operation, ...]:
        return self._read(select(_operations).order_by(_operations.c.number.desc()).limit(limit))[::-1]

    def _read(self, query: Select[Any]) -> tuple[Operation, ...]:
        with self._database.connection() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(self._database.value_of(Operation, row["value"]) for row in rows)


class SqlQuestions:
    """Remembers questions; a press is consumed by one statement that only an open question satisfies."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, question: Question) -> None:
        with self._database.connection() as connection:
            connection.execute(
                insert(_questions).values(
                    nonce=question.nonce,
                    state=question.state.value,
                    asked_at=question.asked_at,
                    value=self._database.text_of(question),
                )
            )

    def get(self, nonce: str) -> Question | None:
        query = select(_questions.c.value).where(_questions.c.nonce == nonce)
        with self._database.connection() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else self._database.value_of(Question, found)

    def open(self) -> tuple[Question, ...]:
        query = select(_questions).where(_questions.c.state == Asked.OPEN.value)
        return self._read(query.order_by(_questions.c.asked_at))

    def end(self, nonce: str, state: Asked, *, by: str | None, at: datetime) -> bool:
        question = self.get(nonce)
        if question is None:
            return False
        ended = replace(question, state=state, by=by, ended_at=at)
        is_open = (_questions.c.nonce == nonce) & (_questions.c.state == Asked.OPEN.value)
        with self._database.connection() as connection:
            values = {"state": state.value, "value": self._database.text_of(ended)}
            return bool(connection.execute(update(_questions).where(is_open).values(**values)).rowcount)

    def last_for(self, channel: str) -> Question | None:
        recent = self._read(select(_questions).order_by(_questions.c.asked_at.desc()).limit(50))
        for question in recent:
            if channel in (question.where.channel, *(one.channel for one in question.copies)):
                return question
        return None

    def placed(self, nonce: str, where: Where) -> None:
        question = self.get(nonce)
        if question is None:
            return
        value = self._database.text_of(replace(question, where=where))
        with self._database.connection() as connection:
            connection.execute(update(_questions).where(_questions.c.nonce == nonce).values(value=value))

    def _read(self, query: Select[Any]) -> tuple[Question, ...]:
        """Those that can be read: of one that can't nothing begins, and a press of it hears so."""
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        return tuple(self._database.readable(Question, ((row.nonce, row.value) for row in rows))[0].values())


class SqlStarts:
    """Remembers how starts went; the newest few hundred are kept at hand, since progress asks for them often."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: tuple[StartRecord, ...] | None = None

    def add(self, record: StartRecord) -> None:
        values = {"server": record.server, "profile": record.profile, "value": self._database.text_of(record)}
        with self._database.connection() as connection:
            added = connection.execute(insert(_starts).values(**values))
            oldest = (added.inserted_primary_key or (0,))[0] - KEEP_STARTS
            connection.execute(delete(_starts).where(_starts.c.number <= oldest))
        self._kept = None

    def measured(self, server: str, profile: str, tokens_per_second: float, per_request: float | None) -> None:
        query = select(_starts).where((_starts.c.server == server) & (_starts.c.profile == profile))
        with self._database.connection() as connection:
            for row in connection.execute(query.order_by(_starts.c.number.desc()).limit(20)).mappings():
                record = self._database.value_of(StartRecord, row["value"])
                if record.is_ready:
                    told = replace(record, tokens_per_second=tokens_per_second, per_request=per_request)
                    values = {"value": self._database.text_of(told)}
                    connection.execute(update(_starts).where(_starts.c.number == row["number"]).values(**values))
                    break
        self._kept = None

    def recent(self, limit: int) -> tuple[StartRecord, ...]:
        if self._kept is None or len(self._kept) < limit:
            query = select(_starts).order_by(_starts.c.number.desc()).limit(max(limit, 500))
            with self._database.connection() as connection:
                rows = connection.execute(query).mappings().all()
            self._kept = tuple(self._database.value_of(StartRecord, row["value"]) for row in rows)[::-1]
        return self._kept[-limit:]


class SqlSeen:
    """Remembers which messages were heard, so that a message that is delivered twice is handled once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def seen(self, key: str, at: datetime) -> bool:
        """Whether this key was there already; it is now."""
        with self._database.connection() as connection:
            if connection.execute(select(_seen.c.key).where(_seen.c.key == key)).first() is not None:
                return True
            connection.execute(insert(_seen).values(key=key, at=at))
            connection.execute(delete(_seen).where(_seen.c.at < at - KEEP_SEEN))
        return False


def _tune(connection: Any, _record: object) -> None:
    """SQLite: readers beside a writer, and every commit on the disk."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=5000")
    with suppress(sqlite3.OperationalError):  # two that open a new file at once: the mode is the file's, one sets it
        cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
