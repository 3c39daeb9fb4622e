"""Attacks on what people hold and wish: races, rows that can't be read, clocks that jump, words that mean another time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from bot.domain.audit import sentence
from bot.domain.errors import ChatError, StoreError
from bot.domain.facts import JobState
from bot.domain.fleet import Channel, Fleet, Grant, Person, Role, Team
from bot.domain.message import Mention, Message, plain
from bot.ports import Place, Ref
from tests.jumping import JumpingClock, run
from tests.scenarios.test_holds import HOLD, whispers, with_admin
from tests.tester import Bot, PretendChat, first_night, talk


def spoil(bot: Bot, table: str, where: str = "1") -> None:
    """Make rows of a table unreadable, as a bad disk or another version would."""
    with bot.database.connection() as connection:
        connection.execute(text(f"UPDATE {table} SET value = '{{}}' WHERE {where}"))  # noqa: S608 - our own words


# Races


def test_a_hold_that_was_over_at_the_press_and_is_put_again_in_the_same_breath_is_asked_about() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2m")
        await bot.answer("restart gpu4 no_buffer", user="U2")
        await bot.advance(130)
        bot.press("Restart gpu4", user="U2")
        await bot.advance(0.02)
        bot.say("hold gpu4 2h")
        await bot.advance(20)
        assert [hold.by for hold in bot.holding.live()] == ["ana"]
        assert bot.fleet.signalled == []
        assert "ana's or an admin's press" in bot.last.text

    talk(scenario)


def test_a_bot_that_is_killed_while_it_takes_a_part_over_takes_no_more_when_it_is_back() -> None:
    hung: list[int] = []

    class Hanging(PretendChat):
        async def post(self, place: Place, message: Message) -> Ref:
            if "has taken over from you" in plain(message) and not hung:
                hung.append(1)
                await asyncio.sleep(1000)
            return await super().post(place, message)

    async def scenario() -> None:
        bot = Bot(first_night(), chat=Hanging())
        bot.fleet.run_all()
        await bot.answer(HOLD)
        await bot.answer("steal gpu4", user="U2")
        bot.press("Steal gpu4", user="U2")
        await bot.advance(5)
        assert [one.by for one in bot.holding.live()] == ["ana", "bo"]
        await bot.die()
        bot = bot.restarted()
        await bot.advance(30)
        assert {hold.by: hold.servers for hold in bot.holding.live()} == {
            "ana": ("gpu5", "gpu6", "gpu7"),
            "bo": ("gpu4",),
        }
        assert bot.executor.live() == ()
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


# Rows that can't be read


def test_a_hold_that_cant_be_read_is_somebodys_over_everything_until_an_admin_ends_it() -> None:
    async def scenario() -> None:
        bot = Bot(with_admin())
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2h")
        await bot.answer("hold gpu6 2h", user="U2")
        await bot.die()
        spoil(bot, "holds", "id = 'h-1'")
        bot = bot.restarted()
        await bot.advance(1)
        told = await bot.answer("restart gpu4 no_buffer", user="U2")
        assert "held by somebody" in told
        assert "an admin's press" in told
        bot.press("Restart gpu4", user="U2")
        await bot.advance(1)
        assert whispers(bot)[-1].text.startswith("Not yours to press")
        assert bot.fleet.signalled == []
        assert (await bot.answer("hold gpu5 2h", user="U2")).startswith("Not held: somebody else has it")
        assert "gpu6 held by bo" in await bot.answer("holds")
        assert (await bot.answer("release all", user="U4", within=2)).startswith("Released: ")
        assert await bot.answer("holds") == "Nothing is held. hold gpu3 2h why"
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


def test_one_hold_that_cant_be_read_any_more_keeps_no_other_from_being_put_or_ended() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu0 2h")
        await bot.answer("hold gpu1 2m")
        spoil(bot, "holds", "id = 'h-1'")
        await bot.advance(180)
        assert "ana's hold on gpu1 is over." in [post.text for post in bot.posts()]
        assert "gpu1 held by ana" not in await bot.answer("holds")

    talk(scenario, with_admin())


def test_wishes_that_can_be_read_are_kept_beside_one_that_cant_and_the_channel_hears_of_that() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        await bot.answer("tell me when gpu0 up")
        await bot.answer("tell me when gpu1 up", user="U2")
        await bot.die()
        spoil(bot, "wishes", "number = 1")
        bot = bot.restarted()
        await bot.advance(1)
        assert bot.last.text == "1 wish to be told can't be read any more: who has said tell me says it again."
        assert "gpu1 is up" in await bot.answer("tell me", user="U2")
        await bot.die()
        said = len(bot.chat.posts)
        bot = bot.restarted()
        await bot.advance(1)
        assert len(bot.chat.posts) == said
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


# A store that is locked or full


class Moody:
    """A store whose calls fail while it is said so."""

    def __init__(self, store: object) -> None:
        self._store = store
        self.is_locked = False

    def __getattr__(self, name: str) -> object:
        def call(*args: object) -> object:
            if self.is_locked:
                raise StoreError("database is locked")
            return getattr(self._store, name)(*args)

        return call


def test_while_holds_were_never_read_nothing_is_ended_on_a_guess() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        await bot.answer(HOLD)
        await bot.die()
        bot = bot.restarted()
        store = Moody(bot.holds)
        store.is_locked = True
        bot.holding._store = store
        bot.holding._seen = None
        bot.holding.resume()
        told = await bot.answer("restart gpu4 no_buffer", user="U2")
        assert "database is locked" in told
        assert bot.questions.open() == ()
        store.is_locked = False
        assert "ana's or an admin's press" in await bot.answer("restart gpu4 no_buffer", user="U2")
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


def test_the_end_of_a_hold_that_cant_be_written_is_told_when_it_can() -> None:
    async def scenario(bot: Bot) -> None:
        store = Moody(bot.holds)
        bot.holding._store = store
        await bot.answer("hold gpu4 2m eval")
        store.is_locked = True
        await bot.advance(300)
        assert "is over" not in bot.last.text
        assert bot.holding.live() == ()
        store.is_locked = False
        await bot.advance(120)
        assert bot.last.text == "ana's hold on gpu4 is over (eval)."

    talk(scenario)


# Clocks


class WallClock(JumpingClock):
    """A wall clock that somebody sets."""

    moved = timedelta()

    def now(self) -> datetime:
        return super().now() + self.moved


def test_a_clock_that_is_set_back_ends_no_hold_before_its_time() -> None:
    async def scenario() -> None:
        clock = WallClock()
        bot = Bot(first_night(), clock=clock)
        await bot.answer("hold gpu4 until 4:00 eval")
        clock.moved = -timedelta(minutes=30)
        await bot.advance(3700)
        assert [hold.by for hold in bot.holding.live()] == ["ana"]
        await bot.advance(1800)
        assert bot.last.text == "ana's hold on gpu4 is over (eval)."
        assert bot.holding.live() == ()
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


# Words


@pytest.mark.parametrize(
    "said",
    [
        "until 9:00 CET eval",
        "until 9:00 pst",
        "until 9:00 am",
        "9:00 pm eval",
        "until 9:00 tomorrow eval",
        "until 9:00 +02:00",
        "until 9:00 UTC+2 eval",
        "until 9:00 monday",
        "until 9:00 on friday",
        "until 2026-12-01T09:00 CET",
        "2h until 9:00",
        "until 9:00 local time",
    ],
)
def test_a_time_with_a_word_that_means_another_one_holds_nothing(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        told = await bot.answer(f"hold gpu3 {said}")
        assert told.startswith("Not held: "), told
        assert bot.holding.live() == ()

    talk(scenario)


@pytest.mark.parametrize("said", ["until 9:00 UTC eval", "9:00 utc eval", "until 9:00 eval", "until 9:00 UTC: eval"])
def test_a_time_in_utc_may_say_so(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer(f"hold gpu3 {said}") == "Held: gpu3 by ana until 09:00 UTC, in 6 h: eval"

    talk(scenario)


def test_a_date_and_a_time_are_read_as_the_bot_writes_them() -> None:
    async def scenario(bot: Bot) -> None:
        for said in ("2026-12-02 09:00 UTC eval", "2026-12-02T09:00 eval", "2026-12-02 9:00 eval"):
            told = await bot.answer(f"hold gpu3 until {said}")
            assert told == "Held: gpu3 by ana until 2026-12-02 09:00 UTC, in 2 d 6 h: eval"

    talk(scenario)


@pytest.mark.parametrize("reason", ["SFT run", "am I crazy", "monday's eval", "on call", "est. 2000 prompts"])
def test_a_reason_behind_a_span_is_any_text(reason: str) -> None:
    async def scenario(bot: Bot) -> None:
        assert (await bot.answer(f"hold gpu3 2h {reason}")).endswith(f": {reason}")

    talk(scenario)


# What is told, and how much


def night() -> Fleet:
    """Team night operates, by its user group alone."""
    fleet = first_night()
    return replace(fleet, teams=(Team("night", ("S1",), (Grant(Role.OPERATOR),)),))


def test_somebody_of_a_team_who_is_robbed_is_mentioned() -> None:
    async def scenario(bot: Bot) -> None:
        bot.groups.groups = {"S1": {"U7"}}
        await bot.roster.refresh()
        bot.fleet.run_all()
        await bot.answer("hold gpu4 2h eval", user="U7")
        await bot.answer("steal gpu4", user="U2")
        bot.press("Steal gpu4", user="U2")
        await bot.advance(3)
        told = next(post for post in bot.chat.posts if "has taken over from you" in post.text)
        assert told.message.headline[0] == Mention("U7")

    talk(scenario, night())


def test_wishes_that_come_in_one_breath_are_no_more_than_ten() -> None:
    async def scenario(bot: Bot) -> None:
        for number in range(8):
            bot.say(f"tell me when gpu{number} up")
            bot.say(f"tell me when gpu{number},gpu{(number + 1) % 8} up")
        await bot.advance(3)
        assert len(bot.promises.of("U1")) == 10

    talk(scenario)


class Archived:
    """A chat in which one channel takes nothing any more."""

    def __init__(self, bot: Bot) -> None:
        self.bot, self.tries = bot, 0

    async def post(self, place: Place, message: Message) -> Ref:
        if place.channel == "C9":
            self.tries += 1
            raise ChatError("Slack refuses: is_archived")
        return await self.bot.chat.post(place, message)


def test_a_wish_in_a_channel_that_takes_nothing_any_more_is_given_up() -> None:
    async def scenario(bot: Bot) -> None:
        chat = Archived(bot)
        bot.fleet.run_all()
        bot.fleet.die("gpu0")
        await bot.answer("tell me when gpu0 up", channel="C9", mentions=True, within=3)
        bot.fleet.run("gpu0")
        bot.promises.chat = chat  # type: ignore[assignment]
        for _ in range(26 * 60):
            bot.promises.take(await bot.executor.look(bot.fleet_value.servers))
            await bot.advance(60)
        assert bot.promises.of("U1") == ()
        assert chat.tries < 200

    talk(scenario)


def test_a_look_at_what_is_held_leaves_no_entry_in_the_audit() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("hold gpu3 2h")
        for _ in range(3):
            await bot.answer("hold")
            await bot.answer("holds")
            await bot.answer("job")
            await bot.answer("release gpu3?")
        assert [sentence(entry) for entry in bot.audit.recent(9)] == ["ana: hold gpu3 2h – done: h-1 until 05:00 UTC"]

    talk(scenario)


# Rights


def shared_gpus() -> Fleet:
    """Cleo may operate big alone, which lies over the GPUs of gpu0 and gpu1."""
    fleet = first_night()
    big = replace(fleet.server("gpu0"), name="big", port=31000, gpus=(0, 1))
    cleo = Person("cleo", ids=("U5",), grants=(Grant(Role.OPERATOR, (), ("big",)),))
    return replace(fleet, servers=(*fleet.servers, big), people=(*fleet.people, cleo))


def test_a_steal_by_way_of_a_gpu_needs_the_right_over_the_server_that_is_held() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("hold gpu0 2h eval")
        await bot.answer("steal big", user="U5")
        assert whispers(bot)[-1].text.startswith("you may steal big here, but not gpu0")
        assert bot.questions.open() == ()

    talk(scenario, shared_gpus())


def two_reaches() -> Fleet:
    """Cleo has gpu4-7 alone, dee is admin of them; all in one channel."""
    fleet = first_night()
    cleo = Person("cleo", ids=("U5",), grants=(Grant(Role.OPERATOR, (), ("gpu4-7",)),))
    dee = Person("dee", ids=("U6",), grants=(Grant(Role.ADMIN, (), ("gpu4-7",)),))
    return replace(fleet, people=(*fleet.people, cleo, dee), channels=(Channel("fleet", ("C1",), ("ct200",)),))


def test_a_question_is_not_replaced_by_somebody_who_may_not_end_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart all no_buffer", user="U2")
        await bot.answer("restart gpu4 no_buffer", user="U5")
        assert sorted(one.plan.title for one in bot.questions.open()) == [
            "Restart 8 servers · no_buffer",
            "Restart gpu4 · no_buffer",
        ]

    talk(scenario, two_reaches())


def test_an_admin_of_some_servers_is_one_over_their_holds_too() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu5"].session = "main:2"
        await bot.answer(HOLD, user="U2")
        await bot.answer("hold gpu0 2h", user="U2")
        assert await bot.answer("adopt gpu5", user="U6") == "Adopted gpu5: nothing was touched."
        assert (await bot.answer("release gpu0", user="U6")).startswith("Not released")
        assert await bot.answer("release gpu4-7", user="U6") == "Released: gpu4-gpu7."

    talk(scenario, two_reaches())


def test_the_stop_of_a_job_that_was_typed_long_ago_is_not_done() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        told = await bot.answer("job stop", ago=600, within=5)
        assert told == "That was typed 10 m ago: nothing was done. Say it again."
        assert bot.fleet.job_stops == 0

    talk(scenario)


def test_a_no_while_the_job_is_still_being_looked_at_keeps_it_running() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.say("job stop")
        await bot.advance(0.01)
        bot.say("no")
        await bot.advance(20)
        assert bot.fleet.job_stops == 0

    talk(scenario)


# Slack


def test_an_older_answer_about_a_group_that_comes_late_gives_nobody_a_right_back() -> None:
    async def scenario(bot: Bot) -> None:
        slow: list[tuple[float, frozenset[str]]] = [(30.0, frozenset({"U7"})), (0.1, frozenset())]

        class Lagging:
            async def members(self, group: str) -> frozenset[str]:
                lag, members = slow.pop(0)
                await asyncio.sleep(lag)
                return members

        bot.roster._groups = Lagging()
        first = asyncio.ensure_future(bot.roster.refresh())
        await bot.advance(1)
        await bot.roster.refresh()
        await first
        assert bot.roster.fleet().teams[0].members == frozenset()

    talk(scenario, night())


def test_an_answer_is_as_old_as_its_asking() -> None:
    async def scenario(bot: Bot) -> None:
        class Slow:
            async def members(self, group: str) -> frozenset[str]:
                await asyncio.sleep(14 * 60)
                return frozenset({"U7"})

        bot.roster._groups = Slow()
        await bot.roster.refresh()
        await bot.advance(120)
        assert bot.roster.fleet().teams[0].members is None

    talk(scenario, night())


# Two persons, and questions that can't be read


def test_with_two_persons_a_holder_who_asks_needs_an_admin_and_the_card_says_so() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer(HOLD)
        assert "asked by ana · an admin's press, not the asker's" in await bot.answer("restart gpu4 no_buffer")
        for user in ("U1", "U2"):
            bot.press("Restart gpu4", user=user)
            await bot.advance(1)
        assert bot.fleet.signalled == []
        bot.press("Restart gpu4", user="U4")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu4"]

    fleet = with_admin()
    talk(scenario, replace(fleet, limits=replace(fleet.limits, two_persons=("restart",))))


def test_a_question_that_cant_be_read_any_more_is_in_nobodys_way_and_begins_nothing() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        bot.fleet.run_all()
        await bot.answer("restart gpu4 no_buffer")
        await bot.die()
        spoil(bot, "questions")
        bot = bot.restarted()
        bot.press("Restart gpu4")
        await bot.advance(1)
        assert "can't be read" in bot.last.text
        assert bot.fleet.signalled == []
        assert (await bot.answer("restart gpu3 no_buffer")).startswith("Restart gpu3 with profile no_buffer?")
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())
