"""Scenario 7: a person's lease on servers, shown everywhere, kept over restarts, over by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from inline_snapshot import snapshot

from bot.chats.slack.render import render
from bot.demo.workspace.blocks import problems
from bot.domain.audit import sentence
from bot.domain.facts import JobState, Process
from bot.domain.fleet import Fallback, Fleet, Person, Role
from bot.domain.holds import unasked
from bot.domain.leases import Hold, claims_of
from bot.domain.message import Message
from bot.ports import Ref
from tests.jumping import run
from tests.scenarios.test_attack_injection import HOSTILE, live_markup
from tests.scenarios.test_restart import OOM
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


def test_a_hold_set_between_question_and_press_voids_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        await bot.answer(HOLD)
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert "Not done: ana holds gpu4, gpu5, gpu6 and gpu7 now." in [post.text for post in bot.posts()]
        assert "ana's or an admin's press" in bot.last.text
        assert bot.fleet.signalled == []
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert whispers(bot)[-1].text.startswith("Not yours to press")
        bot.press("Restart gpu4")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    talk(scenario)


@pytest.mark.parametrize("later", [0.0, 0.02, 0.049])
def test_a_hold_in_the_instant_of_the_press_counts_until_it_has_begun(later: float) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(later)
        bot.say(HOLD)
        await bot.advance(20)
        assert bot.fleet.signalled == []
        assert "ana's or an admin's press" in bot.last.text

    talk(scenario)


def test_what_was_pressed_before_keeps_others_from_holding_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(10)
        assert await bot.answer(HOLD) == snapshot("""\
Busy: restart by bo since 10 s, step 3 of 5 (starting 1)
[Show] [Cancel that] [Steal…]\
""")
        assert (await bot.answer("hold gpu4 2h", user="U2")).startswith("Held: gpu4 by bo")

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


def test_two_people_do_not_hold_the_same() -> None:
    async def scenario(bot: Bot) -> None:
        bot.say(HOLD)
        bot.say("hold gpu6 2h mine", user="U2")
        await bot.advance(1)
        assert bot.last.text == snapshot("""\
Not held: somebody else has it. Nothing was done.
gpu4-gpu7 held by ana since 0 s, until 09:00 UTC: eval running
[Steal…]\
""")
        assert [(hold.by, hold.servers) for hold in bot.holding.live()] == [("ana", ("gpu4", "gpu5", "gpu6", "gpu7"))]
        assert (await bot.answer("hold gpu0-3 2h", user="U2")).startswith("Held: gpu0-gpu3 by bo")

    talk(scenario)


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


def goes_back() -> Fleet:
    fleet = with_admin()
    return replace(fleet, profiles=tuple(replace(one, fallback=Fallback.AUTO) for one in fleet.profiles))


def test_going_back_by_itself_needs_no_press_of_who_pressed_before() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2h mine")
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4")
        await bot.advance(12)
        bot.fleet.servers["gpu4"].fails_next = OOM
        await bot.advance(100)
        assert [name for name, _ in bot.fleet.started] == ["gpu4", "gpu4"]

    talk(scenario, goes_back())


def test_going_back_by_itself_asks_whoever_holds_it_by_then() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer", user="U2")
        bot.press("Restart gpu4", user="U2")
        await bot.advance(12)
        bot.fleet.servers["gpu4"].fails_next = OOM
        now, claims = bot.clock.now(), claims_of(bot.fleet_value, ["gpu4"])
        # Nobody gets a hold on what another one works on; one from before the bot knew of that is possible.
        hold = Hold("h-1", ("gpu4",), claims, "ana", now, now + timedelta(hours=1))
        bot.holds.change([], [hold], now)
        await bot.advance(100)
        assert [name for name, _ in bot.fleet.started] == ["gpu4"]
        assert "gpu4 held by ana since" in bot.last.text
        assert "ana's or an admin's press" in bot.last.text

    talk(scenario, goes_back())


BAD = {
    "hold gpu3": "Until when? hold gpu3 until 9:00 why (UTC) or hold gpu3 2h. Nothing was done.",
    "hold gpu3 until": None,
    "hold gpu3 until noon": None,
    "hold gpu3 forever": None,
    "hold gpu99 2h": None,
    "hold gpu3 gpu99 2h": None,
    "hold gpu3 8d": "Not held: 8 d is too long; at most 7 d, and it can be said again. Nothing was done.",
    "hold gpu3 0m": "Not held: 03:00 UTC is over; it is 03:00 UTC now. Nothing was done.",
    "hold gpu3 until 2020-01-01": "Not held: 00:00 UTC is over; it is 03:00 UTC now. Nothing was done.",
    "hold gpu3 until 2026-13-45": None,
    "hold gpu3 " + "9999w " * 60: None,
    "hold gpu3; rm -rf / 2h": None,
    "hold $(id) 2h": None,
    "hold gpu3 2h " + "x" * 10_000: "That is too long to be a command (10013 characters).",
    "hold 2h": "Hold which? hold gpu3 2h why. Nothing was done.",
    "steal": "Steal which? steal gpu3. Nothing was done.",
    "steal gpu3": "Nobody holds gpu3: nothing to steal.",
    "release gpu3; rm -rf /": None,
}


@pytest.mark.parametrize("text", BAD)
def test_bad_words_hold_nothing_and_are_answered(text: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        told = await bot.answer(text, mentions=True)
        assert told
        assert "fault" not in told
        if (wanted := BAD[text]) is not None:
            assert told == wanted
        assert bot.holding.live() == ()
        assert bot.questions.open() == ()

    talk(scenario)


def test_a_reason_is_text_without_keys_and_of_bounded_length() -> None:
    async def scenario(bot: Bot) -> None:
        reason = "<!channel> `x` $(id) api_key=sk-abcdef0123456789 " + "y" * 300
        await bot.answer(f"hold gpu3 2h {reason}")
        (hold,) = bot.holding.live()
        assert len(hold.reason) <= 200
        assert "sk-abcdef" not in hold.reason
        assert "sk-abcdef" not in await bot.answer("status")
        assert hold.reason.startswith("<!channel> `x` $(id) api_key=*** yyy")

    talk(scenario)


@pytest.mark.parametrize("text", HOSTILE, ids=["mentions", "markup", "lines", "marks", "long", "nothing"])
def test_a_hostile_reason_is_shown_as_text_in_valid_blocks(text: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for words in (f"hold gpu3 2h {text[:300]}", "holds", "status", "restart gpu3", "adopt gpu3", "steal gpu3"):
            await bot.answer(words, user="U1" if words.startswith("hold") else "U2")
        await bot.advance(2 * 3600)
        assert bot.last.text.startswith("ana's hold on gpu3 is over")
        for post in bot.chat.posts:
            shown = render(post.message)
            assert list(problems(shown["blocks"])) == []
            assert live_markup(shown["blocks"]) == []
            assert "<!channel>" not in shown["text"]

    talk(scenario)


def test_a_cancel_while_a_step_is_being_shown_keeps_it_from_beginning() -> None:
    """The chat takes its time to show the step; whoever says stop meanwhile has stopped it."""

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        edit = bot.chat.edit

        async def slow(ref: Ref, message: Message) -> None:
            await bot.advance(2)
            await edit(ref, message)

        await bot.answer("restart gpu4 no_buffer")
        bot.chat.edit = slow  # type: ignore[method-assign]
        bot.press("Restart gpu4")
        await bot.advance(3)
        bot.say("stop")
        await bot.advance(30)
        assert bot.fleet.signalled == []
        assert bot.last.text.startswith("Stopped before anything was touched.")

    talk(scenario)


def test_a_hold_between_the_decision_and_the_beginning_keeps_it_from_beginning() -> None:
    """A dead server needs no press; the sign on the message takes its time, and the hold comes meanwhile."""

    async def scenario(bot: Bot) -> None:
        react = bot.chat.react

        async def slow(ref: Ref, sign: str, *, on: bool = True) -> None:
            await bot.advance(2)
            await react(ref, sign, on=on)

        bot.chat.react = slow  # type: ignore[method-assign]
        bot.say("start gpu4", user="U2")
        await bot.advance(1)
        bot.chat.react = react  # type: ignore[method-assign]
        bot.say("hold gpu4 2h")
        await bot.advance(5)
        assert bot.last.text == "ana holds gpu4 now: nothing was done. Say it again"
        assert bot.fleet.started == []

    talk(scenario)


SAID = (
    *("hold gpu3 10m", "hold gpu2-4 5m why", "hold gpu5 1m", "release", "release gpu3", "steal gpu3", "steal gpu2-5"),
    *("restart gpu3 no_buffer --again", "restart gpu2-5 --again", "stop gpu4", "start gpu4", "start all"),
)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_people_do_nothing_begins_on_what_another_one_holds(seed: int) -> None:
    """Who began an operation held all that it touches, or is an admin; whatever was set by the instant it began."""
    random = Random(seed)  # noqa: S311 - the same nights in every run
    held: dict[datetime, tuple[Hold, ...]] = {}

    async def scenario(bot: Bot) -> None:
        live = bot.executor.holds

        def spying() -> tuple[Hold, ...]:
            held[bot.clock.now()] = tuple(live())
            return held[bot.clock.now()]

        bot.executor.holds = spying
        bot.fleet.run_all()
        for _ in range(120):
            user = random.choice(("U1", "U2", "U4"))
            cards = [post for post in bot.posts() if post.buttons]
            if cards and random.random() < 0.5:
                card = random.choice(cards[-3:])
                bot.press(card.buttons[0].label, user=user, post=card)
            else:
                bot.say(random.choice(SAID), user=user)
            await bot.advance(random.choice((0.0, 0.03, 0.2, 3.0, 20.0, 90.0)))
        await bot.advance(600)
        began = [op for op in bot.operations.recent(99) if op.plan.verb != "steal"]
        for op in began:
            assert unasked(op.plan, bot.fleet_value, held[op.started_at]) is None
            assert op.by == "dee" or all(hold.by == op.by for hold in op.plan.held)
        assert bot.executor.live() == ()
        holds = bot.holding.live()
        assert len([name for hold in holds for name in hold.servers]) == len(
            {n for hold in holds for n in hold.servers}
        )

    talk(scenario, with_admin())


def test_the_audit_has_it_all() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu3 1m eval")
        await bot.answer("hold gpu4 1h")
        await bot.answer("hold gpu4 1h", user="U2")
        await bot.answer("release gpu4")
        await bot.advance(60)
        assert [sentence(entry) for entry in bot.audit.recent(9)] == snapshot(
            [
                "ana: hold gpu3 1m eval – done: h-1 until 03:01 UTC",
                "ana: hold gpu4 1h – done: h-2 until 04:00 UTC",
                "bo: hold gpu4 1h – refused: Not held: somebody else has it. Nothing was done.",
                "ana: release gpu4 – done: released gpu4",
                "h-1 hold by ana – done: its time was over",
            ]
        )
        bot.audit.is_full = True
        assert (await bot.answer("hold gpu5 1h")).startswith("Not done: the state in upbot.db can't be read or written")
        assert bot.holding.live() == ()

    talk(scenario)
