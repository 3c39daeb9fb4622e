from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chats.slack.events import Identity, Ignored, Incoming, read_event, read_press
from bot.ports import Heard, Place, Pressed, Ref

BOT = Identity("U0UPBOT", "B0UPBOT")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
AT = datetime(2026, 11, 30, 11, 58, 20, 250_000, tzinfo=UTC)
TS = "1796039900.250000"


def said(**event):
    inside = {"type": "message", "channel": "C1", "user": "U0ANA", "text": "up?", "ts": TS, **event}
    return {"type": "event_callback", "event_id": "Ev1", "event_time": 1796039900, "event": inside}


def heard(**fields):
    given = {"place": Place("C1"), "id": TS, "user": "U0ANA", "text": "up?", "at": AT} | fields
    return Incoming(Heard(**given), (f"message:C1:{TS}", "event:Ev1"))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({}, heard()),
        ({"text": "<@U0UPBOT> up?"}, heard(mentions_bot=True)),
        ({"type": "app_mention", "text": "<@U0UPBOT> up?"}, heard(mentions_bot=True)),
        ({"channel_type": "im"}, heard(mentions_bot=True)),
        ({"text": "<@U0UPBOT>"}, heard(text="", mentions_bot=True)),
        ({"thread_ts": "1.5"}, heard(place=Place("C1", "1.5"))),
        ({"thread_ts": TS}, heard()),
        ({"subtype": "thread_broadcast", "thread_ts": "1.5"}, heard(place=Place("C1", "1.5"))),
        ({"subtype": "file_share", "files": [{}]}, heard()),
    ],
)
def test_what_a_person_says_is_heard(event, expected):
    assert read_event(said(**event), BOT, NOW) == expected


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"subtype": "message_changed", "message": {"text": "restart"}}, "message of subtype message_changed"),
        ({"subtype": "message_deleted"}, "message of subtype message_deleted"),
        ({"subtype": "channel_join"}, "message of subtype channel_join"),
        ({"subtype": "bot_message"}, "message of subtype bot_message"),
        ({"hidden": True}, "a hidden message"),
        ({"bot_id": "B9"}, "a bot's message"),
        ({"user": "U0UPBOT"}, "a message of nobody else"),
        ({"user": None}, "a message of nobody else"),
        ({"text": None}, "a message without words"),
        ({"text": " \u200b "}, "a message without words"),
        ({"type": "pin_added"}, "event pin_added"),
        ({"channel": ["C1"]}, "message that can't be read: event.channel: Input should be a valid string"),
    ],
)
def test_everything_else_is_ignored_with_a_reason(event, reason):
    assert read_event(said(**event), BOT, NOW) == Ignored(reason)


def test_an_event_without_an_inside_is_ignored():
    assert read_event({"type": "app_rate_limited"}, BOT, NOW) == Ignored("event ")


def test_a_timestamp_that_is_none_is_replaced():
    body = said(ts="soon")
    assert read_event(body, BOT, NOW).event.at == datetime(2026, 11, 30, 11, 58, 20, tzinfo=UTC)
    body["event_time"] = None
    assert read_event(body, BOT, NOW).event.at == NOW


def press(**changes):
    return {
        "type": "block_actions",
        "user": {"id": "U0BO"},
        "channel": {"id": "C1"},
        "container": {"type": "message", "message_ts": "7.1", "channel_id": "C1"},
        "message": {"ts": "7.1", "thread_ts": "6.0"},
        "actions": [
            {
                "type": "button",
                "action_id": "confirm",
                "value": "ab12:confirm",
                "text": {"type": "plain_text", "text": "Restart"},
                "action_ts": TS,
            }
        ],
    } | changes


def test_a_press_says_who_where_and_what_the_button_carried():
    expected = Pressed(Place("C1", "6.0"), Ref("C1", "7.1", "6.0"), "U0BO", "ab12:confirm", AT, "Restart")
    assert read_press(press(), NOW) == Incoming(expected, (f"press:C1:7.1:U0BO:confirm:{TS}",))


def test_a_press_without_a_time_can_not_be_told_from_a_second_one():
    body = press(message=None, actions=[{"type": "button", "value": "say:up?"}])
    expected = Pressed(Place("C1"), Ref("C1", "7.1"), "U0BO", "say:up?", NOW)
    assert read_press(body, NOW) == Incoming(expected, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"actions": []},
        {"user": None},
        {"container": {"type": "view"}},
        {"channel": {}},
        {"actions": [{"type": "button"}]},
    ],
)
def test_an_interaction_that_is_no_press_of_ours_is_ignored(changes):
    assert isinstance(read_press(press(**changes), NOW), Ignored)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["type", "channel", "ts", "user", "text", "subtype", "thread_ts", "hidden", "bot_id"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_event_is_too_strange(event):
    result = read_event(said(**event), BOT, NOW)
    assert isinstance(result, Incoming | Ignored)


@given(st.dictionaries(st.sampled_from(["user", "channel", "container", "message", "actions"]), JSON))
def test_no_interaction_is_too_strange(changes):
    assert isinstance(read_press(press(**changes), NOW), Incoming | Ignored)
