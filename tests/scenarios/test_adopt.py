"""A server that somebody started by hand in tmux: said before it is ended, and taken over on a word."""

from __future__ import annotations

from dataclasses import replace

from inline_snapshot import snapshot

from bot.domain.audit import Result
from tests.tester import Bot, talk

BY_HAND = "gpu3 runs in root's tmux session main:2; it will be started detached instead"


def by_hand(bot: Bot) -> None:
    bot.fleet.run_all()
    bot.fleet.servers["gpu3"].session = "main:2"


def test_a_restart_says_what_runs_in_somebodys_window_until_it_is_adopted() -> None:
    async def scenario(bot: Bot) -> None:
        by_hand(bot)
        assert BY_HAND in await bot.answer("restart gpu3")
        assert BY_HAND in await bot.answer("restart no_buffer?")
        assert await bot.answer("adopt gpu3?") == snapshot("""\
This would put on record as the bot's own, and touch nothing:
gpu3: pid 4004 in root's tmux session main:2\
""")
        assert not bot.fleet.servers["gpu3"].is_adopted
        assert await bot.answer("adopt gpu3") == "Adopted gpu3: nothing was touched."
        assert bot.fleet.signalled == []
        assert "tmux" not in await bot.answer("restart gpu3")
        assert await bot.answer("adopt gpu3") == "gpu3: adopted already."

    talk(scenario)


def test_a_stop_says_it_too_and_promises_no_start() -> None:
    async def scenario(bot: Bot) -> None:
        by_hand(bot)
        told = await bot.answer("stop gpu3")
        assert "gpu3 runs in root's tmux session main:2\n" in told + "\n"
        assert "detached" not in told

    talk(scenario)


def test_many_windows_are_counted() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for number, one in enumerate(bot.fleet.servers.values()):
            one.session = f"main:{number}"
        told = await bot.answer("restart no_buffer")
        assert told.count("runs in root's tmux session") == 4
        assert "and 4 more of them; it will be started detached instead" in told

    talk(scenario)


def test_adopting_needs_a_name_a_process_and_the_right_and_is_written_down() -> None:
    async def scenario(bot: Bot) -> None:
        by_hand(bot)
        bot.fleet.die("gpu5")
        assert await bot.answer("adopt") == "Adopt which? adopt gpu3. Nothing was done."
        assert await bot.answer("adopt gpu5") == "Not adopted: no process of gpu5 is seen."
        await bot.answer("adopt gpu3")
        (entry,) = [one for one in bot.audit.recent(5) if one.why == "adopted"]
        assert (entry.result, entry.servers, entry.words) == (Result.DONE, ("gpu3",), "adopt gpu3")

    talk(scenario)


def test_what_has_gone_between_the_look_and_the_record_is_said() -> None:
    async def scenario(bot: Bot) -> None:
        by_hand(bot)
        hands = bot.fleet.servers["gpu3"]

        async def gone(server: object, process: object) -> None:
            hands.pid = None
            await type(bot.fleet).adopt(bot.fleet, hands.server, replace(process))  # type: ignore[type-var]

        bot.fleet.adopt = gone  # type: ignore[method-assign]
        assert (await bot.answer("adopt gpu3")).startswith("Not done: gpu3, pid ")

    talk(scenario)
