"""The audit in SQL: rows are only added, and each one's hash covers the row before it.

A row holds an entry as canonical JSON with its number, and SHA-256 over the hash of the row before and that JSON.
`verify` walks the chain and names the first row that does not fit. What it finds: an entry that was edited, one
that was taken out, rows that changed places, and a tail that was cut off, since the head (number and hash of the
newest row) is kept beside the chain. What it can't find: somebody who may write to the whole database and computes
every hash from the change on, with the head, anew. Against that helps only a hash that was noted elsewhere: each is
logged when it is written, `upbot audit --verify` prints the newest, and ``expected`` asks for one.

Secrets are taken out before anything is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from cattrs import BaseValidationError
from cattrs.preconf.json import make_converter
from sqlalchemy import Connection, Row, insert, select, update

from bot.domain.audit import AuditEntry
from bot.domain.errors import StoreError
from bot.engines._reading.redact import redact
from bot.stores.sql import Database
from bot.stores.tables import audit as _audit
from bot.stores.tables import audit_head as _head

_log = structlog.get_logger(__name__)

FIRST = "0" * 64
"""What stands for the hash of the row before the first."""
LONGEST_TEXT = 2_000
MOST_WORDS = 100
"""Longer texts and lists are cut; an entry is a note, and a thousand servers are not to fill the disk."""
_BATCH = 1_000

_converter = make_converter()


@dataclass(frozen=True, slots=True)
class Verified:
    """What a walk along the chain has found: where it breaks and why (None: it holds), and its newest row."""

    rows: int
    broken_at: int | None = None
    why: str = ""
    newest: str = FIRST


class SqlAudit:
    """Writes the audit and reads it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, entry: AuditEntry) -> None:
        with self._database.connection(is_alone=True) as connection:
            head = _newest(connection)
            number, before = (head.number, head.hash) if head is not None else (0, FIRST)
            value = _text_of(entry, number + 1)
            hash_ = _hash(before, value)
            connection.execute(insert(_audit).values(number=number + 1, at=entry.at, value=value, hash=hash_))
            values = {"number": number + 1, "hash": hash_}
            if not connection.execute(update(_head).where(_head.c.id == 1).values(**values)).rowcount:
                connection.execute(insert(_head).values(id=1, **values))
        _log.info("audited", number=number + 1, hash=hash_)

    def recent(self, limit: int) -> tuple[AuditEntry, ...]:
        query = select(_audit).order_by(_audit.c.number.desc()).limit(limit)
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        return tuple(_entry_of(row) for row in reversed(rows))

    def since(self, at: datetime | None) -> Iterator[tuple[int, AuditEntry]]:
        """All entries with their numbers, or those from an instant on; the oldest first."""
        for row in self._rows():
            entry = _entry_of(row)
            if at is None or entry.at >= at:
                yield row.number, entry

    def verify(self, expected: str | None = None) -> Verified:
        """Walk the whole chain; ``expected`` is a hash that was noted elsewhere and must be in it."""
        before, last, rows = FIRST, 0, 0
        is_expected_there = expected is None
        for row in self._rows():
            if (why := _broken(row, last, before)) is not None:
                return Verified(rows, row.number, why, before)
            before, last, rows = row.hash, row.number, rows + 1
            is_expected_there = is_expected_there or row.hash == expected
        with self._database.connection() as connection:
            head = connection.execute(select(_head)).first()
        if head is None and last:
            return Verified(rows, last, "the head, which is kept beside the chain, is gone", before)
        if head is not None and (head.number, head.hash) != (last, before):
            return _cut_short(head.number, last, Verified(rows, newest=before))
        if not is_expected_there:
            return Verified(rows, last + 1, "no row has the hash that was expected: rows were taken away or made anew")
        return Verified(rows, newest=before)

    def _rows(self) -> Iterator[Row[Any]]:
        last: int | None = None
        while True:
            query = select(_audit).order_by(_audit.c.number).limit(_BATCH)
            query = query if last is None else query.where(_audit.c.number > last)
            with self._database.connection() as connection:
                rows = connection.execute(query).all()
            if not rows:
                return
            yield from rows
            last = rows[-1].number


def _newest(connection: Connection) -> Row[Any] | None:
    """The row that the next one follows: the head where there is one, so that a chain cut short stays broken."""
    head = connection.execute(select(_head)).first()
    if head is not None:
        return head
    return connection.execute(select(_audit).order_by(_audit.c.number.desc()).limit(1)).first()


def _cut_short(number: int, last: int, walked: Verified) -> Verified:
    """The chain holds in itself, and the head tells of another end."""
    if number > last:
        gone = f"row {number} was" if number == last + 1 else f"rows {last + 1} to {number} were"
        return replace(walked, broken_at=last + 1, why=f"{gone} taken away from the end")
    return replace(walked, broken_at=last, why="the head, which is kept beside the chain, is of another row")


def _broken(row: Row[Any], last: int, before: str) -> str | None:
    """Why a row does not follow from the one before it; None when it does."""
    if row.number > last + 1:
        gone = f"row {last + 1} is" if row.number == last + 2 else f"rows {last + 1} to {row.number - 1} are"
        return f"{gone} missing before it"
    if row.hash != _hash(before, row.value):
        return "it is not what was written: it was changed, or changed places"
    try:
        value, entry = json.loads(row.value), _entry_of(row)
    except (ValueError, StoreError):
        return "it can't be read"
    if not isinstance(value, dict) or value.get("number") != row.number:
        return "it stands at a number that is not its own"
    return None if _aware(row.at) == entry.at else "its time beside the entry was changed"


def _aware(at: datetime) -> datetime:
    """SQLite gives instants without their zone, which is UTC."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _hash(before: str, value: str) -> str:
    return hashlib.sha256(f"{before}\n{value}".encode("utf-8", "surrogatepass")).hexdigest()


def _text_of(entry: AuditEntry, number: int) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII; without secrets, and not too long."""
    value = {"number": number, **_converter.unstructure(entry)}
    return json.dumps(_clean(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        told = redact(value)
        return told if len(told) <= LONGEST_TEXT else f"{told[: LONGEST_TEXT - 1]}…"
    if isinstance(value, Mapping):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        cut = [f"… {len(value) - MOST_WORDS} more"] if len(value) > MOST_WORDS else []
        return [*(_clean(one) for one in value[:MOST_WORDS]), *cut]
    return value


def _entry_of(row: Row[Any]) -> AuditEntry:
    try:
        value = json.loads(row.value)
        return _converter.structure(value, AuditEntry)
    except (ValueError, KeyError, TypeError, AttributeError, BaseValidationError) as error:
        raise StoreError(f"row {row.number} of the audit can't be read: `upbot audit --verify` says more") from error
