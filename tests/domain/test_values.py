"""Flags, phrases, messages and the harm of a plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.flags import FlagChange, Flags
from bot.domain.message import Button, Buttons, Lines, LogPiece, Message, Says, Small, bold, code, line, plain
from bot.domain.operation import State, StepState, Where, begin
from bot.domain.phrases import about, names, span, stopwatch, target
from bot.domain.plan import AwaitFree, EndServers, Plan, Stake, Victim, grown_harm
from tests.jumping import START


def test_flags_are_read_merged_compared_and_written_back() -> None:
    flags = Flags.parse(["python3", "-m", "x", "--tp", "8", "--a_b=c", "--on", "--list", "1", "2", "--tp", "4"])
    assert flags.items == (("a-b", ("c",)), ("on", ()), ("list", ("1", "2")), ("tp", ("4",)))
    assert flags.argv() == ("--a-b", "c", "--on", "--list", "1", "2", "--tp", "4")
    merged = flags.merged(Flags.of({"tp": 2, "off": False}), without=["on"])
    assert merged.value("tp") == "2"
    assert merged.get("on") is None
    assert flags.changes_to(merged) == (FlagChange("tp", ("4",), ("2",)), FlagChange("on", (), None))
    assert flags.includes(Flags.of({"tp": 4}))
    assert not merged.includes(flags)


@given(st.lists(st.text(max_size=20), max_size=20))
def test_flags_survive_their_own_command_line(words: list[str]) -> None:
    flags = Flags.parse(words)
    assert Flags.parse(flags.argv()) == flags


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 m"), (220, "3 m 40 s"), (3600, "1 h"), (3599.7, "1 h"), (21600, "6 h"), (7500, "2 h 5 m"), (86400, "1 d"), (273600, "3 d 4 h"), (-5, "0 s")],
)  # fmt: skip
def test_spans_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert span(timedelta(seconds=seconds)) == said


def test_numbers_are_said_as_people_say_them() -> None:
    assert [about(n) for n in (0, 9.1, 15, 671.84, 999.6, 3900, 6250, 392_000, 381_490, 1_200_000)] == [
        "0", "9.1", "15", "672", "1k", "3.9k", "6.2k", "392k", "381k", "1.2M",
    ]  # fmt: skip
    assert (target(6250), target(671)) == ("6.25k", "671")
    assert [stopwatch(timedelta(seconds=s)) for s in (30, 725, 3723)] == ["0:30", "12:05", "1:02:03"]


def test_runs_of_names_are_shortened() -> None:
    order = [f"gpu{n}" for n in range(8)]
    assert names(["gpu0", "gpu1", "gpu2", "gpu5"], order) == "gpu0-gpu2, gpu5"
    assert names(order, order) == "all 8"
    assert names(["gpu1", "gpu0"], order) == "gpu0, gpu1"


def test_a_message_as_plain_text() -> None:
    message = Message(
        line(bold("Head"), " ", code("x")),
        (
            Lines((line("a"), line("b"))),
            LogPiece("one\ntwo", "log"),
            Small((line("s"),)),
            Buttons((Button("Go", Says("up")),)),
        ),
    )
    assert plain(message) == "Head x\na\nb\nlog\n  one\n  two\ns\n[Go]"
    assert plain(message.without_buttons(line("over"))) == "Head x\na\nb\nlog\n  one\n  two\ns\nover"


ASKED = Plan("restart", "t", ("a", "b"), (AwaitFree(("a",)),), profile="p", stakes=(Stake("a", 1, 10, True, "starting"), Stake("b", None, None, False, "down")))  # fmt: skip


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (ASKED, None),
        (replace(ASKED, stakes=(Stake("a", None, None, False, "down"), ASKED.stakes[1])), None),
        (replace(ASKED, profile="q"), "the profile is now q"),
        (replace(ASKED, servers=("a", "b", "c")), "c would be touched too"),
        (replace(ASKED, servers=("a",), stakes=ASKED.stakes[:1]), None),
        (replace(ASKED, stakes=(Stake("a", 2, 20, True, "starting"),)), "a runs another process now (pid 2)"),
        (replace(ASKED, stakes=(Stake("a", 1, 11, True, "starting"),)), "a runs another process now (pid 1)"),
        (replace(ASKED, stakes=(Stake("a", 1, 10, True, "ready"),)), "a is ready now, it was starting"),
        (replace(ASKED, stakes=(ASKED.stakes[0], Stake("b", 5, 5, True, "starting"))), "b is starting now"),
    ],
)  # fmt: skip
def test_a_press_is_void_when_the_harm_has_grown(now: Plan, why: str | None) -> None:
    assert grown_harm(ASKED, now) == why


def test_an_operation_knows_what_it_has_touched_and_refuses_wrong_turns() -> None:
    plan = replace(ASKED, steps=(AwaitFree(("a",)), EndServers((Victim("a", 1, 10),))))
    op = begin(plan, id="op-1", by="ana", at=START, where=Where("C1"), pace=None)
    op = op.with_step(0, StepState.RUNNING)
    assert not op.touched
    op = op.with_step(0, StepState.DONE).with_step(1, StepState.RUNNING)
    assert op.touched
    assert op.current == 1
    done = op.to(State.DONE, at=START)
    with pytest.raises(ValueError, match="op-1 is done and can't become cancelling"):
        done.to(State.CANCELLING)


def test_numbers_are_compared_as_numbers() -> None:
    by_hand, ours = Flags.of({"mem-fraction-static": "0.9"}), Flags.of({"mem-fraction-static": "0.90"})
    assert by_hand.includes(ours)
    assert by_hand.changes_to(ours) == ()
    assert not Flags.of({"x": "nan"}).includes(Flags.of({"x": "1"}))
