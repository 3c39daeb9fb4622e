"""HTTP mode: Slack calls us, and what is not signed by Slack is not heard."""

import asyncio
import hashlib
import hmac
import json
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

import aiohttp
import pytest

from bot.chats.slack import Pace, Slack, SlackSettings
from bot.domain.errors import ConfigError
from bot.domain.message import says
from bot.ports import Place

SECRET = "a-signing-secret"


@asynccontextmanager
async def served(it, **changes):
    settings = SlackSettings(
        it.workspace.bot_token, signing_secret=SECRET, base_url=it.workspace.api_url, listen_port=0
    )
    slack = Slack(replace(settings, **changes), it.memory, it.clock)
    await slack.start(it.listener)
    try:
        yield slack
    finally:
        await slack.stop()


async def call(slack, body, content_type="application/json", secret=SECRET, at=None):
    stamp = str(int(at or time.time()))
    digest = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    headers = {"Content-Type": content_type, "X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}
    async with aiohttp.ClientSession() as session, session.post(slack.address, data=body, headers=headers) as answer:
        return answer.status, await answer.text()


def event(ts="1796039900.250000", **inside):
    given = {"type": "message", "channel": "C0FLEET", "user": "U0ANA", "text": "up?", "ts": ts, **inside}
    return json.dumps({"type": "event_callback", "event_id": f"E{ts}", "event": given})


def test_signed_events_and_presses_are_heard_and_answers_go_out(stage):
    async def scenario():
        async with stage() as it, served(it) as slack:
            assert slack.is_connected
            assert slack.connected_since is not None
            assert (await call(slack, event()))[0] == 200
            assert (await call(slack, event()))[0] == 200
            press = {
                "type": "block_actions",
                "user": {"id": "U0BO"},
                "channel": {"id": "C0FLEET"},
                "container": {"message_ts": "7.1"},
                "actions": [{"type": "button", "action_id": "go", "value": "ab12:go", "action_ts": "8.1"}],
            }
            body = urlencode({"payload": json.dumps(press)})
            assert (await call(slack, body, "application/x-www-form-urlencoded"))[0] == 200
            await it.until(lambda: it.listener.heard_ and it.listener.pressed_)
            assert it.listener.words == ["up?"]
            assert [one.does for one in it.listener.pressed_] == ["ab12:go"]
            await slack.post(Place("C0FLEET"), says("8/8"))
            assert it.texts == ["8/8"]
            assert not it.unacknowledged

    asyncio.run(scenario())


def test_slacks_question_whether_the_address_is_ours_is_answered(stage):
    async def scenario():
        async with stage() as it, served(it) as slack:
            body = json.dumps({"type": "url_verification", "challenge": "abc"})
            assert await call(slack, body) == (200, '{"challenge": "abc"}')

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [{"secret": "another"}, {"at": 1}])
def test_what_is_not_signed_or_too_old_is_refused(stage, wrong):
    async def scenario():
        async with stage() as it, served(it) as slack:
            assert (await call(slack, event(), **wrong))[0] == 401
            assert it.listener.heard_ == []

    asyncio.run(scenario())


def test_an_event_that_nobody_knows_is_acknowledged(stage):
    async def scenario():
        async with stage() as it, served(it) as slack:
            assert (await call(slack, event(type="pin_added")))[0] == 200

    asyncio.run(scenario())


def test_a_taken_port_ends_the_start(stage):
    async def scenario():
        async with stage() as it, served(it) as slack:
            port = int(slack.address.split(":")[2].split("/")[0])
            with pytest.raises(ConfigError) as caught:
                async with served(it, listen_port=port):
                    pass
            assert str(caught.value).startswith(f"can't listen on 127.0.0.1:{port}: ")

    asyncio.run(scenario())


def test_slack_away_at_the_start_is_asked_again_who_we_are(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.fail("auth.test", times=2)
            pace = Pace(retry_most=timedelta(seconds=0.02))
            settings = SlackSettings(
                it.workspace.bot_token, signing_secret=SECRET, base_url=it.workspace.api_url, listen_port=0
            )
            slack = Slack(settings, it.memory, it.clock, pace)
            await slack.start(it.listener)
            try:
                assert slack.identity is None
                await it.until(lambda: slack.identity)
                assert (slack.identity.user, slack.identity.name) == ("U0UPBOT", "upbot")
            finally:
                await slack.stop()

    asyncio.run(scenario())
