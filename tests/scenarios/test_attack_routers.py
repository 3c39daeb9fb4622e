"""Rolling restarts behind a router while the world goes wrong: at most one server is out, and nobody is left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.errors import StepFailed
from bot.domain.facts import JobState
from bot.domain.fleet import Fleet
from tests.fate import Fate, FatedBot
from tests.jumping import run
from tests.tester import Bot, behind_a_router, first_night, talk

ALL = ("gpu0", "gpu1", "gpu2")
LABEL = "Restart gpu0, gpu1 and gpu2"
SETTINGS = '{"priority": 70}'
MINE = 25
LONGEST = 2_400.0
Fault = Callable[[Bot, str, random.Random], None]


def three() -> Fleet:
    whole = first_night()
    return behind_a_router(replace(whole, servers=whole.servers[:3]))


def _front(bot: Bot, **state: object) -> None:
    for name, value in state.items():
        setattr(bot.fleet.routers.all["front"], name, value)


async def _mended(bot: Bot, seconds: float, **state: object) -> None:
    await bot.advance(seconds)
    _front(bot, **state)


def _router_gone(bot: Bot, name: str, dice: random.Random) -> None:
    _front(bot, fails=StepFailed("router front refuses the connection"))
    bot.tasks.spawn(_mended(bot, dice.choice([2, 20, 90, 400]), fails=None), name="back again")


def _router_restarted(bot: Bot, name: str, dice: random.Random) -> None:
    """It comes back as it was launched: with all its servers, under new ids, whoever was out."""
    front = bot.fleet.routers.all["front"]
    front.workers.clear()
    for server in bot.fleet_value.servers:
        if bot.fleet.servers[server.name].pid is not None:
            front.lists(server.routers[0].url, SETTINGS)


def _router_refuses(bot: Bot, name: str, dice: random.Random) -> None:
    _front(bot, refuses=StepFailed("router front refuses: HTTP 500"))
    bot.tasks.spawn(_mended(bot, dice.choice([2, 20, 90, 400]), refuses=None), name="mended")


def _router_slow(bot: Bot, name: str, dice: random.Random) -> None:
    _front(bot, queue=dice.choice([1, 4, 9]), takes=dice.choice([0, 1, 2]))


def _router_drains(bot: Bot, name: str, dice: random.Random) -> None:
    _front(bot, drains_for=dice.choice([5, 30]))


def _crash(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.servers[name].fails_next = Diagnosis(
        "sglang", "0.5.13", Phase.LOADING_WEIGHTS, is_crashed=True, cause="out of GPU memory", decisive_line="OOM"
    )


def _dies(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.die(name, exit_status=137)


def _cancel(bot: Bot, name: str, dice: random.Random) -> None:
    bot.say("cancel")


def _second(bot: Bot, name: str, dice: random.Random) -> None:
    """Somebody else restarts one of them too, as fast as one can press."""
    bot.say(f"restart {name} no_buffer", user="U2")
    bot.tasks.spawn(_pressed(bot, f"Restart {name}"), name="press of another")


async def _pressed(bot: Bot, label: str) -> None:
    await bot.advance(1)
    post = next((one for one in bot.chat.posts if any(button.label == label for button in one.buttons)), None)
    if post is not None and bot.executor.live():
        bot.press(label, user="U2", post=post)


FAULTS: tuple[Fault, ...] = (
    _router_gone, _router_restarted, _router_refuses, _router_slow, _router_drains, _crash, _dies, _cancel, _second,
)  # fmt: skip
HARMLESS = (_router_gone, _router_refuses, _router_slow, _router_drains, _cancel, _second)
"""Faults after which nobody but the bot has changed who is in the router."""


async def begun(bot: Bot) -> None:
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.STOPPED
    bot.fleet.routers.list_all(SETTINGS)
    bot.fleet.visitors = 8
    await bot.answer("restart --rolling no_buffer")


def assert_told_or_back(bot: Bot) -> None:
    """Whoever lives and is out of the router was named in an end, with the way back."""
    ends = [post.text for post in bot.chat.posts if "out of router front" in post.text]
    for server in bot.fleet_value.servers:
        lives = bot.fleet.servers[server.name].pid is not None
        if lives and not bot.fleet.routers.is_sent_to(server):
            assert any(server.name in text or "all 3" in text for text in ends), server.name


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_at_most_one_is_out_at_any_time_and_nobody_is_left_out_without_a_word(seed: int) -> None:
    """A hundred nights in four times 25."""

    async def night(bot: Bot, dice: random.Random) -> None:
        await begun(bot)
        bot.press(LABEL)
        met: list[Fault] = []
        for _ in range(dice.randint(1, 4)):
            await bot.advance(dice.choice([0, 0.05, 0.2, 1, 3, 5, 8, 15, 40, 70, 100]))
            fault = dice.choice(FAULTS)
            met.append(fault)
            fault(bot, dice.choice(ALL), dice)
        await bot.advance(LONGEST)
        assert bot.executor.live() == (), "not ended in bounded time"
        if all(fault in HARMLESS for fault in met):
            assert bot.fleet.routers.most_out <= 1
            assert bot.fleet.lost_visits == 0
        removed = [url for what, url in bot.fleet.routers.all["front"].asked if what == "remove"]
        assert set(removed) <= {server.routers[0].url for server in bot.fleet_value.servers} | {"gone"}
        for op in bot.operations.recent(9):
            assert op.ended_at is not None
            assert op.is_end_told
        assert_told_or_back(bot)

    for number in range(MINE):
        dice = random.Random(seed * 1000 + number)  # noqa: S311 - a schedule, not a secret
        talk(lambda bot, dice=dice: night(bot, dice), three())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 9))
def test_killed_at_any_act_of_a_rolling_restart_nobody_is_out_twice_or_left_out(first: int) -> None:
    """Each act on the state, the chat, the servers and the router, before and after it; every third is killed again."""

    async def killed_at(number: int) -> bool:
        fleet = three()
        bot = FatedBot(replace(fleet, servers=fleet.servers[:2]), Fate(at=number))
        await begun(bot)
        bot.fate.is_armed = True
        bot.press("Restart gpu0 and gpu1")
        for _ in range(240):
            await bot.advance(1)
            if bot.fate.is_dead:
                break
        if not bot.fate.is_dead:
            await bot.tasks.close()
            return False
        back: Bot = await bot.killed()
        if number % 3 == 0:
            await back.advance(number % 11)
            await back.die()
            back = back.restarted()
        await back.advance(700)
        assert not back.tasks.failures
        assert back.executor.live() == ()
        front = back.fleet.routers.all["front"]
        assert {one.settings for one in front.workers.values()} == {SETTINGS}
        assert len(front.workers) == 2
        assert back.fleet.routers.most_out <= 1
        assert back.fleet.lost_visits == 0
        started = [name for name, _ in back.fleet.started]
        assert started in ([], ["gpu0", "gpu1"])
        asked = [pair for pair in front.asked if pair[1] != "gone"]
        assert len(asked) == len(set(asked)), front.asked
        await back.tasks.close()
        return True

    number = first
    while run(killed_at(number)):
        number += 32
    assert number > 300
