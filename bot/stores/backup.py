"""A copy of the state while the bot goes on working: SQLite's own online backup, checked before it is called done.

The database is opened as it is: a backup made by a newer Upbot before its first start must hold what was there.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from bot.domain.errors import StoreError

_PAGES_AT_ONCE = 256
_ALL_IS_WELL = "ok"


def back_up(url: str, target: Path) -> int:
    """Copy the database of SQLAlchemy's ``url`` into a new file, for its owner's eyes only; its size in bytes.

    StoreError when there is no state, the file exists, the disk is full, or the copy is not sound; no file is left.
    """
    _is_sqlite(url)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise StoreError(f"{target} exists already: a backup overwrites nothing") from error
    except OSError as error:
        raise StoreError(f"the backup can't be written to {target}: {error.strerror or error}") from error
    try:
        _copy(url, target)
        with target.open("rb") as written:
            os.fsync(written.fileno())
            return os.fstat(written.fileno()).st_size
    except (sqlite3.Error, SQLAlchemyError, OSError) as error:
        _leave_nothing(target)
        raise StoreError(f"the backup to {target} failed: {getattr(error, 'orig', None) or error}") from error
    except StoreError:
        _leave_nothing(target)
        raise


def _is_sqlite(url: str) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"only SQLite is backed up here: for {parsed.get_backend_name()} use its own (pg_dump)")
    if not parsed.database or not Path(parsed.database).is_file():
        raise StoreError(f"there is no state in {parsed.database or 'memory'} yet")


def _copy(url: str, target: Path) -> None:
    engine = create_engine(url)
    try:
        with closing(engine.raw_connection()) as source, closing(sqlite3.connect(target)) as copy:
            there = source.driver_connection
            assert isinstance(there, sqlite3.Connection)  # noqa: S101 - looked at above; for the type checker
            there.backup(copy, pages=_PAGES_AT_ONCE)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, nothing beside it
            found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(5)")]
    finally:
        engine.dispose()
    if found != [_ALL_IS_WELL]:
        raise StoreError(f"the state is damaged, so its copy is of no use: {'; '.join(found)[:300]}")


def _leave_nothing(target: Path) -> None:
    for path in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(OSError):
            path.unlink()
