"""What a cold cache of compiled kernels changes: the question says so, the progress too, and nobody calls it stuck."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.records import Warmth
from tests.tester import Bot, first_night, talk

WARM = {"triton": 812, "flashinfer": 3}


def all_have(bot: Bot, caches: dict[str, int] | None) -> None:
    for one in bot.fleet.servers.values():
        one.caches = caches


def test_the_question_says_that_kernels_may_be_compiled_and_how_long_cold_starts_took() -> None:
    async def scenario(bot: Bot) -> None:
        all_have(bot, WARM)
        await bot.answer("start gpu3 no_buffer", within=100)
        assert bot.starts.recent(9)[-1].caches is Warmth.WARM
        assert (await bot.answer("restart gpu3?")).splitlines() == snapshot(
            [
                "Restart gpu3?",
                "1 healthy · up 1 m 40 s · a start took 1 m 16 s",
                "✓ flags known to sglang 0.5.13   ✓ memory and ports will be free",
                "steps: stop 1 server → memory and ports free → start → prove → compare throughput",
                "only looked at: nothing was done",
            ]
        )
        all_have(bot, {})
        assert (await bot.answer("restart gpu3?")).splitlines() == snapshot(
            [
                "Restart gpu3?",
                "1 healthy · up 1 m 41 s",
                "✓ flags known to sglang 0.5.13   ✓ memory and ports will be free",
                "kernel caches are cold: triton – it may compile",
                "steps: stop 1 server → memory and ports free → start → prove → compare throughput",
                "only looked at: nothing was done",
            ]
        )
        all_have(bot, None)
        assert "kernel" not in await bot.answer("restart gpu3?")

    talk(scenario)


def test_a_cold_start_says_so_and_is_not_called_stuck_by_what_warm_ones_took() -> None:
    async def scenario(bot: Bot) -> None:
        all_have(bot, WARM)
        await bot.answer("start gpu0 no_buffer", within=100)
        bot.fleet.die("gpu0")
        all_have(bot, {"flashinfer": 0})
        bot.fleet.servers["gpu0"].extra_start = 500
        await bot.advance(10)
        bot.say("start gpu0 no_buffer")
        await bot.advance(361)
        head = [post for post in bot.posts() if post.text.startswith("Start gpu0 ·")][-1]
        assert head.text == snapshot("""\
Start gpu0 · no_buffer · 6:00 · 0/1 up
✓ memory and ports free   ● starting 1   ○ prove
🟡 gpu0   spawned
[Cancel]
by ana, 6 m ago · notes each 30 s in the thread · kernel caches are cold: flashinfer, triton – it may compile\
""")
        assert [post.text for post in bot.posts(head.ref.id)][::11] == snapshot(
            [
                "0:30 · 0/1 up · spawned · kernel caches are cold: flashinfer, triton – it may compile",
                "6:00 · 0/1 up · spawned · kernel caches are cold: flashinfer, triton – it may compile",
            ]
        )
        await bot.advance(300)
        assert [(one.caches, one.took > timedelta(minutes=5)) for one in bot.starts.recent(9)] == [
            (Warmth.WARM, False),
            (Warmth.COLD, True),
        ]
        # The next cold one knows how long that took, and a warm one does not mind.
        bot.fleet.die("gpu0")
        await bot.advance(10)
        bot.say("start gpu0 no_buffer")
        await bot.advance(40)
        assert bot.last.text == snapshot("0:30 · 0/1 up · spawned · about 9 m 4 s to go")
        await bot.advance(700)
        bot.fleet.die("gpu0")
        bot.fleet.servers["gpu0"].extra_start = 0
        all_have(bot, WARM)
        await bot.advance(10)
        bot.say("start gpu0 no_buffer")
        await bot.advance(40)
        assert bot.last.text == snapshot("0:30 · 0/1 up · loading weights 85 % · about 46 s to go")

    talk(scenario)


def test_a_first_start_with_a_profile_names_the_cold_caches_in_the_same_breath() -> None:
    async def scenario(bot: Bot) -> None:
        all_have(bot, {})
        bot.say("start gpu0 no_buffer")
        await bot.advance(12)
        assert bot.posts()[0].text.splitlines()[-1] == (
            "by ana, 9 s ago · notes each 30 s in the thread · "
            "first start with no_buffer here: kernels may be compiled (cold: triton)"
        )

    talk(scenario)


def test_caches_that_another_version_has_filled_are_as_good_as_empty() -> None:
    async def scenario(bot: Bot) -> None:
        all_have(bot, WARM)
        bot.fleet.version = "0.5.12"
        await bot.answer("start gpu3 no_buffer", within=100)
        bot.fleet.version = "0.5.13"
        assert (await bot.answer("restart gpu3?")).splitlines()[-3] == snapshot(
            "kernel caches were made for 0.5.12 – it may compile"
        )
        bot.fleet.die("gpu3")
        await bot.advance(10)
        bot.say("start gpu3 no_buffer")
        await bot.advance(20)
        assert bot.last.text.splitlines()[-1] == snapshot(
            "by ana, 18 s ago · notes each 30 s in the thread · kernel caches were made for 0.5.12 – it may compile"
        )
        await bot.advance(100)
        assert [one.caches for one in bot.starts.recent(9)] == [Warmth.WARM, Warmth.COLD]
        assert "kernel" not in await bot.answer("restart gpu3?")

    talk(scenario)


def test_a_profile_that_puts_its_caches_elsewhere_is_not_judged_by_those_of_now() -> None:
    fleet = first_night()
    moved = tuple(replace(one, env=(("TRITON_CACHE_DIR", "/fast/triton"),)) for one in fleet.profiles)

    async def scenario(bot: Bot) -> None:
        all_have(bot, {})
        bot.fleet.run_all()
        assert "kernel" not in await bot.answer("restart gpu3 no_buffer?")

    talk(scenario, replace(fleet, profiles=moved))


def test_a_bot_that_comes_back_amid_a_start_does_not_take_what_it_compiled_for_a_warm_cache() -> None:
    async def scenario(bot: Bot) -> None:
        all_have(bot, {})
        bot.say("start gpu0 no_buffer")
        await bot.advance(20)
        await bot.die()
        all_have(bot, WARM)
        later = bot.restarted()
        await later.advance(100)
        assert [one.caches for one in later.starts.recent(9)] == [Warmth.UNKNOWN]
        await later.die()

    talk(scenario)
