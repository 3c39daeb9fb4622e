"""The bot is killed at every act, the disk is full at every write, the chat refuses: nothing is lost or done twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.errors import ChatError, StoreError
from bot.domain.facts import JobState
from bot.domain.fleet import Fleet
from tests.fate import Fate, FatedBot, FatedChat
from tests.jumping import run
from tests.tester import Bot, first_night

LABEL = "Restart gpu0 and gpu1"


def two() -> Fleet:
    """Two servers do what eight do, in a quarter of the acts."""
    whole = first_night()
    return replace(whole, servers=whole.servers[:2])


async def pressed(bot: FatedBot) -> None:
    """A restart of all that runs was asked for and is pressed; from here on fate counts."""
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.RUNNING
    await bot.answer("restart no_buffer")
    bot.fate.is_armed = True
    bot.press(LABEL)


def whole_text(bot: Bot) -> str:
    return "\n".join(post.text for post in bot.chat.posts)


def assert_done_once(bot: Bot) -> None:
    assert sorted(name for name, _ in bot.fleet.started) == ["gpu0", "gpu1"]
    assert {(name, sign) for name, _, sign in bot.fleet.signalled} == {("gpu0", "TERM"), ("gpu1", "TERM")}
    assert len({(name, pid) for name, pid, _ in bot.fleet.signalled}) == 2
    assert bot.fleet.job_starts == [128]


def assert_at_rest(bot: Bot) -> None:
    assert bot.executor.live() == ()
    assert bot.operations.live() == ()
    assert [post.text for post in bot.chat.posts if any(button.label == LABEL for button in post.buttons)] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 9))
def test_killed_at_any_act_it_goes_on_or_says_that_nothing_was_done(first: int) -> None:
    """Each of about 220 acts, before and after it, in eight turns; every third is killed again in its come-back."""

    async def killed_at(number: int) -> bool:
        bot = FatedBot(two(), Fate(at=number))
        await pressed(bot)
        for _ in range(130):
            await bot.advance(1)
            if bot.fate.is_dead:
                break
        if not bot.fate.is_dead:
            bot.fate.rise()  # what is only looked at here is no act of the bot
            assert_at_rest(bot)
            await bot.tasks.close()
            return False
        back: Bot = await bot.killed()
        if number % 3 == 0:
            await back.advance(number % 11)
            await back.die()
            back = back.restarted()
        await back.advance(420)
        assert not back.tasks.failures
        assert_at_rest(back)
        if back.fleet.signalled:
            assert_done_once(back)
            assert "2/2 up with no_buffer" in whole_text(back)
        else:
            assert back.fleet.job_stops == 0
            is_told = "pressed" in whole_text(back) and "before anything was done. Ask again." in whole_text(back)
            is_expired = "expired: nothing was done" in whole_text(back)
            assert is_told or is_expired
        await back.tasks.close()
        return True

    number = first
    while run(killed_at(number)):
        number += 24
    assert number > 150


def test_a_press_that_was_lost_is_said_once_and_its_card_has_no_buttons() -> None:
    async def scenario() -> None:
        bot = FatedBot(two(), Fate())
        await pressed(bot)
        await bot.advance(0.01)
        await bot.die()
        back = bot.restarted()
        await back.advance(1)
        assert back.last.text == (
            "Not done: Restart gpu0 and gpu1 · no_buffer. ana pressed 0 s ago, but I was restarted before anything was "
            "done. Ask again."
        )
        assert_at_rest(back)
        said = len(back.chat.posts)
        await back.die()
        again = back.restarted()
        await again.advance(1)
        assert len(again.chat.posts) == said
        assert again.fleet.signalled == []
        await again.tasks.close()

    run(scenario())


@pytest.mark.parametrize("lasts", [1, 10_000])
@pytest.mark.parametrize("first", [1, 2])
def test_a_disk_that_is_full_at_any_write_leaves_all_as_it_was_or_ends_what_was_begun(first: int, lasts: int) -> None:
    """One write, or all from there on: before the first kill it stops, afterwards the servers come back."""

    async def full_at(number: int) -> bool:
        fate = Fate(at=number, wrong=lambda: StoreError("the disk is full"), lasts=lasts)
        bot = FatedBot(two(), fate, chat=FatedChat(Fate()))
        await pressed(bot)
        await bot.advance(500)
        assert bot.executor.live() == ()
        assert not bot.tasks.failures
        if bot.fleet.signalled:
            assert_done_once(bot)
        elif bot.fleet.job_stops:
            assert any(button.label == "Resume job datagen" for post in bot.chat.posts for button in post.buttons)
        else:
            assert "the disk is full" in whole_text(bot)
        was_met = bool(fate.met)
        fate.rise()
        await bot.advance(60)
        assert bot.operations.live() == ()
        assert bot.desk.open_in("C1") == () or not bot.fleet.signalled
        await bot.tasks.close()
        return was_met

    number = first
    while run(full_at(number)):
        number += 18
    assert number > 40


def test_a_full_disk_keeps_nobody_from_saying_no() -> None:
    async def scenario() -> None:
        fate = Fate(at=1, wrong=lambda: StoreError("the disk is full"), lasts=10_000)
        bot = FatedBot(two(), fate, chat=FatedChat(Fate()))
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        card = bot.last
        button = card.buttons[0]
        fate.is_armed = True
        assert (await bot.answer("no")).startswith("Stopped before anything was touched.")
        assert card.buttons == []
        bot.press(LABEL, post=card, button=button)
        await bot.advance(1)
        assert bot.last.text.startswith("It was cancelled")
        fate.rise()
        await bot.advance(10)
        assert bot.questions.open() == ()
        await bot.answer("restart no_buffer")
        bot.press(LABEL)
        await bot.advance(8)
        fate.is_armed = True
        assert "Cancelling" in await bot.answer("cancel")
        await bot.advance(100)
        assert bot.executor.live() == ()
        fate.rise()
        await bot.advance(10)
        assert bot.operations.live() == ()
        await bot.tasks.close()

    run(scenario())


@pytest.mark.parametrize("lasts", [1, 10_000])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21])
def test_a_chat_that_refuses_keeps_no_operation_from_its_end(number: int, lasts: int) -> None:
    async def scenario() -> None:
        fate = Fate(at=number, wrong=lambda: ChatError("channel_not_found"), lasts=lasts)
        bot = FatedBot(two(), fate, chat=FatedChat(fate), store=False)
        await pressed(bot)
        await bot.advance(500)
        assert bot.executor.live() == ()
        assert not bot.tasks.failures
        assert_done_once(bot)
        await bot.tasks.close()

    run(scenario())


def test_a_question_that_could_not_be_posted_is_none() -> None:
    async def scenario() -> None:
        fate = Fate(at=1, wrong=lambda: ChatError("channel_not_found"), lasts=1)
        bot = FatedBot(two(), fate, chat=FatedChat(fate), store=False)
        bot.fleet.run_all()
        fate.is_armed = True
        assert await bot.answer("restart no_buffer") == "Not done: channel_not_found"
        assert bot.questions.open() == ()
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


def test_a_slow_chat_slows_nothing_but_itself() -> None:
    """Two seconds a call: the second question and a no in between still mean what they say."""

    async def scenario() -> None:
        bot = FatedBot(two(), Fate(), chat=FatedChat(Fate(), takes=2.0))
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer", within=5)
        bot.press(LABEL)
        await bot.advance(400)
        assert_done_once(bot)
        assert "2/2 up with no_buffer" in whole_text(bot)
        await bot.answer("restart extra_buffer", within=0.5)
        assert len(bot.questions.open()) == 1
        bot.say("no")  # while the question is still being posted
        await bot.advance(20)
        assert bot.questions.open() == ()
        assert_at_rest(bot)
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())
