"""Holds in bad words, in foreign text and in the audit: nothing is held by a slip, and nothing is shown but text."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from bot.chats.slack.render import render
from bot.demo.workspace.blocks import problems
from bot.domain.audit import sentence
from tests.scenarios.test_attack_injection import HOSTILE, live_markup
from tests.tester import Bot, talk

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
