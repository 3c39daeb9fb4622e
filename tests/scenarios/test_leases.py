"""An operation's lease is that it lives: what ended, fell or can't go on holds nothing, whatever the file says by now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.facts import Process
from bot.domain.fleet import Server
from bot.domain.message import Says
from bot.domain.operation import State
from tests.jumping import run
from tests.scenarios.test_restart import OOM
from tests.tester import Bot, first_night, talk


async def restarting(bot: Bot, server: str = "gpu3") -> None:
    bot.fleet.run_all()
    await bot.answer(f"restart {server} no_buffer")
    bot.press(f"Restart {server}")
    await bot.advance(3)


async def is_free(bot: Bot, server: str = "gpu3") -> bool:
    """Whether another one may work on it: ask, press, and see that it begins."""
    before = len(bot.operations.recent(99))
    told = await bot.answer(f"restart {server} no_buffer --again", user="U2")
    if not told.startswith("Busy"):
        if f"Restart {server}" in [button.label for button in bot.last.buttons]:
            bot.press(f"Restart {server}", user="U2")
        await bot.advance(2)
    return len(bot.operations.recent(99)) > before


def test_a_server_over_the_same_gpus_waits_though_the_file_has_changed_meanwhile() -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot)
        big = replace(first_night().servers[0], name="big", port=30100, gpus=tuple(range(8)))
        bot.fleet_value = replace(bot.fleet_value, servers=(*bot.fleet_value.servers[:3], big))
        bot.fleet.servers["big"] = type(bot.fleet.servers["gpu0"])(big)
        told = await bot.answer("start big", user="U2")
        assert told.startswith(
            "Busy: gpu 3 of ct200 is held by restart by ana since 3 s, step 2 of 5 (waiting for GPU 3"
        )
        assert [button.does for button in bot.last.buttons][-1] == Says("steal big")
        assert (await bot.answer("hold big 2h", user="U2")).startswith("Busy: gpu 3 of ct200 is held by restart by ana")
        assert "Restart gpu3 · no_buffer (op-1) by ana since" in await bot.answer("steal big", user="U2")

    talk(scenario)


def test_what_is_done_failed_or_cancelled_is_free() -> None:
    async def done(bot: Bot) -> None:
        await restarting(bot)
        assert not await is_free(bot)
        await bot.advance(120)
        assert await is_free(bot)

    async def failed(bot: Bot) -> None:
        await restarting(bot)
        await bot.advance(12)
        bot.fleet.servers["gpu3"].fails_next = OOM
        await bot.advance(60)
        assert bot.operations.recent(9)[0].state is State.FAILED
        assert await is_free(bot)

    async def cancelled(bot: Bot) -> None:
        await restarting(bot)
        await bot.answer("cancel", within=3)
        assert await is_free(bot)

    for scenario in (done, failed, cancelled):
        talk(scenario)


def test_one_that_fell_over_a_fault_of_ours_is_free() -> None:
    async def scenario() -> None:
        async def faulty(server: Server, process: Process, *, force: bool) -> None:
            raise ZeroDivisionError

        bot = Bot(first_night())
        bot.fleet.end = faulty  # type: ignore[method-assign]
        await restarting(bot)
        assert bot.operations.recent(9)[0].state is State.FAILED
        del bot.fleet.end
        assert await is_free(bot)
        await bot.tasks.close()
        assert [type(error) for error in bot.tasks.failures] == [ZeroDivisionError]

    run(scenario())


@pytest.mark.parametrize("moment", [0.0, 4.0, 20.0])
def test_one_whose_bot_died_and_that_cant_go_on_is_free(moment: float) -> None:
    """Its server has gone from the fleet file meanwhile, and a new one has taken its place."""

    async def scenario() -> None:
        bot = Bot(first_night())
        await restarting(bot)
        await bot.advance(moment)
        await bot.die()
        new = replace(bot.fleet_value.servers[3], name="gpu9")
        bot.fleet_value = replace(bot.fleet_value, servers=(new,))
        bot.fleet.servers["gpu9"] = type(bot.fleet.servers["gpu0"])(new)
        bot = bot.restarted()
        await bot.advance(5)
        assert bot.executor.live() == ()
        assert bot.operations.recent(9)[0].state is State.FAILED
        assert "gpu3 is not in the fleet file any more" in bot.operations.recent(9)[0].outcome
        told = await bot.answer("start gpu9", user="U2", within=3)
        assert told.startswith("Start gpu9")
        assert [op.plan.servers for op in bot.executor.live()] == [("gpu9",)]
        await bot.tasks.close()

    run(scenario())


def test_one_that_goes_on_when_the_bot_is_back_holds_it_still() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        await restarting(bot)
        await bot.die()
        bot = bot.restarted()
        await bot.advance(1)
        assert not await is_free(bot)
        await bot.tasks.close()

    run(scenario())
