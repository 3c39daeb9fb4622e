"""A backup is whole, sound, its owner's alone, and never written over anything."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.errors import StoreError
from bot.stores.backup import back_up
from bot.stores.sql import Database, SqlOperations
from tests.stores.test_sql import OPERATION


def test_a_backup_is_made_beside_a_bot_that_writes(tmp_path: Path) -> None:
    path, target = tmp_path / "upbot.db", tmp_path / "copy.db"
    database = Database.file(path)
    store = SqlOperations(database)
    store.save(OPERATION)
    size = back_up(f"sqlite:///{path}", target)
    store.save(replace(OPERATION, id="op-2"))
    assert size == target.stat().st_size > 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("copy")) == ["copy.db"]
    database.close()
    copy = Database.file(target)
    assert SqlOperations(copy).live() == (OPERATION,)
    copy.close()


def test_it_never_writes_over_a_file(tmp_path: Path) -> None:
    path, target = tmp_path / "upbot.db", tmp_path / "copy.db"
    Database.file(path).close()
    target.write_text("dear to somebody")
    with pytest.raises(StoreError) as caught:
        back_up(f"sqlite:///{path}", target)
    assert str(caught.value) == f"{target} exists already: a backup overwrites nothing"
    assert target.read_text() == "dear to somebody"


def test_an_old_database_is_copied_as_it_is(tmp_path: Path) -> None:
    path, target = tmp_path / "upbot.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE operations (number INTEGER)")
        raw.commit()
    back_up(f"sqlite:///{path}", target)
    for one in (path, target):
        with closing(sqlite3.connect(one)) as raw:
            assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("operations",)]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:////nowhere/upbot.db", "there is no state in /nowhere/upbot.db yet"),
        ("sqlite://", "there is no state in memory yet"),
        ("postgresql://u:secret@h/d", "only SQLite is backed up here: for postgresql use its own (pg_dump)"),
    ],
)
def test_what_cannot_be_backed_up_says_so_and_leaves_no_file(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(StoreError) as caught:
        back_up(url, tmp_path / "copy.db")
    assert str(caught.value) == why
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_no_backup(tmp_path: Path) -> None:
    path, target = tmp_path / "upbot.db", tmp_path / "copy.db"
    database = Database.file(path)
    for number in range(60):
        SqlOperations(database).save(replace(OPERATION, id=f"op-{number}"))
    database.close()
    data = bytearray(path.read_bytes())
    data[20 * 4096 : 24 * 4096] = b"\x55" * 4 * 4096
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"copy\.db failed: |the state is damaged, so its copy is of no use: "):
        back_up(f"sqlite:///{path}", target)
    assert not target.exists()


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    Database.file(path).close()
    with pytest.raises(StoreError, match=r"^the backup can't be written to .*No such file or directory$"):
        back_up(f"sqlite:///{path}", tmp_path / "not" / "there.db")
