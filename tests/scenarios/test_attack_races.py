"""Several people at once, and a no in the same instant: at most one thing happens, and everybody gets an answer."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.facts import JobState
from bot.domain.fleet import Channel
from bot.domain.operation import State
from tests.tester import Bot, first_night, talk


def told(bot: Bot, since: int) -> list[str]:
    return [post.text for post in bot.chat.posts[since:]]


def test_a_no_in_the_instant_of_the_press_wins() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        card = bot.last
        bot.press("Restart 8 servers")
        bot.say("no", user="U2")
        await bot.advance(60)
        assert bot.fleet.signalled == []
        assert bot.operations.live() == ()
        assert bot.last.text.startswith("Stopped before anything was touched.")
        assert card.text.splitlines()[-1].startswith("cancelled by bo")
        assert card.buttons == []

    talk(scenario)


def test_a_press_in_the_instant_of_a_no_gets_its_answer() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.say("no", user="U2")
        bot.press("Restart 8 servers")
        await bot.advance(60)
        assert bot.fleet.signalled == []
        assert [post.text for post in bot.chat.posts if post.only_for] == [
            "It was cancelled 0 s ago: nothing was done."
        ]

    talk(scenario)


def test_a_no_while_a_command_is_still_being_looked_at_calls_it_off() -> None:
    """A dead server would be started without a question."""

    async def scenario(bot: Bot) -> None:
        bot.say("restart gpu3")
        bot.say("no wait, gpu4")
        await bot.advance(60)
        assert bot.fleet.started == []
        assert told(bot, 0) == ["Called off by ana before anything was touched: restart gpu3"]

    talk(scenario)


def test_two_questions_in_two_channels_pressed_at_once_begin_once() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        await bot.answer("restart gpu3,gpu4 no_buffer", channel="C2")
        bot.press("Restart gpu3 and gpu4", user="U2")
        bot.press("Restart 8 servers")
        await bot.advance(1)
        assert any(text.startswith("Busy: restart by ") for text in told(bot, 2))
        await bot.advance(300)
        assert len(bot.fleet.started) == len({name for name, _ in bot.fleet.started}) == 2
        assert [op.state for op in bot.operations.recent(9)] == [State.DONE]

    both = (Channel("fleet", ("C1",), ("ct200",)), Channel("other", ("C2",), ("ct200",)))
    talk(scenario, replace(first_night(), channels=both))


def test_two_commands_that_need_no_press_at_once_begin_once() -> None:
    async def scenario(bot: Bot) -> None:
        bot.say("start gpu3")
        bot.say("restart gpu3", user="U2")
        bot.say("job start")
        bot.say("job start", user="U2")
        await bot.advance(200)
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]
        assert bot.fleet.job_starts == [None]
        assert len([text for text in told(bot, 0) if text.startswith("Busy: ")]) == 2

    talk(scenario)


def test_two_questions_about_the_same_servers_at_once_leave_one_card_with_buttons() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.say("restart no_buffer")
        bot.say("restart gpu3 no_buffer", user="U2")
        await bot.advance(2)
        assert len(bot.questions.open()) == 1
        assert len([post for post in bot.chat.posts if post.buttons]) == 1

    talk(scenario)


def test_a_question_pressed_while_another_operation_runs_is_busy() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer")
        bot.fleet.die("gpu3")
        await bot.answer("restart no_buffer", user="U2", channel="C1")
        assert len(bot.questions.open()) == 1
        await bot.answer("start gpu3", within=3)
        bot.press("Restart 8 servers")
        await bot.advance(1)
        assert bot.last.text.startswith("Busy: start by ana")
        assert bot.fleet.signalled == []
        assert (await bot.answer("stop gpu3")).startswith("Busy: start by ana")

    talk(scenario)


def test_a_cancel_never_stays_without_an_answer() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu3"].ignores_sigterm = True
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(5)
        assert await bot.answer("cancel op-999") == "Nothing called op-999 is open."
        assert (await bot.answer("cancel", channel="C2", mentions=True)).startswith("Nothing is open here. Elsewhere: ")
        bot.say("cancel")
        bot.say("cancel", user="U2")
        await bot.advance(0.04)
        assert told(bot, len(bot.chat.posts) - 2)[0].startswith("Cancelling: Restart gpu3")
        assert bot.last.text.startswith("It is being cancelled already: Restart gpu3 · no_buffer, by ana.")

    talk(scenario)


def test_a_cancel_that_names_an_operation_leaves_the_open_question_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(40)
        await bot.answer("restart gpu4 no_buffer")
        assert (await bot.answer("cancel op-1")).startswith("Cancelling: Restart gpu3")
        assert [one.plan.servers for one in bot.questions.open()] == [("gpu4",)]

    talk(scenario)


def test_stop_alone_ends_the_question_and_what_runs() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(40)
        await bot.answer("restart gpu4 no_buffer")
        await bot.answer("stop!")
        assert bot.questions.open() == ()
        assert [op.state for op in bot.executor.live()] == [State.CANCELLING]

    talk(scenario)


def test_a_cancel_in_each_second_of_a_restart_ends_it_and_says_what_it_leaves() -> None:
    async def at(bot: Bot, second: float) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(second)
        bot.say("cancel")
        bot.say("cancel", user="U2")
        await bot.advance(400)
        assert bot.executor.live() == ()
        touched = bool(bot.fleet.signalled)
        end = "cancelled by ana" if touched else "Stopped before anything was touched."
        if bot.fleet.job_stops and not touched:
            end = "Stopped before any server was touched. Job datagen was asked to stop already."
        assert any(end in post.text for post in bot.posts()), end
        assert touched or not bot.fleet.started
        assert len(bot.fleet.started) == len({name for name, _ in bot.fleet.started})

    for second in (0.06, 1, 3.1, 4, 5, 7, 9, 20, 60, 86):
        talk(lambda bot, second=second: at(bot, second))


def test_a_code_that_is_wrong_is_answered_and_presses_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        assert await bot.answer("yes") == ""
        assert await bot.answer("yes please") == ""
        assert await bot.answer("yes 0000") == "No open question has the code 0000."
        assert await bot.answer("yes 0000", user="U3") == "No open question has the code 0000."
        code = bot.questions.open()[0].code
        assert await bot.answer(f"yes {code}", user="U3") == "you may look but not restart; ask ana or bo"
        assert bot.fleet.signalled == []

    talk(scenario)
