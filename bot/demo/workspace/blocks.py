"""Says what Slack would refuse in a message's blocks, and what would page people who were not meant.

Slack publishes no schema of Block Kit, its SDK's classes let half of the mistakes through, and other stand-ins
check nothing; so the rules are written down here, one combinator a kind of value. The limits are those of Slack's
reference for blocks and composition objects; the sum of all text is the undocumented one that bolt-js #2509 found.
It is stricter than Slack in two ways: unknown keys are refused, and so is mrkdwn that would notify a channel, a
group or somebody who is not in the workspace, because such marks come from text that nobody escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_BLOCKS = 50
MOST_TEXT = 13_000
MOST_MARKDOWN = 12_000
TOO_LONG = "msg_blocks_too_long"

_MARK = re.compile(r"<([^<>]*)>")
_DATE = re.compile(r"!date\^-?\d+\^[^|^]+(\^[^|]+)?\|.+")
_LINK = re.compile(r"(https?://|mailto:)[^\s|]+(\|.*)?", re.DOTALL)


@dataclass(slots=True)
class _Look:
    """One reading of a message: what may be named in it, and what was found."""

    people: Collection[str]
    files: Collection[str]
    problems: list[str] = field(default_factory=list)
    characters: int = 0
    markdown: int = 0
    tables: int = 0

    def no(self, where: str, why: str) -> None:
        self.problems.append(f"[ERROR] {why} [json-pointer:{where}]")


_Check = Callable[[Any, str, _Look], None]


def problems(blocks: object, *, people: Collection[str] = (), files: Collection[str] = ()) -> list[str]:
    """Every reason to refuse these blocks, each with a JSON pointer; an empty list when they are good.

    ``people`` are the user ids that may be mentioned, ``files`` the ids of complete uploads that an image may show.
    """
    look = _Look(people, files)
    if not isinstance(blocks, list):
        return ["[ERROR] must be a list of blocks [json-pointer:/blocks]"]
    if len(blocks) > MOST_BLOCKS:
        look.no("/blocks", f"no more than {MOST_BLOCKS} items allowed")
    for index, block in enumerate(blocks[: MOST_BLOCKS + 1]):
        _BLOCK(block, f"/blocks/{index}", look)
    _no_twins(blocks, look)
    if look.tables > 1:
        look.no("/blocks", "only one table allowed in a message")
    if look.markdown > MOST_MARKDOWN:
        look.no("/blocks", f"markdown blocks must be less than {MOST_MARKDOWN + 1} characters together")
    if not look.problems and look.characters > MOST_TEXT:
        return [f"[ERROR] {TOO_LONG}: {look.characters} characters of text, {MOST_TEXT} at most"]
    return look.problems


def mark_problems(text: str, people: Collection[str] = ()) -> list[str]:
    """What is wrong with the marks (``<…>``) of a mrkdwn text: bare brackets, and who would be notified."""
    return list(_marks(text, people))


def _marks(text: str, people: Collection[str]) -> Iterator[str]:
    for mark in _MARK.findall(text):
        name = mark.partition("|")[0]
        if name.startswith("@"):
            if name[1:] not in people:
                yield f"<{name}> would mention somebody who is not here"
        elif re.fullmatch(r"!(channel|here|everyone|group)|!subteam\^.*", name, re.DOTALL):
            yield f"<{name}> would notify many people"
        elif not (re.fullmatch(r"#[CG]\w+", name) or _DATE.fullmatch(mark) or _LINK.fullmatch(mark)):
            yield f"<{mark[:40]}> is no mark that Slack knows: escape foreign text"
    rest = _MARK.sub("", text)
    if "<" in rest or re.search(r"(?m)(?<!^)>", rest):
        yield "a bare angle bracket: escape foreign text"


def _string(limit: int, *, least: int = 1, counts: bool = False) -> _Check:
    def check(value: Any, where: str, look: _Look) -> None:
        if not isinstance(value, str):
            look.no(where, "must be a string")
            return
        if not least <= len(value.strip() if least else value) or len(value) > limit:
            look.no(where, f"must be {least} to {limit} characters, not {len(value)}")
        look.characters += len(value) if counts else 0

    return check


def _among(*words: str) -> _Check:
    def check(value: Any, where: str, look: _Look) -> None:
        if not isinstance(value, str) or value not in words:
            look.no(where, f"must be one of {', '.join(words)}")

    return check


def _flag(value: Any, where: str, look: _Look) -> None:
    if not isinstance(value, bool):
        look.no(where, "must be true or false")


def _whole(least: int, most: int) -> _Check:
    def check(value: Any, where: str, look: _Look) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            look.no(where, f"must be a whole number from {least} to {most}")

    return check


def _url(value: Any, where: str, look: _Look) -> None:
    if not isinstance(value, str) or len(value) > 3000 or not re.match(r"(https?://|mailto:)\S", value):
        look.no(where, "must be a URL of at most 3000 characters")


def _listing(most: int, item: _Check, *, least: int = 1) -> _Check:
    def check(value: Any, where: str, look: _Look) -> None:
        if not isinstance(value, list):
            look.no(where, "must be a list")
            return
        if not least <= len(value) <= most:
            look.no(where, f"must have {least} to {most} items, not {len(value)}")
        for index, one in enumerate(value[:most]):
            item(one, f"{where}/{index}", look)

    return check


def _record(required: Mapping[str, _Check], optional: Mapping[str, _Check] | None = None) -> _Check:
    known = {**required, **(optional or {})}

    def check(value: Any, where: str, look: _Look) -> None:
        if not isinstance(value, dict):
            look.no(where, "must be an object")
            return
        for key in required:
            if key not in value:
                look.no(where, f"missing required field: {key}")
        for key, one in value.items():
            if key in known:
                known[key](one, f"{where}/{key}", look)
            elif key != "type":
                look.no(where, f"unknown field: {key[:40]}")

    return check


def _kinds(kinds: Mapping[str, _Check]) -> _Check:
    def check(value: Any, where: str, look: _Look) -> None:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            look.no(where, f"unsupported type: {str(kind)[:40]}")
            return
        kinds[kind](value, where, look)

    return check


def _text(limit: int, *, least: int = 1) -> _Check:
    plain = _record({"text": _string(limit, least=least, counts=True)}, {"emoji": _flag})
    parsed = _record({"text": _string(limit, least=least, counts=True)}, {"verbatim": _flag})

    def mrkdwn(value: Any, where: str, look: _Look) -> None:
        parsed(value, where, look)
        if isinstance(value.get("text"), str):
            for why in _marks(value["text"][:limit], look.people):
                look.no(f"{where}/text", why)

    return _kinds({"plain_text": plain, "mrkdwn": mrkdwn})


def _plain(limit: int) -> _Check:
    return _kinds({"plain_text": _record({"text": _string(limit, counts=True)}, {"emoji": _flag})})


def _slack_file(value: Any, where: str, look: _Look) -> None:
    _record({"id": _string(255)})(value, where, look)
    if isinstance(value, dict) and isinstance(value.get("id"), str) and value["id"] not in look.files:
        look.no(where, "invalid slack file")


def _picture(value: Any, where: str, look: _Look) -> None:
    if ("image_url" in value) == ("slack_file" in value):
        look.no(where, "needs either image_url or slack_file")
    _record(
        {"alt_text": _string(2000)},
        {"image_url": _url, "slack_file": _slack_file, "title": _plain(2000), "block_id": _ID},
    )(value, where, look)


def _markdown(value: Any, where: str, look: _Look) -> None:
    look.markdown += len(str(value.get("text", "")))
    _record({"text": _string(MOST_MARKDOWN, counts=True)}, {"block_id": _ID})(value, where, look)


def _section(value: Any, where: str, look: _Look) -> None:
    if "text" not in value and "fields" not in value:
        look.no(where, "missing required field: text or fields")
    _record(
        {},
        {
            "text": _text(3000),
            "fields": _listing(10, _text(2000)),
            "accessory": _kinds({"button": _BUTTON, "image": _picture}),
            "block_id": _ID,
            "expand": _flag,
        },
    )(value, where, look)


def _table(value: Any, where: str, look: _Look) -> None:
    look.tables += 1
    _record(
        {"rows": _listing(100, _listing(20, _CELL))},
        {"column_settings": _listing(20, _COLUMN, least=0), "block_id": _ID},
    )(value, where, look)
    rows = value.get("rows")
    if isinstance(rows, list) and len({len(row) for row in rows if isinstance(row, list)}) > 1:
        look.no(f"{where}/rows", "all rows must have the same number of cells")


def _broadcast(_value: Any, where: str, look: _Look) -> None:
    look.no(where, "would notify many people")


def _person(value: Any, where: str, look: _Look) -> None:
    _record({"user_id": _string(255)}, {"style": _STYLE})(value, where, look)
    if isinstance(value.get("user_id"), str) and value["user_id"] not in look.people:
        look.no(where, "would mention somebody who is not here")


def _no_twins(blocks: list[Any], look: _Look) -> None:
    """Block ids are unique in a message, action ids in a block."""
    found = [block for block in blocks if isinstance(block, dict)]
    for ids, where in [
        ([block.get("block_id") for block in found], "/blocks"),
        *(([one.get("action_id") for one in _elements(block)], "/blocks/elements") for block in found),
    ]:
        named = [one for one in ids if isinstance(one, str)]
        for twin in sorted({one for one in named if named.count(one) > 1}):
            look.no(where, f"id is used twice: {twin[:40]}")


def _elements(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    elements = block.get("elements")
    if block.get("type") == "actions" and isinstance(elements, list):
        return [one for one in elements if isinstance(one, dict)]
    return []


_ID = _string(255)
_STYLE = _record({}, dict.fromkeys(("bold", "italic", "strike", "code", "underline"), _flag))
_COLOUR = _among("primary", "danger")
_CONFIRM = _record(
    {"title": _plain(100), "text": _text(300), "confirm": _plain(30), "deny": _plain(30)}, {"style": _COLOUR}
)
_BUTTON = _record(
    {"text": _plain(75)},
    {
        "action_id": _ID,
        "value": _string(2000),
        "url": _url,
        "style": _COLOUR,
        "confirm": _CONFIRM,
        "accessibility_label": _string(75),
    },
)
_INLINE = _kinds(
    {
        "text": _record({"text": _string(MOST_TEXT * 2, counts=True)}, {"style": _STYLE}),
        "link": _record({"url": _url}, {"text": _string(3000, counts=True), "style": _STYLE, "unsafe": _flag}),
        "emoji": _record({"name": _string(255)}, {"unicode": _string(255), "style": _STYLE, "skin_tone": _whole(1, 6)}),
        "date": _record(
            {"timestamp": _whole(-(10**11), 10**11), "format": _string(255)}, {"url": _url, "fallback": _string(255)}
        ),
        "channel": _record({"channel_id": _string(255)}, {"style": _STYLE}),
        "user": _person,
        "broadcast": _broadcast,
        "usergroup": _broadcast,
    }
)
_INLINES = _listing(2000, _INLINE)
_RICH_SECTION = _record({"elements": _INLINES})
_RICH = _record(
    {
        "elements": _listing(
            200,
            _kinds(
                {
                    "rich_text_section": _RICH_SECTION,
                    "rich_text_preformatted": _record(
                        {"elements": _INLINES}, {"border": _whole(0, 1), "language": _string(80)}
                    ),
                    "rich_text_quote": _record({"elements": _INLINES}, {"border": _whole(0, 1)}),
                    "rich_text_list": _record(
                        {
                            "elements": _listing(200, _kinds({"rich_text_section": _RICH_SECTION})),
                            "style": _among("bullet", "ordered"),
                        },
                        {"indent": _whole(0, 8), "offset": _whole(0, 10**6), "border": _whole(0, 1)},
                    ),
                }
            ),
        )
    },
    {"block_id": _ID},
)
_CELL = _kinds({"raw_text": _record({"text": _string(MOST_TEXT * 2, counts=True)}), "rich_text": _RICH})
_COLUMN = _record({}, {"align": _among("left", "center", "right"), "is_wrapped": _flag})
_BLOCK = _kinds(
    {
        "section": _section,
        "header": _record({"text": _plain(150)}, {"block_id": _ID}),
        "divider": _record({}, {"block_id": _ID}),
        "context": _record(
            {"elements": _listing(10, _kinds({"mrkdwn": _text(3000), "plain_text": _text(3000), "image": _picture}))},
            {"block_id": _ID},
        ),
        "actions": _record({"elements": _listing(25, _kinds({"button": _BUTTON}))}, {"block_id": _ID}),
        "image": _picture,
        "markdown": _markdown,
        "rich_text": _RICH,
        "table": _table,
    }
)
