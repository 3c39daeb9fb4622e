"""The fleet file is read anew while servers are held, stolen, silenced or waited for: nothing falls, nothing is freed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bot.domain.errors import StoreError
from bot.domain.holds import unasked
from tests.fate import Fate, FatedBot, FatedChat
from tests.jumping import run
from tests.scenarios.test_holds import HOLD, with_admin
from tests.scenarios.test_holds_at_once import SAID
from tests.tester import Bot, talk


def test_a_held_server_that_leaves_the_file_keeps_its_gpu_and_port_held() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer(HOLD)
        fleet = bot.fleet_value
        other = replace(fleet.server("gpu4"), name="new4", port=39004)
        bot.fleet_value = replace(fleet, servers=(*(one for one in fleet.servers if one.name != "gpu4"), other))
        bot.fleet.servers["new4"] = bot.fleet.servers["gpu4"]
        assert "gpu4" in await bot.answer("holds")
        assert "gpu4" in await bot.answer("status")
        assert "ana's or an admin's press" in await bot.answer("restart new4 no_buffer", user="U2")
        assert (await bot.answer("hold new4 1h", user="U2")).startswith("Not held: somebody else has it")
        assert (await bot.answer("release new4", user="U2")).startswith("Not released: ")
        assert await bot.answer("release new4", user="U4") == "Released: gpu4."
        assert (await bot.answer("hold new4 1h", user="U2")).startswith("Held: new4 by bo")

    talk(scenario, with_admin())


def test_an_empty_fleet_file_frees_nothing_and_falls_over_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer(HOLD)
        await bot.answer("tell me when gpu0 down")
        await bot.answer("restart gpu0 no_buffer", user="U2")
        fleet = bot.fleet_value
        bot.fleet_value = replace(fleet, servers=())
        for words in ("status", "holds", "release gpu4", "hold", "tell me", "steal gpu4", "yes", "job", "whoami"):
            assert "fault" not in await bot.answer(words, mentions=True), words
        bot.press("Restart gpu0", user="U2")
        await bot.advance(3)
        assert bot.fleet.signalled == []
        bot.fleet_value = fleet
        assert "ana's or an admin's press" in await bot.answer("restart gpu4 no_buffer", user="U2")

    talk(scenario, with_admin())


@pytest.mark.parametrize("said", ["silence gpu3 2026-12-24", "silence gpu3 2020-01-01", "silence gpu3 0m"])
def test_a_silence_is_ahead_and_of_bounded_length(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        assert (await bot.answer(said)).startswith("Not silenced: ")
        assert bot.watcher.book.silences == ()

    talk(scenario)


def test_a_silence_until_a_time_of_day_ends_then() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("silence gpu3 9:00") == "Silent about gpu3 for 6 h."

    talk(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_meanwhile_nothing_begins_on_what_another_one_holds(seed: int) -> None:
    """As the nights of holds at once, with the file read anew and the bot killed in between."""
    random = Random(seed)  # noqa: S311 - the same nights in every run

    async def scenario() -> None:
        bot: Bot = Bot(with_admin())
        whole = bot.fleet_value
        held = {}
        bot.fleet.run_all()

        def spy(on: Bot) -> None:
            live = on.executor.holds

            def spying() -> object:
                held[on.clock.now()] = tuple(live())
                return held[on.clock.now()]

            on.executor.holds = spying  # type: ignore[assignment]

        spy(bot)
        for _ in range(150):
            user, chance = random.choice(("U1", "U2", "U4")), random.random()
            cards = [post for post in bot.posts() if post.buttons]
            if chance < 0.05:
                bot.fleet_value = replace(whole, servers=tuple(random.sample(whole.servers, random.randint(6, 8))))
            elif chance < 0.1:
                await bot.die()
                bot = bot.restarted()
                spy(bot)
            elif cards and chance < 0.5:
                card = random.choice(cards[-3:])
                bot.press(card.buttons[0].label, user=user, post=card)
            else:
                bot.say(random.choice((*SAID, "cancel", "no")), user=user)
            await bot.advance(random.choice((0.0, 0.03, 0.2, 3.0, 20.0, 90.0)))
        bot.fleet_value = whole
        await bot.advance(900)
        began = [op for op in bot.operations.recent(99) if op.plan.verb != "steal"]
        assert began
        for op in began:
            if op.started_at in held:
                assert unasked(op.plan, whole, held[op.started_at]) is None
            assert op.by == "dee" or all(hold.by == op.by for hold in op.plan.held)
        assert bot.executor.live() == ()
        names = [name for hold in bot.holding.live() for name in hold.servers]
        assert len(names) == len(set(names))
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("lasts", [1, 10_000])
def test_a_disk_that_is_full_at_any_write_of_a_hold_loses_and_makes_none(lasts: int) -> None:
    async def full_at(number: int) -> bool:
        fate = Fate(at=number, wrong=lambda: StoreError("the disk is full"), lasts=lasts)
        bot = FatedBot(with_admin(), fate, chat=FatedChat(Fate()))
        bot.fleet.run_all()
        await bot.answer("hold gpu4-7 2h eval")
        fate.is_armed = True
        told = await bot.answer("hold gpu0 1h", user="U2")
        is_held = "bo" in [hold.by for hold in bot.holding.live()]
        assert told.startswith("Held: ") == is_held, told
        told = await bot.answer("release gpu4")
        left = next(hold.servers for hold in bot.holding.live() if hold.by == "ana")
        assert told.startswith("Released: ") == ("gpu4" not in left), told
        await bot.answer("steal gpu5", user="U2")
        if any(button.label == "Steal gpu5" for post in bot.chat.posts for button in post.buttons):
            bot.press("Steal gpu5", user="U2")
        await bot.advance(30)
        owners = {name: hold.by for hold in bot.holding.live() for name in hold.servers}
        assert owners["gpu5"] in ("ana", "bo")
        assert owners["gpu6"] == "ana"
        assert not bot.tasks.failures
        was_met = bool(fate.met)
        fate.rise()
        assert bot.executor.live() == ()
        await bot.advance(2 * 3600)
        assert bot.holding.live() == ()
        await bot.advance(120)
        assert bot.holds.current() == ((), ())
        await bot.tasks.close()
        return was_met

    number = 1
    while run(full_at(number)):
        number += 1
    assert number > 8
