"""Brings a database's tables to what this version works with, at every opening, and refuses a newer one's.

The usual case is one question to the database: Alembic, which takes a quarter of a second to load, is imported only
where something is to be changed. A database without any table is made whole at once, since replaying history
gives the same (a test compares them). Everything happens in one transaction, behind a lock that lets one in.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from bot.domain.errors import StoreError
from bot.stores import migrations
from bot.stores.tables import TABLES

KNOWN = ("0001", "0002", "0003", "0004", "0005", "0006")
"""The revisions in bot/stores/migrations/versions, the oldest first; a test holds the two together."""
LATEST = KNOWN[-1]

_VERSION = "alembic_version"
_LOCK = 7_823_640_021


def begin_alone(connection: Connection) -> None:
    """Let nobody else write until this transaction ends; to be called before anything else in it."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def revision_of(connection: Connection) -> str | None:
    """The revision that a database stands at; None where none was noted."""
    if not inspect(connection).has_table(_VERSION):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return str(found) if found is not None else None


def is_current(connection: Connection, name: str) -> bool:
    """Whether nothing is to be done; StoreError when a newer Upbot has been here."""
    found = revision_of(connection)
    if found is not None and found not in KNOWN:
        raise StoreError(
            f"the state in {name} was written by a newer Upbot (revision {found[:40]}, this one knows {LATEST}): "
            "run that one, or bring back a backup that was made before"
        )
    return found == LATEST


def bring_up(connection: Connection, name: str) -> None:
    """Change the tables to those of this version; to be called in a transaction that `begin_alone` began."""
    if is_current(connection, name):
        return
    if not inspect(connection).get_table_names():
        TABLES.create_all(connection)
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:latest)"), {"latest": LATEST})
        return
    _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - slow to load, and seldom needed
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
