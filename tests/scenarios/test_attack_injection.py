"""Names, logs, command lines and reasons that are meant to be markup, or that hold keys: shown as text, or not at all."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text as sql
from structlog.testing import capture_logs

from bot.chats.slack.render import render
from bot.demo.workspace.blocks import problems
from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState, Process
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet
from tests.tester import Bot, first_night, talk

HOSTILE = (
    "<!channel> <@U1> <https://evil.example|click>",
    "`code` ``` *bold* _it_ ~no~ & < > &lt;!here&gt;",
    "two\nlines\r\n> quoted\n\u2028three",
    "\u202egnirts desrever\u202c \u200f\x00\x1b[31m",
    "x" * 10_000,
    "",
)


def hostile(text: str) -> Fleet:
    """A fleet in which every name that a file may hold is hostile."""
    whole = first_night()
    servers = tuple(replace(one, log=f"/var/log/{text}") for one in whole.servers[:3])
    profiles = tuple(replace(one, price=text, gain=text) for one in whole.profiles)
    return replace(whole, servers=servers, profiles=profiles)


MOMENT = re.compile(r"<!date\^\d+\^[^|<>]*\|[^<>]*>")
"""The only live markup that is the bot's own."""


def live_markup(value: Any) -> list[str]:
    """Texts in rendered blocks that Slack would take for a mention or a link."""
    if isinstance(value, dict):
        text = MOMENT.sub("", value["text"]) if value.get("type") == "mrkdwn" else ""
        here = [text] if re.search("<[!@#h]", text) else []
        return here + [found for one in value.values() for found in live_markup(one)]
    if isinstance(value, list):
        return [found for one in value for found in live_markup(one)]
    return []


@pytest.mark.parametrize("text", HOSTILE, ids=["mentions", "markup", "lines", "marks", "long", "nothing"])
def test_whatever_stands_in_names_and_logs_is_shown_as_text_in_valid_blocks(text: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.servers["gpu0"].unreachable = text
        bot.fleet.servers["gpu1"].foreign = Process(991, 5, (text, text), text, timedelta(hours=1))
        bot.fleet.servers["gpu2"].crash = Diagnosis(
            "sglang", "0.5.13", Phase.LOADING_WEIGHTS, is_crashed=True, cause=text, decisive_line=text, remedy=text
        )
        bot.fleet.servers["gpu2"].pid = None
        for words in (
            "up?",
            "status",
            "why",
            "logs gpu2",
            "profiles",
            "restart no_buffer",
            "restart gpu2",
            f"up {text}",
        ):
            await bot.answer(words, within=5, mentions=True)
        bot.fleet.servers["gpu1"].foreign = None
        bot.fleet.servers["gpu2"].fails_next = bot.fleet.servers["gpu2"].crash
        await bot.answer("start gpu2", within=120)
        await bot.answer("history", mentions=True)
        assert len(bot.chat.posts) > 8
        for post in bot.chat.posts:
            shown = render(post.message)
            assert list(problems(shown["blocks"])) == []
            assert live_markup(shown["blocks"]) == []
            assert "<!channel>" not in shown["text"]
            assert "<@U1>" not in shown["text"]

    talk(scenario, hostile(text))


KEYS = ("hunter2hunter2", "hf_AbCdEfGh12345678", "sk-abcdefgh12345678")


def with_keys() -> Fleet:
    """Servers that are launched with keys in flags and environment, by their own words and by a profile's."""
    whole = first_night()
    flags = whole.servers[0].launch.flags.merged(Flags.of({"api-key": KEYS[0]}))
    launch = replace(whole.servers[0].launch, flags=flags, env=(("HF_TOKEN", KEYS[1]),))
    servers = tuple(replace(one, launch=launch) for one in whole.servers[:2])
    profiles = tuple(replace(one, env=(("OPENAI_API_KEY", KEYS[2]),)) for one in whole.profiles)
    return replace(whole, servers=servers, profiles=profiles)


def test_keys_are_neither_told_nor_stored_nor_logged_and_the_servers_get_them() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.known |= {"--api-key"}
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer?")
        await bot.answer("restart no_buffer")
        bot.press("Restart gpu0 and gpu1")
        await bot.advance(60)
        for words in ("up?", "status", "why", "profiles", "logs gpu0", "history", "help restart"):
            await bot.answer(words)
        await bot.advance(400)
        assert [KEYS[0] in argv for _, argv in bot.fleet.started] == [True, True]
        with bot.database.connection() as connection:
            tables = [row[0] for row in connection.execute(sql("select name from sqlite_master where type = 'table'"))]
            kept = [str(tuple(row)) for one in tables for row in connection.execute(sql(f"select * from {one}"))]  # noqa: S608 - names of our own tables
        told = [post.text for post in bot.chat.posts] + [str(post.message) for post in bot.chat.posts]
        assert len(kept) > 5
        for key in KEYS:
            assert [one for one in (*told, *kept, *map(str, logs)) if key in one] == []

    with capture_logs() as logs:
        talk(scenario, with_keys())
    assert logs
