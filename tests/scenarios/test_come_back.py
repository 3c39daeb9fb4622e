"""The bot is killed at any moment: when it is back it says so, looks, and goes on; nothing is done twice."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from bot.domain.facts import JobState
from tests.fate import Fate, FatedBot, Killed
from tests.jumping import run
from tests.tester import Bot, first_night


async def _until_done(bot: Bot) -> None:
    await bot.advance(600)
    assert bot.executor.live() == ()
    await bot.tasks.close()
    assert not bot.tasks.failures


@pytest.mark.parametrize(
    "moment",
    [
        0.0,
        0.05,
        0.5,
        1.5,
        3.2,
        4.1,
        4.2,
        5.0,
        6.3,
        8.0,
        9.5,
        11.0,
        12.0,
        20.0,
        60.0,
        85.0,
        88.0,
        90.0,
        91.0,
        93.0,
        95.0,
    ],
)
def test_killed_at_any_moment_it_goes_on_and_does_nothing_twice(moment: float) -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(moment)
        await bot.die()
        was_over = not bot.database_has_live()
        bot = bot.restarted()
        await _until_done(bot)
        began = bool(bot.fleet.started)
        if (
            was_over and not began
        ):  # killed before the operation was written down: the press was spent, nothing was done
            assert bot.fleet.signalled == []
            return
        assert sorted(name for name, _ in bot.fleet.started) == [f"gpu{n}" for n in range(8)]
        assert {sign for _, _, sign in bot.fleet.signalled} == {"TERM"}
        assert len({(name, pid) for name, pid, _ in bot.fleet.signalled}) == 8
        assert bot.fleet.job_starts == [128]
        assert any(post.text.startswith("🟢 8/8 up with no_buffer") for post in bot.posts())

    run(scenario())


def test_it_says_in_the_thread_that_it_was_away() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(40)
        await bot.die()
        bot = bot.restarted()
        await bot.advance(2)
        assert bot.last.text == snapshot(
            "I was restarted at step 3 of 5 (start); looking, and going on. 0:40 since the start."
        )
        await _until_done(bot)

    run(scenario())


def test_a_question_still_works_after_a_restart_and_still_expires() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        await bot.answer("restart gpu4 no_buffer")
        await bot.die()
        bot = bot.restarted()
        bot.press("Restart gpu3")
        await bot.advance(20)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu3"]
        await bot.advance(300)
        assert bot.desk.open_in("C1") == ()
        await _until_done(bot)

    run(scenario())


def test_a_server_that_was_asked_to_end_is_not_asked_again_and_its_grace_goes_on() -> None:
    """Its drain outlasts the bot: one SIGTERM, and the SIGKILL comes 30 s after it, not 30 s after the come-back."""

    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        bot.fleet.servers["gpu3"].ignores_sigterm = True
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(20)
        assert [sign for _, _, sign in bot.fleet.signalled] == ["TERM"]
        await bot.die()
        bot = bot.restarted()
        await bot.advance(5)
        assert [sign for _, _, sign in bot.fleet.signalled] == ["TERM"]
        await bot.advance(15)
        assert [sign for _, _, sign in bot.fleet.signalled] == ["TERM", "KILL"]
        await _until_done(bot)

    run(scenario())


def test_killed_before_its_head_was_posted_it_posts_one_when_it_is_back() -> None:
    async def scenario() -> None:
        fate = Fate(wrong=Killed)
        bot = FatedBot(first_night(), fate, store=False)
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        fate.at, fate.is_armed = 2, True  # the card is edited, and then the head is posted
        bot.press("Restart gpu3")
        await bot.advance(1)
        assert fate.met == ["post"]
        back = await bot.killed()
        await back.advance(1)
        assert [post.text for post in back.posts()][1].startswith("Restart gpu3 · no_buffer")
        await _until_done(back)
        heads = [post.text for post in back.posts() if post.text.startswith("Restart gpu3 · no_buffer")]
        assert len(heads) == 1
        assert "1/1 proved" in heads[0]

    run(scenario())
