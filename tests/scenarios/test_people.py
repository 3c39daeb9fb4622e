"""Who may: in which channel, over which servers, by name or by team; and every press that must not count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from inline_snapshot import snapshot

from bot.domain.audit import Act, Result
from bot.domain.facts import JobState
from bot.domain.fleet import Channel, Fleet, Grant, Person, Role, Team
from bot.runtime.roster import HOLDS
from tests.runtime.test_door import Caller, with_door
from tests.tester import Bot, first_night, talk


def shared() -> Fleet:
    """Ana may all, cleo restarts gpu4-7 in #eval, dan gpu0 everywhere, team night all in #fleet; vic looks."""
    fleet = first_night(
        people=(
            Person("ana", Role.ADMIN, ("U1",)),
            Person("cleo", ids=("U4",), grants=(Grant(Role.OPERATOR, ("eval",), ("gpu4-7",)),)),
            Person("dan", ids=("U5",), grants=(Grant(Role.OPERATOR, (), ("gpu0",)),)),
            Person("vic", Role.VIEWER, ("U3",)),
        ),
        teams=(Team("night", ("S1",), (Grant(Role.OPERATOR, ("fleet",)),)),),
        channels=(Channel("fleet", ("C1",), ("ct200",)), Channel("eval", ("C2",), ("gpu4-7",))),
    )
    return replace(fleet, jobs=(replace(fleet.jobs[0], minimum_servers=6),))


async def begin(bot: Bot) -> None:
    bot.fleet.run_all()
    bot.groups.groups = {"S1": {"U7", "U8"}}
    await bot.roster.refresh()


def whispers(bot: Bot) -> list[tuple[str | None, str]]:
    return [(post.only_for, post.text) for post in bot.chat.posts if post.only_for]


# Commands


def test_each_may_what_their_reach_covers_and_the_others_hear_alone_what_they_lack() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        assert (await bot.answer("restart gpu4 no_buffer", user="U4", channel="C2")).startswith("Restart gpu4 with")
        assert (await bot.answer("restart gpu0 no_buffer", user="U5")).startswith("Restart gpu0 with")
        assert (await bot.answer("restart gpu1 no_buffer", user="U7")).startswith("Restart gpu1 with")
        assert len(bot.questions.open()) == 3
        said = {
            ("restart gpu3,gpu4 no_buffer", "U4", "C2"),
            ("restart gpu4 no_buffer", "U4", "C1"),
            ("restart gpu1 no_buffer", "U5", "C1"),
            ("restart gpu1 no_buffer", "U7", "C2"),
            ("stop gpu1", "U3", "C1"),
            ("stop gpu1", "U9", "C1"),
        }
        for words, user, channel in sorted(said):
            await bot.answer(words, user=user, channel=channel)
            assert bot.last.only_for == user
        assert whispers(bot) == snapshot(
            [
                ("U5", "you may restart gpu0 here, but not gpu1; ask ana or team night"),
                ("U7", "you may restart in fleet, but not here; ask ana, cleo or dan"),
                ("U4", "you may restart gpu4-gpu7 here, but not gpu3; ask ana"),
                ("U4", "you may restart in eval, but not here; ask ana, dan or team night"),
                ("U3", "you may look but not stop; ask ana, dan or team night"),
                ("U9", "you may look but not stop; ask ana, dan or team night"),
            ]
        )
        assert len(bot.questions.open()) == 3
        refused = [one for one in bot.audit.recent(99) if one.result is Result.REFUSED and one.act is Act.COMMAND]
        assert len(refused) == 6

    talk(scenario, shared())


def test_a_plan_is_only_shown_to_whoever_may_not_carry_it_out() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        assert (await bot.answer("restart gpu1 no_buffer?", user="U4", channel="C2")).startswith("Restart gpu1")
        assert bot.questions.open() == ()

    talk(scenario, shared())


def test_a_job_that_would_stop_with_the_servers_is_touched_too() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart gpu4-7 no_buffer", user="U4", channel="C2")
        assert whispers(bot) == [("U4", "you may restart gpu4-gpu7 here, but not job datagen; ask ana")]
        assert (await bot.answer("restart gpu4 no_buffer", user="U4", channel="C2")).startswith("Restart gpu4 with")

    talk(scenario, shared())


def test_everything_that_changes_something_asks_for_the_right_over_what_it_touches() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.die("gpu1")
        bot.fleet.servers["gpu4"].session = "somebody"
        words = (
            "start gpu1", "stop gpu0", "canary no_buffer gpu3", "adopt gpu1,gpu4", "silence gpu3 2h", "unsilence",
            "unsilence gpu3", "ack", "job stop", "reload", "cancel", "every 10s", "quiet", "restart all --again",
        )  # fmt: skip
        await bot.answer("restart gpu0 no_buffer")
        for one in words:
            await bot.answer(one, user="U4", channel="C1", within=2)
            assert bot.last.only_for == "U4", one
        before = len(bot.chat.posts)
        for one in words:
            await bot.answer(one, user="U4", channel="C2", within=2)
        told = [post.text for post in bot.chat.posts[before:] if not post.only_for]
        assert told == snapshot(
            [
                "Not adopted: no process of gpu1 is seen.",
                "Nothing is open here: nothing to cancel.",
                "Say every 10s or every 2m while an operation runs.",
                "Nothing runs that could be quieter.",
            ]
        )
        assert bot.fleet.signalled == []
        assert bot.fleet.started == []
        assert bot.fleet.job_stops == 0
        assert len(bot.questions.open()) == 1

    talk(scenario, shared())


def test_silence_and_adopt_within_ones_reach_are_done() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        bot.fleet.servers["gpu4"].session = "somebody"
        assert (await bot.answer("silence gpu4 2h", user="U4", channel="C2")).startswith("Silent about gpu4")
        assert (await bot.answer("adopt gpu4", user="U4", channel="C2")).startswith("Adopted gpu4")

    talk(scenario, shared())


# Presses


def test_a_press_counts_by_the_right_over_what_the_question_is_about() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu4 no_buffer", channel="C2")
        for user in ("U3", "U5", "U7", "U9"):
            bot.press("Restart gpu4", user=user)
            await bot.advance(1)
        assert whispers(bot) == snapshot(
            [
                ("U3", "you may look but not restart; ask ana or cleo"),
                ("U5", "you may restart gpu0 here, but not gpu4; ask ana or cleo"),
                ("U7", "you may restart in fleet, but not here; ask ana or cleo"),
                ("U9", "you may look but not restart; ask ana or cleo"),
            ]
        )
        assert bot.fleet.signalled == []
        bot.press("Restart gpu4", user="U4")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario, shared())


def test_a_yes_typed_in_another_channel_answers_nothing_whatever_the_right() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu4 no_buffer", channel="C2")
        code = bot.questions.open()[0].code
        for user in ("U1", "U3", "U4", "U7"):
            await bot.answer(f"yes {code}", user=user, channel="C1")
        assert whispers(bot) == [
            (user, f"{code} is asked in #eval: answer it there") for user in ("U1", "U3", "U4", "U7")
        ]
        assert bot.fleet.signalled == []
        await bot.answer(f"yes {code}", user="U7", channel="C2")
        assert whispers(bot)[-1] == ("U7", "you may restart in fleet, but not here; ask ana or cleo")
        bot.say(f"yes {code}", user="U4", channel="C2")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario, shared())


def test_somebody_who_left_the_team_between_question_and_press_presses_in_vain() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu1 no_buffer", user="U7")
        bot.groups.groups["S1"] = {"U8"}
        await bot.roster.refresh()
        bot.press("Restart gpu1", user="U7")
        await bot.advance(5)
        assert whispers(bot) == [("U7", "you may look but not restart; ask ana or team night")]
        assert bot.fleet.signalled == []
        bot.press("Restart gpu1", user="U8")
        await bot.advance(10)
        assert len(bot.fleet.signalled) == 1

    talk(scenario, shared())


def test_while_slack_does_not_tell_who_is_in_the_team_the_last_known_hold_and_then_nobody() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        bot.groups.is_away = True
        await bot.roster.refresh()
        await bot.answer("restart gpu1 no_buffer", user="U7")
        assert len(bot.questions.open()) == 1
        await bot.advance(HOLDS.total_seconds() - 60)
        await bot.answer("restart gpu1 no_buffer", user="U7")
        await bot.advance(120)
        bot.press("Restart gpu1", user="U7")
        await bot.advance(5)
        assert whispers(bot) == snapshot(
            [
                (
                    "U7",
                    "you may look but not restart (who is in team night is not known: the chat can't be asked); ask ana or team night",
                )
            ]
        )
        assert bot.fleet.signalled == []

    talk(scenario, shared())


def test_a_right_that_was_taken_away_in_the_file_is_gone_at_the_press() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu0 no_buffer", user="U5")
        bot.fleet_value = replace(bot.fleet_value, people=bot.fleet_value.people[:1])
        bot.press("Restart gpu0", user="U5")
        await bot.advance(5)
        assert whispers(bot) == [("U5", "you may look but not restart; ask ana or team night")]
        assert bot.fleet.signalled == []

    talk(scenario, shared())


def test_a_job_that_began_since_voids_the_press() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu4-7 no_buffer", user="U4", channel="C2")
        bot.fleet.job_state = JobState.RUNNING
        bot.press(bot.last.buttons[0].label, user="U4")
        await bot.advance(5)
        assert "Not done: job datagen would be stopped too." in [post.text for post in bot.chat.posts]
        assert bot.fleet.signalled == []
        assert bot.fleet.job_stops == 0

    talk(scenario, shared())


def test_two_persons_counts_among_people_of_a_team_too() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu1 no_buffer", user="U7")
        bot.press("Restart gpu1", user="U7")
        await bot.advance(5)
        assert whispers(bot) == [("U7", "restart needs a second person: you asked for it yourself")]
        bot.press("Restart gpu1", user="U8")
        await bot.advance(10)
        assert len(bot.fleet.signalled) == 1

    fleet = shared()
    talk(scenario, replace(fleet, limits=replace(fleet.limits, two_persons=("restart",))))


# Ending what is open


def test_a_no_ends_what_is_ones_own_to_end_and_nothing_else() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu1 no_buffer")
        await bot.answer("restart gpu0 no_buffer", user="U5")
        assert await bot.answer("no", user="U3") == ""
        assert len(bot.questions.open()) == 2
        assert (await bot.answer("no", user="U5")).startswith("Stopped before anything was touched.")
        assert [one.plan.servers for one in bot.questions.open()] == [("gpu1",)]
        assert await bot.answer("cancel", user="U5") == "you may cancel gpu0 here, but not gpu1; ask ana or team night"
        assert bot.last.only_for == "U5"
        assert [one.plan.servers for one in bot.questions.open()] == [("gpu1",)]
        bot.press("Cancel", user="U5")
        await bot.advance(1)
        assert bot.last.only_for == "U5"
        assert len(bot.questions.open()) == 1

    talk(scenario, shared())


def test_an_operation_on_other_servers_is_not_cancelled() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu1 no_buffer")
        bot.press("Restart gpu1")
        await bot.advance(20)
        for words in ("stop", "no, wait, that is wrong", "cancel op-1", "cancel"):
            assert await bot.answer(words, user="U5") == "you may cancel gpu0 here, but not gpu1; ask ana or team night"
            assert bot.last.only_for == "U5"
        assert not bot.executor.live()[0].stopper
        await bot.answer("cancel", user="U7")
        assert bot.executor.live()[0].stopper == "U7"

    talk(scenario, shared())


def test_whoever_asked_may_take_the_question_back_though_the_right_is_gone() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu0 no_buffer", user="U5")
        people = (*bot.fleet_value.people[:1], Person("dan", Role.VIEWER, ("U5",)))
        bot.fleet_value = replace(bot.fleet_value, people=people)
        bot.press("Cancel", user="U5")
        await bot.advance(1)
        assert bot.questions.open() == ()

    talk(scenario, shared())


def test_whoever_may_not_answer_a_question_has_nothing_decided_anew_by_saying_that_it_works() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu1 no_buffer")
        bot.fleet.die("gpu1")
        assert await bot.answer("it works", user="U5") == ""
        assert len(bot.questions.open()) == 1
        assert await bot.answer("it works", user="U7") != ""
        assert bot.questions.open() == ()

    talk(scenario, shared())


def test_what_is_taken_over_with_an_operation_is_touched_too() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        await bot.answer("restart gpu0,gpu1 no_buffer")
        bot.press("Restart gpu0 and gpu1")
        await bot.advance(20)
        told = await bot.answer("steal gpu0", user="U5")
        assert told == "you may steal gpu0 here, but not gpu1; ask ana or team night"
        assert (await bot.answer("steal gpu0", user="U7")).startswith("Steal gpu0?")
        bot.press("Steal gpu0", user="U5")
        await bot.advance(1)
        assert bot.last.only_for == "U5"
        assert not bot.executor.live()[0].stopper

    talk(scenario, shared())


def test_ones_own_hold_can_be_put_and_released_within_ones_reach() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        told = await bot.answer("hold gpu1 2h", user="U5")
        assert told == "you may hold gpu0 here, but not gpu1; ask ana or team night"
        await bot.answer("hold gpu0 2h", user="U5")
        assert len(bot.holding.live()) == 1
        await bot.answer("release", user="U5")
        assert bot.holding.live() == ()

    talk(scenario, shared())


# The door


def test_the_door_asks_for_the_same_right_and_is_no_channel() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        for person in ("cleo", "vic", "dan"):
            caller = Caller()
            assert not await with_door(bot).answer("stop gpu4", person, caller.send, is_waiting=True)
            assert caller.result["ok"] is False
            assert caller.said[0].startswith("you may ")
        assert bot.questions.open() == ()
        caller = Caller()
        asking = asyncio.ensure_future(with_door(bot).answer("stop gpu0", "dan", caller.send, is_waiting=True))
        await bot.advance(5)
        assert [one.plan.servers for one in bot.questions.open()] == [("gpu0",)]
        bot.press("Stop gpu0", user="U4")
        await bot.advance(2)
        assert whispers(bot)[-1] == ("U4", "you may stop in eval, but not here; ask ana, dan or team night")
        bot.press("Stop gpu0", user="U7")
        await bot.advance(60)
        assert asking.result()

    talk(scenario, shared())


# whoami


def test_whoami_says_what_one_may_here_and_elsewhere_and_by_what() -> None:
    async def scenario(bot: Bot) -> None:
        await begin(bot)
        assert await bot.answer("whoami") == snapshot("""\
You are ana (U1)
here: admin over all servers, by people: ana\
""")
        assert await bot.answer("whoami", user="U4") == snapshot("""\
You are cleo (U4)
here: viewer, as everybody
elsewhere: operator over gpu4-gpu7 in eval, by people: cleo\
""")
        assert await bot.answer("whoami", user="U4", channel="C2") == snapshot("""\
You are cleo (U4)
here: operator over gpu4-gpu7 in eval, by people: cleo\
""")
        assert await bot.answer("whoami", user="U7") == snapshot("""\
You are nobody in the fleet file (U7)
here: operator over all servers in fleet, by team night\
""")
        assert await bot.answer("whoami", user="U3") == snapshot("""\
You are vic (U3)
here: viewer, as everybody
To change things you would have to stand in the fleet file (then reload):
  people:
    vic: {role: operator, slack: U3}\
""")

    talk(scenario, shared())


def test_whoami_tells_somebody_who_is_nobody_what_the_file_would_need() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("whoami", user="U9") == snapshot("""\
You are nobody in the fleet file (U9)
here: viewer, as everybody
who is in team night is not known: the chat can't be asked
To change things you would have to stand in the fleet file (then reload):
  people:
    yourname: {role: operator, slack: U9}\
""")
        caller = Caller()
        await with_door(bot).answer("whoami", "mallory", caller.send, is_waiting=True)
        assert caller.result["text"] == snapshot("""\
You are nobody in the fleet file (mallory)
here: viewer, as everybody
who is in team night is not known: the chat can't be asked
To change things you would have to stand in the fleet file (then reload):
  people:
    yourname: {role: operator, login: mallory}\
""")

    fleet = shared()
    talk(scenario, replace(fleet, teams=(replace(fleet.teams[0], members=None),)))


def test_with_nobody_configured_everybody_looks_and_nobody_changes_anything() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("restart no_buffer") == snapshot(
            "you may look but not restart: nobody is set up as operator (people: in the fleet file)"
        )
        assert bot.last.only_for == "U1"
        assert (await bot.answer("up?")).startswith("8/8 answering")
        assert await bot.answer("whoami") == snapshot("""\
You are nobody in the fleet file (U1)
here: viewer, as everybody
To change things you would have to stand in the fleet file (then reload):
  people:
    yourname: {role: operator, slack: U1}\
""")

    talk(scenario, first_night(people=()))
