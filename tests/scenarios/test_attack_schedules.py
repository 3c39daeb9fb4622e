"""A hundred nights in which the world goes wrong by chance: what nobody pressed for stays untouched, all ends told."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState, Process
from tests.tester import Bot, first_night, talk

ASKED = ("gpu0", "gpu1")
MINE = 25
LONGEST = 1_500.0
"""Seconds: a minute of stopping the job, SIGKILL and freed memory, a start that is followed to its limit."""


def _away(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.servers[name].unreachable = "ssh root@h200-3 timed out after 3 s"
    bot.tasks.spawn(_back(bot, name, dice.choice([2, 20, 90])), name="back again")


async def _back(bot: Bot, name: str, seconds: float) -> None:
    await bot.advance(seconds)
    bot.fleet.servers[name].unreachable = None


def _stubborn(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.servers[name].ignores_sigterm = True


def _memory_held(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.servers[name].gpu_says = {"memory_used_mib": 60_000, "uses": ()}
    bot.tasks.spawn(_freed(bot, name, dice.choice([30, 60, 200])), name="freed at last")


async def _freed(bot: Bot, name: str, seconds: float) -> None:
    await bot.advance(seconds)
    bot.fleet.servers[name].gpu_says = {}


def _port_taken(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.servers[name].foreign = Process(dice.randint(900, 999), 5, ("nc", "-l"), "eve", timedelta(seconds=9))


def _crash(bot: Bot, name: str, dice: random.Random) -> None:
    phase = dice.choice(list(Phase))
    bot.fleet.servers[name].fails_next = Diagnosis(
        "sglang", "0.5.13", phase, is_crashed=True, cause="out of GPU memory", decisive_line="OutOfMemoryError"
    )


def _dies(bot: Bot, name: str, dice: random.Random) -> None:
    bot.fleet.die(name, exit_status=137)


def _job_stays(bot: Bot, name: str, dice: random.Random) -> None:
    bot.jobs.never_stops = True


def _said(bot: Bot, name: str, dice: random.Random) -> None:
    bot.say(dice.choice(["cancel", "no", "stop it", "up?", "restart no_buffer", f"stop {name}", "every 10s"]))


FAULTS = (_away, _stubborn, _memory_held, _port_taken, _crash, _dies, _job_stays, _said)


@pytest.mark.parametrize("seed", range(4))
def test_what_nobody_pressed_for_stays_alive_and_everything_ends_told(seed: int) -> None:
    async def night(bot: Bot, dice: random.Random) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = dice.choice([JobState.RUNNING, JobState.STOPPED])
        others = {name: one.pid for name, one in bot.fleet.servers.items() if name not in ASKED}
        victims = {(name, bot.fleet.servers[name].pid) for name in ASKED}
        before = [fault for fault in FAULTS if fault in (_stubborn, _job_stays) and dice.random() < 0.3]
        for fault in before:
            fault(bot, dice.choice(ASKED), dice)
        await bot.answer("restart gpu0,gpu1 no_buffer")
        bot.press("Restart gpu0 and gpu1")
        for _ in range(dice.randint(1, 4)):
            await bot.advance(dice.choice([0, 0.05, 0.2, 1, 3, 5, 8, 15, 40, 70]))
            dice.choice(FAULTS)(bot, dice.choice(ASKED), dice)
        await bot.advance(LONGEST)
        assert bot.executor.live() == (), "not ended in bounded time"
        assert {name: bot.fleet.servers[name].pid for name in others} == others
        launched = {name for name, _ in bot.fleet.started}
        assert launched <= set(ASKED)
        assert {(name, pid) for name, pid, _ in bot.fleet.signalled} <= victims
        for op in bot.operations.recent(9):
            assert op.ended_at is not None
            assert op.is_end_told
        assert bot.posts()[-1].text

    for number in range(MINE):
        dice = random.Random(seed * 1000 + number)  # noqa: S311 - a schedule, not a secret
        few = replace(first_night(), servers=first_night().servers[:3])
        talk(lambda bot, dice=dice: night(bot, dice), few)
