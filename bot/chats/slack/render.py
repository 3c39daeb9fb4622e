"""A message value as Slack's blocks: always within Slack's limits, shortened rather than refused.

The headline, the buttons and the small print come first when room is short: a question must keep its way out and
say who may answer it. Then lines, tables and logs take what is left, in their order; what does not fit is counted
("… 12 more lines"). Pictures are no blocks: they are uploaded into the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bot.chats.carried import carried
from bot.chats.slack.markup import as_mrkdwn, as_rich, as_text, clean, escape, headline, shorten, size, tidy
from bot.domain.message import (
    Answers,
    Block,
    Button,
    Buttons,
    Line,
    Lines,
    LogPiece,
    Look,
    Message,
    Picture,
    Small,
    Span,
    Style,
    Table,
    plain,
    plain_line,
)
from bot.domain.phrases import count

Json = dict[str, Any]

# Slack's limits are 50 blocks, 3,000 characters a text and some 12,000 in all; a little is left for what is added.
_MOST_BLOCKS = 49
_MOST_TEXT = 11_500
_MOST_SECTION = 2_900
_MOST_SMALL = 1_500
_MOST_LOG = 2_500
_MOST_ROWS = 99
_MOST_COLUMNS = 20
_MOST_VALUE = 2_000
_MOST_LABEL = 75
_MOST_BUTTONS = 25
_MOST_PLAIN = 3_900
_NOTE = 40  # "… 12,345 more lines"


@dataclass(slots=True)
class _Room:
    """What is left of Slack's limits, and how many lines found no place."""

    text: int
    blocks: int
    hidden: int = 0
    has_table: bool = False

    def take(self, text: int) -> bool:
        """Take one block of that many characters, if it fits."""
        if self.blocks < 1 or text > self.text:
            return False
        self.text -= text
        self.blocks -= 1
        return True


def render(message: Message) -> Json:
    """``text`` for notifications and ``blocks`` for the rest, ready for chat.postMessage and chat.update."""
    first = shorten(tidy(message.headline), _MOST_SECTION) or (Span("…"),)
    room = _Room(_MOST_TEXT - size(headline(first)) - _NOTE, _MOST_BLOCKS - 1)
    places = dict(_placed(message.blocks, room))
    blocks = [_section([headline(first)])]
    for place in sorted(places):
        blocks.extend(places[place])
    if room.hidden:
        blocks.append(_context([(_more(room.hidden),)]))
    return {"text": as_text(first), "blocks": blocks}


def render_plain(message: Message) -> str:
    """The whole message as escaped text, for when Slack refuses the blocks."""
    text = clean(plain(message))
    if len(escape(text)) <= _MOST_PLAIN:
        return escape(text)
    kept = text
    while len(escape(kept)) > _MOST_PLAIN - _NOTE:
        kept = kept[: len(kept) - max(1, (len(escape(kept)) - _MOST_PLAIN + _NOTE) // 5)]
    return escape(kept) + f"\n… {count(text.count(chr(10)) - kept.count(chr(10)) or 1, 'more line')}"


def pictures(message: Message) -> tuple[Picture, ...]:
    """The pictures that belong into the message's thread."""
    return tuple(block for block in message.blocks if isinstance(block, Picture))


def _placed(blocks: Sequence[Block], room: _Room) -> Iterator[tuple[int, list[Json]]]:
    order: tuple[tuple[type, ...], ...] = ((Buttons,), (Small,), (Lines, Table, LogPiece))
    names = _ActionIds()
    for kinds in order:
        for place, block in enumerate(blocks):
            if isinstance(block, kinds):
                yield place, list(_blocks(block, room, names))


def _blocks(block: Block, room: _Room, names: _ActionIds) -> Iterable[Json]:
    match block:
        case Buttons(buttons):
            return _actions(buttons, room, names)
        case Small(lines):
            return _small([tidy(one) for one in lines], room)
        case Lines(lines):
            return _packed([tidy(one) for one in lines], room, _section)
        case Table():
            return _table(block, room)
        case LogPiece():
            return _log(block, room)
        case _:
            return ()


def _more(hidden: int, noun: str = "more line") -> Span:
    return Span(f"… {count(hidden, noun)}")


# ------------------------------------------------------------------------------------------------ lines


def _packed(lines: Sequence[Line], room: _Room, write: Callable[[Sequence[Line]], Json]) -> Iterator[Json]:
    """Lines in as few blocks as their limit allows; those that find no room are counted."""
    pile: list[Line] = []
    for index, one in enumerate(lines):
        short = shorten(one, _MOST_SECTION - 2 * _NOTE)
        if _weight([*pile, short]) > _MOST_SECTION - _NOTE:
            yield from _written(pile, room, write)
            pile = []
        if room.blocks < 1 or _weight([*pile, short]) > room.text - _NOTE:
            yield from _cut(pile, len(lines) - index, room, write)
            return
        pile.append(short)
    yield from _written(pile, room, write)


def _written(pile: list[Line], room: _Room, write: Callable[[Sequence[Line]], Json]) -> Iterator[Json]:
    if any(pile) and room.take(_weight(pile)):
        yield write(pile)


def _cut(pile: list[Line], hidden: int, room: _Room, write: Callable[[Sequence[Line]], Json]) -> Iterator[Json]:
    if any(pile) and room.take(_weight(pile) + _NOTE):
        yield write([*pile, (_more(hidden),)])
    else:
        room.hidden += hidden + len(pile)


def _weight(lines: Sequence[Line]) -> int:
    return sum(size(one) + 1 for one in lines)


def _section(lines: Sequence[Line]) -> Json:
    written = [as_mrkdwn(one) for one in lines]
    text = "\n".join(one for one in written if one is not None)
    if None in written or not text.strip():
        return _rich(_joined(lines))
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _joined(lines: Sequence[Line]) -> list[Json]:
    breaks: Line = (Span("\n"),)
    flat: list[Any] = []
    for index, one in enumerate(lines):
        flat.extend([*(breaks if index else ()), *one])
    return as_rich(tidy(tuple(flat)))


def _rich(elements: list[Json]) -> Json:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}


def _small(lines: list[Line], room: _Room) -> Iterator[Json]:
    own = _Room(min(_MOST_SMALL, room.text), min(1, room.blocks))
    for block in _packed(lines, own, _context):
        room.take(min(_MOST_SMALL, room.text) - own.text)
        yield block
    room.hidden += own.hidden


def _context(lines: Sequence[Line]) -> Json:
    """Small print; with a mark in it that is not ours it loses its styles, and with a mention too its smallness."""
    written = [as_mrkdwn(one) for one in lines]
    text = "\n".join(one for one in written if one is not None)
    if None not in written and text.strip():
        return _small_text({"type": "mrkdwn", "text": text, "verbatim": True})
    bare = "\n".join(plain_line(one) for one in lines)
    if bare.strip() and all(isinstance(part, Span) and part.style is Style.PLAIN for one in lines for part in one):
        return _small_text({"type": "plain_text", "text": bare, "emoji": False})
    return _rich(_joined(lines))


def _small_text(element: Json) -> Json:
    return {"type": "context", "elements": [element]}


# ------------------------------------------------------------------------------------------------ tables and logs


def _table(table: Table, room: _Room) -> Iterator[Json]:
    width = min(_MOST_COLUMNS, max([len(table.columns), *(len(row) for row in table.rows)], default=0))
    head: list[Line] = [(Span(clean(name), Style.BOLD),) for name in table.columns]
    rows = [_even(head, width), *(_even([tidy(cell) for cell in row], width) for row in table.rows)]
    fitting = list(_fitting_rows(rows[: _MOST_ROWS + 1], room.text - _NOTE))
    if not width or len(fitting) < 2 or room.blocks < 2:
        room.hidden += len(table.rows)
        return
    room.take(sum(map(_weight, fitting)))
    yield _aligned(fitting) if room.has_table else _native(fitting)
    room.has_table = True
    if len(rows) > len(fitting) and room.take(_NOTE):
        yield _context([(_more(len(rows) - len(fitting), "more row"),)])


def _even(row: Sequence[Line], width: int) -> list[Line]:
    filled = [one if plain_line(one).strip() else (Span("–"),) for one in row]
    return [*filled, *[(Span("–"),)] * width][:width]


def _fitting_rows(rows: Iterable[list[Line]], limit: int) -> Iterator[list[Line]]:
    for row in rows:
        short = [shorten(cell, 300) for cell in row]
        limit -= _weight(short)
        if limit < 0:
            return
        yield short


def _native(rows: Sequence[Sequence[Line]]) -> Json:
    settings = [{"is_wrapped": True} for _ in rows[0]]
    return {"type": "table", "rows": [[_cell(cell) for cell in row] for row in rows], "column_settings": settings}


def _cell(cell: Line) -> Json:
    if all(isinstance(part, Span) and part.style is Style.PLAIN for part in cell):
        return {"type": "raw_text", "text": plain_line(cell)}
    return _rich(as_rich(cell))


def _aligned(rows: Sequence[Sequence[Line]]) -> Json:
    """A second table: Slack takes only one a message, so this one is lines in a fixed font."""
    texts = [[plain_line(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [min(40, max(len(row[column]) for row in texts)) for column in range(len(texts[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    return _preformatted("\n".join(lines)[:_MOST_SECTION])


def _log(piece: LogPiece, room: _Room) -> Iterator[Json]:
    title = shorten(tidy((Span(piece.title.replace("\n", " "), Style.BOLD),)), 300)
    text = clean(piece.text).strip("\n")
    limit = min(_MOST_LOG, room.text - size(title) - 2 * _NOTE)
    shown = _ending(text, limit) if limit > _NOTE else ""
    if not shown or not room.take(size(title) + len(shown)):
        room.hidden += text.count("\n") + 1
        return
    block = _preformatted(shown)
    if title:
        block["elements"].insert(0, {"type": "rich_text_section", "elements": as_rich(title)})
    yield block


def _ending(text: str, limit: int) -> str:
    """The last ``limit`` characters, from the start of a line where there is one, and how much is missing."""
    if not text.strip():
        return "(empty)"
    if len(text) <= limit:
        return text
    kept = text[-(limit - _NOTE) :]
    _, newline, rest = kept.partition("\n")
    kept = rest if newline and rest.strip() else kept
    hidden = text.count("\n") - kept.count("\n")
    return f"… {count(hidden, 'earlier line')}\n{kept}" if hidden else f"…{kept}"


def _preformatted(text: str) -> Json:
    shown = text if text.strip() else "(empty)"
    element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": shown}]}
    return {"type": "rich_text", "elements": [element]}


# ------------------------------------------------------------------------------------------------ buttons


class _ActionIds:
    """Names for a message's buttons, each only once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def name(self, button: Button) -> str:
        wanted = clean(button.does.choice)[:200] if isinstance(button.does, Answers) else ""
        wanted = wanted.strip() or "say"
        name, number = wanted, 1
        while name in self._used:
            number += 1
            name = f"{wanted}-{number}"
        self._used.add(name)
        return name


def _actions(buttons: Sequence[Button], room: _Room, names: _ActionIds) -> Iterator[Json]:
    """Rows of buttons. One whose text would have to be cut is left out: a cut command is another command."""
    elements = [_button(one, names) for one in buttons if len(carried(one.does)) <= _MOST_VALUE]
    for start in range(0, len(elements), _MOST_BUTTONS):
        row = elements[start : start + _MOST_BUTTONS]
        if room.take(sum(len(one["text"]["text"]) for one in row)):
            yield {"type": "actions", "elements": row}


def _button(button: Button, names: _ActionIds) -> Json:
    label = " ".join(clean(button.label).split()) or "…"
    short = label if len(label) <= _MOST_LABEL else label[: _MOST_LABEL - 1] + "…"
    element: Json = {
        "type": "button",
        "text": {"type": "plain_text", "text": short, "emoji": False},
        "action_id": names.name(button),
        "value": carried(button.does),
    }
    if button.look is not Look.PLAIN:
        element["style"] = button.look.value
    return element
