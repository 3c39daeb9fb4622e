"""What must outlive the bot comes back as it was, and a press is consumed once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.domain.errors import StoreError
from bot.domain.flags import Flags
from bot.domain.message import (
    Answers,
    Button,
    Buttons,
    Lines,
    LogPiece,
    Look,
    Mention,
    Message,
    Moment,
    Picture,
    Says,
    Small,
    Table,
    bold,
    code,
    line,
)
from bot.domain.operation import Asked, Question, State, StepState, Where, begin
from bot.domain.plan import (
    AwaitFree,
    Before,
    CompareThroughput,
    EndServers,
    Plan,
    Prove,
    PutBack,
    ResumeJob,
    Stake,
    StartOrder,
    StartServers,
    StopJob,
    TakeOut,
    Victim,
)
from bot.domain.records import StartRecord, Warmth
from bot.domain.routing import Taken
from bot.stores.sql import Database, SqlOperations, SqlQuestions, SqlSeen, SqlStarts
from tests.jumping import START

ROOT = Path(__file__).parents[2]
EVERYTHING = Message(
    line(bold("head"), " ", code("x"), Moment(START), Mention("U1")),
    (
        Lines((line("a"), ())),
        Small((line("b"),)),
        Table(("one", "two"), ((line("c"), line("d")),)),
        LogPiece("log <!channel>\n", "title"),
        Picture(b"\x89PNG\x00\xff", "chart.png", "a chart"),
        Buttons((Button("Go", Says("up"), Look.PRIMARY), Button("Yes", Answers("n1", "confirm"), Look.DANGER))),
    ),
)
PLAN = Plan(
    "restart",
    "Restart a",
    ("a", "b"),
    (
        StopJob("j"),
        TakeOut(("a",), ("front",), timedelta(minutes=2)),
        EndServers((Victim("a", 7, 700),)),
        AwaitFree(("a",)),
        StartServers((StartOrder("a", Flags.of({"tp": 8, "on": True}), "p"),)),
        Prove(("a",)),
        PutBack(("a",), ("front",)),
        ResumeJob("j", None, 2),
        CompareThroughput(("a",), timedelta(minutes=5)),
    ),
    profile="p",
    question=EVERYTHING,
    stakes=(Stake("a", 7, 700, True, "ready"), Stake("b", None, None, False, "down")),
    before=(Before("a", "q", 37, 381_000, 32, 671.5),),
    back_to="q",
    has_alternative=("One by one…", "restart --rolling p"),
)
OPERATION = begin(PLAN, id="op-1", by="ana", at=START, where=Where("C1", None, "m1"), pace=timedelta(seconds=30))
QUESTION = Question("n1", "7F3A", PLAN, "restart p", "ana", START, START + timedelta(minutes=5), Where("C1"))


def test_an_operation_comes_back_as_it_was() -> None:
    store = SqlOperations(Database("sqlite://"))
    assert store.next_id() == "op-1"
    op = OPERATION.with_step(0, StepState.DONE, "job stopped").without("b", "gone")
    op = replace(op, launched=("a",), copies=(Where("ask:1"),))
    op = op.with_taken(Taken("a", "front", "http://h:1", START, '{"cost": 2.5}', ("w1",)))
    store.save(op)
    assert store.live() == (op,)
    done = op.to(State.CANCELLING).to(State.CANCELLED, at=START, outcome="cancelled")
    store.save(done)
    assert store.live() == ()
    assert store.recent(5) == (done,)
    assert store.next_id() == "op-2"


def test_a_question_is_ended_once_whoever_comes_first() -> None:
    database = Database("sqlite://")
    store, other = SqlQuestions(database), SqlQuestions(database)
    store.add(QUESTION)
    store.placed("n1", Where("C1", None, "m9"))
    assert other.open() == (replace(QUESTION, where=Where("C1", None, "m9")),)
    assert store.end("n1", Asked.PRESSED, by="bo", at=START)
    assert not other.end("n1", Asked.CANCELLED, by="ana", at=START)
    assert not store.end("unknown", Asked.CANCELLED, by="ana", at=START)
    ended = store.get("n1")
    assert ended is not None
    assert (ended.state, ended.by, ended.ended_at) == (Asked.PRESSED, "bo", START)
    assert store.open() == ()
    assert store.last_for("C1") == ended
    assert store.last_for("C2") is None


def test_starts_come_back_in_their_order() -> None:
    store = SqlStarts(Database("sqlite://"))
    records = [
        StartRecord(f"s{n}", "p", START, timedelta(seconds=n), n % 2 == 0, {"loading_weights": timedelta(seconds=1.5)})
        for n in range(10)
    ]
    records += [replace(records[0], caches=one) for one in Warmth]
    for record in records:
        store.add(record)
    assert store.recent(3) == tuple(records[-3:])
    assert store.recent(100) == tuple(records)


def test_a_message_is_new_once_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "upbot.db"
    first = Database.file(path)
    assert not SqlSeen(first).seen("C1/1.2", START)
    assert SqlSeen(first).seen("C1/1.2", START)
    first.close()
    again = Database.file(path)
    assert SqlSeen(again).seen("C1/1.2", START)
    assert not SqlSeen(again).seen("C1/1.3", START + timedelta(days=2))
    assert not SqlSeen(again).seen("C1/1.2", START + timedelta(days=2))
    again.close()


def test_the_file_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "upbot.db"
    Database.file(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "upbot.db"
    path.write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"upbot\.db can't be read or written: file is not a database"):
        Database.file(path)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"^the state can't be kept in .*file/state/upbot\.db: Not a directory$"):
        Database.file(tmp_path / "file" / "state" / "upbot.db")


@pytest.mark.root
def test_a_full_disk_says_so_and_loses_nothing(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    assert os.spawnvp(os.P_WAIT, "mount", ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]) == 0
    try:
        database = Database.file(place / "upbot.db")
        store = SqlOperations(database)
        store.save(OPERATION)
        with (place / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(StoreError, match=r"upbot\.db can't be read or written: .*(full|I/O)"):
            for n in range(200):
                store.save(replace(OPERATION, id=f"op-{n + 2}"))
        (place / "filler").unlink()
        assert OPERATION in store.recent(500)
        store.save(replace(OPERATION, id="op-999"))
        database.close()
    finally:
        os.spawnvp(os.P_WAIT, "umount", ["umount", str(place)])


def test_a_row_that_was_tampered_with_is_an_error_and_no_crash() -> None:
    database = Database("sqlite://")
    SqlOperations(database).save(OPERATION)
    with database.connection() as connection:
        connection.exec_driver_sql("UPDATE operations SET value = '{}'")
    with pytest.raises(StoreError, match=r"a stored operation in .* can't be read"):
        SqlOperations(database).live()


@given(st.text(), st.text(), st.text())
@settings(deadline=None)  # the first one opens a database on a busy machine
def test_any_text_comes_back(title: str, note: str, by: str) -> None:
    store = SqlOperations(Database("sqlite://"))
    op = replace(OPERATION, plan=replace(PLAN, title=title), by=by).with_step(0, StepState.RUNNING, note)
    store.save(op)
    assert store.live() == (op,)


def test_four_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from bot.stores.sql import Database; Database.file(Path(sys.argv[1]))"
    for round_ in range(3):
        path = tmp_path / f"state{round_}" / "upbot.db"
        command = [sys.executable, "-c", code, str(path)]
        racers = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(4)]
        assert [racer.communicate()[1].decode()[-300:] for racer in racers] == [""] * 4
