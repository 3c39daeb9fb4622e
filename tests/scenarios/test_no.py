"""Scenario 4: "No the first launch already worked, it's still ready", and every other press and word."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.facts import JobState
from tests.tester import Bot, talk


def test_a_no_before_the_press_ends_it_and_says_what_lives() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all(age=timedelta(minutes=4))
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        question = bot.last
        button = question.buttons[0]
        told = await bot.answer("No the first launch already worked, it's still ready")
        assert told == snapshot(
            "Stopped before anything was touched. 8 of 8 servers are healthy: up 4 m 1 s, 256 requests running."
        )
        assert question.buttons == []
        bot.press("Restart 8 servers", post=question, button=button)
        await bot.advance(200)
        assert bot.last.only_for == "U1"
        assert bot.last.text == snapshot("It was cancelled 1 s ago: nothing was done.")
        assert bot.fleet.signalled == []

    talk(scenario)


def test_a_server_that_became_ready_between_question_and_press_voids_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run("gpu0", age=timedelta(seconds=20))
        told = await bot.answer("restart gpu0 no_buffer")
        assert told.startswith("Restart gpu0 with profile no_buffer?\n1 starting")
        await bot.advance(100)
        bot.press("Restart gpu0")
        await bot.advance(1)
        assert bot.fleet.signalled == []
        assert bot.posts()[-2].text == "Not done: gpu0 is ready now, it was starting."
        assert bot.last.text.startswith("Restart gpu0 with profile no_buffer?\n1 healthy")
        bot.press("Restart gpu0")
        await bot.advance(10)
        assert len(bot.fleet.signalled) == 1

    talk(scenario)


def test_a_dead_server_that_somebody_started_meanwhile_voids_the_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.answer("restart gpu3,gpu4 no_buffer")
        bot.fleet.run("gpu3", age=timedelta(seconds=1))
        bot.press("Restart gpu3 and gpu4")
        await bot.advance(1)
        assert "Not done: gpu3 is starting now." in [post.text for post in bot.posts()]
        assert bot.fleet.signalled == []

    talk(scenario)


def test_another_process_under_the_same_name_voids_the_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.fleet.run("gpu3", age=timedelta(hours=6))
        bot.press("Restart gpu3")
        await bot.advance(1)
        assert any("gpu3 runs another process now" in post.text for post in bot.posts())
        assert bot.fleet.signalled == []

    talk(scenario)


def test_moved_counters_do_not_void_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart gpu3 no_buffer")
        bot.fleet.running = 37
        bot.press("Restart gpu3")
        await bot.advance(5)
        assert len(bot.fleet.signalled) == 1

    talk(scenario)


def test_one_press_wins_and_every_other_gets_an_answer() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        question, button = bot.last, bot.last.buttons[0]
        bot.press("Restart 8 servers", user="U1")
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(2)
        whispers = [post for post in bot.chat.posts if post.only_for]
        assert [(post.only_for, post.text) for post in whispers] == snapshot(
            [("U2", "ana pressed it 0 s ago: it is not done twice.")]
        )
        bot.press("Restart 8 servers", user="U2", post=question, button=button)
        await bot.advance(300)
        assert len([post for post in bot.chat.posts if post.only_for]) == 2
        assert len(bot.fleet.signalled) == 8
        assert len(bot.fleet.started) == 8

    talk(scenario)


def test_an_expired_question_loses_its_buttons_and_a_late_press_does_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        question, button = bot.last, bot.last.buttons[0]
        await bot.advance(301)
        assert question.buttons == []
        assert question.text.endswith("expired: nothing was done")
        bot.press("Restart 8 servers", post=question, button=button)
        await bot.advance(1)
        assert bot.last.text == snapshot("It expired 2 s ago: nothing was done. Ask again.")
        assert bot.fleet.signalled == []

    talk(scenario)


def test_a_typed_yes_with_the_code_does_the_same_as_the_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        code = bot.desk.open_in("C1")[0].code
        bot.say("yes 0000")
        await bot.advance(1)
        assert bot.fleet.signalled == []
        bot.say(f"yes {code.lower()}", user="U2")
        await bot.advance(10)
        assert len(bot.fleet.signalled) == 8

    talk(scenario)


def test_a_viewers_no_changes_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        assert await bot.answer("no", user="U3") == ""
        assert len(bot.desk.open_in("C1")) == 1

    talk(scenario)


def test_up_is_answered_and_leaves_an_open_question_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all(age=timedelta(minutes=4))
        await bot.answer("restart no_buffer")
        question = bot.last
        for word in ("up?", "up"):
            assert (await bot.answer(word)).startswith("8/8 answering · ct200")
        bot.press("Restart 8 servers", post=question)
        await bot.advance(5)
        assert len(bot.fleet.signalled) == 8

    talk(scenario)


def test_works_has_the_bot_look_again_and_the_question_stands() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        assert await bot.answer("it's up") == snapshot(
            "Looked again. 8 of 8 servers are healthy: up 6 h, 0 requests running. The question above still stands."
        )
        assert len(bot.desk.open_in("C1")) == 1

    talk(scenario)


def test_works_ends_a_question_that_time_has_answered() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run("gpu0", "no_buffer", age=timedelta(seconds=60))
        await bot.answer("restart gpu0 no_buffer")
        await bot.advance(30)
        told = await bot.answer("ready", user="U2")
        assert told == snapshot("""\
gpu0 already runs no_buffer and is healthy: nothing to do.
[Restart all the same…]\
""")
        assert bot.desk.open_in("C1") == ()

    talk(scenario)


def test_a_word_alone_cancels_what_was_touched_and_launched_servers_are_followed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(40)
        assert "What was launched is still followed and proved; another cancel leaves it alone." in await bot.answer(
            "stop"
        )
        await bot.advance(200)
        assert bot.posts()[-1].text == snapshot("""\
Restart 8 servers · no_buffer: cancelled by ana
done: job stopped, 61,204 saved · 8/8 stopped · memory and ports free · 8/8 started · 8/8 proved
running: all 8
[Resume job datagen]\
""")
        assert bot.fleet.job_starts == []

    talk(scenario)


def test_inside_a_sentence_it_asks_once_something_was_touched() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(40)
        assert await bot.answer("no that's not what I meant, I think") == snapshot("""\
Cancel it? Restart 8 servers · no_buffer
[Cancel] [Go on]\
""")
        bot.press("Cancel")
        await bot.advance(200)
        assert "cancelled by ana" in bot.posts()[-1].text

    talk(scenario)


def test_cancel_while_servers_end_leaves_the_rest_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for one in bot.fleet.servers.values():
            one.ignores_sigterm = True
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(10)
        bot.say("cancel")
        await bot.advance(60)
        assert {sign for _, _, sign in bot.fleet.signalled} == {"TERM"}
        assert bot.posts()[-1].text == snapshot("""\
Restart 8 servers · no_buffer: cancelled by ana
done: 0/8 stopped, all of them asked to end
running: all 8\
""")
        assert bot.fleet.started == []

    talk(scenario)


def test_a_launch_that_looks_dead_and_gets_ready_is_ready_after_all() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("start gpu0")
        bot.fleet.servers["gpu0"].extra_start = 200
        await bot.advance(400)
        assert bot.posts()[-1].text.startswith("🟢 1/1 up")
        assert len(bot.fleet.started) == 1

    talk(scenario)


def test_stop_with_a_server_is_the_command_and_stop_alone_asks_which() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert (await bot.answer("stop gpu3")).startswith("Stop gpu3?")
        bot.press("Stop gpu3")
        await bot.advance(30)
        assert bot.posts()[-1].text.startswith("⚪ 1/1 stopped")
        assert await bot.answer("stop") == "Stop which? stop gpu3 or stop all. Nothing was done."

    talk(scenario)


def test_a_command_that_was_typed_minutes_ago_is_not_carried_out() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("restart no_buffer", ago=400) == snapshot(
            "That was typed 6 m 40 s ago: nothing was done. Say it again."
        )

    talk(scenario)
