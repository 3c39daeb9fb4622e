"""What a decision would act on: every kind of change names it, and one that does not is about everything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.command import (
    AckAlert,
    Adopt,
    CancelOpen,
    Decision,
    DrawChart,
    Forget,
    Promise,
    ReloadFleet,
    Reply,
    SetPace,
    SilenceAlerts,
    UnsilenceAlerts,
)
from bot.domain.facts import Process, Sight
from bot.domain.fleet import Role
from bot.domain.message import says
from bot.domain.operation import Where, begin
from bot.domain.people import everything
from bot.domain.plan import Plan, ResumeJob, StopJob
from bot.domain.saying import Words
from bot.domain.touching import touched
from bot.domain.watching.alerts import Alert, Book, State
from bot.domain.watching.causes import Cause
from bot.domain.wishes import Goal, Until
from bot.domain.world import World
from tests.jumping import START
from tests.tester import first_night

PLAN = Plan("restart", "Restart", ("gpu3", "gpu4"), (StopJob("datagen"), ResumeJob("datagen", None, 1)))
ALERTS = (
    Alert("a-1", Cause.DOWN, ("gpu1",), START, State.FIRING),
    Alert("a-2", Cause.SLOW_FLEET, (), START, State.FIRING),
    Alert("a-3", Cause.HUNG, ("gpu6",), START, State.FIRING),
    Alert("a-4", Cause.HUNG, ("gpu7",), START, State.ACKED),
)
OPERATION = begin(PLAN, id="op-1", by="ana", at=START, where=Where("C1"), pace=None)
ELSEWHERE = replace(OPERATION, id="op-2", where=Where("C2"), plan=replace(PLAN, servers=("gpu0",), steps=()))
WORLD = World(
    first_night(), START, "U1", Role.OPERATOR, "C1", Sight(START),
    operations=(OPERATION, ELSEWHERE), book=Book(ALERTS),
)  # fmt: skip
ALL = everything(WORLD.fleet)
PROCESS = Process(7, 700, ("x",), "root", timedelta())


@pytest.mark.parametrize(
    ("decision", "what"),
    [
        (Reply(says("so")), None),
        (DrawChart(("gpu3",), timedelta(hours=2)), None),
        (Promise(Goal(Until.UP, ("gpu3",))), None),
        (Forget(), None),
        (CancelOpen("op-1"), None),  # asked about by whoever ends it, each thing alone
        (replace(PLAN, is_preview=True), None),
        (PLAN, {"gpu3", "gpu4", "datagen"}),
        (replace(PLAN, servers=()), {"datagen"}),
        (replace(PLAN, servers=(), steps=()), ALL),
        (Adopt((("gpu2", PROCESS),)), {"gpu2"}),
        (SilenceAlerts(("gpu3",), timedelta(hours=1), ""), {"gpu3"}),
        (SilenceAlerts((), timedelta(hours=1), "", ("a-1", "a-3")), {"gpu1", "gpu6"}),
        (SilenceAlerts(("gpu3",), timedelta(hours=1), "", ("a-2",)), ALL),
        (UnsilenceAlerts((), ("a-4",)), {"gpu7"}),
        (UnsilenceAlerts(("gpu3",)), {"gpu3"}),
        (UnsilenceAlerts(()), ALL),
        (AckAlert("a-1"), {"gpu1"}),
        (AckAlert("a-2"), ALL),
        (AckAlert("a-9"), ALL),
        (AckAlert(None), {"gpu6"}),  # the newest that nobody has seen
        (SetPace(None), {"gpu3", "gpu4", "datagen"}),  # of this channel
        (ReloadFleet(), ALL),
    ],
)
def test_a_decision_touches_what_it_would_act_on(decision: Decision, what: set[str] | None) -> None:
    assert touched(decision, Words("x", "x"), WORLD) == what


def test_a_change_that_says_nothing_of_its_own_is_about_what_was_named() -> None:
    assert touched(ReloadFleet(), Words("x", "x", ("gpu3",), named=True), WORLD) == {"gpu3"}
    assert touched(ReloadFleet(), Words("x", "x", ("gpu3",)), WORLD) == ALL
