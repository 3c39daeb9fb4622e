"""What looks have shown, in SQL: a server's changes of readiness, and how far jobs were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select

from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.errors import StoreError
from bot.domain.facts import JobState
from bot.domain.readiness import Readiness
from bot.stores.sql import Database
from bot.stores.tables import changes as _changes
from bot.stores.tables import job_marks as _marks

KEEP = 50_000
"""So many changes, and as many marks, are kept."""
MOST = 5_000
"""Of more than that since an instant only the newest are told."""
_LONGEST_REASON = 300


class SqlChanges:
    """Remembers what looks have shown."""

    def __init__(self, database: Database, *, keep: int = KEEP) -> None:
        self._database = database
        self._keep = keep

    def add(self, changes: Sequence[ReadinessChange], marks: Sequence[JobMark]) -> None:
        with self._database.connection() as connection:
            if changes:
                connection.execute(insert(_changes), [_of_change(one) for one in changes])
            if marks:
                connection.execute(insert(_marks), [_of_mark(one) for one in marks])
            for table in (_changes, _marks):
                newest = connection.execute(select(func.max(table.c.number))).scalar() or 0
                if newest > self._keep:
                    connection.execute(delete(table).where(table.c.number <= newest - self._keep))

    def last(self) -> tuple[tuple[ReadinessChange, ...], tuple[JobMark, ...]]:
        newest = select(func.max(_changes.c.number)).group_by(_changes.c.server)
        newest_marks = select(func.max(_marks.c.number)).group_by(_marks.c.job)
        with self._database.connection() as connection:
            rows = connection.execute(select(_changes).where(_changes.c.number.in_(newest))).all()
            marks = connection.execute(select(_marks).where(_marks.c.number.in_(newest_marks))).all()
        return tuple(_change(row) for row in rows), tuple(_mark(row) for row in marks)

    def since(self, at: datetime) -> tuple[tuple[ReadinessChange, ...], tuple[JobMark, ...]]:
        """Those from an instant on, and the last before it of each server and job; the oldest first."""
        before = select(func.max(_changes.c.number)).where(_changes.c.at < at).group_by(_changes.c.server)
        before_marks = select(func.max(_marks.c.number)).where(_marks.c.at < at).group_by(_marks.c.job)
        newest = select(_changes.c.number).where(_changes.c.at >= at).order_by(_changes.c.number.desc()).limit(MOST)
        newest_marks = select(_marks.c.number).where(_marks.c.at >= at).order_by(_marks.c.number.desc()).limit(MOST)
        wanted = _changes.c.number.in_(newest) | _changes.c.number.in_(before)
        wanted_marks = _marks.c.number.in_(newest_marks) | _marks.c.number.in_(before_marks)
        with self._database.connection() as connection:
            rows = connection.execute(select(_changes).where(wanted).order_by(_changes.c.number)).all()
            marks = connection.execute(select(_marks).where(wanted_marks).order_by(_marks.c.number)).all()
        return tuple(_change(row) for row in rows), tuple(_mark(row) for row in marks)


def _of_change(one: ReadinessChange) -> dict[str, Any]:
    reason = one.reason[:_LONGEST_REASON].replace("\0", "")
    return {"server": one.server, "at": one.at, "readiness": one.readiness.value, "reason": reason}


def _of_mark(one: JobMark) -> dict[str, Any]:
    value = json.dumps({"state": one.state.value, "done": one.done, "total": one.total})
    return {"job": one.job, "at": one.at, "value": value}


def _change(row: Row[Any]) -> ReadinessChange:
    try:
        return ReadinessChange(row.server, _aware(row.at), Readiness(row.readiness), row.reason)
    except ValueError as error:
        raise StoreError(f"a stored change of {row.server} can't be read") from error


def _mark(row: Row[Any]) -> JobMark:
    try:
        value = json.loads(row.value)
        return JobMark(row.job, _aware(row.at), JobState(value["state"]), value["done"], value["total"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"a stored mark of job {row.job} can't be read") from error


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
