"""The validator: one message with everything in it that is good, and many that Slack would refuse."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.demo.workspace.blocks import mark_problems, problems

PEOPLE = ("U0ANA", "U0BO")


def plain(words):
    return {"type": "plain_text", "text": words}


def mrkdwn(words):
    return {"type": "mrkdwn", "text": words}


def section(words):
    return {"type": "section", "text": mrkdwn(words)}


def button(**more):
    return {"type": "button", "text": plain("Go"), "action_id": "go", "value": "n1", **more}


def actions(*buttons):
    return {"type": "actions", "elements": list(buttons)}


def table(*rows):
    return {"type": "table", "rows": [[{"type": "raw_text", "text": cell} for cell in row] for row in rows]}


CONFIRM = {"title": plain("Sure?"), "text": mrkdwn("*All* of it."), "confirm": plain("Yes"), "deny": plain("No")}
GOOD = [
    {"type": "header", "text": plain("h" * 150)},
    section("🟢 `30000` <@U0ANA> <#C0FLEET> <https://a.b/c|x> <!date^1796064000^{time}|then> a &lt; b\n&gt; quoted"),
    {"type": "section", "fields": [mrkdwn("f")] * 10, "accessory": button(action_id="side")},
    {"type": "context", "elements": [mrkdwn("small"), plain("print")]},
    {"type": "divider", "block_id": "line"},
    actions(*(button(action_id=f"a{n}", style="danger", confirm={**CONFIRM, "style": "danger"}) for n in range(25))),
    {"type": "image", "alt_text": "chart", "slack_file": {"id": "F1"}, "title": plain("two hours")},
    {"type": "image", "alt_text": "chart", "image_url": "https://a.b/c.png"},
    {**table(["server", "tok/s"], ["gpu0", "671"]), "column_settings": [{"align": "left"}, {"align": "right"}]},
    {"type": "markdown", "text": "**fine**"},
    {
        "type": "rich_text",
        "elements": [
            {"type": "rich_text_section", "elements": [{"type": "text", "text": "x", "style": {"bold": True}}]},
            {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "<!channel> in a log"}]},
            {"type": "rich_text_quote", "elements": [{"type": "user", "user_id": "U0BO"}]},
            {
                "type": "rich_text_list",
                "style": "bullet",
                "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "link", "url": "https://a.b", "text": "t"}]}
                ],
            },
        ],
    },
]


def test_everything_that_slack_takes_is_good():
    assert problems(GOOD, people=PEOPLE, files={"F1"}) == []


BAD = {
    "51 blocks": ([{"type": "divider"}] * 51, "no more than 50 items allowed [json-pointer:/blocks]"),
    "no list": ({"type": "divider"}, "must be a list of blocks [json-pointer:/blocks]"),
    "text of 3001": ([section("x" * 3001)], "must be 1 to 3000 characters, not 3001 [json-pointer:/blocks/0/text/text]"),
    "empty text": ([section("")], "must be 1 to 3000 characters, not 0 [json-pointer:/blocks/0/text/text]"),
    "only spaces": ([section("  ")], "must be 1 to 3000 characters, not 2 [json-pointer:/blocks/0/text/text]"),
    "header of 151": (
        [{"type": "header", "text": plain("x" * 151)}],
        "must be 1 to 150 characters, not 151 [json-pointer:/blocks/0/text/text]",
    ),
    "header in mrkdwn": (
        [{"type": "header", "text": mrkdwn("x")}],
        "unsupported type: mrkdwn [json-pointer:/blocks/0/text]",
    ),
    "section of nothing": (
        [{"type": "section"}],
        "missing required field: text or fields [json-pointer:/blocks/0]",
    ),
    "11 fields": (
        [{"type": "section", "fields": [mrkdwn("x")] * 11}],
        "must have 1 to 10 items, not 11 [json-pointer:/blocks/0/fields]",
    ),
    "field of 2001": (
        [{"type": "section", "fields": [mrkdwn("x" * 2001)]}],
        "must be 1 to 2000 characters, not 2001 [json-pointer:/blocks/0/fields/0/text]",
    ),
    "11 context elements": (
        [{"type": "context", "elements": [mrkdwn("x")] * 11}],
        "must have 1 to 10 items, not 11 [json-pointer:/blocks/0/elements]",
    ),
    "26 buttons": (
        [actions(*(button(action_id=f"a{n}") for n in range(26)))],
        "must have 1 to 25 items, not 26 [json-pointer:/blocks/0/elements]",
    ),
    "no buttons": ([actions()], "must have 1 to 25 items, not 0 [json-pointer:/blocks/0/elements]"),
    "button text of 76": (
        [actions(button(text=plain("x" * 76)))],
        "must be 1 to 75 characters, not 76 [json-pointer:/blocks/0/elements/0/text/text]",
    ),
    "button text in mrkdwn": (
        [actions(button(text=mrkdwn("x")))],
        "unsupported type: mrkdwn [json-pointer:/blocks/0/elements/0/text]",
    ),
    "value of 2001": (
        [actions(button(value="x" * 2001))],
        "must be 1 to 2000 characters, not 2001 [json-pointer:/blocks/0/elements/0/value]",
    ),
    "action_id of 256": (
        [actions(button(action_id="x" * 256))],
        "must be 1 to 255 characters, not 256 [json-pointer:/blocks/0/elements/0/action_id]",
    ),
    "a style that is none": (
        [actions(button(style="red"))],
        "must be one of primary, danger [json-pointer:/blocks/0/elements/0/style]",
    ),
    "confirm without text": (
        [actions(button(confirm={key: value for key, value in CONFIRM.items() if key != "text"}))],
        "missing required field: text [json-pointer:/blocks/0/elements/0/confirm]",
    ),
    "confirm title of 101": (
        [actions(button(confirm={**CONFIRM, "title": plain("x" * 101)}))],
        "must be 1 to 100 characters, not 101 [json-pointer:/blocks/0/elements/0/confirm/title/text]",
    ),
    "confirm text of 301": (
        [actions(button(confirm={**CONFIRM, "text": plain("x" * 301)}))],
        "must be 1 to 300 characters, not 301 [json-pointer:/blocks/0/elements/0/confirm/text/text]",
    ),
    "confirm label of 31": (
        [actions(button(confirm={**CONFIRM, "deny": plain("x" * 31)}))],
        "must be 1 to 30 characters, not 31 [json-pointer:/blocks/0/elements/0/confirm/deny/text]",
    ),
    "unknown block": ([{"type": "nonsense"}], "unsupported type: nonsense [json-pointer:/blocks/0]"),
    "type is no word": ([{"type": ["section"]}], "unsupported type: ['section'] [json-pointer:/blocks/0]"),
    "unknown key": ([{**section("x"), "colour": "red"}], "unknown field: colour [json-pointer:/blocks/0]"),
    "image without alt_text": (
        [{"type": "image", "image_url": "https://a.b/c.png"}],
        "missing required field: alt_text [json-pointer:/blocks/0]",
    ),
    "image without a source": (
        [{"type": "image", "alt_text": "x"}],
        "needs either image_url or slack_file [json-pointer:/blocks/0]",
    ),
    "image of an upload that is not complete": (
        [{"type": "image", "alt_text": "x", "slack_file": {"id": "F9"}}],
        "invalid slack file [json-pointer:/blocks/0/slack_file]",
    ),
    "one action_id twice": (
        [actions(button(), button())],
        "id is used twice: go [json-pointer:/blocks/elements]",
    ),
    "one block_id twice": (
        [{"type": "divider", "block_id": "b"}] * 2,
        "id is used twice: b [json-pointer:/blocks]",
    ),
    "two tables": ([table(["a"]), table(["b"])], "only one table allowed in a message [json-pointer:/blocks]"),
    "table of 101 rows": (
        [table(*(["x"] for _ in range(101)))],
        "must have 1 to 100 items, not 101 [json-pointer:/blocks/0/rows]",
    ),
    "table of 21 columns": (
        [table(["x"] * 21)],
        "must have 1 to 20 items, not 21 [json-pointer:/blocks/0/rows/0]",
    ),
    "ragged table": (
        [table(["a", "b"], ["c"])],
        "all rows must have the same number of cells [json-pointer:/blocks/0/rows]",
    ),
    "markdown of 12001 together": (
        [{"type": "markdown", "text": "x" * 6001}] * 2,
        "markdown blocks must be less than 12001 characters together [json-pointer:/blocks]",
    ),
    "five sections of 2700": (
        [section("x" * 2700)] * 5,
        "msg_blocks_too_long: 13500 characters of text, 13000 at most",
    ),
    "a channel paged": (
        [section("log: <!channel>")],
        "<!channel> would notify many people [json-pointer:/blocks/0/text/text]",
    ),
    "a group paged": (
        [section("<!subteam^S1|ops>")],
        "<!subteam^S1> would notify many people [json-pointer:/blocks/0/text/text]",
    ),
    "a stranger mentioned": (
        [section("<@U0EVE>")],
        "<@U0EVE> would mention somebody who is not here [json-pointer:/blocks/0/text/text]",
    ),
    "text that nobody escaped": (
        [section("std::vector<int> x")],
        "<int> is no mark that Slack knows: escape foreign text [json-pointer:/blocks/0/text/text]",
    ),
    "a bare bracket": (
        [section("a < b")],
        "a bare angle bracket: escape foreign text [json-pointer:/blocks/0/text/text]",
    ),
    "rich text that pages": (
        [{"type": "rich_text", "elements": [
            {"type": "rich_text_section", "elements": [{"type": "broadcast", "range": "here"}]}]}],
        "would notify many people [json-pointer:/blocks/0/elements/0/elements/0]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_slack_refuses_is_refused_with_the_place_and_the_reason(name):
    blocks, why = BAD[name]
    assert problems(blocks, people=PEOPLE, files={"F1"}) == [f"[ERROR] {why}"]


@pytest.mark.parametrize("text", ["*b* _i_ `c`", "&lt;!channel&gt;", "> a quote", "<mailto:a@b.c>", "<@U0BO|bo>"])
def test_good_marks_are_good(text):
    assert mark_problems(text, PEOPLE) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_value_is_read_without_an_accident(value):
    assert isinstance(problems(value), list)


def paths(value, path=()):
    """The way to everything in a value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from paths(one, (*path, key))


@given(st.sampled_from(list(paths(GOOD))[1:]), JSON)
def test_good_blocks_with_one_thing_spoiled_are_read_without_an_accident(path, junk):
    spoiled = copy.deepcopy(GOOD)
    inside = spoiled
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = junk
    assert isinstance(problems(spoiled, people=PEOPLE, files={"F1"}), list)
