"""What people do in a workspace, as the bot hears it."""

import asyncio
import time
from datetime import timedelta

import pytest

from bot.chats.slack import Slack, SlackSettings
from bot.domain.errors import ConfigError
from bot.domain.message import Answers, Button, Buttons, Message, Says, line
from bot.ports import Place, Ref

FLEET = Place("C0FLEET")


def test_words_are_heard_once_and_acknowledged(stage):
    async def scenario():
        async with stage() as it:
            ts = it.say("up?")
            await it.until(lambda: it.listener.heard_)
            event = it.listener.heard_[0]
            assert (event.place, event.id, event.user, event.text) == (FLEET, ts, "U0ANA", "up?")
            assert event.at.timestamp() == pytest.approx(float(ts))
            assert not it.unacknowledged

    asyncio.run(scenario())


def test_a_mention_comes_as_two_events_and_is_heard_once(stage):
    async def scenario():
        async with stage() as it:
            it.say("@upbot up?")
            await it.until(lambda: len(it.workspace.deliveries) == 2)
            it.say("again")
            await it.until(lambda: "again" in it.listener.words)
            assert [(one.text, one.mentions_bot) for one in it.listener.heard_] == [("up?", True), ("again", False)]

    asyncio.run(scenario())


def test_what_is_delivered_twice_is_heard_once(stage):
    async def scenario():
        async with stage() as it:
            it.workspace.faults.duplicate()
            it.say("restart no_buffer")
            it.say("up?")
            await it.until(lambda: len(it.workspace.deliveries) == 3)
            assert sorted(it.listener.words) == ["restart no_buffer", "up?"]

    asyncio.run(scenario())


def test_what_was_handled_before_a_restart_is_not_handled_again(stage):
    """The keys are in the store, which the next run gets."""

    async def scenario():
        async with stage() as first:
            ts = first.say("restart no_buffer")
            await first.until(lambda: first.listener.heard_)
            first.slack._handled.clear()  # as a new process would have it
            inside = {"type": "message", "channel": "C0FLEET", "user": "U0ANA", "text": "restart no_buffer", "ts": ts}
            first.slack._on_event({"type": "event_callback", "event_id": "EvAgain", "event": inside})
            assert len(first.listener.heard_) == 1

    asyncio.run(scenario())


def test_with_a_store_that_fails_words_are_still_heard_and_still_once(stage):
    async def scenario():
        async with stage() as it:
            it.memory.is_broken = True
            it.workspace.faults.duplicate()
            it.say("status")
            await it.until(lambda: len(it.workspace.deliveries) == 2)
            assert it.listener.words == ["status"]

    asyncio.run(scenario())


def test_an_edit_is_no_command(stage):
    async def scenario():
        async with stage() as it:
            ts = it.say("status")
            it.workspace.people.edit("fleet", "ana", ts, "restart no_buffer")
            it.say("end")
            await it.until(lambda: "end" in it.listener.words)
            await it.until(lambda: len(it.workspace.deliveries) == 3)
            assert it.listener.words == ["status", "end"]
            assert not it.unacknowledged

    asyncio.run(scenario())


def test_the_bot_does_not_hear_itself(stage):
    async def scenario():
        async with stage() as it:
            await it.slack.post(FLEET, Message(line("up?")))
            it.say("end")
            await it.until(lambda: it.listener.heard_)
            assert it.listener.words == ["end"]
            assert not it.unacknowledged

    asyncio.run(scenario())


def test_an_old_message_is_delivered_with_its_own_time(stage):
    """Whether it is too old is the dispatcher's to decide."""

    async def scenario():
        async with stage() as it:
            ts = f"{time.time() - 360:.6f}"
            inside = {"type": "message", "channel": "C0FLEET", "user": "U0ANA", "text": "up?", "ts": ts}
            it.slack._on_event({"type": "event_callback", "event_id": "E1", "event": inside})
            assert it.clock.now() - it.listener.heard_[0].at > timedelta(minutes=5)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("events_api", {"type": "event_callback", "event_id": "E1", "event": {"type": "pin_added"}}),
        ("events_api", {"type": "event_callback", "event": {"type": "message", "channel": "C1", "ts": "1", "text": None}}),
        ("events_api", {"type": "event_callback", "event": {"type": "message", "channel": "C1", "ts": "1", "user": "U1"}}),
        ("events_api", {"type": "event_callback", "event": {"type": "message", "subtype": "message_changed"}}),
        ("events_api", {"type": "app_rate_limited", "minute_rate_limited": 1}),
        ("events_api", {}),
        ("slash_commands", {"command": "/upbot", "text": "up?", "user_id": "U0ANA", "channel_id": "C1"}),
        ("interactive", {"type": "view_submission", "user": {"id": "U1"}, "view": {"type": "modal", "callback_id": "x"}}),
        ("interactive", {"type": "shortcut", "callback_id": "x", "user": {"id": "U1"}}),
        ("interactive", {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"type": "overflow", "action_id": "x"}]}),
        ("interactive", {"type": "something_new"}),
    ],
)  # fmt: skip
def test_whatever_comes_is_acknowledged(stage, kind, payload):
    async def scenario():
        async with stage() as it:
            assert await it.workspace._line.ask(kind, payload) is not None
            assert not it.listener.heard_
            assert not it.listener.pressed_

    asyncio.run(scenario())


def test_a_press_says_what_the_button_carried(stage):
    async def scenario():
        async with stage() as it:
            buttons = Buttons((Button("Restart", Answers("ab12", "confirm")), Button("Why", Says("why gpu3"))))
            ref = await it.slack.post(FLEET, Message(line("Restart?"), (buttons,)))
            await it.workspace.people.press("fleet", "bo", ref.id, "Restart")
            await it.workspace.people.press("fleet", "ana", ref.id, "Why")
            found = [(one.place, one.message, one.user, one.does, one.label) for one in it.listener.pressed_]
            assert found == [
                (FLEET, ref, "U0BO", "ab12:confirm", "Restart"),
                (FLEET, ref, "U0ANA", "say:why gpu3", "Why"),
            ]

    asyncio.run(scenario())


def test_two_presses_of_the_same_button_are_two(stage):
    """Which of them counts is decided where the question is kept."""

    async def scenario():
        async with stage() as it:
            ref = await it.slack.post(FLEET, Message(line("?"), (Buttons((Button("Go", Says("go")),)),)))
            for _ in range(2):
                await it.workspace.people.press("fleet", "bo", ref.id, "Go")
            assert len(it.listener.pressed_) == 2

    asyncio.run(scenario())


def test_a_press_on_an_old_message_in_a_thread_is_told_like_any_other(stage):
    async def scenario():
        async with stage() as it:
            root = it.say("restart")
            message = Message(line("?"), (Buttons((Button("Go", Answers("0ld", "go")),)),))
            ref = await it.slack.post(Place("C0FLEET", root), message)
            await it.workspace.people.press("fleet", "bo", ref.id, "Go")
            event = it.listener.pressed_[0]
            assert event.place == Place("C0FLEET", root)
            assert event.message == Ref("C0FLEET", ref.id, root)

    asyncio.run(scenario())


def test_a_whisper_is_seen_by_one_person(stage):
    async def scenario():
        async with stage() as it:
            await it.slack.whisper(FLEET, "U0VIC", Message(line("you may look but not restart")))
            assert [(post.ephemeral_to, post.text) for post in it.posts] == [("U0VIC", "you may look but not restart")]

    asyncio.run(scenario())


def test_a_reaction_comes_and_goes_in_order_and_never_fails(stage):
    async def scenario():
        async with stage() as it:
            ref = Ref("C0FLEET", it.say("restart"))
            it.workspace.faults.fail("reactions.add")
            await it.slack.react(ref, "eyes")
            await it.slack.react(ref, "eyes", on=False)
            await it.slack.react(Ref("C0FLEET", "1.2"), "x")
            await it.slack.react(Ref("C0FLEET", "later-unknown"), "x")
            await it.slack.react(ref, "white_check_mark")
            await it.until(lambda: it.workspace.room.post("C0FLEET", ref.id).reactions)
            assert it.workspace.room.post("C0FLEET", ref.id).reactions == {"white_check_mark": ("U0UPBOT",)}

    asyncio.run(scenario())


def test_the_loop_is_never_held_up(stage):
    """Many events and posts at once, and no turn of the loop takes long."""

    async def scenario():
        async with stage() as it:
            longest = 0.0

            async def beat():
                nonlocal longest
                while True:
                    before = time.monotonic()
                    await asyncio.sleep(0.005)
                    longest = max(longest, time.monotonic() - before)

            heart = asyncio.create_task(beat())
            for number in range(50):
                it.say(f"say {number}")
            await asyncio.gather(*(it.slack.post(FLEET, Message(line(f"post {number}"))) for number in range(50)))
            await it.until(lambda: len(it.listener.heard_) == 50)
            heart.cancel()
            await asyncio.gather(heart, return_exceptions=True)
            assert longest < 0.5

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (SlackSettings(""), "SLACK_BOT_TOKEN: no bot token (OAuth & Permissions of the app, begins with xoxb-)"),
        (SlackSettings("xapp-1"), "SLACK_BOT_TOKEN: that is the app-level token; the bot token begins with xoxb-"),
        (SlackSettings("xoxb-1", "xoxb-2"), "SLACK_APP_TOKEN: that is a bot token; the app-level token begins with xapp-"),
        (SlackSettings("xoxb-1"), "SLACK_APP_TOKEN: set an app token (Socket Mode) or a signing secret (HTTP mode)"),
    ],
)  # fmt: skip
def test_tokens_that_can_not_be_right_are_refused_before_anything_is_sent(settings, error):
    with pytest.raises(ConfigError) as caught:
        Slack(settings, None, None)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("bot_token", "app_token", "error"),
    [
        (
            "xoxb-wrong",
            None,
            "SLACK_BOT_TOKEN: Slack refused the bot token: invalid_auth; take the Bot User OAuth Token of the app (begins with xoxb-)",
        ),
        (
            None,
            "xapp-wrong",
            "SLACK_APP_TOKEN: Slack refused the app token: invalid_auth; make a new app-level token (Basic Information, scope connections:write)",
        ),
    ],
)
def test_a_refused_token_ends_the_start_and_says_what_to_do(stage, bot_token, app_token, error):
    async def scenario():
        async with stage() as it:
            settings = SlackSettings(
                bot_token or it.workspace.bot_token,
                app_token or it.workspace.app_token,
                base_url=it.workspace.api_url,
            )
            with pytest.raises(ConfigError) as caught:
                await Slack(settings, it.memory, it.clock).start(it.listener)
            assert str(caught.value) == error

    asyncio.run(scenario())


def test_a_secret_is_not_in_the_settings_words():
    shown = repr(SlackSettings("xoxb-1-secret", "xapp-1-secret", "signing-secret"))
    assert "secret" not in shown.replace("listen", "")
