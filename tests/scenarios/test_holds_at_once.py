"""Holds beside presses, operations and other holds at the same time: nothing begins on what another one holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from inline_snapshot import snapshot

from bot.domain.fleet import Fallback, Fleet
from bot.domain.holds import unasked
from bot.domain.leases import Hold, claims_of
from bot.domain.message import Message
from bot.ports import Ref
from tests.scenarios.test_holds import HOLD, whispers, with_admin
from tests.scenarios.test_restart import OOM
from tests.tester import Bot, talk


def test_a_hold_set_between_question_and_press_voids_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        await bot.answer(HOLD)
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert "Not done: ana holds gpu4, gpu5, gpu6 and gpu7 now." in [post.text for post in bot.posts()]
        assert "ana's or an admin's press" in bot.last.text
        assert bot.fleet.signalled == []
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert whispers(bot)[-1].text.startswith("Not yours to press")
        bot.press("Restart gpu4")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario)


@pytest.mark.parametrize("later", [0.0, 0.02, 0.049])
def test_a_hold_in_the_instant_of_the_press_counts_until_it_has_begun(later: float) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(later)
        bot.say(HOLD)
        await bot.advance(20)
        assert bot.fleet.signalled == []
        assert "ana's or an admin's press" in bot.last.text

    talk(scenario)


def test_what_was_pressed_before_keeps_others_from_holding_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(10)
        assert await bot.answer(HOLD) == snapshot("""\
Busy: restart by bo since 10 s, step 3 of 5 (starting 1)
[Show] [Cancel that] [Steal…]\
""")
        assert (await bot.answer("hold gpu4 2h", user="U2")).startswith("Held: gpu4 by bo")

    talk(scenario)


def test_two_people_do_not_hold_the_same() -> None:
    async def scenario(bot: Bot) -> None:
        bot.say(HOLD)
        bot.say("hold gpu6 2h mine", user="U2")
        await bot.advance(1)
        assert bot.last.text == snapshot("""\
Not held: somebody else has it. Nothing was done.
gpu4-gpu7 held by ana since 0 s, until 09:00 UTC: eval running
[Steal…]\
""")
        assert [(hold.by, hold.servers) for hold in bot.holding.live()] == [("ana", ("gpu4", "gpu5", "gpu6", "gpu7"))]
        assert (await bot.answer("hold gpu0-3 2h", user="U2")).startswith("Held: gpu0-gpu3 by bo")

    talk(scenario)


def goes_back() -> Fleet:
    fleet = with_admin()
    return replace(fleet, profiles=tuple(replace(one, fallback=Fallback.AUTO) for one in fleet.profiles))


def test_going_back_by_itself_needs_no_press_of_who_pressed_before() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2h mine")
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4")
        await bot.advance(12)
        bot.fleet.servers["gpu4"].fails_next = OOM
        await bot.advance(100)
        assert [name for name, _ in bot.fleet.started] == ["gpu4", "gpu4"]

    talk(scenario, goes_back())


def test_going_back_by_itself_asks_whoever_holds_it_by_then() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(12)
        bot.fleet.servers["gpu4"].fails_next = OOM
        now, claims = bot.clock.now(), claims_of(bot.fleet_value, ["gpu4"])
        # Nobody gets a hold on what another one works on; one from before the bot knew of that is possible.
        hold = Hold("h-1", ("gpu4",), claims, "ana", now, now + timedelta(hours=1))
        bot.holds.change([], [hold], now)
        await bot.advance(100)
        assert [name for name, _ in bot.fleet.started] == ["gpu4"]
        assert "gpu4 held by ana since" in bot.last.text
        assert "ana's or an admin's press" in bot.last.text

    talk(scenario, goes_back())


def test_a_cancel_while_a_step_is_being_shown_keeps_it_from_beginning() -> None:
    """The chat takes its time to show the step; whoever says stop meanwhile has stopped it."""

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        edit = bot.chat.edit

        async def slow(ref: Ref, message: Message) -> None:
            await bot.advance(2)
            await edit(ref, message)

        await bot.answer("restart gpu4 no_buffer")
        bot.chat.edit = slow  # type: ignore[method-assign]
        bot.press("Restart gpu4")
        await bot.advance(3)
        bot.say("stop")
        await bot.advance(30)
        assert bot.fleet.signalled == []
        assert bot.last.text.startswith("Stopped before anything was touched.")

    talk(scenario)


def test_a_hold_between_the_decision_and_the_beginning_keeps_it_from_beginning() -> None:
    """A dead server needs no press; the sign on the message takes its time, and the hold comes meanwhile."""

    async def scenario(bot: Bot) -> None:
        react = bot.chat.react

        async def slow(ref: Ref, sign: str, *, on: bool = True) -> None:
            await bot.advance(2)
            await react(ref, sign, on=on)

        bot.chat.react = slow  # type: ignore[method-assign]
        bot.say("start gpu4", user="U2")
        await bot.advance(1)
        bot.chat.react = react  # type: ignore[method-assign]
        bot.say("hold gpu4 2h")
        await bot.advance(5)
        assert bot.last.text == "ana holds gpu4 now: nothing was done. Say it again"
        assert bot.fleet.started == []

    talk(scenario)


SAID = (
    *("hold gpu3 10m", "hold gpu2-4 5m why", "hold gpu5 1m", "release", "release gpu3", "steal gpu3", "steal gpu2-5"),
    *("restart gpu3 no_buffer --again", "restart gpu2-5 --again", "stop gpu4", "start gpu4", "start all"),
)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_people_do_nothing_begins_on_what_another_one_holds(seed: int) -> None:
    """Who began an operation held all that it touches, or is an admin; whatever was set by the instant it began."""
    random = Random(seed)  # noqa: S311 - the same nights in every run
    held: dict[datetime, tuple[Hold, ...]] = {}

    async def scenario(bot: Bot) -> None:
        live = bot.executor.holds

        def spying() -> tuple[Hold, ...]:
            held[bot.clock.now()] = tuple(live())
            return held[bot.clock.now()]

        bot.executor.holds = spying
        bot.fleet.run_all()
        for _ in range(120):
            user = random.choice(("U1", "U2", "U4"))
            cards = [post for post in bot.posts() if post.buttons]
            if cards and random.random() < 0.5:
                card = random.choice(cards[-3:])
                bot.press(card.buttons[0].label, user=user, post=card)
            else:
                bot.say(random.choice(SAID), user=user)
            await bot.advance(random.choice((0.0, 0.03, 0.2, 3.0, 20.0, 90.0)))
        await bot.advance(600)
        began = [op for op in bot.operations.recent(99) if op.plan.verb != "steal"]
        for op in began:
            assert unasked(op.plan, bot.fleet_value, held[op.started_at]) is None
            assert op.by == "dee" or all(hold.by == op.by for hold in op.plan.held)
        assert bot.executor.live() == ()
        holds = bot.holding.live()
        assert len([name for hold in holds for name in hold.servers]) == len(
            {n for hold in holds for n in hold.servers}
        )

    talk(scenario, with_admin())
