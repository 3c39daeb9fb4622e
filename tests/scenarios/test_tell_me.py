"""`tell me when …`: mentioned once when it is so, also for starts made by hand, over restarts, and never for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from inline_snapshot import snapshot

from bot.domain.errors import ChatError
from bot.domain.facts import JobState
from bot.domain.message import Mention, Message
from bot.ports import Place, Ref
from tests.jumping import run
from tests.runtime.test_door import Caller, with_door
from tests.tester import Bot, Post, PretendChat, first_night, talk


def mentions(bot: Bot) -> list[Post]:
    """The messages that page somebody."""
    return [post for post in bot.chat.posts if any(isinstance(part, Mention) for part in post.message.headline)]


async def settle(bot: Bot) -> None:
    """A few looks of the watcher."""
    await bot.watch(0.25)


def test_it_is_told_once_by_name_when_a_server_that_was_started_by_hand_is_up() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("tell me when gpu3 up") == snapshot(
            "You will be told here when gpu3 is up, within 1 d."
        )
        await settle(bot)
        bot.fleet.run("gpu3", age=timedelta())
        await bot.watch(1)
        assert mentions(bot) == []
        await bot.watch(1)
        assert [post.text for post in mentions(bot)] == ["@U1 gpu3 is up"]
        assert mentions(bot)[0].message.headline[0] == Mention("U1")
        assert 74 < mentions(bot)[0].at - 16 < 74 + 7
        await bot.watch(1)
        assert len(mentions(bot)) == 1
        assert await bot.answer("tell me") == "You wait for nothing. Say tell me when up."

    talk(scenario)


def test_without_a_server_the_channels_are_meant_and_all_of_them() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu5")
        assert await bot.answer("tell me when up", thread="t1") == snapshot(
            "You will be told here when all 8 are up, within 1 d."
        )
        await settle(bot)
        assert mentions(bot) == []
        bot.fleet.run("gpu5")
        await settle(bot)
        assert [(post.text, post.ref.thread) for post in mentions(bot)] == [("@U1 all 8 are up", "t1")]

    talk(scenario)


def test_what_is_so_already_is_said_at_once() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu5")
        assert await bot.answer("tell me when gpu3 up") == "It is so already: gpu3 is up."
        assert await bot.answer("tell me when gpu5 down") == "It is so already: gpu5 is down: no process."
        bot.fleet.job_state = JobState.DONE
        assert await bot.answer("tell me when done") == "It is so already: job datagen is done: 61,204."
        await settle(bot)
        assert mentions(bot) == []

    talk(scenario)


def test_down_is_told_of_the_first_and_says_why() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("tell me when gpu2-5 down") == snapshot(
            "You will be told here when one of gpu2-gpu5 is down, within 1 d."
        )
        bot.fleet.servers["gpu4"].unreachable = "ssh ct200 timed out after 3 s"
        await settle(bot)
        assert mentions(bot) == []
        bot.fleet.die("gpu3", exit_status=1)
        await settle(bot)
        assert [post.text for post in mentions(bot)] == ["@U1 gpu3 is crashed: exit status 1"]

    talk(scenario)


def test_up_during_a_restart_means_the_new_servers() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(0.2)
        assert (await bot.answer("tell me when gpu3 up", user="U3")).startswith("You will be told here")
        await bot.watch(1)
        assert mentions(bot) == []
        await bot.watch(1)
        assert [post.text for post in mentions(bot)] == ["@U3 gpu3 is up"]

    talk(scenario)


def test_done_means_the_operation_that_runs_else_the_job() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        assert await bot.answer("tell me when done", user="U2") == snapshot(
            "You will be told here when job datagen is done, within 1 d."
        )
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(10)
        assert await bot.answer("tell me when done") == snapshot(
            "You will be told here when Restart gpu3 · no_buffer (op-1) is over, within 1 d."
        )
        assert await bot.answer("tell me when job done") == snapshot(
            "You will be told here when job datagen is done, within 1 d."
        )
        assert await bot.answer("tell me") == snapshot("""\
You will be told when:
Restart gpu3 · no_buffer (op-1) is over · for another 1 d
job datagen is done · for another 1 d\
""")
        await bot.watch(3)
        assert [post.text for post in mentions(bot)] == snapshot(
            ["@U1 Restart gpu3 · no_buffer (op-1): done after 1 m 23 s"]
        )
        bot.fleet.job_state = JobState.DONE
        await settle(bot)
        assert [post.text for post in mentions(bot)][1:] == snapshot(
            ["@U2 job datagen is done: 61,492", "@U1 job datagen is done: 61,492"]
        )

    talk(scenario)


def test_an_operation_that_failed_or_was_cancelled_is_over_too() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(20)
        await bot.answer("tell me when the restart is done")
        await bot.answer("cancel")
        await bot.watch(3)
        assert [post.text for post in mentions(bot)] == snapshot(
            ["@U1 Restart gpu3 · no_buffer (op-1): cancelled after 1 m 23 s"]
        )

    talk(scenario)


def test_it_can_be_listed_and_taken_back() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("tell me when gpu3 down")
        await bot.answer("notify me when gpu4 down")
        await bot.answer("tell me when gpu5 down", user="U2")
        assert await bot.answer("tell me when gpu3 down") == snapshot(
            "You will be told when gpu3 is down; that stands already."
        )
        assert await bot.answer("ping me") == snapshot("""\
You will be told when:
gpu3 is down · for another 1 d
gpu4 is down · for another 1 d\
""")
        assert await bot.answer("tell me nothing") == "You will not be told of 2 things any more."
        assert await bot.answer("forget") == "You waited for nothing."
        for name in ("gpu3", "gpu4", "gpu5"):
            bot.fleet.die(name)
        await settle(bot)
        assert [post.text for post in mentions(bot)] == ["@U2 gpu5 is down: no process"]

    talk(scenario)


def test_it_is_remembered_over_a_restart_of_the_bot_and_given_up_after_a_day() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("tell me when gpu3 up")
        await bot.answer("tell me when gpu4 up", user="U2")
        await bot.die()
        again = bot.restarted()
        again.fleet.run("gpu3")
        await settle(again)
        assert [post.text for post in mentions(again)] == ["@U1 gpu3 is up"]
        await again.advance(24 * 3600)
        await settle(again)
        assert [post.text for post in mentions(again)][1:] == snapshot(
            ["@U2 not so within 1 d: gpu4 is up. I stop waiting; tell me when … begins anew."]
        )
        await settle(again)
        assert len(mentions(again)) == 2
        assert again.promises.store.all() == ((), ())
        await again.tasks.close()

    talk(scenario)


def test_ten_at_once_are_enough_for_one_person() -> None:
    async def scenario(bot: Bot) -> None:
        for n in range(8):
            await bot.answer(f"tell me when gpu{n} up")
        await bot.answer("tell me when gpu0,gpu1 up")
        await bot.answer("tell me when done")
        assert await bot.answer("tell me when gpu0,gpu2 up") == snapshot(
            "You wait for 10 things already: tell me nothing takes them back."
        )
        assert (await bot.answer("tell me when gpu0 up", user="U2")).startswith("You will be told")

    talk(scenario)


def test_a_server_that_leaves_the_fleet_file_is_waited_for_no_longer() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("tell me when gpu7 up")
        bot.fleet_value = replace(bot.fleet_value, servers=bot.fleet_value.servers[:7])
        await settle(bot)
        assert [post.text for post in mentions(bot)] == snapshot(
            ["@U1 gpu7 is not in the fleet file any more: I stop waiting for it."]
        )

    talk(scenario)


class AwayChat(PretendChat):
    """A chat that refuses what pages somebody, as long as it is away."""

    is_away = True

    async def post(self, place: Place, message: Message) -> Ref:
        if self.is_away and any(isinstance(part, Mention) for part in message.headline):
            raise ChatError("Slack refused it")
        return await super().post(place, message)


def test_what_the_chat_did_not_take_is_told_when_it_does_and_once() -> None:
    async def whole() -> None:
        chat = AwayChat()
        bot = Bot(first_night(), chat=chat)
        await bot.answer("tell me when gpu3 up")
        bot.fleet.run("gpu3")
        await settle(bot)
        assert mentions(bot) == []
        chat.is_away = False
        await settle(bot)
        await settle(bot)
        assert [post.text for post in mentions(bot)] == ["@U1 gpu3 is up"]
        await bot.tasks.close()

    run(whole())


@pytest.mark.parametrize(
    "words",
    [
        "tell me about it", "tell me when you're done", "tell bo that gpu3 is down", "tell me when he is back", "tell",
        "tell me when lunch is ready", "tell me when <!channel> up", "well done", "tell them gpu3 is up", "forget it", "ping", "ping bo", "can you tell me when it is up",
    ],
)  # fmt: skip
def test_what_people_say_to_each_other_is_not_answered(words: str) -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer(words) == ""

    talk(scenario)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tell me when gpu33 up", "I don't know gpu33. Did you mean gpu3? Nothing was done."),
        ("tell me when it's up", "You will be told here when all 8 are up, within 1 d."),
        ("tell me when the servers are ready again", "You will be told here when all 8 are up, within 1 d."),
        ("tell me once 30003 is back", "You will be told here when gpu3 is up, within 1 d."),
        ("tell me when gpu3", "When what? Say tell me when gpu3 up, down or done."),
        ("tell me when up down", "When what? Say tell me when gpu3 up, down or done."),
        ("tell me when datagen done", "You will be told here when job datagen is done, within 1 d."),
        ("tell me when server9 up", "I don't know server9. Usage: tell me [when] [servers] up|down|done|nothing. Nothing was done."),
    ],
)  # fmt: skip
def test_what_is_meant_for_the_bot_is_understood_or_answered(words: str, said: str) -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer(words) == said

    talk(scenario)


def test_addressed_by_name_the_bot_says_what_it_does_not_know() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("tell me when lunch is ready", mentions=True) == snapshot(
            "I don't know lunch. Usage: tell me [when] [servers] up|down|done|nothing. Nothing was done."
        )
        assert await bot.answer("tell", mentions=True) == snapshot(
            "I don't know tell. Usage: tell me [when] [servers] up|down|done|nothing. Nothing was done."
        )

    talk(scenario)


def test_through_the_door_the_caller_waits_and_is_told() -> None:
    async def scenario(bot: Bot) -> None:
        caller = Caller()
        asking = asyncio.ensure_future(
            with_door(bot).answer("tell me when gpu3 up", "ana", caller.send, is_waiting=True)
        )
        await bot.watch(1)
        assert not asking.done()
        bot.fleet.run("gpu3")
        await bot.watch(0.2)
        assert asking.result()
        assert caller.said == ["You will be told here when gpu3 is up, within 1 d.", "@ana gpu3 is up"]
        assert mentions(bot) == []

    talk(scenario)


def test_a_caller_who_waits_in_vain_or_goes_away_leaves_nothing_behind() -> None:
    async def scenario(bot: Bot) -> None:
        door, vain, gone, hasty = with_door(bot), Caller(), Caller(), Caller()
        waiting = asyncio.ensure_future(door.answer("tell me when gpu3 up", "ana", vain.send, is_waiting=True))
        leaving = asyncio.ensure_future(door.answer("tell me when gpu4 up", "ana", gone.send, is_waiting=True))
        assert not await door.answer("tell me when gpu5 up", "ana", hasty.send, is_waiting=False)
        assert hasty.said[-1] == "Who does not wait is not told: it is forgotten."
        await bot.advance(2)
        leaving.cancel()
        await bot.advance(1)
        assert [one.goal.servers for one in bot.promises.store.all()[0]] == [("gpu3",)]
        await bot.advance(24 * 3600)
        await settle(bot)
        await bot.advance(1)
        assert not waiting.result()
        assert vain.said[-1] == snapshot(
            "@ana not so within 1 d: gpu3 is up. I stop waiting; tell me when … begins anew."
        )
        assert bot.promises.store.all() == ((), ())

    talk(scenario)


def test_a_caller_who_waited_when_the_bot_ended_is_forgotten() -> None:
    async def scenario(bot: Bot) -> None:
        caller = Caller()
        asking = asyncio.ensure_future(
            with_door(bot).answer("tell me when gpu3 up", "ana", caller.send, is_waiting=True)
        )
        await bot.advance(2)
        again = bot.restarted()
        assert again.promises.store.all() == ((), ())
        asking.cancel()
        await again.tasks.close()

    talk(scenario)


def test_without_a_running_bot_the_caller_is_looked_for_until_it_is_so() -> None:
    async def scenario(bot: Bot) -> None:
        caller = Caller()
        bot.fleet.run("gpu3", age=timedelta())
        begun = bot.clock.now()
        assert await with_door(bot).answer_alone("tell me when gpu3 up", "ana", caller.send, may_confirm=False)
        assert caller.said[-1] == "@ana gpu3 is up"
        assert timedelta(seconds=70) < bot.clock.now() - begun < timedelta(seconds=80)

    talk(scenario)
