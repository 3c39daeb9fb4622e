"""Who did what is written down before it is done; what can't be written is not done, and looking still works."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.audit import sentence
from bot.domain.errors import ConfigError
from bot.domain.facts import JobState
from tests.tester import Bot, talk


def written(bot: Bot) -> list[str]:
    """The whole audit, a line each; the chain must hold."""
    assert bot.audit.verify().broken_at is None
    return [sentence(entry) for _, entry in bot.audit.since(None)]


def test_a_restart_is_written_down_from_the_word_to_its_end() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(120)
        assert written(bot) == snapshot(
            [
                "ana: restart no_buffer – asked 4283",
                "bo pressed 4283, Restart 8 servers · no_buffer – accepted",
                "op-1 begins: Restart 8 servers · no_buffer, by bo",
                "op-1 Restart 8 servers · no_buffer – done",
            ]
        )
        asked, _, begun, _ = (entry for _, entry in bot.audit.since(None))
        assert (asked.user, asked.channel, asked.steps) == snapshot(
            (
                "U1",
                "C1",
                (
                    "stop job datagen",
                    "stop 8 servers",
                    "memory and ports free",
                    "start",
                    "prove",
                    "resume job datagen",
                    "compare throughput",
                ),
            )
        )
        assert asked.seen == snapshot(
            "8 ready · 256 running · 5.1k tok/s: gpu0 ready (pid 4001), gpu1 ready (pid 4002), gpu2 ready (pid 4003), gpu3 ready (pid 4004), gpu4 ready (pid 4005), gpu5 ready (pid 4006), gpu6 ready (pid 4007), gpu7 ready (pid 4008)"
        )
        assert begun.servers == tuple(f"gpu{n}" for n in range(8))

    talk(scenario)


def test_what_starts_at_once_is_written_before_it_starts() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.answer("start gpu3", within=120)
        assert written(bot) == snapshot(
            ["ana: start gpu3 – started", "op-1 begins: Start gpu3, by ana", "op-1 Start gpu3 – done"]
        )

    talk(scenario)


def test_every_press_is_written_down_also_the_one_that_does_not_count() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        post = bot.with_button("Restart gpu3")
        button = post.buttons[0]
        bot.press("Restart gpu3", user="U3")
        await bot.advance(1)
        bot.press("Restart gpu3", user="U2")
        await bot.advance(1)
        bot.press("Restart gpu3", post=post, button=button)
        await bot.advance(1)
        assert written(bot)[1:] == snapshot(
            [
                "vic pressed 4283, Restart gpu3 · no_buffer – refused: you may look but not restart; ask ana or bo",
                "bo pressed 4283, Restart gpu3 · no_buffer – accepted",
                "op-1 begins: Restart gpu3 · no_buffer, by bo",
                "ana pressed 4283, Restart gpu3 · no_buffer – refused: bo pressed it 1 s ago: it is not done twice.",
            ]
        )

    talk(scenario)


def test_two_presses_at_once_are_one_accepted_and_one_refused() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        post = bot.with_button("Restart gpu3")
        bot.press("Restart gpu3", user="U1", post=post)
        bot.press("Restart gpu3", user="U2", post=post)
        await bot.advance(1)
        assert [one.partition(" – ")[2] for one in written(bot) if "pressed" in one] == snapshot(
            ["accepted", "refused: ana pressed it 0 s ago: it is not done twice."]
        )

    talk(scenario)


def test_a_press_that_was_void_says_why() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu4")
        await bot.answer("restart gpu3 gpu4 no_buffer")
        bot.fleet.run("gpu4")
        bot.press("Restart gpu3 and gpu4")
        await bot.advance(2)
        assert written(bot) == snapshot(
            [
                "ana: restart gpu3 gpu4 no_buffer – asked 4283",
                "ana pressed 4283, Restart gpu3 and gpu4 · no_buffer – accepted",
                "ana pressed 4283, Restart gpu3 and gpu4 · no_buffer – void: gpu4 is ready now",
                "ana: restart gpu3 gpu4 no_buffer – asked 873A",
            ]
        )

    talk(scenario)


def test_what_was_refused_is_written_down() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all("no_buffer")
        await bot.answer("restart gpu3", user="U3")
        await bot.answer("stop gpu3", ago=300)
        await bot.answer("restart no_buffer")
        await bot.answer("restart gpu3?")
        await bot.answer("up?", within=3)
        assert written(bot) == snapshot(
            [
                "vic: restart gpu3 – refused: you may look but not restart; ask ana or bo",
                "ana: stop gpu3 – refused: typed 5 m ago",
                "ana: restart no_buffer – nothing to do: 8/8 already run no_buffer and are healthy: nothing to do.",
            ]
        )

    talk(scenario)


def test_a_no_is_written_down_with_what_it_has_ended() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("no")
        await bot.answer("restart gpu3 no_buffer")
        await bot.answer("No the first launch already worked")
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Cancel", user="U2")
        await bot.advance(1)
        bot.fleet.die("gpu5")
        await bot.answer("start gpu5", within=20)
        await bot.answer("cancel", within=200)
        assert written(bot) == snapshot(
            [
                "ana: restart gpu3 no_buffer – asked 4283",
                "ana: No the first launch already worked – cancelled Restart gpu3 · no_buffer?",
                "ana: restart gpu3 no_buffer – asked 873A",
                "bo – cancelled Restart gpu3 · no_buffer?",
                "ana: start gpu5 – started",
                "op-1 begins: Start gpu5, by ana",
                "ana: cancel – cancelled Start gpu5 (op-1)",
                "op-1 Start gpu5 – cancelled: by ana",
            ]
        )

    talk(scenario)


def test_reload_is_written_down_also_when_the_file_is_wrong() -> None:
    async def scenario(bot: Bot) -> None:
        async def well() -> str:
            return "Fleet file read: 8 servers, 2 profiles; nothing changed."

        async def badly() -> str:
            raise ConfigError("unknown key", file="fleet.yaml", line=3)

        bot.reloaded = well
        await bot.answer("reload")
        bot.reloaded = badly
        await bot.answer("reload")
        assert written(bot) == snapshot(
            [
                "ana: reload – done: Fleet file read: 8 servers, 2 profiles; nothing changed.",
                "ana: reload – refused: fleet.yaml:3: unknown key",
            ]
        )

    talk(scenario)


def test_with_the_audits_disk_full_nothing_is_asked_or_started_and_looking_works() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu4")
        bot.audit.is_full = True
        assert await bot.answer("restart gpu3 no_buffer") == snapshot(
            "Not done: the state in upbot.db can't be read or written: database or disk is full"
        )
        assert await bot.answer("start gpu4") == snapshot(
            "Not done: the state in upbot.db can't be read or written: database or disk is full"
        )
        assert (await bot.answer("up?", within=3)).startswith("7/8 answering")
        assert (await bot.answer("status all")).startswith("7/8 ready")
        assert (bot.fleet.signalled, bot.fleet.started) == ([], [])
        assert bot.executor.live() == ()
        assert written(bot) == []

    talk(scenario)


def test_a_press_that_cannot_be_written_starts_nothing_and_counts_once_there_is_room() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.audit.is_full = True
        bot.press("Restart gpu3")
        await bot.advance(2)
        assert bot.last.text == snapshot(
            "Not done: the state in upbot.db can't be read or written: database or disk is full"
        )
        assert (bot.fleet.signalled, bot.executor.live()) == ([], ())
        bot.audit.is_full = False
        bot.press("Restart gpu3")
        await bot.advance(100)
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]

    talk(scenario)


def test_a_no_works_also_when_it_cannot_be_written() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.audit.is_full = True
        assert (await bot.answer("no", within=2)).startswith("Stopped before anything was touched.")
        bot.audit.is_full = False
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(20)
        bot.audit.is_full = True
        await bot.answer("cancel", within=200)
        assert bot.executor.live() == ()
        assert bot.fleet.servers["gpu3"].pid is not None

    talk(scenario)


def test_an_end_that_a_kill_has_left_out_is_written_down_later_and_once() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.answer("start gpu3", within=20)
        bot.audit.is_full = True
        await bot.advance(100)
        assert written(bot)[-1] == "op-1 begins: Start gpu3, by ana"
        await bot.die()
        for _ in range(2):
            bot = bot.restarted()
            await bot.die()
        assert written(bot)[-2:] == ["op-1 begins: Start gpu3, by ana", "op-1 Start gpu3 – done"]

    talk(scenario)


def test_an_operations_end_is_written_down_also_when_it_failed_after_the_bot_was_killed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.jobs.never_stops = True
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(20)
        await bot.die()
        again = bot.restarted()
        again.jobs.never_stops = True
        await again.advance(timedelta(minutes=4).total_seconds())
        assert written(again)[-1] == snapshot(
            "op-1 Restart 8 servers · no_buffer – failed: job datagen did not end within 2 m of being asked"
        )
        await again.tasks.close()

    talk(scenario)
