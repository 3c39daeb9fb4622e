"""Socket Mode, spoken with the real Bolt and its websockets back end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.websockets import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from bot.demo.workspace import Pace, Refused, Workspace
from tests.demo.workspace.living import QUICK, call, living, until, web_client

GO = {
    "type": "button",
    "text": {"type": "plain_text", "text": "Restart 8 servers"},
    "action_id": "confirm",
    "value": "n-7F3A",
    "style": "danger",
}
QUESTION = [
    {"type": "section", "text": {"type": "mrkdwn", "text": "*Restart?*"}},
    {"type": "actions", "block_id": "row", "elements": [GO]},
]


class Bot:
    """A Bolt app that writes down what it hears."""

    def __init__(self, workspace: Workspace) -> None:
        self.heard: list[dict] = []
        self.pressed: list[dict] = []
        self.slashed: list[dict] = []
        self.client = web_client(workspace)
        app = AsyncApp(client=self.client, process_before_response=False)
        app.event("message")(self._message)
        app.event("app_mention")(self._message)
        app.action("confirm")(self._action)
        app.command("/up")(self._command)
        self.handler = AsyncSocketModeHandler(app, workspace.app_token, web_client=self.client, ping_interval=0.2)

    async def _message(self, body):
        self.heard.append(body)

    async def _action(self, ack, body, respond):
        await ack()
        self.pressed.append(body)
        await respond(text="by @bo", replace_original=True)

    async def _command(self, ack, body):
        self.slashed.append(body)
        await ack(text="8/8 answering")


@asynccontextmanager
async def bolted(workspace: Workspace):
    bot = Bot(workspace)
    await bot.handler.connect_async()
    await until(lambda: workspace.connected)
    try:
        yield bot
    finally:
        await asyncio.wait_for(bot.handler.close_async(), 5)


@asynccontextmanager
async def raw(workspace: Workspace, session: aiohttp.ClientSession):
    """A connection that acknowledges nothing by itself; its hello is read."""
    opened = await web_client(workspace).apps_connections_open(app_token=workspace.app_token)
    async with session.ws_connect(opened["url"]) as socket:
        assert (await socket.receive_json())["type"] == "hello"
        yield socket


def test_what_a_person_says_reaches_bolt_as_an_event():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            ts = workspace.people.say("fleet", "ana", "up?").ts
            await until(lambda: bot.heard)
            event = dict(bot.heard[0]["event"])
            event.pop("client_msg_id")
            assert event == {
                "type": "message", "user": "U0ANA", "text": "up?", "ts": ts, "team": "T0UPBOT",
                "channel": "C0FLEET", "channel_type": "channel", "event_ts": ts,
            }  # fmt: skip
            assert [(one.kind, one.attempt, one.is_acked) for one in workspace.deliveries] == [("events_api", 0, True)]

    asyncio.run(scenario())


def test_a_mention_comes_twice_with_one_timestamp_and_two_event_ids():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            workspace.people.say("fleet", "ana", "@upbot up?")
            await until(lambda: len(bot.heard) == 2)
            assert {one["event"]["type"] for one in bot.heard} == {"message", "app_mention"}
            assert {one["event"]["text"] for one in bot.heard} == {"<@U0UPBOT> up?"}
            assert len({one["event"]["ts"] for one in bot.heard}) == 1
            assert len({one["event_id"] for one in bot.heard}) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("<!channel> @ana", "&lt;!channel&gt; <@U0ANA>"),
        ("restart foo.bar", "restart <http://foo.bar|foo.bar>"),
        ("see https://h1:30000/x?a=1&b=2 now", "see <https://h1:30000/x?a=1&amp;b=2> now"),
        ("Hey @Upbot, @bo.", "Hey <@U0UPBOT>, <@U0BO>."),
        ("@nobody gpu3.log v0.5.13", "@nobody gpu3.log v0.5.13"),
    ],
)
def test_typed_words_are_escaped_and_linked_as_slack_does(typed, passed_on):
    async def scenario():
        async with living() as workspace:
            assert workspace.people.say("fleet", "ana", typed).text == passed_on

    asyncio.run(scenario())


def test_a_press_reaches_the_listener_whole_and_the_message_is_replaced():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            posted = await bot.client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION)
            await workspace.people.press("fleet", "bo", posted["ts"], "Restart 8 servers")
            await until(lambda: not workspace.room.post("C0FLEET", posted["ts"]).blocks)
            body = bot.pressed[0]
            action = dict(body["actions"][0])
            action.pop("action_ts")
            assert action == {**GO, "block_id": "row"}
            assert body["user"]["id"] == "U0BO"
            assert body["container"] == {
                "type": "message", "message_ts": posted["ts"], "channel_id": "C0FLEET", "is_ephemeral": False,
            }  # fmt: skip
            assert body["message"]["ts"] == posted["ts"]
            assert body["response_url"].startswith(f"{workspace.url}/response/")
            assert workspace.room.post("C0FLEET", posted["ts"]).text == "by @bo"

    asyncio.run(scenario())


def test_a_press_that_can_not_be_is_refused_with_the_reason():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = (await client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION))["ts"]
            with pytest.raises(Refused, match="no_such_button: it has Restart 8 servers"):
                await workspace.people.press("fleet", "bo", ts, "Nuke")
            with pytest.raises(Refused, match=r"not_acknowledged: the app did not acknowledge it within 0\.4 s"):
                await workspace.people.press("fleet", "bo", ts, "confirm")
            hidden = await client.chat_postEphemeral(channel="C0FLEET", user="U0ANA", text="t", blocks=QUESTION)
            with pytest.raises(Refused, match="only another person sees that message"):
                await workspace.people.press("fleet", "bo", hidden["message_ts"], "confirm")
            with pytest.raises(Refused, match="only people can be spoken as"):
                await workspace.people.press("fleet", "upbot", ts, "confirm")

    asyncio.run(scenario())


def test_a_button_of_an_ephemeral_message_can_replace_it_through_its_response_url():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            shown = await bot.client.chat_postEphemeral(channel="C0FLEET", user="U0BO", text="t", blocks=QUESTION)
            await workspace.people.press("fleet", "bo", shown["message_ts"], "confirm")
            await until(lambda: workspace.room.post("C0FLEET", shown["message_ts"]).text == "by @bo")
            assert "message" not in bot.pressed[0]
            assert bot.pressed[0]["container"]["is_ephemeral"]

    asyncio.run(scenario())


def test_a_slash_command_is_answered_with_its_ack_to_that_person_alone():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            await workspace.people.slash("fleet", "vic", "/up", "gpu3")
            assert (bot.slashed[0]["command"], bot.slashed[0]["text"]) == ("/up", "gpu3")
            told = [(one.text, one.ephemeral_to) for one in workspace.room.posts("C0FLEET")]
            assert told == [("8/8 answering", "U0VIC")]

    asyncio.run(scenario())


def test_an_edit_and_a_deletion_come_as_hidden_subtypes():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            post = workspace.people.say("fleet", "ana", "up?")
            workspace.people.edit("fleet", "ana", post.ts, "down?")
            workspace.room.remove(workspace.room.post("C0FLEET", post.ts), "U0ANA")
            await until(lambda: len(bot.heard) == 3)
            subtypes = [one["event"].get("subtype") for one in bot.heard]
            assert sorted(subtypes, key=str) == [None, "message_changed", "message_deleted"]
            changed = bot.heard[subtypes.index("message_changed")]["event"]
            assert (changed["message"]["text"], changed["previous_message"]["text"]) == ("down?", "up?")

    asyncio.run(scenario())


def test_an_event_that_nobody_acknowledges_comes_again_three_times_with_its_event_id():
    async def scenario():
        pace = Pace(
            ack_within=timedelta(milliseconds=50),
            again=(timedelta(0), timedelta(milliseconds=60), timedelta(milliseconds=90)),
        )
        async with (
            living(pace=pace) as workspace,
            aiohttp.ClientSession() as session,
            raw(workspace, session) as socket,
        ):
            workspace.people.say("fleet", "ana", "up?")
            frames = [await socket.receive_json() for _ in range(4)]
            attempts = [(one["retry_attempt"], one["retry_reason"]) for one in frames]
            assert attempts == [(0, ""), (1, "timeout"), (2, "timeout"), (3, "timeout")]
            assert len({one["payload"]["event_id"] for one in frames}) == 1
            await until(lambda: len(workspace.deliveries) == 4)
            await asyncio.sleep(0.15)
            assert len(workspace.deliveries) == 4

    asyncio.run(scenario())


def test_an_acknowledged_redelivery_is_the_last_one():
    async def scenario():
        async with living() as workspace, aiohttp.ClientSession() as session, raw(workspace, session) as socket:
            workspace.people.say("fleet", "ana", "up?")
            await socket.receive_json()
            await socket.send_json({"envelope_id": (await socket.receive_json())["envelope_id"]})
            await until(lambda: len(workspace.deliveries) == 2)
            await asyncio.sleep(0.2)
            assert [one.is_acked for one in workspace.deliveries] == [False, True]

    asyncio.run(scenario())


def test_each_event_goes_to_one_of_several_connections():
    async def scenario():
        async with living() as workspace, bolted(workspace) as one, bolted(workspace) as two:
            for number in range(10):
                workspace.people.say("fleet", "ana", f"m{number}")
            await until(lambda: len(one.heard) + len(two.heard) == 10)
            assert (len(one.heard), len(two.heard)) == (5, 5)

    asyncio.run(scenario())


def test_what_is_said_while_nobody_listens_is_delivered_when_somebody_comes():
    async def scenario():
        async with living() as workspace:
            workspace.people.say("fleet", "ana", "up?")
            async with bolted(workspace) as bot:
                await until(lambda: bot.heard)

    asyncio.run(scenario())


def test_a_ticket_is_good_once_and_not_for_long():
    async def scenario():
        pace = Pace(ticket_life=timedelta(milliseconds=50))
        async with living(pace=pace) as workspace, aiohttp.ClientSession() as session:

            async def ticket():
                opened = await web_client(workspace).apps_connections_open(app_token=workspace.app_token)
                return opened["url"]

            async def status(url):
                with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                    await session.ws_connect(url)
                return caught.value.status

            url = await ticket()
            async with session.ws_connect(url):
                assert await status(url) == 408
            old = await ticket()
            await asyncio.sleep(0.08)
            assert await status(old) == 408
            expired = await ticket()
            workspace.faults.expire_tickets()
            assert await status(expired) == 408
            workspace.faults.refuse_upgrades(1)
            assert await status(await ticket()) == 503
            async with session.ws_connect(await ticket()) as socket:
                assert (await socket.receive_json())["num_connections"] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["disconnect", "abort", "mute"])
def test_bolt_comes_back_after_a_bad_connection(fault):
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            doing = getattr(workspace.faults, fault)()
            if doing is not None:
                await doing
            before = workspace.room.stamp()
            workspace.people.say("fleet", "ana", "still there?")
            if fault == "mute":
                workspace.faults.abort()  # the library itself gives a half-open connection 20 s and more
            await until(lambda: bot.heard, within=15)
            assert bot.heard[0]["event"]["ts"] > before

    asyncio.run(scenario())


def test_a_client_that_does_not_go_when_asked_is_closed():
    async def scenario():
        async with living() as workspace, aiohttp.ClientSession() as session, raw(workspace, session) as socket:
            await workspace.faults.disconnect("warning")
            assert (await socket.receive_json())["reason"] == "warning"
            assert (await socket.receive(timeout=3)).type is aiohttp.WSMsgType.CLOSE
            await until(lambda: not workspace.connected)

    asyncio.run(scenario())


def test_a_half_open_connection_answers_no_ping_and_hears_nothing():
    async def scenario():
        async with living() as workspace, aiohttp.ClientSession() as session, raw(workspace, session) as socket:
            await socket.ping(b"1")
            workspace.people.say("fleet", "ana", "up?")
            envelope = (await socket.receive_json())["envelope_id"]
            await socket.send_json({"envelope_id": envelope})
            await until(lambda: workspace.deliveries)
            workspace.faults.mute()
            workspace.people.say("fleet", "ana", "up?")
            with pytest.raises(asyncio.TimeoutError):
                await socket.receive(timeout=0.3)
            assert [one.is_acked for one in workspace.deliveries] == [True]

    asyncio.run(scenario())


def test_a_doubled_event_has_one_event_id():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            workspace.faults.duplicate(1)
            workspace.people.say("fleet", "ana", "up?")
            workspace.people.say("fleet", "ana", "again")
            await until(lambda: len(bot.heard) == 3)
            assert sorted(one["event"]["text"] for one in bot.heard) == ["again", "up?", "up?"]
            assert len({one["event_id"] for one in bot.heard}) == 2

    asyncio.run(scenario())


def test_bolt_survives_an_outage():
    async def scenario():
        async with (
            living(pace=Pace(again=(timedelta(0), timedelta(seconds=1), timedelta(seconds=2)))) as workspace,
            bolted(workspace) as bot,
        ):
            workspace.faults.outage(timedelta(milliseconds=500))
            workspace.people.say("fleet", "ana", "up?")
            await until(lambda: bot.heard, within=15)

    asyncio.run(scenario())


def test_a_response_url_is_good_five_times_and_not_for_ever():
    async def scenario():
        pace = Pace(ack_within=QUICK.ack_within, response_life=timedelta(milliseconds=300))
        async with living(pace=pace) as workspace, bolted(workspace) as bot:
            posted = await bot.client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION)
            await workspace.people.press("fleet", "bo", posted["ts"], "confirm")
            url = (await until(lambda: bot.pressed))[0]["response_url"]
            await until(lambda: workspace.room.post("C0FLEET", posted["ts"]).text == "by @bo")
            answers = [await call("POST", url, json={"text": f"n{n}"}) for n in range(5)]
            assert [status for status, _ in answers] == [200, 200, 200, 200, 404]
            assert answers[4][1]["error"] == "used_url"
            only_bo = [one.text for one in workspace.room.posts("C0FLEET") if one.ephemeral_to == "U0BO"]
            assert only_bo == ["n0", "n1", "n2", "n3"]
            await asyncio.sleep(0.3)
            assert (await call("POST", url, json={"text": "late"}))[1]["error"] == "expired_url"

    asyncio.run(scenario())


def test_a_trigger_opens_one_view_and_only_for_some_seconds():
    async def scenario():
        pace = Pace(ack_within=QUICK.ack_within, trigger_life=timedelta(milliseconds=400))
        async with living(pace=pace) as workspace, bolted(workspace) as bot:
            posted = await bot.client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION)
            answers = []
            for count, wait in ((1, 0.0), (2, 0.45)):
                await workspace.people.press("fleet", "bo", posted["ts"], "confirm")
                await until(lambda count=count: len(bot.pressed) == count)
                await until(lambda: workspace.room.post("C0FLEET", posted["ts"]).text == "by @bo")
                trigger = bot.pressed[-1]["trigger_id"]
                await asyncio.sleep(wait)
                for _ in range(2):
                    answer = await call(
                        "POST", f"{workspace.api_url}views.open",
                        json={"trigger_id": trigger, "view": {"type": "modal"}},
                        headers={"Authorization": f"Bearer {workspace.bot_token}"},
                    )  # fmt: skip
                    answers.append(answer[1].get("error"))
                await bot.client.chat_update(channel="C0FLEET", ts=posted["ts"], text="again?", blocks=QUESTION)
            assert answers == [None, "exchanged_trigger_id", "expired_trigger_id", "exchanged_trigger_id"]

    asyncio.run(scenario())
