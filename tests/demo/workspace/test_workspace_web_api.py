"""The Web API, asked by the real SDK."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from bot.demo.workspace import Group, Pace
from tests.demo.workspace.living import call, living, until, web_client

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
BUTTON = {"type": "button", "text": {"type": "plain_text", "text": "Go"}, "action_id": "go", "value": "n1"}


def section(text):
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


async def error_of(awaitable) -> str:
    with pytest.raises(SlackApiError) as caught:
        await awaitable
    return caught.value.response["error"]


def test_a_message_is_posted_changed_and_deleted():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            posted = await client.chat_postMessage(channel="C0FLEET", text="one", blocks=[section("*one*")])
            await client.chat_update(channel="C0FLEET", ts=posted["ts"], text="two")
            history = await client.conversations_history(channel="C0FLEET")
            assert [(one["text"], one.get("blocks"), one["bot_id"]) for one in history["messages"]] == [
                ("two", None, "B0UPBOT")
            ]
            assert "edited" in history["messages"][0]
            await client.chat_delete(channel="C0FLEET", ts=posted["ts"])
            assert (await client.conversations_history(channel="C0FLEET"))["messages"] == []
            gone = client.chat_update(channel="C0FLEET", ts=posted["ts"], text="x")
            assert await error_of(gone) == "message_not_found"

    asyncio.run(scenario())


def test_blocks_get_the_ids_that_they_lack_and_an_update_with_blocks_is_not_marked_edited():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            posted = await client.chat_postMessage(
                channel="#fleet", text="t", blocks=[section("x"), {"type": "actions", "elements": [BUTTON]}]
            )
            ids = [block["block_id"] for block in posted["message"]["blocks"]]
            assert len(set(ids)) == 2
            changed = await client.chat_update(channel="C0FLEET", ts=posted["ts"], text="t", blocks=[section("y")])
            assert "edited" not in changed["message"]

    asyncio.run(scenario())


def test_a_thread_is_read_with_its_first_message_and_a_reply_to_a_reply_belongs_to_it():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            top = await client.chat_postMessage(channel="C0FLEET", text="top")
            one = await client.chat_postMessage(channel="C0FLEET", text="a", thread_ts=top["ts"])
            await client.chat_postMessage(channel="C0FLEET", text="b", thread_ts=one["ts"])
            replies = await client.conversations_replies(channel="C0FLEET", ts=top["ts"])
            assert [message["text"] for message in replies["messages"]] == ["top", "a", "b"]
            assert replies["messages"][0]["reply_count"] == 2
            history = await client.conversations_history(channel="C0FLEET")
            assert [message["text"] for message in history["messages"]] == ["top"]

    asyncio.run(scenario())


def test_history_comes_in_pages_newest_first_and_between_two_timestamps():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = [(await client.chat_postMessage(channel="C0FLEET", text=str(n)))["ts"] for n in range(5)]
            assert ts == sorted(set(ts))
            page = await client.conversations_history(channel="C0FLEET", limit=2)
            assert [one["text"] for one in page["messages"]] == ["4", "3"]
            cursor = page["response_metadata"]["next_cursor"]
            page = await client.conversations_history(channel="C0FLEET", limit=2, cursor=cursor)
            assert [one["text"] for one in page["messages"]] == ["2", "1"]
            between = await client.conversations_history(channel="C0FLEET", oldest=ts[1], latest=ts[3])
            assert [one["text"] for one in between["messages"]] == ["2"]

    asyncio.run(scenario())


def test_metadata_is_kept_and_given_to_who_asks_for_it():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            metadata = {"event_type": "alert", "event_payload": {"key": "a-9"}}
            await client.chat_postMessage(channel="C0FLEET", text="t", metadata=metadata)
            plain = await client.conversations_history(channel="C0FLEET")
            assert "metadata" not in plain["messages"][0]
            full = await client.conversations_history(channel="C0FLEET", include_all_metadata=True)
            assert full["messages"][0]["metadata"] == metadata

    asyncio.run(scenario())


def test_who_and_where_can_be_looked_up():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            me = await client.auth_test()
            assert (me["user_id"], me["bot_id"], me["team_id"]) == ("U0UPBOT", "B0UPBOT", "T0UPBOT")
            channels = await client.conversations_list()
            assert [(one["id"], one["name"]) for one in channels["channels"]] == [("C0FLEET", "fleet")]
            assert (await client.conversations_info(channel="C0FLEET"))["channel"]["is_member"]
            members = await client.conversations_members(channel="C0FLEET")
            assert members["members"] == ["U0ANA", "U0BO", "U0VIC", "U0UPBOT"]
            assert (await client.users_info(user="U0BO"))["user"]["name"] == "bo"
            assert [one["name"] for one in (await client.users_list())["members"]] == ["ana", "bo", "vic", "upbot"]
            assert (await client.bots_info(bot="B0UPBOT"))["bot"]["app_id"] == "A0UPBOT"
            posted = await client.chat_postMessage(channel="C0FLEET", text="t")
            link = await client.chat_getPermalink(channel="C0FLEET", message_ts=posted["ts"])
            assert link["permalink"].endswith(f"/archives/C0FLEET/p{posted['ts'].replace('.', '')}")

    asyncio.run(scenario())


def test_a_reaction_is_put_once_and_taken_away_once():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = (await client.chat_postMessage(channel="C0FLEET", text="t"))["ts"]
            at = {"channel": "C0FLEET", "timestamp": ts}
            await client.reactions_add(name="eyes", **at)
            assert await error_of(client.reactions_add(name="eyes", **at)) == "already_reacted"
            assert await error_of(client.reactions_add(name="Not A Name", **at)) == "invalid_name"
            message = (await client.conversations_history(channel="C0FLEET"))["messages"][0]
            assert message["reactions"] == [{"name": "eyes", "users": ["U0UPBOT"], "count": 1}]
            await client.reactions_remove(name="eyes", **at)
            assert await error_of(client.reactions_remove(name="eyes", **at)) == "no_reaction"

    asyncio.run(scenario())


def test_an_ephemeral_message_is_seen_by_one_and_can_not_be_changed():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = (await client.chat_postEphemeral(channel="C0FLEET", user="U0VIC", text="psst"))["message_ts"]
            assert (await client.conversations_history(channel="C0FLEET"))["messages"] == []
            update = client.chat_update(channel="C0FLEET", ts=ts, text="louder")
            assert await error_of(update) == "message_not_found"
            nobody = client.chat_postEphemeral(channel="C0FLEET", user="U0NOBODY", text="psst")
            assert await error_of(nobody) == "user_not_in_channel"
            _, told = await call("GET", f"{workspace.url}/control/messages?channel=fleet")
            assert [(one["text"], one["ephemeral_to"]) for one in told["messages"]] == [("psst", "vic")]

    asyncio.run(scenario())


def test_only_the_bots_own_messages_can_be_changed_or_deleted():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = workspace.people.say("fleet", "ana", "mine").ts
            assert await error_of(client.chat_update(channel="C0FLEET", ts=ts, text="x")) == "cant_update_message"
            assert await error_of(client.chat_delete(channel="C0FLEET", ts=ts)) == "cant_delete_message"

    asyncio.run(scenario())


def test_what_slack_refuses_is_refused_with_its_name():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            ts = (await client.chat_postMessage(channel="C0FLEET", text="t"))["ts"]
            expected = {
                "channel_not_found": client.chat_postMessage(channel="C0NOWHERE", text="t"),
                "no_text": client.api_call("chat.postMessage", json={"channel": "C0FLEET", "text": " "}),
                "msg_too_long": client.chat_update(channel="C0FLEET", ts=ts, text="x" * 4001),
                "message_not_found": client.chat_postMessage(channel="C0FLEET", text="t", thread_ts="1.000001"),
                "thread_not_found": client.conversations_replies(channel="C0FLEET", ts="1.000001"),
                "user_not_found": client.users_info(user="U0NOBODY"),
                "invalid_arguments": client.chat_postMessage(channel="C0FLEET", text="<!channel> down"),
                "unknown_method": client.api_call("chat.postMassage"),
                "invalid_trigger_id": client.views_open(trigger_id="1.2.3", view={"type": "modal"}),
                "invalid_metadata_format": client.chat_postMessage(channel="C0FLEET", text="t", metadata={"a": 1}),
            }
            assert {name: await error_of(one) for name, one in expected.items()} == {name: name for name in expected}

    asyncio.run(scenario())


def test_bad_blocks_are_refused_with_the_reason():
    async def scenario():
        async with living() as workspace:
            with pytest.raises(SlackApiError) as caught:
                await web_client(workspace).chat_postMessage(channel="C0FLEET", text="t", blocks=[section("x" * 3001)])
            assert caught.value.response["error"] == "invalid_blocks"
            assert caught.value.response["response_metadata"]["messages"] == [
                "[ERROR] must be 1 to 3000 characters, not 3001 [json-pointer:/blocks/0/text/text]"
            ]

    asyncio.run(scenario())


def test_a_long_text_is_cut_at_forty_thousand():
    async def scenario():
        async with living() as workspace:
            posted = await web_client(workspace).chat_postMessage(channel="C0FLEET", text="x" * 40_001)
            assert len(posted["message"]["text"]) == 40_000

    asyncio.run(scenario())


def test_a_token_is_needed_and_must_be_of_the_right_kind():
    async def scenario():
        async with living() as workspace:
            url = workspace.api_url
            assert (await call("POST", f"{url}auth.test"))[1] == {"ok": False, "error": "not_authed"}
            wrong = AsyncWebClient(token="xoxb-wrong", base_url=url)
            assert await error_of(wrong.auth_test()) == "invalid_auth"
            app = AsyncWebClient(token=workspace.app_token, base_url=url)
            assert await error_of(app.auth_test()) == "not_allowed_token_type"
            opened = web_client(workspace).apps_connections_open(app_token=workspace.bot_token)
            assert await error_of(opened) == "not_allowed_token_type"
            ticket = await app.apps_connections_open(app_token=workspace.app_token)
            assert ticket["url"].startswith(workspace.url.replace("http", "ws") + "/link/?ticket=")

    asyncio.run(scenario())


def test_a_form_and_a_token_in_the_body_do_as_well():
    async def scenario():
        async with living() as workspace:
            form = {"token": workspace.bot_token, "channel": "C0FLEET", "text": "", "blocks": '[{"type":"divider"}]'}
            status, answer = await call("POST", f"{workspace.api_url}chat.postMessage", data=form)
            assert (status, answer["ok"], answer["message"]["blocks"][0]["type"]) == (200, True, "divider")

    asyncio.run(scenario())


def test_a_picture_is_uploaded_in_three_steps_into_a_thread():
    async def scenario():
        async with living() as workspace:
            client = web_client(workspace)
            top = await client.chat_postMessage(channel="C0FLEET", text="slow")
            await client.files_upload_v2(
                content=PNG, filename="chart.png", title="two hours", channel="C0FLEET", thread_ts=top["ts"]
            )
            replies = await client.conversations_replies(channel="C0FLEET", ts=top["ts"])
            file = replies["messages"][1]["files"][0]
            assert (file["title"], file["mimetype"], file["size"]) == ("two hours", "image/png", len(PNG))
            info = (await client.files_info(file=file["id"]))["file"]
            assert info["shares"]["public"] == {
                "C0FLEET": [{"ts": replies["messages"][1]["ts"], "channel_name": "C0FLEET"}]
            }
            async with aiohttp.ClientSession() as session, session.get(f"{workspace.url}/files/{file['id']}") as answer:
                assert (answer.content_type, await answer.read()) == ("image/png", PNG)

    asyncio.run(scenario())


def test_an_upload_may_be_shown_in_blocks_only_when_it_is_complete():
    async def scenario():
        async with living(pace=Pace(share_lag=timedelta(milliseconds=100))) as workspace:
            client = web_client(workspace)
            asked = await client.files_getUploadURLExternal(filename="c.png", length=len(PNG))
            assert (await call("POST", asked["upload_url"], data=b"short"))[0] == 400
            workspace.faults.fail("upload", status=502)
            assert (await call("POST", asked["upload_url"], data=PNG))[0] == 502
            early = client.files_completeUploadExternal(files=[{"id": asked["file_id"]}])
            assert await error_of(early) == "file_not_found"
            assert (await call("POST", asked["upload_url"], data=PNG))[0] == 200
            assert (await call("POST", asked["upload_url"], data=PNG))[0] == 404
            await client.files_completeUploadExternal(files=[{"id": asked["file_id"], "title": "c"}])
            image = {"type": "image", "alt_text": "a chart", "slack_file": {"id": asked["file_id"]}}
            too_early = client.chat_postMessage(channel="C0FLEET", text="t", blocks=[image])
            assert await error_of(too_early) == "invalid_blocks"
            await until(workspace.room.complete_files)
            assert (await client.chat_postMessage(channel="C0FLEET", text="t", blocks=[image]))["ok"]

    asyncio.run(scenario())


def test_faults_a_rate_limit_is_waited_for_by_the_sdks_own_handler():
    async def scenario():
        async with living() as workspace:
            workspace.faults.rate_limit("chat.postMessage", times=1, retry_after=timedelta(milliseconds=10))
            client = web_client(workspace)
            with pytest.raises(SlackApiError) as caught:
                await client.chat_postMessage(channel="C0FLEET", text="t")
            assert caught.value.response.status_code == 429
            assert caught.value.response.headers["Retry-After"] == "1"
            workspace.faults.rate_limit("chat.postMessage", times=1, retry_after=timedelta(0))
            client.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=1))
            assert (await client.chat_postMessage(channel="C0FLEET", text="t"))["ok"]

    asyncio.run(scenario())


def test_faults_a_failure_a_drop_and_an_outage_do_nothing_and_a_stall_does_it_and_is_late():
    async def scenario():
        async with living() as workspace:
            url, token = f"{workspace.api_url}chat.postMessage", {"Authorization": f"Bearer {workspace.bot_token}"}

            async def post():
                return await call("POST", url, json={"channel": "C0FLEET", "text": "t"}, headers=token)

            workspace.faults.fail("chat.postMessage", status=500)
            assert (await post())[0] == 500
            workspace.faults.drop("chat.postMessage")
            with pytest.raises(aiohttp.ClientError):
                await post()
            workspace.faults.outage(timedelta(milliseconds=100))
            assert (await post())[0] == 503
            await until(lambda: not workspace.faults.is_out)
            assert workspace.room.posts("C0FLEET") == []
            workspace.faults.stall("chat.postMessage", span=timedelta(milliseconds=150))
            begun = asyncio.get_running_loop().time()
            assert (await post())[1]["ok"]
            assert asyncio.get_running_loop().time() - begun > 0.14
            assert len(workspace.room.posts("C0FLEET")) == 1

    asyncio.run(scenario())


def test_a_user_groups_people_are_told_and_a_group_that_is_not_there_is_refused():
    async def scenario():
        groups = (Group("S0EVAL", ("U0ANA", "U0BO")), Group("S0OLD", ("U0VIC",), is_disabled=True))
        async with living(groups=groups) as workspace:
            client = web_client(workspace)
            answer = await client.usergroups_users_list(usergroup="S0EVAL")
            assert answer.data == {"ok": True, "users": ["U0ANA", "U0BO"]}
            assert "usergroups:read" in answer.headers["X-OAuth-Scopes"]
            assert (await client.usergroups_users_list(usergroup="S0OLD"))["users"] == []
            assert (await client.usergroups_users_list(usergroup="S0OLD", include_disabled=True))["users"] == ["U0VIC"]
            assert await error_of(client.usergroups_users_list(usergroup="S0NONE")) == "no_such_subteam"
            assert await error_of(client.usergroups_users_list(usergroup="")) == "invalid_arguments"
            nobody = AsyncWebClient(token="xoxb-wrong", base_url=workspace.api_url, retry_handlers=[])
            assert await error_of(nobody.usergroups_users_list(usergroup="S0EVAL")) == "invalid_auth"
            app = AsyncWebClient(token=workspace.app_token, base_url=workspace.api_url, retry_handlers=[])
            assert await error_of(app.usergroups_users_list(usergroup="S0EVAL")) == "not_allowed_token_type"
            workspace.faults.refuse("usergroups.users.list", "missing_scope")
            assert await error_of(client.usergroups_users_list(usergroup="S0EVAL")) == "missing_scope"
            assert (await client.usergroups_users_list(usergroup="S0EVAL"))["users"] == ["U0ANA", "U0BO"]

    asyncio.run(scenario())
