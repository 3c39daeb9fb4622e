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


def whispers(bot: Bot) -> list[tuple[str | None, str]]:
    return [(post.only_for, post.text) for post in bot.chat.posts if post.only_for]


def test_one_person_who_presses_twice_starts_it_once_and_hears_so() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        bot.press("Restart 8 servers")
        await bot.advance(300)
        assert whispers(bot) == [("U1", "ana pressed it 0 s ago: it is not done twice.")]
        assert (len(bot.fleet.signalled), len(bot.fleet.started)) == (8, 8)
        assert [op.state for op in bot.operations.recent(9)] == [State.DONE]

    talk(scenario)


def test_a_press_and_a_cancel_at_once_do_one_of_both_and_answer_the_other() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Cancel", user="U2")
        bot.press("Restart 8 servers")
        await bot.advance(300)
        assert whispers(bot) == [("U1", "It was cancelled 0 s ago: nothing was done.")]
        assert bot.fleet.signalled == []
        assert bot.operations.recent(9) == ()

    talk(scenario)


def test_a_button_that_was_pressed_before_a_restart_of_the_bot_is_answered_and_does_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        card, button = bot.last, bot.last.buttons[0]
        bot.press("Restart 8 servers")
        await bot.advance(20)
        await bot.die()
        back = bot.restarted()
        back.press("Restart 8 servers", user="U2", post=card, button=button)
        await back.advance(1)
        assert whispers(back) == [("U2", "ana pressed it 20 s ago: it is not done twice.")]
        await back.advance(400)
        assert (len(back.fleet.signalled), len(back.fleet.started)) == (8, 8)
        await back.tasks.close()

    talk(scenario)


def test_who_has_not_the_right_presses_nothing_and_alone_hears_why() -> None:
    """A viewer, and somebody whom the fleet file does not know: the button, the code, and the button to cancel."""

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        code = bot.questions.open()[0].code
        for user in ("U3", "U999"):
            bot.press("Restart 8 servers", user=user)
            bot.press("Cancel", user=user)
            bot.say(f"yes {code}", user=user)
            await bot.advance(1)
        assert whispers(bot) == [
            (user, "you may look but not restart; ask ana or bo") for user in ("U3", "U999") for _ in range(3)
        ]
        assert len(bot.questions.open()) == 1
        assert bot.fleet.signalled == []

    talk(scenario)


def test_a_question_is_answered_only_where_it_was_asked() -> None:
    """By its code or by its button, from a known channel, an unknown one, or a direct message; a thread is the same."""

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        card = bot.last
        code = bot.questions.open()[0].code
        for channel in ("C2", "C9", "D1"):
            bot.say(f"yes {code}", channel=channel, mentions=True)
            bot.press("Restart 8 servers", post=replace(card, ref=replace(card.ref, channel=channel)))
            await bot.advance(1)
        assert whispers(bot) == [("U1", f"{code} is asked in #fleet: answer it there")] * 6
        assert (len(bot.questions.open()), bot.fleet.signalled) == (1, [])
        bot.say(f"yes {code}", thread="m1")
        await bot.advance(20)
        assert len(bot.fleet.signalled) == 8

    both = (Channel("fleet", ("C1",), ("ct200",)), Channel("other", ("C2",), ("ct200",)))
    talk(scenario, replace(first_night(), channels=both))


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
