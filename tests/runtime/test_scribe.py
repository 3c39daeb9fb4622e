"""What may destroy something is done only when it is written; what ends something is noted as well as can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bot.domain.audit import AuditEntry, sentence
from bot.domain.command import Reply
from bot.domain.errors import StoreError
from bot.domain.leases import Hold
from bot.domain.message import says
from bot.domain.operation import State
from bot.domain.saying import Words
from bot.ports import Place
from bot.runtime.scribe import Scribe
from tests.jumping import START
from tests.stores.test_sql import OPERATION, PLAN, QUESTION
from tests.tester import first_night

HERE = Place("C1")
HOLD = Hold("h-1", ("gpu0",), (), "ana", START, START)
WORDS = Words("restart", "restart p", targets=("gpu0",))
DONE = replace(OPERATION, state=State.DONE, outcome="done")


class PretendAudit:
    """Keeps entries in memory, or is full."""

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full
        self.entries: list[AuditEntry] = []

    def write(self, entry: AuditEntry) -> None:
        if self.is_full:
            raise StoreError("full")
        self.entries.append(entry)

    def recent(self, limit: int) -> tuple[AuditEntry, ...]:
        return tuple(self.entries[-limit:])


class StillClock:
    """A clock that stands."""

    def now(self):
        return START

    async def sleep(self, span):
        raise AssertionError("nobody waits here")


def scribe(*, is_full: bool) -> tuple[Scribe, PretendAudit]:
    audit = PretendAudit(is_full=is_full)
    return Scribe(audit, StillClock(), first_night), audit


STRICT: list[tuple[str, Callable[[Scribe], None]]] = [
    ("ana: restart p – asked 7F3A", lambda one: one.asked(QUESTION, "U1")),
    ("ana: restart p – started", lambda one: one.started(PLAN, "restart p", "U1", HERE)),
    ("bo pressed 7F3A, Restart a – accepted", lambda one: one.accepted(QUESTION, "U2", HERE)),
    ("op-1 begins: Restart a, by ana", lambda one: one.begins(OPERATION)),
    ("ana: hold gpu0 2h – done: h-1", lambda one: one.held(("gpu0",), "h-1", "hold gpu0 2h", "U1", HERE)),
]
NOTED: list[tuple[str, Callable[[Scribe], None]]] = [
    ("ana: restart p – nothing to do: all well", lambda one: one.replied(Reply(says("all well")), WORDS, "U1", HERE)),
    ("ana: restart p – refused: busy", lambda one: one.replied(Reply(says("busy"), is_ok=False), WORDS, "U1", HERE)),
    ("U9: restart p – refused: you may not", lambda one: one.refused("you may not", WORDS, "U9", HERE)),
    ("ana: restart p – done", lambda one: one.changed(WORDS, "U1", HERE)),
    ("bo pressed – refused: too late", lambda one: one.not_accepted(None, "too late", "U2", HERE)),
    (
        "ana: no – cancelled Restart a?, Restart a (op-1)",
        lambda one: one.cancelled([QUESTION, OPERATION], "no", "U1", HERE),
    ),
    ("SIGHUP: reload – done: read", lambda one: one.reloaded("read", "SIGHUP", Place(""), is_read=True)),
    ("op-1 Restart a – done", lambda one: one.ended(DONE)),
    ("h-1 hold by ana – done: its time was over", lambda one: one.hold_ended(HOLD, "its time was over")),
    (
        "op-1 Restart a – failed: no server came up; a: crashed",
        lambda one: one.ended(
            replace(OPERATION, state=State.FAILED, outcome="no server came up", lost=(("a", "crashed"),))
        ),
    ),
]


@pytest.mark.parametrize(("told", "act"), STRICT + NOTED)
def test_each_act_is_an_entry(told: str, act: Callable[[Scribe], None]) -> None:
    one, audit = scribe(is_full=False)
    act(one)
    assert [sentence(entry) for entry in audit.entries] == [told]


@pytest.mark.parametrize("act", [act for _, act in STRICT])
def test_what_may_destroy_is_stopped_by_a_full_disk(act: Callable[[Scribe], None]) -> None:
    with pytest.raises(StoreError):
        act(scribe(is_full=True)[0])


@pytest.mark.parametrize("act", [act for _, act in NOTED])
def test_what_ends_or_refuses_is_not_stopped_by_a_full_disk(act: Callable[[Scribe], None]) -> None:
    one, audit = scribe(is_full=True)
    act(one)
    assert audit.entries == []


def test_nothing_that_goes_on_is_called_ended_and_nothing_ended_is_no_entry() -> None:
    one, audit = scribe(is_full=False)
    one.ended(OPERATION)
    one.cancelled([], "no", "U1", HERE)
    assert audit.entries == []


def test_an_end_that_is_missing_is_written_once() -> None:
    one, audit = scribe(is_full=False)
    one.begins(OPERATION)
    unknown = replace(DONE, id="op-0")
    for _ in range(2):
        one.catch_up([unknown, DONE, replace(OPERATION, id="op-2")])
    assert [sentence(entry) for entry in audit.entries[1:]] == ["op-1 Restart a – done"]
