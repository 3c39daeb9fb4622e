"""What the bot says, as values that every chat can render.

A message is a headline and blocks. Text is made of spans, never of a chat's markup, so that a log
line or a name can hold any character and still be nothing but text.

    Message(line(bold("8/8 answering"), " · ct200"), (Lines((line("🟢 ", code("30000"), " gpu0"),)),))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

UNBROKEN = "\u00a0"
"""A space at which no line is broken: between a number and its unit, inside a few words that belong together."""


class Style(Enum):
    """How a span of text stands out."""

    PLAIN = "plain"
    BOLD = "bold"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one style; the text is shown as it is, whatever characters it holds."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, shown in the reader's own time zone where the chat can do that."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Mention:
    """A person, by the chat's own id; the only thing that notifies somebody."""

    user: str


Part = Span | Moment | Mention
Line = tuple[Part, ...]


def line(*parts: str | Part | Line) -> Line:
    """Join strings, spans and lines into one line."""
    flat: list[Part] = []
    for part in parts:
        if isinstance(part, str):
            if part:
                flat.append(Span(part))
        elif isinstance(part, tuple):
            flat.extend(part)
        else:
            flat.append(part)
    return tuple(flat)


def bold(text: str) -> Span:
    """Text that stands out."""
    return Span(text, Style.BOLD)


def code(text: str) -> Span:
    """Text to be read or typed exactly."""
    return Span(text, Style.CODE)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of ordinary size."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Small:
    """Small print: who asked, who may, how long."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """At most three columns, since a phone shows 320 pixels."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Lines of a log, in a fixed font, always as plain text."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG, with the words for those who can't see it."""

    png: bytes
    name: str
    alt: str


@dataclass(frozen=True, slots=True)
class Says:
    """A button that does what typing this text in the same place would do."""

    text: str


@dataclass(frozen=True, slots=True)
class Answers:
    """A button that answers an open question; only the nonce travels."""

    nonce: str
    choice: str


class Look(Enum):
    """How a button stands out; at most one red one a message, first."""

    PLAIN = "plain"
    PRIMARY = "primary"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press."""

    label: str
    does: Says | Answers
    look: Look = Look.PLAIN


@dataclass(frozen=True, slots=True)
class Buttons:
    """A row of buttons."""

    buttons: tuple[Button, ...]


Block = Lines | Small | Table | LogPiece | Picture | Buttons


@dataclass(frozen=True, slots=True)
class Message:
    """One message. The headline says it all, and is the notification's text."""

    headline: Line
    blocks: tuple[Block, ...] = ()

    def without_buttons(self, note: Line | None = None) -> Message:
        """The same message with nothing left to press, and with a closing note in small print."""
        kept = tuple(block for block in self.blocks if not isinstance(block, Buttons))
        return Message(self.headline, kept if note is None else (*kept, Small((note,))))


def says(*parts: str | Part | Line) -> Message:
    """A message of one line."""
    return Message(line(*parts))


def plain_line(parts: Line) -> str:
    """A line as plain text."""
    return "".join(_plain(part) for part in parts)


def _plain(part: Part) -> str:
    if isinstance(part, Span):
        return part.text.replace(UNBROKEN, " ")
    if isinstance(part, Moment):
        return f"{part.at:%Y-%m-%d %H:%M} UTC"
    return f"@{part.user}"


def plain(message: Message) -> str:
    """A message as plain text: for the console, for `upbot ask`, and as a chat's fallback."""
    return "\n".join([plain_line(message.headline), *_plain_blocks(message.blocks)])


def _plain_blocks(blocks: Iterable[Block]) -> Iterable[str]:
    for block in blocks:
        match block:
            case Lines(lines) | Small(lines):
                yield from (plain_line(one) for one in lines)
            case Table(columns, rows):
                yield " | ".join(columns)
                yield from (" | ".join(plain_line(cell) for cell in row) for row in rows)
            case LogPiece(text, title):
                yield from ([title] if title else [])
                yield from (f"  {one}" for one in text.splitlines())
            case Picture(alt=alt):
                yield f"[picture: {alt}]"
            case Buttons(buttons):
                yield " ".join(f"[{button.label}]" for button in buttons)
