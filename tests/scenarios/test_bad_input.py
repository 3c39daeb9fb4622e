"""Bad input and bad luck: each has its clear answer, and nothing is lost or run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from bot.domain.errors import ConfigError, StoreError
from tests.tester import Bot, first_night, talk

HOSTILE = (
    "restart gpu3; rm -rf /",
    "logs gpu0 $(id)",
    "restart `id`",
    "up? '; DROP TABLE operations; --",
    "restart gpu3 && reboot",
    "logs gpu0\x00\x1b[31m",
    "restart \u202egpu3",
    "stop gpu3|cat",
    "restart <!channel>",
    "restart gpu" + "9" * 300,
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_run_nothing_and_are_answered(text: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        told = await bot.answer(text, within=5)
        assert told == "" or "Nothing was done." in told
        assert bot.fleet.signalled == []
        assert bot.fleet.started == []
        assert bot.desk.open_in("C1") == ()

    talk(scenario)


def test_an_unreachable_host_is_not_touched_and_says_which_hop() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for one in bot.fleet.servers.values():
            one.unreachable = "container 200 is stopped"
        assert await bot.answer("restart no_buffer") == "Can't restart: container 200 is stopped. Nothing was touched."

    talk(scenario)


def test_while_it_looks_longer_than_a_second_it_shows_that_it_heard() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu7"].is_silent = True
        bot.say("restart gpu3 no_buffer")
        await bot.advance(1)
        assert bot.chat.signs == [("h1", "eyes", True)]
        await bot.advance(4)
        assert bot.chat.signs == [("h1", "eyes", True), ("h1", "eyes", False)]
        assert bot.last.text.startswith("Restart gpu3 with profile no_buffer?")

    talk(scenario)


def test_a_wrong_fleet_file_changes_nothing_and_says_why() -> None:
    async def scenario(bot: Bot) -> None:
        async def wrong() -> str:
            raise ConfigError("did you mean 'port'?", file="fleet.yaml", line=7, key="servers.gpu0.prot")

        bot.reloaded = wrong
        assert (
            await bot.answer("reload")
            == "The fleet file is wrong: fleet.yaml:7: servers.gpu0.prot: did you mean 'port'?"
        )

    talk(scenario)


def test_with_nobody_configured_the_bot_is_read_only_and_says_how_to_change_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("restart no_buffer") == snapshot(
            "you may look but not restart: nobody is set up as operator (people: in the fleet file)"
        )
        assert (await bot.answer("up?", within=3)).startswith("8/8")

    talk(scenario, replace(first_night(), people=()))


def test_with_two_persons_the_asker_cannot_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers", user="U1")
        await bot.advance(1)
        assert (bot.last.only_for, bot.last.text) == snapshot(
            ("U1", "restart needs a second person: you asked for it yourself")
        )
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(10)
        assert len(bot.fleet.signalled) == 8

    fleet = first_night()
    talk(scenario, replace(fleet, limits=replace(fleet.limits, two_persons=("restart",))))


def test_when_the_state_cannot_be_written_nothing_is_destroyed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()

        def full(_: object) -> None:
            raise StoreError("the state in upbot.db can't be written: disk full")

        bot.executor._store.save = full  # type: ignore[method-assign]
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(10)
        assert bot.last.text == "Not done: the state in upbot.db can't be written: disk full"
        assert bot.fleet.signalled == []
        assert (await bot.answer("up?", within=3)).startswith("8/8")

    talk(scenario)


def test_a_fault_in_a_handler_is_an_answer() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu3"].argv = ()
        bot.dispatcher._gatherer.engines["sglang"] = None  # type: ignore[index]
        told = await bot.answer("restart no_buffer")
        assert told.startswith("That is a fault of mine: AttributeError")

    talk(scenario)
