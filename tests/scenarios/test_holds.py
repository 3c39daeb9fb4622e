"""Scenario 7: a person's lease on servers, shown everywhere, kept over restarts, over by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.facts import JobState, Process
from bot.domain.fleet import Fleet, Person, Role
from tests.jumping import run
from tests.tester import Bot, Post, first_night, talk

HOLD = "hold gpu4-7 until 9:00 eval running"


def with_admin() -> Fleet:
    """The first night's fleet, and dee who may everything."""
    fleet = first_night()
    return replace(fleet, people=(*fleet.people, Person("dee", Role.ADMIN, ("U4",))))


def whispers(bot: Bot) -> list[Post]:
    return [post for post in bot.chat.posts if post.only_for]


def test_a_hold_is_answered_and_shown_in_status_and_by_hold_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer(HOLD) == snapshot("Held: gpu4-gpu7 by ana until 09:00 UTC, in 6 h: eval running")
        await bot.advance(719)
        assert (await bot.answer("status", user="U3")).splitlines()[-1] == snapshot(
            "gpu4-gpu7 held by ana since 12 m, until 09:00 UTC: eval running"
        )
        assert await bot.answer("hold", user="U2") == snapshot("""\
1 hold
gpu4-gpu7 held by ana since 12 m 1 s, until 09:00 UTC: eval running\
""")
        assert (await bot.answer("holds", user="U3")).startswith("1 hold\ngpu4-gpu7 held by ana since 12 m")
        assert await bot.answer("hold gpu3 2h", user="U3") == "you may look but not hold; ask ana or bo"

    talk(scenario)


def test_the_question_names_the_hold_and_only_its_holder_or_an_admin_may_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer(HOLD)
        await bot.answer("restart gpu4 no_buffer", user="U2")
        card = bot.last
        lines = card.text.splitlines()
        assert [*lines[:2], *lines[-2:]] == [
            "Restart gpu4 with profile no_buffer?",
            "gpu4-gpu7 held by ana since 1 s, until 09:00 UTC: eval running",
            "[Restart gpu4] [Cancel]",
            "asked by bo · ana's or an admin's press, or yes 4283 · 5 m left",
        ]
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert [(post.only_for, post.text) for post in whispers(bot)] == snapshot(
            [
                (
                    "U2",
                    """\
Not yours to press: ana or an admin may.
gpu4-gpu7 held by ana since 2 s, until 09:00 UTC: eval running
[Steal…]\
""",
                )
            ]
        )
        assert bot.fleet.signalled == []
        assert len(bot.questions.open()) == 1
        code = bot.questions.open()[0].code
        bot.say(f"yes {code}", user="U2")
        await bot.advance(1)
        assert len(whispers(bot)) == 2
        bot.press("Restart gpu4", user="U4", post=card)
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario, with_admin())


def test_what_needs_no_press_elsewhere_needs_the_holders_when_held() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer(HOLD)
        assert await bot.answer("start gpu4", user="U2") == snapshot("""\
Start gpu4?
gpu4-gpu7 held by ana since 1 s, until 09:00 UTC: eval running
[Start gpu4] [Cancel]
asked by bo · ana's or an admin's press, or yes 4283 · 5 m left\
""")
        bot.press("Start gpu4", user="U2")
        await bot.advance(1)
        assert whispers(bot)[-1].text.startswith("Not yours to press: ana or an admin may.")
        assert bot.fleet.started == []
        bot.press("Start gpu4")
        await bot.advance(5)
        assert [name for name, _ in bot.fleet.started] == ["gpu4"]
        await bot.answer("start gpu3", user="U2", within=5)
        assert [name for name, _ in bot.fleet.started] == ["gpu4", "gpu3"]

    talk(scenario)


def test_each_command_that_touches_a_held_server_asks_its_holder() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer(HOLD)
        bot.fleet.die("gpu7")
        held = "held by ana since"
        for words in ("restart all", "restart gpu7", "stop gpu5", "start gpu7", "canary no_buffer gpu6", "job stop"):
            told = await bot.answer(words, user="U2")
            assert held in told, words
            assert "ana's or an admin's press" in told, words
        for words in ("restart gpu4?", "stop gpu5?", "start gpu7?"):
            assert held in await bot.answer(words, user="U2"), words
        assert "held by" not in await bot.answer("restart gpu3", user="U2")
        assert bot.fleet.signalled == []
        assert bot.fleet.started == []
        assert bot.fleet.job_stops == 0

    talk(scenario)


def test_a_foreign_process_on_a_held_server_is_ended_by_its_holders_press_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu3 2h debugging")
        bot.fleet.die("gpu3")
        bot.fleet.servers["gpu3"].foreign = Process(991, 5, ("python3", "train.py"), "bo", timedelta(hours=1))
        assert await bot.answer("kill 991", user="U2") == snapshot("""\
Kill pid 991 on ct200?
gpu3 held by ana since 1 s, until 05:00 UTC: debugging
port 30003 is held, 1 h old: python3 train.py
it is no server of this fleet
[Kill 991] [Cancel]
asked by bo · ana's or an admin's press, or yes 4283 · 5 m left\
""")
        bot.press("Kill 991", user="U2")
        await bot.advance(1)
        assert bot.fleet.signalled == []
        bot.press("Kill 991")
        await bot.advance(5)
        assert [pid for _, pid, _ in bot.fleet.signalled] == [991]

    talk(scenario)


def test_a_foreign_process_on_two_servers_gpus_needs_the_holder_of_either() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2h debugging")
        for name in ("gpu3", "gpu4"):
            bot.fleet.die(name)
            bot.fleet.servers[name].foreign = Process(991, 5, ("python3", "train.py"), "bo", timedelta(hours=1))
        assert "gpu4 held by ana since" in await bot.answer("kill 991", user="U2")

    talk(scenario)


def test_adopting_a_held_server_is_its_holders_word() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu3"].session = "main:2"
        await bot.answer("hold gpu3 2h")
        assert await bot.answer("adopt gpu3", user="U2") == snapshot("""\
Not adopted: ana or an admin may say it.
gpu3 held by ana since 1 s, until 05:00 UTC
[Steal…]\
""")
        assert not bot.fleet.servers["gpu3"].is_adopted
        assert await bot.answer("adopt gpu3") == "Adopted gpu3: nothing was touched."

    talk(scenario)


def test_a_refusal_about_held_servers_names_the_holder() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer(HOLD)
        for one in bot.fleet.servers.values():
            one.unreachable = "container 200 is stopped"
        assert await bot.answer("restart gpu5", user="U2") == snapshot("""\
Can't restart: container 200 is stopped. Nothing was touched.
gpu4-gpu7 held by ana since 1 s, until 09:00 UTC: eval running\
""")
        assert "held by" not in await bot.answer("restart gpu0", user="U2")

    talk(scenario)


def test_it_is_over_by_itself_and_said_in_one_line() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4-7 for 30m eval running")
        before = len(bot.chat.posts)
        await bot.advance(1799)
        assert [post.text for post in bot.chat.posts[before:]] == ["ana's hold on gpu4-gpu7 is over (eval running)."]
        assert await bot.answer("hold") == "Nothing is held. hold gpu3 2h why"
        assert "held by" not in await bot.answer("restart gpu4", user="U2")

    talk(scenario)


def test_a_press_after_its_end_is_anybodys_who_may() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2m")
        await bot.answer("restart gpu4 no_buffer", user="U2")
        await bot.advance(130)
        bot.press("Restart gpu4", user="U2")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario)


def test_it_outlives_the_bot_and_one_whose_time_came_meanwhile_is_told() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        await bot.answer(HOLD)
        await bot.answer("hold gpu0 1m", user="U2")
        await bot.die()
        await bot.advance(120)
        bot = bot.restarted()
        await bot.advance(1)
        assert bot.last.text == "bo's hold on gpu0 is over."
        assert "gpu4-gpu7 held by ana since 2 m 3 s, until 09:00 UTC: eval running" in await bot.answer("holds")
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert whispers(bot)[-1].text.startswith("Not yours to press")
        before = len(bot.chat.posts)
        await bot.advance(6 * 3600)
        assert [post.text for post in bot.chat.posts[before:] if "hold" in post.text] == [
            "ana's hold on gpu4-gpu7 is over (eval running)."
        ]
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


def test_ones_own_is_held_longer_or_in_part_and_released_in_part() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer(HOLD)
        await bot.answer("hold gpu6 12h longer")
        assert [(hold.id, hold.servers) for hold in bot.holding.live()] == [
            ("h-1", ("gpu4", "gpu5", "gpu7")),
            ("h-2", ("gpu6",)),
        ]
        assert await bot.answer("release gpu4?") == "This would release gpu4: nothing was done."
        assert await bot.answer("release gpu4") == "Released: gpu4."
        assert [hold.servers for hold in bot.holding.live()] == [("gpu5", "gpu7"), ("gpu6",)]
        assert await bot.answer("unhold") == "Released: gpu5-gpu7."
        assert await bot.answer("release") == "You hold nothing."
        assert await bot.answer("release gpu4") == "Nobody holds gpu4: nothing to release."
        before = len(bot.chat.posts)
        await bot.advance(24 * 3600)
        assert bot.chat.posts[before:] == []

    talk(scenario)


def test_others_holds_are_released_by_an_admin_alone() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer(HOLD)
        assert await bot.answer("release gpu4", user="U2") == snapshot("""\
Not released: who holds it or an admin may; steal gpu4 takes it over. Nothing was done.
gpu4-gpu7 held by ana since 1 s, until 09:00 UTC: eval running\
""")
        assert await bot.answer("release", user="U4") == "You hold nothing."
        assert await bot.answer("release gpu4-7", user="U4") == "Released: gpu4-gpu7."

    talk(scenario, with_admin())
