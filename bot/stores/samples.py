"""What the watcher has read, in SQL: whole readings for a day, servers' courses for weeks, alerts that are over.

Readings are collected for a minute and written in one transaction, compressed: whole (for an export), and as one point
a server (for charts and reports). Each ten minutes the minutes become coarser points, and what is too old goes. A bot
that is killed loses the minute that it was collecting.

| what | steps | kept |
|---|---|---|
| readings | each | 26 h, less if they are more than 64 MiB, at least 2 h |
| courses | 1 min | 2 days |
| courses | 10 min | 6 weeks |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from bot.domain.course import Point, in_steps, merged, plain_of, point_of, step
from bot.domain.errors import StoreError
from bot.domain.watching import recorded
from bot.domain.watching.alerts import Alert
from bot.domain.watching.samples import Reading
from bot.stores.kept import SqlKept
from bot.stores.sql import Database
from bot.stores.tables import courses as _courses
from bot.stores.tables import past_alerts as _alerts
from bot.stores.tables import readings as _readings

MINUTE = 60
TEN_MINUTES = 600
KEEP: Mapping[int, timedelta] = {MINUTE: timedelta(days=2), TEN_MINUTES: timedelta(weeks=6)}
"""How long courses are kept, by the length of their steps."""
KEEP_READINGS = timedelta(hours=26)
KEEP_READINGS_AT_LEAST = timedelta(hours=2)
MOST_BYTES = 64 * 2**20
KEEP_ALERTS = 5_000
FINE = timedelta(minutes=30)
"""A course that is asked for no longer than this comes in the steps of the readings."""
LONG = timedelta(hours=20)
"""A course that is longer, or that would have more points in all, comes in steps of ten minutes."""
MOST_POINTS = 40_000
_LONGEST_BLOCK = 32 * 2**20
_ROWS_MORE = 1.5
"""A clock that jumped may leave rows that never get old: so many times the usual number is the most."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One reading that is not written yet, what was usual then, and the points up to it."""

    reading: Reading
    usual: Mapping[str, float]
    points: Mapping[str, Point]


class SqlSamples:
    """Remembers readings and what became of them."""

    def __init__(self, database: Database, *, most_bytes: int = MOST_BYTES) -> None:
        self._database = database
        self._kept = SqlKept(database)
        self._most_bytes = most_bytes
        self._parts: list[_Part] = []
        self._before: Reading | None = None
        self._tidied: int | None = None

    # Writing

    def add(self, reading: Reading, expected: Mapping[str, float]) -> None:
        minute = reading.at.timestamp() // MINUTE
        try:
            if self._parts and self._parts[0].reading.at.timestamp() // MINUTE != minute:
                self.flush()
        finally:
            self._parts.append(_Part(reading, expected, step(self._before, reading, expected)))
            self._before = reading

    def flush(self) -> None:
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        at = parts[-1].reading.at.timestamp()
        lines = "\n".join(_line({**recorded.plain_of(one.reading), **_usual(one.usual)}) for one in parts)
        course = _course_of([one.points for one in parts])
        with self._database.connection() as connection:
            connection.execute(insert(_readings).values(at=at, value=_packed(lines)))
            if course:
                values = {"step": MINUTE, "at": at, "value": _packed(_line(course))}
                connection.execute(insert(_courses).values(**values))
            if self._tidied != at // TEN_MINUTES:
                self._coarsen(connection, at)
                self._prune(connection, at)
        self._tidied = int(at // TEN_MINUTES)

    def _coarsen(self, connection: Connection, at: float) -> None:
        """Put whole ten minutes together that were not yet."""
        until = at // TEN_MINUTES * TEN_MINUTES
        done = select(func.max(_courses.c.at)).where((_courses.c.step == TEN_MINUTES) & (_courses.c.at <= at))
        since = connection.execute(done).scalar() or 0.0
        wanted = (_courses.c.step == MINUTE) & (_courses.c.at > since) & (_courses.c.at <= until)
        rows = connection.execute(select(_courses).where(wanted).order_by(_courses.c.at)).all()
        points: dict[str, list[Point]] = {}
        for row in rows:
            for name, point in _points_of(row, None):
                points.setdefault(name, []).append(point)
        blocks: dict[float, dict[str, list[Any]]] = {}
        for name, found in points.items():
            for point in in_steps(found, TEN_MINUTES):
                blocks.setdefault(-(-point.at // TEN_MINUTES) * TEN_MINUTES, {})[name] = [point.span, *plain_of(point)]
        for end, block in blocks.items():
            values = {"step": TEN_MINUTES, "at": end, "value": _packed(_line(block))}
            connection.execute(insert(_courses).values(**values))

    def _prune(self, connection: Connection, at: float) -> None:
        for length, span in KEEP.items():
            mine = _courses.c.step == length
            connection.execute(delete(_courses).where(mine & (_courses.c.at < at - span.total_seconds())))
            most = round(span.total_seconds() / length * _ROWS_MORE)
            extra = select(_courses.c.number).where(mine).order_by(_courses.c.number.desc()).offset(most).limit(1)
            oldest = connection.execute(extra).scalar()
            if oldest is not None:
                connection.execute(delete(_courses).where(mine & (_courses.c.number <= oldest)))
        connection.execute(delete(_readings).where(_readings.c.at < at - KEEP_READINGS.total_seconds()))
        oldest = self._last_that_is_too_much(connection)
        if oldest is not None:
            connection.execute(delete(_readings).where(_readings.c.number <= oldest))

    def _last_that_is_too_much(self, connection: Connection) -> int | None:
        sizes = select(_readings.c.number, func.length(_readings.c.value)).order_by(_readings.c.number.desc())
        total = 0
        for place, (number, size) in enumerate(connection.execute(sizes)):
            total += size
            is_much = place >= KEEP_READINGS_AT_LEAST.total_seconds() / MINUTE and total > self._most_bytes
            if is_much or place > KEEP_READINGS.total_seconds() / MINUTE * _ROWS_MORE:
                return int(number)
        return None

    def ended(self, alert: Alert) -> None:
        if alert.resolved_at is None:
            return
        values = {"id": alert.id[:80], "ended_at": alert.resolved_at, "value": self._kept.alert_text(alert)}
        with self._database.connection() as connection:
            same = (_alerts.c.id == alert.id[:80]) & (_alerts.c.ended_at >= alert.since)  # one that came back
            connection.execute(delete(_alerts).where(same))
            added = connection.execute(insert(_alerts).values(**values))
            oldest = (added.inserted_primary_key or (0,))[0] - KEEP_ALERTS
            connection.execute(delete(_alerts).where(_alerts.c.number <= oldest))

    # Reading

    def since(self, at: datetime, servers: Collection[str] | None = None) -> Mapping[str, tuple[Point, ...]]:
        wanted = None if servers is None else frozenset(servers)
        begin, now = at.timestamp(), self._before.at.timestamp() if self._before is not None else None
        if now is not None and now - begin <= FINE.total_seconds():
            return self._fine(at, wanted)
        found: dict[str, list[Point]] = {}
        with self._database.connection() as connection:
            fine_from = self._minutes_from(connection, begin, wanted)
            for length, low, high in ((TEN_MINUTES, begin, fine_from), (MINUTE, fine_from, float("inf"))):
                mine = (_courses.c.step == length) & (_courses.c.at > low) & (_courses.c.at <= high)
                rows = connection.execute(select(_courses).where(mine).order_by(_courses.c.at)) if low < high else ()
                for row in rows:
                    for name, point in _points_of(row, wanted):
                        found.setdefault(name, []).append(point)
        for name, points in _by_name([one.points for one in self._parts]).items():
            if wanted is None or name in wanted:
                found.setdefault(name, []).append(merged(points))
        return {name: tuple(points) for name, points in found.items()}

    def _minutes_from(self, connection: Connection, begin: float, wanted: frozenset[str] | None) -> float:
        """Up to where the course comes in steps of ten minutes: where minutes are gone, or would be too many."""

        def newest_of(length: int) -> float:
            query = select(func.max(_courses.c.at)).where(_courses.c.step == length)
            return float(connection.execute(query).scalar() or 0.0)

        newest = newest_of(MINUTE)
        servers = len(wanted) if wanted is not None else len(self._before.servers) if self._before is not None else 1
        is_long = newest - begin >= LONG.total_seconds() or (newest - begin) / MINUTE * servers > MOST_POINTS
        return max(begin, newest_of(TEN_MINUTES)) if is_long else begin

    def _fine(self, at: datetime, wanted: frozenset[str] | None) -> Mapping[str, tuple[Point, ...]]:
        found: dict[str, list[Point]] = {}
        before: Reading | None = None
        for reading, usual in self._with_usual(at - timedelta(minutes=2)):
            for name, point in step(before, reading, usual).items():
                if point.at > at.timestamp() and (wanted is None or name in wanted):
                    found.setdefault(name, []).append(point)
            before = reading
        return {name: tuple(points) for name, points in found.items()}

    def readings(self, at: datetime) -> Iterator[Reading]:
        return (reading for reading, _ in self._with_usual(at))

    def _with_usual(self, at: datetime) -> Iterator[tuple[Reading, Mapping[str, float]]]:
        last = -1
        while True:
            query = select(_readings).where((_readings.c.at >= at.timestamp()) & (_readings.c.number > last))
            with self._database.connection() as connection:
                rows = connection.execute(query.order_by(_readings.c.number).limit(60)).all()
            if not rows:
                break
            last = rows[-1].number
            for row in rows:
                yield from (pair for pair in _unpacked(row, _pairs_of) if pair[0].at >= at)
        yield from ((one.reading, one.usual) for one in self._parts if one.reading.at >= at)

    def alerts(self, at: datetime) -> tuple[Alert, ...]:
        query = select(_alerts.c.value).where(_alerts.c.ended_at >= at).order_by(_alerts.c.number)
        with self._database.connection() as connection:
            rows = connection.execute(query).all()
        return tuple(self._kept.alert_of(row.value) for row in rows)


def _by_name(parts: Sequence[Mapping[str, Point]]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for part in parts:
        for name, point in part.items():
            found.setdefault(name, []).append(point)
    return found


def _course_of(parts: Sequence[Mapping[str, Point]]) -> dict[str, list[Any]]:
    """One point a server: its span, and its values."""
    course = {}
    for name, points in _by_name(parts).items():
        one = merged(points)
        course[name] = [round(one.span, 1), *plain_of(one)]
    return course


def _points_of(row: Row[Any], wanted: frozenset[str] | None) -> list[tuple[str, Point]]:
    def read(text: str) -> list[tuple[str, Point]]:
        return [
            (name, point_of(row.at, float(one[0]), one[1:]))
            for name, one in json.loads(text).items()
            if wanted is None or name in wanted
        ]

    return _unpacked(row, read)


def _usual(expected: Mapping[str, float]) -> dict[str, Any]:
    """What was usual beside a reading, where a replay leaves it alone."""
    return {"usual": {name: round(value, 1) for name, value in expected.items()}} if expected else {}


def _pairs_of(text: str) -> list[tuple[Reading, Mapping[str, float]]]:
    plains = [json.loads(line) for line in text.splitlines()]
    return [(recorded.reading_of(plain), plain.get("usual", {})) for plain in plains]


def _line(plain: Any) -> str:
    return json.dumps(plain, separators=(",", ":"))


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode(), 6)


_Many = list[Any]


def _unpacked(row: Row[Any], read: Callable[[str], _Many]) -> _Many:
    try:
        return read(_text(bytes(row.value)))
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError) as error:
        raise StoreError(f"row {row.number} of what the watcher has read can't be read") from error


def _text(packed: bytes) -> str:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LONGEST_BLOCK)
    if not unpacker.eof:
        raise ValueError("cut short, or longer than anything that was written")
    return text.decode()
