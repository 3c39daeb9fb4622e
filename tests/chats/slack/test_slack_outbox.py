"""What is said while Slack is well, slow, strict, or away: once, and in order."""

import asyncio
import re
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from bot.domain.errors import ChatError
from bot.domain.message import Button, Buttons, Lines, Mention, Message, Picture, Says, line, says
from bot.ports import Place, Ref

FLEET = Place("C0FLEET")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)


def s(seconds):
    return timedelta(seconds=seconds)


def calls(it, name):
    """Counts what is asked of the workspace: every call passes here before a fault can answer it."""
    seen = []
    inner = it.workspace.faults.answer_instead

    async def counting(method, request):
        if method == name:
            seen.append(time.monotonic())
        return await inner(method, request)

    it.workspace.faults.answer_instead = counting
    return seen


def test_a_post_stands_where_it_should(stage):
    async def scenario():
        async with stage() as it:
            ref = await it.slack.post(FLEET, says("8/8 answering"))
            reply = await it.slack.post(Place("C0FLEET", ref.id), says("details"))
            assert ref == Ref("C0FLEET", it.posts[0].ts)
            assert reply == Ref("C0FLEET", it.posts[1].ts, ref.id)
            assert [(post.text, post.thread) for post in it.posts] == [("8/8 answering", None), ("details", ref.id)]

    asyncio.run(scenario())


def test_posts_keep_their_order(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.rate_limit("chat.postMessage", retry_after=s(0))
            it.workspace.faults.fail("chat.postMessage", times=2)
            await asyncio.gather(*(it.slack.post(FLEET, says(str(number))) for number in range(20)))
            assert it.texts == [str(number) for number in range(20)]

    asyncio.run(scenario())


def test_too_many_requests_wait_as_long_as_slack_says(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.rate_limit("chat.postMessage", retry_after=s(1))
            await it.slack.post(FLEET, says("up"))
            assert it.texts == ["up"]
            assert s(1) in it.clock.slept

    asyncio.run(scenario())


def test_a_lost_answer_does_not_make_it_said_twice(stage):
    """Slack has the post, its answer comes too late: the key is found in the channel's history."""

    async def scenario():
        async with stage(call=s(0.1)) as it:
            it.workspace.faults.stall("chat.postMessage", span=s(0.3))
            ref = await it.slack.post(FLEET, says("only once"))
            assert it.texts == ["only once"]
            assert ref.id == it.posts[0].ts

    asyncio.run(scenario())


def test_a_lost_answer_in_a_thread_does_not_make_it_said_twice(stage):
    async def scenario():
        async with stage(call=s(0.1)) as it:
            root = await it.slack.post(FLEET, says("root"))
            it.workspace.faults.stall("chat.postMessage", span=s(0.3))
            ref = await it.slack.post(Place("C0FLEET", root.id), says("only once"))
            assert it.texts == ["root", "only once"]
            assert ref == Ref("C0FLEET", it.posts[1].ts, root.id)

    asyncio.run(scenario())


def test_a_lost_request_is_said_again(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.drop("chat.postMessage")
            await it.slack.post(FLEET, says("said"))
            assert it.texts == ["said"]

    asyncio.run(scenario())


def test_when_slack_is_away_the_work_goes_on_and_all_is_said_once_it_is_back(stage):
    async def scenario():
        async with stage(patience=s(0.1)) as it:
            it.workspace.faults.outage(s(60))
            started = time.monotonic()
            root = await it.slack.post(FLEET, says("restart begins"))
            reply = await it.slack.post(Place("C0FLEET", root.id), says("0:30"))
            for text in ("1/8 up", "2/8 up", "8/8 up"):
                await it.slack.edit(root, says(text))
            assert time.monotonic() - started < 3
            assert root.id.startswith("later-")
            assert it.slack.waiting == 3
            it.workspace.faults.behave()
            await it.until(lambda: it.slack.waiting == 0 and it.texts == ["8/8 up", "0:30"])
            assert it.posts[1].thread == it.posts[0].ts

            # The provisional Ref stays good, and what people do there comes with it.
            await it.slack.edit(reply, says("0:31"))
            await it.slack.edit(root, Message(line("done"), (Buttons((Button("Why", Says("why")),)),)))
            await it.until(lambda: it.texts == ["done", "0:31"])
            await it.until(lambda: it.slack.is_connected)
            it.say("quiet", thread=it.posts[0].ts)
            await it.until(lambda: it.listener.heard_)
            await it.workspace.people.press("fleet", "bo", it.posts[0].ts, "Why")
            assert it.listener.heard_[0].place == Place("C0FLEET", root.id)
            assert it.listener.pressed_[0].message == root

    asyncio.run(scenario())


def test_a_provisional_ref_of_an_earlier_run_is_found_by_its_key(stage):
    async def scenario():
        async with stage(patience=s(0.5)) as it:
            it.workspace.faults.outage(s(60))
            ref = await it.slack.post(FLEET, says("begun"))
            it.workspace.faults.behave()
            await it.until(lambda: it.texts == ["begun"])
            await it.until(lambda: it.slack.waiting == 0)
            it.slack._outbox._letters.clear()  # as a new process would have it
            await it.slack.edit(ref, says("ended"))
            await it.until(lambda: it.texts == ["ended"])
            it.slack._outbox._pace = replace(it.slack._outbox._pace, patience=s(10))
            with pytest.raises(ChatError) as caught:
                await it.slack.edit(Ref("C0FLEET", "later-never"), says("ended"))
            assert str(caught.value) == "Slack refused the message: message_not_found (that message is gone)"

    asyncio.run(scenario())


def test_the_outbox_gives_up_the_oldest_and_says_how_many(stage):
    async def scenario():
        async with stage(outbox=3, patience=s(0.05)) as it:
            it.workspace.faults.outage(s(60))
            refs = [await it.slack.post(FLEET, says(str(number))) for number in range(4)]
            refs.append(await it.slack.post(Place("C0FLEET", refs[1].id), says("in a thread that is not")))
            it.workspace.faults.behave()
            await it.until(lambda: len(it.texts) == 4)
            assert it.texts[0] == "0"
            assert it.texts[1] == "2 messages could not be kept while Slack was away"
            assert it.texts[2:] == ["3", "in a thread that is not"]
            assert it.posts[3].thread is None
            it.slack._outbox._pace = replace(it.slack._outbox._pace, patience=s(10))
            with pytest.raises(ChatError):
                await it.slack.edit(refs[1], says("x"))

    asyncio.run(scenario())


def test_edits_of_one_message_that_wait_become_the_newest_one(stage):
    async def scenario():
        async with stage() as it:
            ref = await it.slack.post(FLEET, says("0"))
            updates = calls(it, "chat.update")
            it.workspace.faults.rate_limit("chat.update", retry_after=s(1))
            await asyncio.gather(*(it.slack.edit(ref, says(str(number))) for number in range(1, 30)))
            assert it.texts == ["29"]
            assert len(updates) == 2

    asyncio.run(scenario())


def test_an_edit_after_an_edit_stands_in_the_end(stage):
    async def scenario():
        async with stage() as it:
            ref = await it.slack.post(FLEET, says("0"))
            it.workspace.faults.fail("chat.update", times=3)
            first = asyncio.create_task(it.slack.edit(ref, says("first")))
            await asyncio.sleep(0.01)
            await it.slack.edit(ref, says("second"))
            await first
            assert it.texts == ["second"]

    asyncio.run(scenario())


def test_edits_are_paced_and_a_question_is_answered_before_progress_goes_on(stage):
    async def scenario():
        async with stage(edits_a_minute=120, edits_at_once=2) as it:
            progress = [await it.slack.post(FLEET, says(f"p{number}")) for number in range(3)]
            question = await it.slack.post(FLEET, says("restart?"))
            updates = calls(it, "chat.update")
            for ref in progress[:2]:
                await it.slack.edit(ref, says("1/8"))
            waiting = [asyncio.create_task(it.slack.edit(ref, says("2/8"))) for ref in progress[:2]]
            answered = asyncio.create_task(it.slack.edit(question, says("by bo")))
            await asyncio.wait([*waiting, answered], return_when=asyncio.FIRST_COMPLETED)
            assert answered.done()
            assert not any(one.done() for one in waiting)
            await asyncio.gather(*waiting)
            assert it.texts == ["2/8", "2/8", "p2", "by bo"]
            assert len(updates) == 5
            assert any(s(0) < pause <= s(0.5) for pause in it.clock.slept if pause != it.slack._pace.check)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_edit", [False, True])
def test_blocks_that_slack_refuses_are_said_as_plain_text(stage, is_edit):
    """The workspace knows nobody of that id, so it refuses the mention in the blocks."""

    async def scenario():
        async with stage() as it:
            message = Message(line("asked"), (Lines((line("by ", Mention("U0NOBODY"), " <!channel>"),)),))
            if is_edit:
                await it.slack.edit(await it.slack.post(FLEET, says("a")), message)
            else:
                await it.slack.post(FLEET, message)
            assert it.texts == ["asked\nby @U0NOBODY &lt;!channel&gt;"]
            assert it.posts[0].blocks == ()

    asyncio.run(scenario())


def test_a_refusal_for_good_is_a_chat_error_that_says_what_to_do(stage):
    async def scenario():
        async with stage() as it:
            with pytest.raises(ChatError) as caught:
                await it.slack.post(Place("C0NOWHERE"), says("up"))
            assert str(caught.value) == (
                "Slack refused the message: channel_not_found"
                " (the channel's id is wrong, or the bot is not in it: /invite @<its name>)"
            )
            with pytest.raises(ChatError):
                await it.slack.edit(Ref("C0FLEET", "1.000001"), says("up"))
            await it.slack.post(FLEET, says("still here"))
            assert it.texts == ["still here"]

    asyncio.run(scenario())


def test_one_channels_trouble_does_not_hold_up_another(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.rate_limit("chat.postMessage", retry_after=s(1))
            held = asyncio.create_task(it.slack.post(FLEET, says("held")))
            await asyncio.sleep(0.05)
            with pytest.raises(ChatError):
                await it.slack.post(Place("C0OTHER"), says("a channel that is not"))
            assert not held.done()
            await held
            assert it.texts == ["held"]

    asyncio.run(scenario())


def test_a_picture_comes_into_the_thread_after_the_words(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.fail("files.getUploadURLExternal")
            message = Message(line("gpu3 is slow"), (Picture(PNG, "rate.png", "tok/s <!here> of 2 h"),))
            ref = await it.slack.post(FLEET, message)
            assert it.texts == ["gpu3 is slow"]
            await it.until(lambda: len(it.posts) == 2)
            shown = it.posts[1]
            assert (shown.thread, shown.text) == (ref.id, "tok/s &lt;!here&gt; of 2 h")
            assert it.workspace.room.files[shown.files[0]].content == PNG

    asyncio.run(scenario())


def test_a_picture_that_can_not_be_shown_is_told_in_words(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.fail("files.getUploadURLExternal", times=5)
            await it.slack.post(FLEET, Message(line("slow"), (Picture(PNG, "rate.png", "tok/s of 2 h"),)))
            await it.until(lambda: len(it.posts) == 2)
            assert it.posts[1].text == "The picture could not be uploaded. It shows: tok/s of 2 h"
            assert it.posts[1].thread == it.posts[0].ts

    asyncio.run(scenario())


def test_who_waits_when_the_bot_stops_is_told(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.outage(s(60))
            ref = Ref("C0FLEET", it.workspace.room.stamp())
            waiting = [
                asyncio.create_task(it.slack.post(FLEET, says("x"))),
                asyncio.create_task(it.slack.edit(ref, says("y"))),
            ]
            await asyncio.sleep(0.05)
            await it.slack.stop()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [str(one) for one in results] == ["the bot is stopping"] * 2
            with pytest.raises(ChatError):
                await it.slack.post(FLEET, says("too late"))

    asyncio.run(scenario())


def test_a_caller_that_gives_up_does_not_unsay_it(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.fail("chat.postMessage", times=2)
            asking = asyncio.create_task(it.slack.post(FLEET, says("said all the same")))
            await asyncio.sleep(0.01)
            asking.cancel()
            await it.until(lambda: it.texts == ["said all the same"])

    asyncio.run(scenario())


def test_no_secret_is_ever_logged(stage, caplog):
    async def scenario():
        with structlog.testing.capture_logs() as lines:
            async with stage() as it:
                secrets = [it.workspace.bot_token, it.workspace.app_token]
                for method in ("chat.postMessage", "chat.update", "apps.connections.open"):
                    it.workspace.faults.fail(method)
                    it.workspace.faults.drop(method)
                it.workspace.faults.refuse_upgrades(2)
                it.workspace.faults.abort()
                await it.slack.post(FLEET, says("x"))
                await it.until(lambda: it.slack.is_connected)
                with pytest.raises(ChatError):
                    await it.slack.post(Place("C0NOWHERE"), says("x"))
        everything = caplog.text + repr(lines)
        assert "slack did not take a message" in everything
        assert not [one for one in secrets if one in everything]
        assert "ticket=(secret)" in everything
        assert not re.search(r"ticket=(?!\(secret\))", everything)

    with caplog.at_level("DEBUG"):
        asyncio.run(scenario())


def test_a_message_that_can_not_be_written_does_not_hold_up_the_next(stage):
    async def scenario():
        async with stage() as it:
            with structlog.testing.capture_logs() as lines:
                with pytest.raises(ChatError):
                    await it.slack.post(FLEET, "no message at all")
                await it.slack.post(FLEET, says("next"))
            assert it.texts == ["next"]
            assert [one["event"] for one in lines if one["log_level"] == "critical"] == ["a writer to slack failed"]

    asyncio.run(scenario())
