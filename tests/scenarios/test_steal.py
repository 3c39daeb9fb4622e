"""What an operation or a person holds is taken over by a confirmed press alone, and never hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from bot.domain.facts import JobState, Process
from bot.domain.fleet import Channel, Server
from bot.domain.message import Mention, Says
from bot.domain.operation import State
from tests.jumping import run
from tests.tester import Bot, first_night, talk


async def restarting(bot: Bot, for_: float) -> None:
    """A restart of all that ana has asked for and pressed, so many seconds ago."""
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.RUNNING
    await bot.answer("restart no_buffer")
    bot.press("Restart 8 servers")
    await bot.advance(for_)


def test_an_operation_is_stolen_by_a_press_and_its_holder_is_told() -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, 40)
        assert await bot.answer("steal gpu3", user="U2") == snapshot("""\
Steal gpu3?
Restart 8 servers · no_buffer (op-1) by ana since 40 s, step 4 of 7 (starting 8)
it is cancelled where it stands; what it has ended or launched is left as it is
ana will be told
[Steal gpu3] [Cancel]
asked by bo · an operator's press, or yes 873A · 5 m left\
""")
        assert [op.state for op in bot.executor.live()] == [State.RUNNING]
        before = len(bot.chat.posts)
        bot.press("Steal gpu3", user="U2")
        await bot.advance(5)
        assert [post.text for post in bot.chat.posts[before:]] == snapshot(
            [
                """\
Steal gpu3 · 0:00
✓ Restart 8 servers · no_buffer (op-1) is cancelled, what it has launched is left as it is
by bo, 0 s ago · done\
""",
                """\
Restart 8 servers · no_buffer: cancelled by bo
done: job stopped, 61,204 saved · 8/8 stopped · memory and ports free
running: none of them
left as they are: all 8
[Back to extra_buffer]\
""",
                "@U1: bo has taken over from you. Restart 8 servers · no_buffer (op-1) is cancelled, what it has launched is left as it is.",
                "Steal gpu3: Restart 8 servers · no_buffer (op-1) is cancelled, what it has launched is left as it is",
            ]
        )
        told = next(post for post in bot.chat.posts if "has taken over from you" in post.text)
        assert told.message.headline[0] == Mention("U1")
        assert bot.executor.live() == ()
        assert [op.state for op in bot.operations.recent(9)] == [State.CANCELLED, State.DONE]
        assert (await bot.answer("hold gpu3 1h", user="U2")).startswith("Held: gpu3 by bo")

    talk(scenario)


@pytest.mark.parametrize("second", [0.0, 0.06, 1, 3.1, 4, 5, 7, 9, 10.5, 20, 60, 84, 86, 87, 95])
def test_in_each_step_it_ends_what_runs_and_starts_nothing_more(second: float) -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, second)
        await bot.answer("steal all", user="U2", within=0.01)
        if not bot.desk.open_in("C1"):  # nothing had begun, or all is over
            return
        bot.press("Steal 8 servers", user="U2")
        await bot.advance(20)
        assert bot.executor.live() == ()
        started, signalled = list(bot.fleet.started), list(bot.fleet.signalled)
        assert bot.last.text.startswith("Steal 8 servers: ")
        await bot.advance(400)
        assert (bot.fleet.started, bot.fleet.signalled) == (started, signalled)
        assert {op.state for op in bot.operations.recent(9)} <= {State.CANCELLED, State.DONE}

    talk(scenario)


def test_one_whose_host_went_away_in_the_middle_is_taken_over_at_once() -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, 4.5)
        for one in bot.fleet.servers.values():
            one.is_silent = True
        await bot.advance(60)
        bot.say("steal gpu3", user="U2")
        await bot.advance(1)
        bot.press("Steal gpu3", user="U2")
        await bot.advance(16)
        assert bot.executor.live() == ()
        assert [op.state for op in bot.operations.recent(9)] == [State.CANCELLED, State.DONE]

    talk(scenario)


def test_one_that_hangs_for_good_is_given_up_in_time() -> None:
    async def scenario(bot: Bot) -> None:
        async def stuck(server: Server, process: Process, *, force: bool) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(3600)

        bot.fleet.end = stuck  # type: ignore[method-assign]
        await restarting(bot, 30)
        await bot.answer("steal gpu3", user="U2")
        bot.press("Steal gpu3", user="U2")
        await bot.advance(14)
        assert len(bot.executor.live()) == 2
        await bot.advance(3)
        assert bot.executor.live() == ()
        del bot.fleet.end
        assert (await bot.answer("restart gpu3 no_buffer", user="U2")).startswith("Restart gpu3")
        bot.press("Restart gpu3", user="U2")
        await bot.advance(600)
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]
        assert bot.fleet.servers["gpu3"].pid is not None
        before = len(bot.chat.posts)
        await bot.advance(4000)
        assert bot.chat.posts[before:] == []

    talk(scenario)


def test_a_hold_passes_to_the_thief_in_part_and_its_holder_is_told() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu4-7 until 9:00 eval running")
        await bot.advance(600)
        assert await bot.answer("steal gpu4", user="U2") == snapshot("""\
Steal gpu4?
gpu4 held by ana since 10 m 1 s, until 09:00 UTC: eval running
it passes to whoever presses
ana will be told
[Steal gpu4] [Cancel]
asked by bo · an operator's press, or yes 4283 · 5 m left\
""")
        before = len(bot.chat.posts)
        bot.press("Steal gpu4", user="U2")
        await bot.advance(3)
        assert [post.text for post in bot.chat.posts[before:]] == snapshot(
            [
                """\
Steal gpu4 · 0:00
✓ gpu4 held by bo until 09:00 UTC, was ana's
by bo, 0 s ago · done\
""",
                "@U1: bo has taken over from you. gpu4 held by bo until 09:00 UTC, was ana's.",
                "Steal gpu4: gpu4 held by bo until 09:00 UTC, was ana's",
            ]
        )
        told = next(post for post in bot.chat.posts if "has taken over from you" in post.text)
        assert told.message.headline[0] == Mention("U1")
        assert await bot.answer("holds") == snapshot("""\
2 holds
gpu5-gpu7 held by ana since 10 m 5 s, until 09:00 UTC: eval running
gpu4 held by bo since 3 s, until 09:00 UTC: taken over from ana (eval running)\
""")
        assert await bot.answer("release gpu4", user="U2") == "Released: gpu4."

    talk(scenario)


def test_what_is_refused_over_a_hold_offers_the_steal_of_just_that() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4-7 2h")
        await bot.answer("hold gpu6 1h", user="U2")
        assert [button.does for button in bot.last.buttons] == [Says("steal gpu6")]
        await bot.answer("adopt gpu5", user="U2")
        assert [button.does for button in bot.last.buttons] == [Says("steal gpu5")]
        assert "steal gpu7 takes it over" in await bot.answer("release gpu7", user="U2")
        await bot.answer("restart gpu5-6 no_buffer", user="U2")
        bot.press("Restart gpu5 and gpu6", user="U2")
        await bot.advance(1)
        bot.press("Steal…", user="U2")
        await bot.advance(1)
        assert bot.last.text.startswith("Steal gpu5 and gpu6?\ngpu5, gpu6 held by ana since ")

    talk(scenario)


def test_what_is_ones_own_and_what_nobody_has_is_not_stolen() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu4 2h")
        assert await bot.answer("steal gpu4") == "You hold gpu4 yourself; release ends that."
        assert await bot.answer("steal gpu5") == "Nobody holds gpu5: nothing to steal."
        assert await bot.answer("steal gpu4", user="U3") == "you may look but not steal; ask ana or bo"
        assert "only looked at" in await bot.answer("steal gpu4?", user="U2")
        assert bot.questions.open() == ()

    talk(scenario)


def test_an_operation_without_servers_is_stolen_by_its_id() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.jobs.never_stops = True
        await bot.answer("job stop", within=20)
        assert await bot.answer("job stop", user="U2") == snapshot("""\
Busy: job stop by ana since 20 s, step 1 of 1 (stopping job datagen)
[Show] [Cancel that] [Steal…]\
""")
        bot.press("Steal…", user="U2")
        await bot.advance(1)
        assert bot.last.text.startswith("Steal op-1?\nStop job datagen (op-1) by ana since 21 s, step 1 of 1")
        bot.press("Steal op-1", user="U2")
        await bot.advance(5)
        assert bot.executor.live() == ()
        assert await bot.answer("steal op-1", user="U2") == "Nobody holds op-1: nothing to steal."
        assert (await bot.answer("steal op-x", user="U2", mentions=True)).startswith("I don't know op-x.")

    talk(scenario)


def test_with_two_persons_the_thief_is_not_the_asker() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu4 2h")
        assert "a second operator's press" in await bot.answer("steal gpu4", user="U2")
        bot.press("Steal gpu4", user="U2")
        await bot.advance(1)
        assert bot.last.text == "steal needs a second person: you asked for it yourself"
        assert "an admin's press, not the asker's" in await bot.answer("start gpu4")

    fleet = first_night()
    talk(scenario, replace(fleet, limits=replace(fleet.limits, two_persons=("steal", "start"))))


TWO_CHANNELS = (Channel("fleet", ("C1",), ("ct200",)), Channel("other", ("C2",), ("ct200",)))


def test_of_two_steals_at_once_one_wins_and_the_other_hears_it() -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, 40)
        await bot.answer("steal gpu3", user="U2")
        first = bot.last
        await bot.answer("steal gpu3", user="U4", channel="C2")
        bot.press("Steal gpu3", user="U2", post=first)
        bot.press("Steal gpu3", user="U4")
        await bot.advance(20)
        assert any(post.text.startswith("Busy: steal by bo") for post in bot.chat.posts)
        assert [op.state for op in bot.operations.recent(9)] == [State.CANCELLED, State.DONE]

    fleet = first_night(channels=TWO_CHANNELS)
    talk(scenario, replace(fleet, people=(*fleet.people, replace(fleet.people[0], name="dee", ids=("U4",)))))


def test_a_hold_that_another_has_stolen_meanwhile_is_asked_about_anew() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu3 2h")
        await bot.answer("steal gpu3", user="U2")
        first = bot.last
        await bot.answer("steal gpu3", user="U4", channel="C2")
        bot.press("Steal gpu3", user="U2", post=first)
        await bot.advance(3)
        bot.press("Steal gpu3", user="U4")
        await bot.advance(3)
        assert "Not done: h-2 is held by bo now." in [post.text for post in bot.chat.posts]
        assert [hold.by for hold in bot.holding.live()] == ["bo"]

    fleet = first_night(channels=TWO_CHANNELS)
    talk(scenario, replace(fleet, people=(*fleet.people, replace(fleet.people[0], name="dee", ids=("U4",)))))


@pytest.mark.parametrize("later", [0.0, 0.05, 0.2, 1.0])
def test_a_cancel_beside_a_steal_ends_it_once(later: float) -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, 40)
        await bot.answer("steal gpu3", user="U2")
        bot.press("Steal gpu3", user="U2")
        await bot.advance(later)
        bot.say("cancel op-1")
        await bot.advance(30)
        assert bot.executor.live() == ()
        assert bot.operations.recent(9)[0].state is State.CANCELLED
        assert (
            len([post for post in bot.posts() if post.text.startswith("Restart 8 servers · no_buffer: cancelled")]) == 1
        )

    talk(scenario)


def test_a_steal_that_comes_after_the_end_does_nothing() -> None:
    async def scenario(bot: Bot) -> None:
        await restarting(bot, 40)
        await bot.answer("steal gpu3", user="U2")
        card = bot.last
        button = card.buttons[0]
        await bot.answer("cancel op-1")
        await bot.advance(10)
        await bot.answer("cancel op-1", within=5)
        bot.press("Steal gpu3", user="U2", post=card, button=button)
        await bot.advance(3)
        assert bot.last.text == "Nobody holds gpu3: nothing to steal."
        assert len(bot.operations.recent(9)) == 1

    talk(scenario)


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.05, 0.06, 0.15, 1.0])
def test_a_bot_that_is_killed_in_a_steal_ends_it_when_it_is_back(moment: float) -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        await restarting(bot, 40)
        await bot.answer("hold gpu0 3h", user="U1")
        await bot.answer("steal gpu0", user="U2")
        bot.press("Steal gpu0", user="U2")
        await bot.advance(moment)
        await bot.die()
        begun = len(bot.operations.recent(9)) == 2
        bot = bot.restarted()
        await bot.advance(30)
        if begun:
            assert bot.executor.live() == ()
            assert [op.state for op in bot.operations.recent(9)] == [State.CANCELLED, State.DONE]
            assert [hold.by for hold in bot.holding.live()] == ["bo"]
        await bot.advance(300)
        assert len(bot.fleet.started) == 8
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())
