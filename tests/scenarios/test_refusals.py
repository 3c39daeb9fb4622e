"""A launch that the installed version would refuse: what the fleet file should say, and where."""

from __future__ import annotations

from dataclasses import replace

from inline_snapshot import snapshot

from bot.domain.flags import Flags
from tests.tester import Bot, first_night, talk


def newer(bot: Bot, *flags: str) -> None:
    bot.fleet.version = "0.5.23"
    gone = {"--mamba-scheduler-strategy", "--nsa-decode-backend"}
    bot.fleet.known = (bot.fleet.known - gone) | {f"--{flag}" for flag in flags}


def test_flags_of_the_server_and_of_the_profile_are_mended_where_they_stand() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        newer(bot, "mamba-radix-cache-strategy", "disable-overlap-schedule", "dsa-decode-backend", "page-size")
        assert await bot.answer("restart gpu3 no_buffer") == snapshot("""\
Not restarted: profile no_buffer will not start. Nothing was touched.
sglang 0.5.23 has no --nsa-decode-backend; since 0.5.20 it is --dsa-decode-backend
sglang 0.5.23 has no --mamba-scheduler-strategy; since 0.5.20 it is --mamba-radix-cache-strategy
sglang 0.5.23 starts no_buffer only with --disable-overlap-schedule (since 0.5.14 it no longer switches overlap off by itself)
sglang 0.5.23 starts no_buffer only with --page-size 1, not 64
profile no_buffer should say:
page-size: 1
mamba-radix-cache-strategy: no_buffer   instead of mamba-scheduler-strategy
disable-overlap-schedule: true
the flags of gpu3 should say:
dsa-decode-backend: fa3   instead of nsa-decode-backend\
""")
        assert bot.fleet.signalled == []

    fleet = first_night()
    own = Flags.of({"nsa-decode-backend": "fa3", "page-size": 64})
    servers = tuple(
        replace(one, launch=replace(one.launch, flags=one.launch.flags.merged(own))) for one in fleet.servers
    )
    talk(scenario, replace(fleet, servers=servers))


def test_a_flag_with_no_successor_is_only_named() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.known -= {"--enable-metrics"}
        assert await bot.answer("restart gpu3 no_buffer") == snapshot("""\
Not restarted: profile no_buffer will not start. Nothing was touched.
sglang 0.5.13 has no --enable-metrics\
""")

    talk(scenario)
