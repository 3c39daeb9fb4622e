"""A database of any older shape is brought up without loss, one of a newer Upbot is refused, a current one costs nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from bot.domain.errors import StoreError
from bot.domain.records import Warmth
from bot.stores import migrations
from bot.stores.schema import KNOWN, LATEST, bring_up, is_current
from bot.stores.sql import Database, SqlOperations, SqlQuestions, SqlSeen, SqlStarts
from bot.stores.tables import TABLES
from tests.jumping import START
from tests.stores.test_sql import OPERATION, QUESTION

BEFORE_REVISIONS = """
CREATE TABLE operations (
    number INTEGER NOT NULL, id VARCHAR(40) NOT NULL, state VARCHAR(20) NOT NULL,
    started_at DATETIME NOT NULL, value TEXT NOT NULL, PRIMARY KEY (number), UNIQUE (id));
CREATE INDEX ix_operations_state ON operations (state);
CREATE TABLE questions (
    nonce VARCHAR(64) NOT NULL, state VARCHAR(20) NOT NULL, asked_at DATETIME NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (nonce));
CREATE INDEX ix_questions_state ON questions (state);
CREATE TABLE starts (
    number INTEGER NOT NULL, server VARCHAR(120) NOT NULL, profile VARCHAR(120) NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (number));
CREATE INDEX ix_starts_profile ON starts (profile);
CREATE INDEX ix_starts_server ON starts (server);
CREATE TABLE seen ("key" VARCHAR(200) NOT NULL, at DATETIME NOT NULL, PRIMARY KEY ("key"));
CREATE INDEX ix_seen_at ON seen (at);
"""
"""What a database looked like before there were revisions."""

START_OF_OLD = '{"server":"gpu0","profile":"p","at":"2026-11-30T03:00:00+00:00","took":75.0,"is_ready":true}'


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of the first shape, with a row in each table."""
    path = tmp_path / "upbot.db"
    memory = Database("sqlite://")
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(BEFORE_REVISIONS)
        at = "2026-11-30 03:00:00.000000"
        raw.execute("INSERT INTO operations VALUES (7, 'op-7', 'running', ?, ?)", (at, memory.text_of(OPERATION)))
        raw.execute("INSERT INTO questions VALUES ('n1', 'open', ?, ?)", (at, memory.text_of(QUESTION)))
        raw.execute("INSERT INTO starts VALUES (3, 'gpu0', 'p', ?)", (START_OF_OLD,))
        raw.execute("INSERT INTO seen VALUES ('C1/1.2', ?)", (at,))
        raw.commit()
    return path


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything in it, a table each."""
    with closing(sqlite3.connect(path)) as raw:
        names = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: raw.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}  # noqa: S608 - own names


def shape(path: Path) -> set[tuple[str, str, str]]:
    """Every column and index as SQLite sees it."""
    with closing(sqlite3.connect(path)) as raw:
        names = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            (name, row[1], f"{row[2]} {row[3]} {row[5]}")
            for name in names
            for row in raw.execute(f'PRAGMA table_info("{name}")')
        }
        indexes = {
            (
                name,
                index[1],
                f"{index[2]} " + ",".join(col[2] for col in raw.execute(f'PRAGMA index_info("{index[1]}")')),
            )
            for name in names
            for index in raw.execute(f'PRAGMA index_list("{name}")')
        }
    return columns | indexes


def test_a_database_of_before_the_revisions_keeps_every_row(old: Path) -> None:
    before = rows(old)
    database = Database.file(old)
    assert SqlOperations(database).live() == (OPERATION,)
    assert SqlOperations(database).next_id() == "op-8"
    assert SqlQuestions(database).open() == (QUESTION,)
    assert [(one.server, one.caches) for one in SqlStarts(database).recent(9)] == [("gpu0", Warmth.UNKNOWN)]
    assert SqlSeen(database).seen("C1/1.2", START)
    database.close()
    after = rows(old)
    assert {name: after[name] for name in before} == before
    assert after["alembic_version"] == [(LATEST,)]


def test_a_half_made_old_database_is_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(BEFORE_REVISIONS.partition("CREATE TABLE starts")[0])
    Database.file(path).close()
    assert set(rows(path)) == {"alembic_version", *TABLES.tables}


def test_upgraded_and_new_ones_have_the_same_shape_which_is_that_of_the_tables(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new" / "upbot.db"
    Database.file(new).close()
    Database.file(old).close()
    assert shape(old) == shape(new)
    for path in (old, new):
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), TABLES) == []
        engine.dispose()


def test_every_revision_is_known_and_they_are_one_line() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [LATEST]
    assert tuple(one.revision for one in reversed(list(script.walk_revisions()))) == KNOWN


def test_a_newer_ones_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    Database.file(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '0099'")
        raw.commit()
    before = rows(path)
    with pytest.raises(StoreError) as caught:
        Database.file(path)
    assert str(caught.value) == (
        f"the state in {path} was written by a newer Upbot (revision 0099, this one knows {LATEST}): "
        "run that one, or bring back a backup that was made before"
    )
    assert rows(path) == before


def test_a_migration_that_fails_leaves_the_old_database_whole(old: Path) -> None:
    with closing(sqlite3.connect(old)) as raw:
        raw.execute("CREATE TABLE job_marks (something_else TEXT)")  # in the way of the last table
        raw.commit()
    before = rows(old)
    with pytest.raises(StoreError, match=r"upbot\.db can't be read or written: table job_marks already exists"):
        Database.file(old)
    assert rows(old) == before


def test_two_that_open_an_old_one_at_once_do_not_disturb_each_other(old: Path) -> None:
    code = "import sys; from pathlib import Path; from bot.stores.sql import Database; Database.file(Path(sys.argv[1]))"
    started = [subprocess.Popen([sys.executable, "-c", code, str(old)], stderr=subprocess.PIPE) for _ in range(3)]
    assert [(one.communicate(timeout=60)[1], one.returncode) for one in started] == [(b"", 0)] * 3
    assert SqlOperations(Database.file(old)).live() == (OPERATION,)


def test_a_current_one_is_opened_without_alembic_and_at_once(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    Database.file(path).close()
    code = (
        "import sys; from pathlib import Path; from bot.stores.sql import Database; Database.file(Path(sys.argv[1]));"
        "assert not any(name.startswith('alembic') for name in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0
    spent = []
    for _ in range(5):
        begun = time.process_time()
        Database.file(path).close()
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.05


def test_the_revisions_speak_no_dialect_of_their_own() -> None:
    """Rendered for PostgreSQL, they are made of what both know."""
    written: list[str] = []
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)

    class Output:
        def write(self, text: str) -> None:
            written.append(text)

        def flush(self) -> None: ...

    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": Output(), "fn": lambda _, __: []}
    )
    with Operations.context(context):
        for revision in KNOWN:
            script.get_revision(revision).module.upgrade()
    sql = "".join(written)
    for name in TABLES.tables:
        assert f"CREATE TABLE {name} (" in sql or f"CREATE TABLE IF NOT EXISTS {name} (" in sql
    assert "TIMESTAMP WITH TIME ZONE" in sql
    assert "SERIAL" in sql
    assert "PRAGMA" not in sql


def test_bringing_up_a_current_one_changes_nothing() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        bring_up(connection, "memory")
        assert is_current(connection, "memory")
        bring_up(connection, "memory")
