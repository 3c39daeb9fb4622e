import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chats.slack.typed import MOST_TYPED, Typed, typed

BOT = "U0UPBOT"


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("up?", "up?"),
        ("restart <http://foo.bar|foo.bar>", "restart foo.bar"),
        ("logs <http://h1.example/x>", "logs http://h1.example/x"),
        ("ask <mailto:a@b.io|a@b.io>", "ask a@b.io"),
        ("call <tel:+49301234|+49 30 1234>", "call +49 30 1234"),
        ("call <tel:112>", "call 112"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;", "&lt;"),
        ("&lt;@U0UPBOT&gt;", "<@U0UPBOT>"),
        ("in <#C01|fleet> or <#C02>", "in #fleet or #C02"),
        ("hold for <@U0BO|bo> and <@U0ANA>", "hold for @bo and @U0ANA"),
        ("<!here> <!channel> <!subteam^S1|@ops> <!date^1700000000^{date}|Tuesday>", "@here @channel @ops Tuesday"),
        ("restart \u201cno_buffer\u201d \u2018gpu3\u2019", "restart \"no_buffer\" 'gpu3'"),
        ("restart \u2014rolling no_buffer", "restart --rolling no_buffer"),
        ("logs gpu2\u20135 \u2013n 20", "logs gpu2-5 --n 20"),
        ("up\u00a0\u00a0 gpu3\u200b\ufeff", "up gpu3"),
        ("re\x00st\x1bart\x07 gpu3\r\nplease", "restart gpu3\nplease"),
        ("`restart no_buffer`", "restart no_buffer"),
        ("```\nup?\n```", "up?"),
        ("a `b` c", "a `b` c"),
        ("<not a mark", "<not a mark"),
        ("", ""),
    ],
)
def test_what_slack_and_the_keyboard_did_is_undone(raw, meant):
    assert typed(raw, BOT) == Typed(meant)


@pytest.mark.parametrize("raw", ["<@U0UPBOT> up?", "<@U0UPBOT|upbot>: up?", "<@U0UPBOT>, up?", "up? <@U0UPBOT>"])
def test_the_bots_own_name_is_taken_out_and_told(raw):
    assert typed(raw, BOT) == Typed("up?", mentions_bot=True)


def test_before_the_bot_knows_its_name_nothing_is_a_mention_of_it():
    assert typed("<@> up?", "") == Typed("@ up?")


def test_long_text_is_cut():
    assert len(typed("x" * 50_000, BOT).text) == MOST_TYPED


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="`"), max_size=300))
def test_what_was_typed_comes_back_through_slacks_escapes(text):
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert typed(escaped, BOT) == Typed(text)


@given(st.text(alphabet="<>|@#!&;ltgamp`^ U0PBOT\u200b\u2014\x00\n", max_size=200))
def test_no_text_is_too_strange(text):
    result = typed(text, BOT).text
    assert "\x00" not in result
    assert "\u200b" not in result
    assert len(result) <= MOST_TYPED
