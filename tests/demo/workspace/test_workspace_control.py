"""The control API, who may talk to the address, and that no bytes make it stumble."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from contextlib import closing
from datetime import timedelta

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.demo.workspace import Pace
from bot.domain.errors import ConfigError
from tests.demo.workspace.living import Breaker, ask, call, living, until, web_client
from tests.demo.workspace.test_workspace_blocks import JSON
from tests.demo.workspace.test_workspace_socket_mode import QUESTION, bolted


def test_ready_says_why_not_and_then_yes():
    async def scenario():
        breaker = Breaker(not_ready="2/8 servers are ready")
        async with living(breaker) as workspace:
            assert await call("GET", f"{workspace.url}/control/ready") == (
                503,
                {"ok": False, "error": "not_ready", "reason": "2/8 servers are ready"},
            )
            breaker.not_ready = None
            assert await call("GET", f"{workspace.url}/control/ready") == (200, {"ok": True})

    asyncio.run(scenario())


def test_a_whole_conversation_goes_through_the_control_api():
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot:
            status, said = await ask(workspace, "/control/say", {"channel": "fleet", "user": "ana", "text": "restart"})
            assert (status, said["ok"]) == (200, True)
            posted = await bot.client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION)
            reply = {"channel": "fleet", "user": "bo", "text": "go on", "thread": posted["ts"]}
            assert (await ask(workspace, "/control/say", reply))[0] == 200
            await bot.client.reactions_add(channel="C0FLEET", timestamp=said["ts"], name="eyes")
            press = {"channel": "fleet", "message": posted["ts"], "button": "Restart 8 servers", "user": "bo"}
            assert await ask(workspace, "/control/press", press) == (200, {"ok": True})
            await until(lambda: workspace.room.post("C0FLEET", posted["ts"]).text == "by @bo")
            _, told = await call("GET", f"{workspace.url}/control/messages?channel=fleet")
            assert [{**one, "ts": ""} for one in told["messages"]] == [
                {
                    "ts": "", "user": "ana", "text": "restart", "blocks": [], "thread_ts": None, "ephemeral_to": None,
                    "edited": False, "reactions": [{"name": "eyes", "users": ["upbot"], "count": 1}], "files": [],
                },
                {
                    "ts": "", "user": "upbot", "text": "by @bo", "blocks": [], "thread_ts": None,
                    "ephemeral_to": None, "edited": True, "reactions": [], "files": [],
                },
                {
                    "ts": "", "user": "bo", "text": "go on", "blocks": [], "thread_ts": posted["ts"],
                    "ephemeral_to": None, "edited": False, "reactions": [], "files": [],
                },
            ]  # fmt: skip
            url = f"{workspace.url}/control/messages"
            _, after = await call("GET", url, params={"channel": "C0FLEET", "after": posted["ts"]})
            assert [one["text"] for one in after["messages"]] == ["go on"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("say", {"channel": "nowhere", "user": "ana", "text": "x"}, 404, "channel_not_found"),
        ("say", {"channel": "fleet", "user": "eve", "text": "x"}, 404, "user_not_found"),
        ("say", {"channel": "fleet", "user": "upbot", "text": "x"}, 404, "user_not_found"),
        ("say", {"channel": "fleet", "user": "ana", "text": " "}, 400, "no_text"),
        ("say", {"channel": "fleet", "user": "ana", "text": "x" * 40_001}, 413, "msg_too_long"),
        ("say", {"channel": "fleet", "user": "ana", "text": "x", "thread": "1.000001"}, 404, "message_not_found"),
        ("say", {"channel": "fleet", "user": "ana"}, 400, "invalid_arguments"),
        ("say", {"channel": "fleet", "user": "ana", "text": "x", "colour": 1}, 400, "invalid_arguments"),
        ("say", ["no object"], 400, "json_not_object"),
        ("press", {"channel": "fleet", "message": "1.0", "button": "x", "user": "bo"}, 404, "message_not_found"),
        ("slash", {"channel": "fleet", "user": "bo", "command": "up"}, 400, "invalid_arguments"),
        ("break", {"what": "kill", "server": "gpu9"}, 409, "not_broken"),
        ("misbehave", {"what": "explode"}, 400, "invalid_arguments"),
        ("misbehave", {"what": "outage", "seconds": 1e9}, 400, "invalid_arguments"),
    ],
)
def test_a_refusal_has_its_name_and_a_sentence(path, body, status, error):
    async def scenario():
        async with living() as workspace:
            got, answer = await ask(workspace, f"/control/{path}", body)
            assert (got, answer["ok"], answer["error"]) == (status, False, error)
            assert answer["reason"]

    asyncio.run(scenario())


def test_no_such_button_says_which_there_are():
    async def scenario():
        async with living() as workspace:
            posted = await web_client(workspace).chat_postMessage(channel="C0FLEET", text="?", blocks=QUESTION)
            press = {"channel": "fleet", "message": posted["ts"], "button": "Nuke", "user": "bo"}
            assert await ask(workspace, "/control/press", press) == (
                404,
                {"ok": False, "error": "no_such_button", "reason": "it has Restart 8 servers"},
            )

    asyncio.run(scenario())


def test_what_is_to_be_broken_is_handed_on_with_its_options():
    async def scenario():
        breaker = Breaker()
        async with living(breaker) as workspace:
            body = {"what": "slow", "server": "gpu3", "choice": "0.6"}
            assert await ask(workspace, "/control/break", body) == (200, {"ok": True, "said": "gpu3: slow"})
            assert breaker.broken == [("slow", "gpu3", {"choice": "0.6"})]
            _, listed = await call("GET", f"{workspace.url}/control/servers")
            assert listed["servers"][3] == {"name": "gpu3", "state": "ready"}
            assert listed["breakages"][1] == {"what": "slow", "label": "Slow it down", "choices": ["0.6", "0.4"]}

    asyncio.run(scenario())


def test_faults_can_be_set_over_http():
    async def scenario():
        async with living() as workspace:
            fault = {"what": "rate_limit", "method": "chat.postMessage", "times": 1, "seconds": 3}
            assert await ask(workspace, "/control/misbehave", fault) == (200, {"ok": True})
            status, _ = await call("POST", f"{workspace.api_url}chat.postMessage")
            assert status == 429
            fault = {"what": "refuse", "method": "auth.test", "reason": "missing_scope"}
            assert await ask(workspace, "/control/misbehave", fault) == (200, {"ok": True})
            refused = await call("POST", f"{workspace.api_url}auth.test")
            assert refused == (200, {"ok": False, "error": "missing_scope"})
            for what in ("fail", "stall", "drop"):
                await ask(workspace, "/control/misbehave", {"what": what, "method": "auth.test"})
            for what in ("refuse_upgrades", "expire_tickets", "abort", "mute", "disconnect", "duplicate", "outage"):
                assert (await ask(workspace, "/control/misbehave", {"what": what}))[0] == 200
            assert workspace.faults.is_out
            assert (await ask(workspace, "/control/misbehave", {"what": "behave"}))[0] == 200
            assert (await call("POST", f"{workspace.api_url}auth.test"))[1] == {"ok": False, "error": "not_authed"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:PORT"}, 200),
        ({"Origin": "http://127.0.0.1:PORT"}, 200),
        ({"Origin": "http://localhost:PORT"}, 200),
        ({"Host": "evil.example:PORT"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://127.0.0.1:PORT"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/control/ready", "/api/api.test", "/stream", "/link/"])
def test_only_this_pages_own_requests_are_answered(headers, status, path):
    async def scenario():
        async with living() as workspace, aiohttp.ClientSession() as session:
            port = workspace.url.rpartition(":")[2]
            sent = {name: value.replace("PORT", port) for name, value in headers.items()}
            async with session.get(f"{workspace.url}{path}", headers=sent) as answer:
                expected = 408 if path == "/link/" and status == 200 else status
                assert answer.status == expected
                assert "Access-Control-Allow-Origin" not in answer.headers
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]

    asyncio.run(scenario())


def test_a_foreign_page_can_not_press_or_ask_leave_to():
    async def scenario():
        async with living() as workspace:
            evil = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
            say = json.dumps({"channel": "fleet", "user": "ana", "text": "restart --yes"})
            status, _ = await call("POST", f"{workspace.url}/control/say", data=say, headers=evil)
            assert status == 403
            preflight = {**evil, "Access-Control-Request-Method": "POST"}
            assert (await call("OPTIONS", f"{workspace.url}/control/say", headers=preflight))[0] == 403
            assert workspace.room.posts("C0FLEET") == []

    asyncio.run(scenario())


def test_it_listens_on_loopback_alone():
    async def scenario():
        async with living() as workspace:
            port = int(workspace.url.rpartition(":")[2])
            # 127.0.0.2 is loopback too, but not the address that is bound.
            with closing(socket.socket()) as probe, pytest.raises(ConnectionRefusedError):
                probe.connect(("127.0.0.2", port))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "path",
    ["/page/../workspace.py", "/page/..%2fworkspace.py", "/page/%2e%2e/room.py", "/files/..%2f..", "/page/nothing.js"],
)
def test_no_path_leads_out_of_the_page(path):
    async def scenario():
        async with living() as workspace:
            port = int(workspace.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer.split(b" ")[1] == b"404"
            assert b"import" not in answer

    asyncio.run(scenario())


def test_a_body_that_is_too_big_is_refused():
    async def scenario():
        async with living() as workspace:
            big = b"x" * (1024 * 1024 + 1)
            assert (await call("POST", f"{workspace.url}/control/say", data=io.BytesIO(big)))[0] == 413
            bigger = b"x" * (5 * 1024 * 1024)
            assert (await call("POST", f"{workspace.url}/control/say", data=io.BytesIO(bigger)))[0] == 413
            token = {"Authorization": f"Bearer {workspace.bot_token}"}
            _, answer = await call("POST", f"{workspace.api_url}chat.postMessage", data=io.BytesIO(big), headers=token)
            assert answer["error"] == "request_too_large"

    asyncio.run(scenario())


def test_a_taken_port_is_told_with_what_to_do():
    async def scenario():
        async with living() as workspace:
            port = int(workspace.url.rpartition(":")[2])
            with pytest.raises(ConfigError, match=f"port {port} can't be opened .* choose another with --port"):
                async with living(port=port):
                    pass

    asyncio.run(scenario())


def test_stopping_ends_open_streams_and_may_be_done_twice():
    async def scenario():
        async with (
            living() as workspace,
            aiohttp.ClientSession() as session,
            session.get(f"{workspace.url}/stream") as stream,
        ):
            assert (await stream.content.readline()).startswith(b'data: {"kind": "all"')
            await asyncio.wait_for(workspace.stop(), 3)
            await workspace.stop()

    asyncio.run(scenario())


def test_the_stream_tells_everything_and_then_each_change():
    async def scenario():
        async with (
            living() as workspace,
            aiohttp.ClientSession() as session,
            session.get(f"{workspace.url}/stream") as stream,
        ):

            async def news():
                line = await stream.content.readline()
                await stream.content.readline()
                return json.loads(line.removeprefix(b"data: "))

            assert [one["name"] for one in (await news())["people"]] == ["ana", "bo", "vic"]
            post = workspace.people.say("fleet", "ana", "up?")
            workspace.people.edit("fleet", "ana", post.ts, "down?")
            workspace.room.remove(workspace.room.post("C0FLEET", post.ts), "U0ANA")
            told = [await news() for _ in range(3)]
            assert [(one["kind"], one["message"]["text"]) for one in told] == [
                ("posted", "up?"),
                ("edited", "down?"),
                ("deleted", "down?"),
            ]

    asyncio.run(scenario())


METHODS = [
    "auth.test", "apps.connections.open", "chat.postMessage", "chat.update", "chat.delete", "chat.postEphemeral",
    "chat.getPermalink", "conversations.history", "conversations.replies", "conversations.info", "users.info",
    "reactions.add", "reactions.remove", "views.open", "files.getUploadURLExternal", "files.completeUploadExternal",
    "files.info",
]  # fmt: skip
KEYS = st.sampled_from(
    [
        "channel",
        "text",
        "blocks",
        "ts",
        "thread_ts",
        "user",
        "metadata",
        "timestamp",
        "name",
        "limit",
        "cursor",
        "oldest",
        "latest",
        "trigger_id",
        "view",
        "files",
        "filename",
        "length",
        "file",
        "channel_id",
        "what",
        "server",
        "message",
        "button",
        "command",
        "times",
        "seconds",
        "method",
    ]
)
VALUES = JSON | st.sampled_from(["C0FLEET", "fleet", "ana", "U0ANA", "TS", "1e5", "\x00", "\ud800", "9" * 5000])
PATHS = st.sampled_from(
    [f"/api/{name}" for name in METHODS]
    + [f"/control/{name}" for name in ("say", "edit", "press", "slash", "break", "misbehave")]
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(PATHS, st.dictionaries(KEYS, VALUES, max_size=6), st.booleans()), max_size=4))
def test_no_request_makes_it_stumble(requests):
    """Whatever JSON, form or query comes: an answer below 500, and the workspace goes on."""

    async def scenario():
        async with living(pace=Pace(ack_within=timedelta(0), again=())) as workspace:
            token = {"Authorization": f"Bearer {workspace.bot_token}"}
            ts = workspace.people.say("fleet", "ana", "up?").ts
            for path, body, is_form in requests:
                if path == "/control/misbehave":
                    body.pop("seconds", None)
                sent = json.loads(json.dumps(body).replace('"TS"', json.dumps(ts)))
                form = {key: json.dumps(value) for key, value in sent.items()}
                kwargs = {"data": form} if is_form else {"json": sent}
                status, _ = await call("POST", f"{workspace.url}{path}", headers=token, **kwargs)
                assert status < 500
            workspace.faults.behave()
            assert (await call("POST", f"{workspace.api_url}auth.test", headers=token))[1]["ok"]

    asyncio.run(scenario())


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-www-form-urlencoded", "x/y"]))
def test_no_bytes_make_it_stumble(body, kind):
    async def scenario():
        async with living() as workspace:
            headers = {"Authorization": f"Bearer {workspace.bot_token}", "Content-Type": kind}
            for path in ("/api/chat.postMessage", "/control/say", "/response/x", "/upload/x"):
                assert (await call("POST", f"{workspace.url}{path}", data=body, headers=headers))[0] < 500
            deep = b"[" * 100_000
            assert (await call("POST", f"{workspace.url}/control/say", data=deep, headers=headers))[0] == 400

    asyncio.run(scenario())
