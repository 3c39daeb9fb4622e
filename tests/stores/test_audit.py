"""The audit is only added to, holds no secret, and whoever changes it is found out, as far as that can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.domain.audit import Act, AuditEntry, Result
from bot.domain.errors import StoreError
from bot.stores.audit import FIRST, LONGEST_TEXT, MOST_WORDS, SqlAudit, Verified
from bot.stores.sql import Database
from tests.jumping import START

ENTRY = AuditEntry(
    START,
    Act.COMMAND,
    Result.ASKED,
    by="ana",
    user="U1",
    channel="C1",
    words="restart no_buffer",
    seen="8 ready: gpu0 ready (pid 4001)",
    title="Restart 8 servers · no_buffer",
    steps=("stop 8 servers", "start"),
    servers=("gpu0", "gpu1"),
    question="7F3A",
)


@pytest.fixture
def database() -> Database:
    """A database with an audit of six rows."""
    database = Database("sqlite://")
    audit = SqlAudit(database)
    for minute in range(6):
        audit.write(replace(ENTRY, at=START + timedelta(minutes=minute), words=f"restart gpu{minute}"))
    return database


def tamper(database: Database, *statements: str) -> Verified:
    """Do something to the rows, and look at the chain."""
    with database.connection() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    return SqlAudit(database).verify()


def test_entries_come_back_as_they_were(database: Database) -> None:
    audit = SqlAudit(database)
    newest = audit.recent(2)
    assert newest == (
        replace(ENTRY, at=START + timedelta(minutes=4), words="restart gpu4"),
        replace(ENTRY, at=START + timedelta(minutes=5), words="restart gpu5"),
    )
    assert [number for number, _ in audit.since(None)] == [1, 2, 3, 4, 5, 6]
    assert [number for number, _ in audit.since(START + timedelta(minutes=4))] == [5, 6]
    found = audit.verify()
    assert (found.rows, found.broken_at, len(found.newest)) == (6, None, 64)


def test_an_empty_audit_holds() -> None:
    assert SqlAudit(Database("sqlite://")).verify() == Verified(0, newest=FIRST)


@pytest.mark.parametrize(
    ("statements", "row", "why"),
    [
        (
            ["UPDATE audit SET value = replace(value, 'gpu2', 'gpu7') WHERE number = 3"],
            3,
            "it is not what was written: it was changed, or changed places",
        ),
        (
            ["UPDATE audit SET hash = 'f00d' WHERE number = 3"],
            3,
            "it is not what was written: it was changed, or changed places",
        ),
        (
            ["UPDATE audit SET at = '2026-11-30 09:00:00.000000' WHERE number = 2"],
            2,
            "its time beside the entry was changed",
        ),
        (["DELETE FROM audit WHERE number = 4"], 5, "row 4 is missing before it"),
        (["DELETE FROM audit WHERE number IN (2, 3)"], 4, "rows 2 to 3 are missing before it"),
        (["DELETE FROM audit WHERE number = 1"], 2, "row 1 is missing before it"),
        (
            ["DELETE FROM audit WHERE number = 4", "UPDATE audit SET number = number - 1 WHERE number > 4"],
            4,
            "it is not what was written: it was changed, or changed places",
        ),
        (
            [
                "UPDATE audit SET number = 99 WHERE number = 2",
                "UPDATE audit SET number = 2 WHERE number = 3",
                "UPDATE audit SET number = 3 WHERE number = 99",
            ],
            2,
            "it is not what was written: it was changed, or changed places",
        ),
        (["DELETE FROM audit WHERE number = 6"], 6, "row 6 was taken away from the end"),
        (["DELETE FROM audit WHERE number > 3"], 4, "rows 4 to 6 were taken away from the end"),
        (["DELETE FROM audit"], 1, "rows 1 to 6 were taken away from the end"),
        (["DELETE FROM audit_head"], 6, "the head, which is kept beside the chain, is gone"),
        (["UPDATE audit_head SET hash = 'f00d'"], 6, "the head, which is kept beside the chain, is of another row"),
        (
            ["UPDATE audit SET value = 'no json' WHERE number = 1"],
            1,
            "it is not what was written: it was changed, or changed places",
        ),
    ],
)
def test_whoever_tampers_is_found_out_at_the_first_row_that_does_not_fit(
    database: Database, statements: list[str], row: int, why: str
) -> None:
    found = tamper(database, *statements)
    assert (found.broken_at, found.why) == (row, why)


def test_a_tail_that_was_cut_off_stays_found_out_when_the_bot_writes_on(database: Database) -> None:
    tamper(database, "DELETE FROM audit WHERE number > 4")
    SqlAudit(database).write(ENTRY)
    found = SqlAudit(database).verify()
    assert (found.broken_at, found.why) == (7, "rows 5 to 6 are missing before it")


def test_a_tail_cut_off_with_its_head_is_found_only_with_a_hash_that_was_noted_elsewhere(database: Database) -> None:
    """What the chain alone can't show; `upbot audit --verify --expect HASH` does."""
    noted = SqlAudit(database).verify().newest
    assert SqlAudit(database).verify(noted).broken_at is None
    with database.connection() as connection:
        kept = connection.exec_driver_sql("SELECT hash FROM audit WHERE number = 4").scalar()
    found = tamper(database, "DELETE FROM audit WHERE number > 4", f"UPDATE audit_head SET number = 4, hash = '{kept}'")  # noqa: S608 - a hash
    assert (found.rows, found.broken_at) == (4, None)
    found = SqlAudit(database).verify(noted)
    assert (found.broken_at, found.why) == (
        5,
        "no row has the hash that was expected: rows were taken away or made anew",
    )


def test_no_secret_is_written_down() -> None:
    database = Database("sqlite://")
    audit = SqlAudit(database)
    audit.write(
        replace(
            ENTRY,
            words="restart gpu3 --api-key sk-live-123456789",
            why="HF_TOKEN=hf_abcdefghijkl refused",
            steps=("start with xoxb-12345-abcdef",),
        )
    )
    with database.connection() as connection:
        value = str(connection.exec_driver_sql("SELECT value FROM audit").scalar())
    for secret in ("sk-live", "hf_abc", "xoxb-123"):
        assert secret not in value
    assert audit.recent(1)[0].words == "restart gpu3 --api-key ***"
    assert audit.verify().broken_at is None


def test_what_is_too_long_is_cut() -> None:
    database = Database("sqlite://")
    audit = SqlAudit(database)
    audit.write(replace(ENTRY, why="x" * 10_000, servers=tuple(f"s{n}" for n in range(2_000))))
    kept = audit.recent(1)[0]
    assert len(kept.why) == LONGEST_TEXT
    assert kept.servers[-2:] == (f"s{MOST_WORDS - 1}", f"… {2_000 - MOST_WORDS} more")
    assert audit.verify().broken_at is None


def test_two_writers_keep_one_chain(tmp_path: Path) -> None:
    one, other = Database.file(tmp_path / "upbot.db"), Database.file(tmp_path / "upbot.db")
    for number in range(5):
        SqlAudit(one if number % 2 else other).write(ENTRY)
    assert SqlAudit(one).verify().rows == 5
    one.close()
    other.close()


def test_an_entry_that_cannot_be_read_is_an_error_and_no_crash(database: Database) -> None:
    with database.connection() as connection:
        connection.exec_driver_sql("UPDATE audit SET value = '{}' WHERE number = 6")
    with pytest.raises(StoreError, match="row 6 of the audit can't be read: `upbot audit --verify` says more"):
        SqlAudit(database).recent(1)


def test_what_is_kept_is_canonical(database: Database) -> None:
    with database.connection() as connection:
        value = str(connection.exec_driver_sql("SELECT value FROM audit WHERE number = 1").scalar())
    read = json.loads(value)
    assert value == json.dumps(read, sort_keys=True, separators=(",", ":"))
    assert (read["number"], read["at"], read["act"]) == (1, "2026-11-30T03:00:00+00:00", "command")


def _edit(text: str, place: int) -> str:
    place %= len(text)
    return text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]


def _cut(text: str, place: int) -> str:
    return text[: place % len(text)]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([_edit, _cut]))
def test_any_change_of_any_row_is_found_at_that_row(row: int, place: int, change: Callable[[str, int], str]) -> None:
    database = Database("sqlite://")
    audit = SqlAudit(database)
    for _ in range(6):
        audit.write(ENTRY)
    with database.connection() as connection:
        value = str(connection.exec_driver_sql(f"SELECT value FROM audit WHERE number = {row}").scalar())  # noqa: S608 - a number
        connection.exec_driver_sql("UPDATE audit SET value = ? WHERE number = ?", (change(value, place), row))
    assert audit.verify().broken_at == row


@settings(deadline=None, max_examples=40)
@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_any_text_keeps_the_chain(words: str, why: str, servers: list[str]) -> None:
    audit = SqlAudit(Database("sqlite://"))
    for _ in range(2):
        audit.write(replace(ENTRY, words=words, why=why, servers=tuple(servers)))
    assert audit.verify().broken_at is None
    assert len(audit.recent(2)) == 2
