"""The Socket Mode connection on Slack's bad days."""

import asyncio
import time
from datetime import timedelta

import pytest
import structlog

from bot.domain.message import says
from bot.ports import Place

FLEET = Place("C0FLEET")


def renewals(lines):
    return [one["reason"] for one in lines if one["event"] == "connected to slack"]


async def hears(it, text):
    """What is said now is heard, over whatever connection there is."""
    await it.until(lambda: it.slack.is_connected and it.workspace.connected)
    it.say(text)
    await it.until(lambda: text in it.listener.words)


def test_it_says_since_when_it_is_connected(stage):
    async def scenario():
        async with stage() as it:
            assert it.slack.is_connected
            assert (it.clock.now() - it.slack.connected_since).total_seconds() < 5
            await it.slack.stop()
            assert not it.slack.is_connected
            assert it.slack.connected_since is None

    asyncio.run(scenario())


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "too_many_websockets"])
def test_when_slack_asks_to_move_the_new_line_is_there_before_the_old_one_goes(stage, reason):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                was_without = False
                await it.workspace.faults.disconnect(reason)
                deadline = time.monotonic() + 3
                while len(renewals(lines)) < 2:
                    assert time.monotonic() < deadline
                    was_without = was_without or (not it.slack.is_connected and it.workspace.connected == 0)
                    await asyncio.sleep(0.001)
                await it.until(lambda: it.workspace.connected == 1)
                await hears(it, "still there")
                assert not was_without
        assert renewals(lines) == ["the first connection", "slack asked to move"]
        assert [one for one in lines if one["log_level"] == "warning"] == []

    asyncio.run(scenario())


def test_a_cut_line_is_replaced(stage):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                it.workspace.faults.abort()
                await it.until(lambda: len(renewals(lines)) == 2)
                await hears(it, "back")
        assert renewals(lines) == ["the first connection", "closed"]

    asyncio.run(scenario())


def test_refused_upgrades_are_tried_again_each_with_a_fresh_ticket(stage):
    """A ticket is good once: a client that tried the same one again would never come back."""

    async def scenario():
        async with stage() as it:
            it.workspace.faults.refuse_upgrades(5)
            it.workspace.faults.abort()
            await it.until(lambda: it.workspace.faults._no_upgrades == 0)
            await hears(it, "back")

    asyncio.run(scenario())


def test_a_ticket_that_expired_on_the_way_is_replaced(stage):
    async def scenario():
        async with stage() as it:
            inner = it.slack._web.socket_address
            asked = 0

            async def slow(token):
                nonlocal asked
                asked += 1
                address = await inner(token)
                if asked < 3:
                    it.workspace.faults.expire_tickets()
                return address

            it.slack._web.socket_address = slow
            it.workspace.faults.abort()
            await it.until(lambda: asked == 3)
            await hears(it, "back")

    asyncio.run(scenario())


def test_an_outage_is_waited_for(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.rate_limit("apps.connections.open", retry_after=timedelta())
            it.workspace.faults.outage(timedelta(seconds=0.5))
            await it.until(
                lambda: not it.workspace.faults.is_out and not it.workspace.faults._planned["apps.connections.open"]
            )
            await hears(it, "back")

    asyncio.run(scenario())


def test_a_line_that_is_open_but_dead_is_noticed_by_its_missing_pong(stage):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                it.workspace.faults.mute()
                started = time.monotonic()
                await it.until(lambda: len(renewals(lines)) == 2)
                assert time.monotonic() - started < 2
                await hears(it, "back")
        assert renewals(lines) == ["the first connection", "no pong"]

    asyncio.run(scenario())


def test_a_line_on_which_no_events_come_is_noticed_by_our_own_posts(stage):
    """Pings are answered, so the socket looks well; but nothing that is said arrives."""

    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                await it.slack.post(FLEET, says("comes back"))
                await it.until(lambda: it.slack._connection.echoes._channels)
                it.workspace._line.tell, told = (lambda _payload: None), it.workspace._line.tell
                for number in range(3):
                    await it.slack.post(FLEET, says(str(number)))
                await it.until(lambda: len(renewals(lines)) == 2)
                it.workspace._line.tell = told
                await hears(it, "back")
        assert renewals(lines) == ["the first connection", "own messages do not come back"]

    asyncio.run(scenario())


def test_slack_away_at_the_start_is_no_error(stage):
    async def scenario():
        async with stage(is_away=True) as it:
            assert not it.slack.is_connected
            assert it.slack.identity is None
            it.workspace.faults.behave()
            await hears(it, "there")
            assert it.slack.identity.user == "U0UPBOT"

    asyncio.run(scenario())


def test_what_was_said_while_the_line_was_down_is_heard_once_it_is_back(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.refuse_upgrades(3)
            it.workspace.faults.abort()
            it.say("restart no_buffer")
            await it.until(lambda: it.listener.words == ["restart no_buffer"])

    asyncio.run(scenario())


def test_a_line_is_not_given_up_for_a_token_that_is_refused_later(stage):
    """The token may be put right at Slack; the log says what is wrong."""

    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                token, it.workspace._api.app_token = it.workspace._api.app_token, "xapp-other"
                it.workspace.faults.abort()
                await it.until(lambda: any(one["event"] == "slack refuses the connection" for one in lines))
                it.workspace._api.app_token = token
                await hears(it, "back")
        said = next(one for one in lines if one["event"] == "slack refuses the connection")
        assert said["why"].startswith("SLACK_APP_TOKEN: Slack refused the app token: invalid_auth; make a new")

    asyncio.run(scenario())


def test_a_second_program_on_the_same_app_is_told(stage):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                hello = {"type": "hello", "num_connections": 2}
                await it.slack._connection._frame(it.slack._connection._socket, hello)
        assert [one["all"] for one in lines if one["log_level"] == "warning"] == [2]

    asyncio.run(scenario())


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(stage, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def scenario():
        async with stage() as it:
            await it.slack.post(FLEET, says("up"))
            await hears(it, "there")

    asyncio.run(scenario())


def test_a_socket_without_a_hello_is_replaced(stage):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage(hello=timedelta(seconds=0.1)) as it:
                it.slack._connection._socket.has_said_hello = False
                assert not it.slack.is_connected
                await hears(it, "back")
        assert renewals(lines) == ["the first connection", "no hello"]

    asyncio.run(scenario())


def test_a_watcher_that_fails_is_followed_by_another(stage):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                it.slack._connection._pinged_at = "a mistake"
                await it.until(lambda: any(one["log_level"] == "critical" for one in lines))
                it.slack._connection._pinged_at = None
                it.workspace.faults.abort()
                await hears(it, "back")

    asyncio.run(scenario())
