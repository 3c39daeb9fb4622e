"""Messages as Slack shows them; the embedded workspace's strict validator says whether Slack would take them."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.chats.slack.markup import as_mrkdwn, shorten, size, tidy
from bot.chats.slack.render import pictures, render, render_plain
from bot.demo.workspace.blocks import problems
from bot.domain.message import (
    Answers,
    Button,
    Buttons,
    Lines,
    LogPiece,
    Look,
    Mention,
    Message,
    Moment,
    Picture,
    Says,
    Small,
    Span,
    Style,
    Table,
    bold,
    code,
    line,
    says,
)

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PEOPLE = ["U0ANA", "U0BO"]


def mrkdwn(text):
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def small(text):
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def rich(*elements):
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def text(words, **style):
    return {"type": "text", "text": words} | ({"style": style} if style else {})


def button(label, action, value, **more):
    shown = {"type": "plain_text", "text": label, "emoji": False}
    return {"type": "button", "text": shown, "action_id": action, "value": value, **more}


# ------------------------------------------------------------------------------------------------ the look


def test_an_answer_is_a_bold_headline_a_line_a_server_and_small_print():
    message = Message(
        line(bold("6/7 answering"), " · ct9 · 0.2 s"),
        (
            Lines(
                (
                    line("🟢 ", code("30000"), " gpu0  HTTP 200  31 running"),
                    line("🟡 ", code("30001"), " gpu1  ", bold("refused"), "  loading weights 12 %, 9 s"),
                )
            ),
            Small((line("job nightly: 12 of 90 · nothing else running"),)),
        ),
    )
    assert render(message) == {
        "text": "6/7 answering · ct9 · 0.2 s",
        "blocks": [
            mrkdwn("*6/7 answering* · ct9 · 0.2 s"),
            mrkdwn("🟢 `30000` gpu0  HTTP 200  31 running\n🟡 `30001` gpu1  *refused*  loading weights 12 %, 9 s"),
            small("job nightly: 12 of 90 · nothing else running"),
        ],
    }


def test_a_question_has_its_red_button_first_and_says_who_may_press():
    message = Message(
        line(bold("Restart 2 servers with fast?"), "\n2 healthy · 64 requests running"),
        (
            Lines((line(code("max-running-requests"), "  64 → ", bold("96")),)),
            Buttons(
                (
                    Button("Restart 2 servers", Answers("ab12", "confirm"), Look.DANGER),
                    Button("Cancel", Answers("ab12", "cancel")),
                )
            ),
            Small((line("asked by ", Mention("U0ANA"), " at ", Moment(AT), ", or ", code("yes ab12")),)),
        ),
    )
    assert render(message) == {
        "text": "Restart 2 servers with fast?\n2 healthy · 64 requests running",
        "blocks": [
            mrkdwn("*Restart 2 servers with fast?*\n2 healthy · 64 requests running"),
            mrkdwn("`max-running-requests`  64 → *96*"),
            {
                "type": "actions",
                "elements": [
                    button("Restart 2 servers", "confirm", "ab12:confirm", style="danger"),
                    button("Cancel", "cancel", "ab12:cancel"),
                ],
            },
            small(
                "asked by <@U0ANA> at <!date^1796040000^{date_short_pretty} {time}|2026-11-30 12:00 UTC>, or `yes ab12`"
            ),
        ],
    }


def test_progress_keeps_its_steps_on_one_line():
    message = Message(
        line(bold("Restart · fast"), " · 0:40 · 1/2 up"),
        (
            Lines((line("✓ job stopped   ✓ 2/2 stopped   ", bold("● starting"), "   ○ prove"),)),
            Lines((line("🟢 gpu0   ", bold("ready")), line("🟡 gpu1   capturing graphs 3–9/23"))),
            Buttons((Button("Cancel", Says("cancel")),)),
        ),
    )
    assert render(message)["blocks"] == [
        mrkdwn("*Restart · fast* · 0:40 · 1/2 up"),
        mrkdwn("✓ job stopped   ✓ 2/2 stopped   *● starting*   ○ prove"),
        mrkdwn("🟢 gpu0   *ready*\n🟡 gpu1   capturing graphs 3–9/23"),
        {"type": "actions", "elements": [button("Cancel", "say", "say:cancel")]},
    ]


def test_an_end_tells_before_and_after():
    message = Message(
        line("🟢 ", bold("2/2 up with fast"), " after 3 m 2 s\nmax_running_requests 30 → ", bold("60")),
    )
    assert render(message)["blocks"] == [mrkdwn("🟢 *2/2 up with fast* after 3 m 2 s\nmax_running_requests 30 → *60*")]


def test_an_alert_offers_what_to_do():
    message = Message(
        line("🔴 ", bold("gpu1 is slow"), " for 90 s"),
        (Buttons((Button("Why", Says("why gpu1")), Button("Restart gpu1…", Says("restart gpu1")))),),
    )
    assert render(message)["blocks"] == [
        mrkdwn("🔴 *gpu1 is slow* for 90 s"),
        {
            "type": "actions",
            "elements": [
                button("Why", "say", "say:why gpu1"),
                button("Restart gpu1…", "say-2", "say:restart gpu1"),
            ],
        },
    ]


# ------------------------------------------------------------------------------------------------ text is only text


def test_a_headline_without_bold_reads_bold_and_keeps_its_code():
    assert render(says("stopped ", code("gpu3"), " and its job"))["blocks"] == [
        mrkdwn("*stopped* `gpu3` *and its job*")
    ]


def test_foreign_text_pages_nobody():
    shown = render(Message(line("a"), (Lines((line("<!channel> <@U0ANA> & <http://x|y>"),)),)))
    assert shown["blocks"][1] == mrkdwn("&lt;!channel&gt; &lt;@U0ANA&gt; &amp; &lt;http://x|y&gt;")


@pytest.mark.parametrize(
    "words",
    ["2 * 3 * 4", "_private_ note", "~/run", "a `b", "at 03:14:20 o'clock", "> quoted", "__init__", "x_ y"],
)
def test_text_with_marks_in_it_is_never_parsed(words):
    assert render(Message(line("a"), (Lines((line(words),)),)))["blocks"][1] == rich(text(words))


@pytest.mark.parametrize("words", ["no_buffer", "max_running_requests 37", "10:30", "a/b-c", "50 %", "--flag x=1"])
def test_ordinary_words_stay_mrkdwn(words):
    assert render(Message(line("a"), (Lines((line(words),)),)))["blocks"][1] == mrkdwn(words)


def test_a_mark_in_one_line_keeps_the_styles_of_all():
    lines = Lines((line("🟡 ", code("a`b"), bold("x")), line("by ", Mention("U0BO"), " at ", Moment(AT))))
    date = {
        "type": "date",
        "timestamp": 1796040000,
        "format": "{date_short_pretty} {time}",
        "fallback": "2026-11-30 12:00 UTC",
    }
    assert render(Message(line("a"), (lines,)))["blocks"][1] == rich(
        text("🟡 "),
        text("a`b", code=True),
        text("x", bold=True),
        text("\nby "),
        {"type": "user", "user_id": "U0BO"},
        text(" at "),
        date,
    )


def test_small_print_with_marks_stays_small_where_it_has_no_styles():
    assert render(Message(line("a"), (Small((line("job *x*"),)),)))["blocks"][1] == {
        "type": "context",
        "elements": [{"type": "plain_text", "text": "job *x*", "emoji": False}],
    }
    assert render(Message(line("a"), (Small((line("job *x* ", code("y")),)),)))["blocks"][1] == rich(
        text("job *x* "), text("y", code=True)
    )


def test_bold_inside_a_word_is_not_left_to_mrkdwn():
    assert as_mrkdwn(line("x", bold("y"))) is None
    assert as_mrkdwn(line(bold("y"), "x")) is None
    assert as_mrkdwn(line("(", bold("y"), "), ", bold(" z "), "w")) == "(*y*),  *z* w"


def test_a_mention_of_something_that_is_no_person_is_text():
    assert render(says(bold("by "), Mention("channel> <!here")))["blocks"] == [mrkdwn("*by* @channel&gt; &lt;!here")]


def test_colours_and_controls_of_a_log_are_gone():
    log = "\x1b[31mERROR\x1b[0m \x1b]0;title\x07 <!channel> ```x```\x00\u202e\r\ndone"
    assert render(Message(line("a"), (LogPiece(log, "gpu3, last lines"),)))["blocks"][1] == {
        "type": "rich_text",
        "elements": [
            {"type": "rich_text_section", "elements": [text("gpu3, last lines", bold=True)]},
            {"type": "rich_text_preformatted", "elements": [text("ERROR  <!channel> ```x```\ndone")]},
        ],
    }


# ------------------------------------------------------------------------------------------------ limits


def test_the_end_of_a_long_log_is_kept():
    log = "\n".join(f"line {number}" for number in range(1_000))
    shown = render(Message(line("a"), (LogPiece(log),)))["blocks"][1]["elements"][0]["elements"][0]["text"]
    first, second, *_, last = shown.splitlines()
    assert last == "line 999"
    assert first == f"… {second.removeprefix('line ')} earlier lines"
    assert 2_300 < len(shown) <= 2_500


def test_one_endless_log_line_keeps_its_end():
    shown = render(Message(line("a"), (LogPiece("x" * 9_000 + "end"),)))["blocks"][1]
    words = shown["elements"][0]["elements"][0]["text"]
    assert words.startswith("…x")
    assert words.endswith("xend")
    assert len(words) <= 2_500


def test_an_empty_log_says_so():
    shown = render(Message(line("a"), (LogPiece("\n \n"),)))["blocks"][1]
    assert shown["elements"][0]["elements"] == [text("(empty)")]


def test_too_many_lines_are_counted_and_the_way_out_stays():
    lines = Lines(tuple(line(f"server {number:04} ", "y" * 60) for number in range(2_000)))
    message = Message(line("a"), (lines, Buttons((Button("Cancel", Says("cancel")),)), Small((line("5 min left"),))))
    blocks = render(message)["blocks"]
    assert problems(blocks) == []
    assert blocks[-1] == small("5 min left")
    assert blocks[-2]["elements"][0]["text"]["text"] == "Cancel"
    shown = "\n".join(block["text"]["text"] for block in blocks[1:-2]).splitlines()
    assert shown[-1] == f"… {2_000 - len(shown) + 1} more lines"
    assert len(shown) > 100


def test_a_small_fleets_lines_are_one_section_and_a_larger_ones_several():
    lines = Lines(tuple(line("🟢 ", code(str(30000 + number)), " ", "z" * 80) for number in range(60)))
    blocks = render(Message(line("a"), (lines,)))["blocks"]
    assert [block["type"] for block in blocks] == ["section"] * 3
    assert sum(block["text"]["text"].count("🟢") for block in blocks) == 60
    assert problems(blocks) == []


def test_sixty_blocks_become_fifty_at_most():
    blocks = render(Message(line("a"), tuple(Lines((line(f"n{number}"),)) for number in range(60))))["blocks"]
    assert len(blocks) <= 50
    assert problems(blocks) == []
    assert blocks[-1] == small("… 12 more lines")


def test_a_table_is_slacks_own_and_the_second_one_aligned():
    table = Table(("server", "state"), ((line("gpu0"), line("🟢 ", bold("ready"))), (line("gpu1"),)))
    blocks = render(Message(line("a"), (table, table)))["blocks"]

    def raw(words):
        return {"type": "raw_text", "text": words}

    assert blocks[1] == {
        "type": "table",
        "rows": [
            [rich(text("server", bold=True)), rich(text("state", bold=True))],
            [raw("gpu0"), rich(text("🟢 "), text("ready", bold=True))],
            [raw("gpu1"), raw("–")],
        ],
        "column_settings": [{"is_wrapped": True}] * 2,
    }
    assert blocks[2]["elements"][0] == {
        "type": "rich_text_preformatted",
        "elements": [text("server  state\ngpu0    🟢 ready\ngpu1    –")],
    }
    assert problems(blocks) == []


def test_a_long_table_says_how_many_rows_are_missing():
    table = Table(("n",), tuple((line(str(number)),) for number in range(150)))
    blocks = render(Message(line("a"), (table,)))["blocks"]
    assert len(blocks[1]["rows"]) == 100
    assert blocks[2] == small("… 51 more rows")


def test_a_command_that_does_not_fit_a_button_is_not_cut():
    shown = render(Message(line("a"), (Buttons((Button("Run", Says("x" * 2_000)), Button("Ok", Says("y")))),)))
    assert shown["blocks"][1]["elements"] == [button("Ok", "say", "say:y")]


def test_a_long_label_is_cut():
    shown = render(Message(line("a"), (Buttons((Button("w" * 100, Says("x")), Button("", Says("y")))),)))
    assert [one["text"]["text"] for one in shown["blocks"][1]["elements"]] == ["w" * 74 + "…", "…"]


def test_thirty_buttons_are_two_rows():
    buttons = tuple(Button(str(number), Answers("n", "pick")) for number in range(30))
    blocks = render(Message(line("a"), (Buttons(buttons),)))["blocks"]
    assert [len(block["elements"]) for block in blocks[1:]] == [25, 5]
    assert len({one["action_id"] for block in blocks[1:] for one in block["elements"]}) == 30


def test_a_picture_is_no_block():
    picture = Picture(b"png", "chart.png", "two hours of tokens")
    message = Message(line("slow"), (picture,))
    assert render(message)["blocks"] == [mrkdwn("*slow*")]
    assert pictures(message) == (picture,)


def test_nothing_to_say_is_still_a_message():
    assert render(Message(())) == {"text": "…", "blocks": [mrkdwn("*…*")]}


def test_plain_text_is_escaped_and_cut():
    message = Message(line("a <!here>"), tuple(Lines((line("&" * 50),)) for _ in range(100)))
    words = render_plain(message)
    assert words.startswith("a &lt;!here&gt;\n&amp;&amp;")
    assert len(words) <= 4_000
    assert re.search(r"\n… \d+ more lines$", words)
    assert render_plain(says("up")) == "up"


# ------------------------------------------------------------------------------------------------ any text at all

NASTY = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="<>!@#&;|*_~`: \n\t\x1b[0mU0ANA\u202e\ud800", max_size=30),
    st.sampled_from(["<!channel>", "<@U0ANA>", "<!here|x>", "```", "&lt;!here&gt;", ":smile:", " ", "\n", "x" * 4000]),
)
PARTS = st.one_of(
    st.builds(Span, NASTY, st.sampled_from(Style)),
    st.builds(Mention, st.one_of(st.sampled_from(PEOPLE), NASTY)),
    st.just(Moment(AT)),
)
LINES = st.lists(PARTS, max_size=5).map(tuple)
BUTTONS = st.builds(
    Button, NASTY, st.one_of(st.builds(Says, NASTY), st.builds(Answers, NASTY, NASTY)), st.sampled_from(Look)
)
BLOCKS = st.one_of(
    st.builds(Lines, st.lists(LINES, max_size=6).map(tuple)),
    st.builds(Small, st.lists(LINES, max_size=3).map(tuple)),
    st.builds(
        Table,
        st.lists(NASTY, max_size=4).map(tuple),
        st.lists(st.lists(LINES, max_size=4).map(tuple), max_size=5).map(tuple),
    ),
    st.builds(LogPiece, NASTY, NASTY),
    st.builds(Buttons, st.lists(BUTTONS, max_size=4).map(tuple)),
)
MESSAGES = st.builds(Message, LINES, st.lists(BLOCKS, max_size=8).map(tuple))


def mrkdwn_texts(value):
    if isinstance(value, dict):
        if value.get("type") == "mrkdwn":
            yield value["text"]
        for one in value.values():
            yield from mrkdwn_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from mrkdwn_texts(one)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES)
def test_any_message_is_taken_and_marks_in_it_are_only_ours(message):
    shown = render(message)
    assert problems(shown["blocks"], people=PEOPLE) == []
    named = {part.user for part in _parts(message) if isinstance(part, Mention)}
    for words in [shown["text"], *mrkdwn_texts(shown["blocks"])]:
        for mark in re.findall(r"<[^>]*>", words):
            assert mark in {f"<@{one}>" for one in named & set(PEOPLE)} or mark.startswith("<!date^1796040000^")
    shown["text"].encode()
    assert 0 < len(shown["text"]) <= 3_000
    assert "<" not in render_plain(message)
    assert len(render_plain(message)) <= 4_000


def _parts(message):
    yield from message.headline
    for block in message.blocks:
        if isinstance(block, Lines | Small):
            for one in block.lines:
                yield from one
        if isinstance(block, Table):
            for row in block.rows:
                for cell in row:
                    yield from cell


@given(LINES)
def test_mrkdwn_says_exactly_the_words(parts):
    """Reading our own marks back gives the text that was meant, so nobody else's marks can be among them."""
    meant = tidy(parts)
    written = as_mrkdwn(meant)
    if written is None or not all(isinstance(part, Span) for part in meant):
        return
    bare = re.sub(r"`([^`]*)`", r"\1", written)
    bare = re.sub(r"(?<!\w)\*([^*\n]*)\*(?!\w)", r"\1", bare)
    assert bare.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == "".join(one.text for one in meant)


@given(LINES, st.integers(min_value=10, max_value=200))
def test_a_shortened_line_fits(parts, limit):
    assert size(shorten(tidy(parts), limit)) <= limit
