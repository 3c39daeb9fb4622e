"""The bucket that paces edits, the echoes that prove that events come, and the blotting of secrets."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bot.chats.slack.bucket import Bucket
from bot.chats.slack.echoes import Echoes
from bot.chats.slack.secrecy import redacted, sdk_logger

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def test_some_at_once_and_then_so_many_a_minute():
    bucket = Bucket(a_minute=30, at_once=3)
    assert [bucket.take(NOW) for _ in range(3)] == [timedelta()] * 3
    assert bucket.take(NOW) == timedelta(seconds=2)
    assert bucket.take(after(1)) == timedelta(seconds=1)
    assert bucket.take(after(2)) == timedelta()
    assert bucket.take(after(2)) == timedelta(seconds=2)
    assert [bucket.take(after(600)) for _ in range(3)] == [timedelta()] * 3


@given(st.lists(st.floats(min_value=0, max_value=20), max_size=200))
def test_no_minute_holds_more_than_the_rate_and_the_burst(gaps):
    bucket, taken, now = Bucket(a_minute=45, at_once=5), [], 0.0
    for gap in gaps:
        now += gap
        if not bucket.take(after(now)):
            taken.append(now)
    for start in taken:
        assert sum(start <= one < start + 60 for one in taken) <= 50


def echoes():
    return Echoes(timedelta(seconds=60))


def test_posts_that_come_back_are_fine():
    heard = echoes()
    for number in range(5):
        heard.said("C1", str(number), after(number))
        heard.heard("C1", str(number))
    assert not heard.is_deaf(after(600))


def test_three_posts_that_do_not_come_back_where_they_used_to_mean_that_events_are_lost():
    heard = echoes()
    heard.heard("C1", "0")  # an event may be quicker than the answer to the post
    heard.said("C1", "0", NOW)
    for number in (1, 2, 3):
        heard.said("C1", str(number), after(number))
    assert not heard.is_deaf(after(60))
    assert heard.is_deaf(after(64))
    heard.forget()
    assert not heard.is_deaf(after(64))


def test_a_channel_whose_events_never_came_proves_nothing():
    heard = echoes()
    for number in range(5):
        heard.said("D1", str(number), NOW)
    assert not heard.is_deaf(after(600))


def test_a_later_echo_settles_the_earlier_ones():
    heard = echoes()
    heard.said("C1", "0", NOW)
    heard.heard("C1", "0")
    for number in (1, 2, 3, 4):
        heard.said("C1", str(number), after(number))
    heard.heard("C1", "4")
    assert not heard.is_deaf(after(600))


def test_echoes_are_bounded():
    heard = echoes()
    for number in range(1_000):
        heard.said("C1", f"a{number}", NOW)
        heard.heard("C1", f"b{number}")
    assert len(heard._owed) == len(heard._early) == 200


def test_tokens_and_tickets_are_blotted_out():
    text = "xoxb-1-abc xapp-1-A0-9-ef wss://h/link/?ticket=s3cr3t&app=1 Authorization: Bearer abc.def"
    assert redacted(text) == "(secret) (secret) wss://h/link/?ticket=(secret)&app=1 Authorization: Bearer (secret)"


def test_the_libraries_logger_blots_its_arguments_and_tracebacks(caplog):
    logger = sdk_logger()
    try:
        Path("/nowhere/ticket=s3cr3t").read_bytes()
    except OSError:
        logger.exception("failed with %s", "xoxb-1-abc")
    logger.info("quiet")
    assert [record.getMessage() for record in caplog.records] == ["failed with (secret) (FileNotFoundError)"]
    assert "s3cr3t" not in caplog.text
    assert logger.level == logging.ERROR
