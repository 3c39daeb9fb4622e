from __future__ import annotations

import asyncio
import time
from datetime import UTC, timedelta

import pytest

from bot.ports import Clock, Dice
from bot.runtime.clock import SystemClock, since_start
from bot.runtime.dice import SystemDice
from tests.jumping import START, Deadlock, JumpingClock, run
from tests.seeded import SeededDice


def test_the_real_clock_is_in_utc_and_its_sleep_takes_the_time_it_says():
    clock: Clock = SystemClock()

    async def nap() -> timedelta:
        before = clock.now()
        await clock.sleep(timedelta(milliseconds=30))
        return clock.now() - before

    assert clock.now().tzinfo is UTC
    assert timedelta(milliseconds=25) < asyncio.run(nap()) < timedelta(seconds=5)


def test_a_negative_sleep_of_the_real_clock_ends_at_once():
    asyncio.run(SystemClock().sleep(timedelta(seconds=-5)))


def test_a_process_knows_how_long_it_has_been_running():
    before = since_start()
    assert timedelta() < before <= since_start() < timedelta(hours=12)


def test_ten_minutes_take_no_time_on_the_jumping_loop():
    clock: Clock = JumpingClock()

    async def progress() -> list[timedelta]:
        told = []
        for _ in range(20):
            await clock.sleep(timedelta(seconds=30))
            told.append(clock.now() - START)
        return told

    before = time.perf_counter()
    told = run(progress())
    assert told == [timedelta(seconds=30 * number) for number in range(1, 21)]
    assert time.perf_counter() - before < 1


def test_timers_come_in_their_order_whoever_set_them_first():
    clock = JumpingClock()
    order: list[tuple[str, float]] = []

    async def after(seconds: float, name: str) -> None:
        await clock.sleep(timedelta(seconds=seconds))
        order.append((name, (clock.now() - START).total_seconds()))

    async def all_of_them() -> None:
        await asyncio.gather(after(60, "minute"), after(0.001, "instant"), after(86400 * 3, "days"), after(-1, "now"))

    run(all_of_them())
    assert order == [("now", 0.0), ("instant", 0.001), ("minute", 60.0), ("days", 259200.0)]


def test_a_timeout_strikes_at_its_time_on_the_jumping_loop():
    clock = JumpingClock()

    async def scenario() -> timedelta:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await asyncio.Event().wait()
        return clock.now() - START

    assert run(scenario()) == timedelta(minutes=5)


def test_a_deadlock_is_told_with_the_names_of_those_who_wait():
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"nothing is ready and nothing is scheduled; waiting: .*waits_for_ever"):
        run(waits_for_ever())


def test_a_thread_is_refused_on_the_jumping_loop():
    async def scenario() -> None:
        await asyncio.to_thread(time.time)

    with pytest.raises(RuntimeError, match="nothing may run in a thread"):
        run(scenario())


def test_work_that_is_ready_goes_before_any_jump():
    clock = JumpingClock()

    async def scenario() -> timedelta:
        timer = asyncio.create_task(clock.sleep(timedelta(hours=1)))
        for _ in range(1000):
            await asyncio.sleep(0)
        passed = clock.now() - START
        timer.cancel()
        return passed

    assert run(scenario()) == timedelta()


@pytest.mark.parametrize("digits", [0, 1, 7, 32])
def test_dice_give_as_many_hex_digits_as_were_asked_for(digits):
    for dice in (SystemDice(), SeededDice()):
        given: Dice = dice
        assert len(given.hex(digits)) == digits
        assert set(given.hex(digits)) <= set("0123456789abcdef")


def test_real_dice_differ_and_seeded_ones_repeat():
    assert SystemDice().hex(32) != SystemDice().hex(32)
    assert SeededDice(7).hex(32) == SeededDice(7).hex(32) != SeededDice(8).hex(32)
