"""What a hold means for what others want."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.command import PutHold, Reply
from bot.domain.facts import Sight
from bot.domain.fleet import Role
from bot.domain.holds import guarded, hold_lines, touched, unasked, whose_press
from bot.domain.leases import Hold, claims_of
from bot.domain.message import plain, plain_line, says
from bot.domain.plan import AwaitFree, Plan, StopJob, TakeOver, grown_harm
from bot.domain.saying import Words
from bot.domain.words import interpret
from bot.domain.world import World
from handlers.hold import COMMAND as HOLD
from handlers.holds import COMMAND as HOLDS
from handlers.restart import COMMAND as RESTART
from tests.jumping import START
from tests.tester import first_night

FLEET = first_night()
BIG = replace(FLEET, servers=(replace(FLEET.servers[0], name="big", port=30100, gpus=tuple(range(8))),))
START_BIG = Plan("start", "Start big · no_buffer", ("big",), (AwaitFree(("big",)),))


def hold(id_: str, by: str, *servers: str) -> Hold:
    return Hold(id_, servers, claims_of(FLEET, servers), by, START, START + timedelta(hours=1), "eval")


ANA, BO = hold("h-1", "ana", "gpu3"), hold("h-2", "bo", "gpu4")


def world(*holds: Hold, fleet=FLEET) -> World:
    return World(fleet, START, "U2", Role.OPERATOR, "C1", Sight(START), targets=fleet.servers, holds=holds)


def test_a_plan_touches_a_hold_by_its_gpus_too_and_a_job_that_stops_touches_all() -> None:
    assert touched(START_BIG, BIG, (ANA, BO)) == (ANA, BO)
    assert touched(replace(START_BIG, servers=("gpu3",)), FLEET, (ANA, BO)) == (ANA,)
    assert touched(Plan("job stop", "Stop job", (), (StopJob("datagen"),)), FLEET, (ANA, BO)) == (ANA, BO)
    assert touched(Plan("steal", "Steal", ("gpu3",), (TakeOver((), ("h-1",), ("gpu3",)),)), FLEET, (ANA,)) == ()


def test_a_plan_without_a_question_gets_one_that_names_the_hold() -> None:
    asked = guarded(START_BIG, RESTART, world(ANA, fleet=BIG))
    assert isinstance(asked, Plan)
    assert asked.question is not None
    assert plain(asked.question) == "Start big · no_buffer?\ngpu3 held by ana since 0 s, until 04:00 UTC: eval"
    assert asked.confirm_label == "Start big"
    assert whose_press(asked) == "ana's or an admin's press"


def test_who_has_agreed_is_not_asked_again_and_who_has_not_is() -> None:
    agreed = guarded(START_BIG, RESTART, world(ANA, fleet=BIG), covered={"ana"})
    assert isinstance(agreed, Plan)
    assert not agreed.needs_confirmation
    assert unasked(agreed, BIG, [ANA]) is None
    assert unasked(agreed, BIG, [ANA, BO]) == BO
    both = guarded(START_BIG, RESTART, world(ANA, BO, fleet=BIG), covered={"ana"})
    assert isinstance(both, Plan)
    assert both.needs_confirmation
    assert whose_press(both) == "an admin's press"


def test_another_holder_grows_the_harm_and_a_longer_time_does_not() -> None:
    asked = replace(START_BIG, held=(ANA,))
    assert grown_harm(asked, asked) is None
    assert grown_harm(asked, replace(asked, held=())) is None
    assert grown_harm(asked, replace(asked, held=(replace(ANA, id="h-7", until=START + timedelta(hours=9)),))) is None
    assert grown_harm(asked, replace(asked, held=(ANA, BO))) == "bo holds gpu4 now"


def test_a_refusal_names_the_hold_before_its_buttons_and_what_only_looks_does_not() -> None:
    told = Reply(says("no"), is_ok=False)
    refused = guarded(told, RESTART, world(ANA))
    assert isinstance(refused, Reply)
    assert plain(refused.message) == "no\ngpu3 held by ana since 0 s, until 04:00 UTC: eval"
    assert guarded(told, RESTART, world()) is told
    assert guarded(told, HOLDS, world(ANA)) is told
    assert guarded(Reply(says("yes")), RESTART, world(ANA)) == Reply(says("yes"))


@given(
    st.text(max_size=60)
    | st.from_regex(r"(until |for )?[0-9]{1,4}(:[0-9]{2}|[smhdw])( [0-9]{1,4}[mhw]){0,9} x", fullmatch=True)
)
def test_whatever_is_said_a_hold_ends_within_a_week_or_is_none(text: str) -> None:
    words = interpret(f"hold gpu3 {text}", fleet=FLEET, commands=(HOLD,), channel="C1", mentions_bot=True)
    if not isinstance(words, Words):
        return
    here = replace(world(), targets=FLEET.servers[3:4])
    decision = HOLD.decide(words, here, START)
    if isinstance(decision, PutHold):
        assert START < decision.until <= START + timedelta(days=7)
        assert len(decision.reason) <= 200
        assert decision.servers == ("gpu3",)
    else:
        assert isinstance(decision, Reply)


def test_of_many_holds_the_first_few_are_named() -> None:
    many = [hold(f"h-{n}", f"p{n}", f"gpu{n}") for n in range(6)]
    lines = [plain_line(one) for one in hold_lines(many, FLEET, START)]
    assert len(lines) == 5
    assert lines[-1] == "and 2 more: holds"
