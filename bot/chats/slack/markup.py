"""One line of a message as Slack text: mrkdwn where that can mean nothing else, rich text elements where it could.

mrkdwn has no escape for its own marks (``*`` ``_`` ``~`` and the backtick), for ``:names:`` or for a leading ``>``,
and whether an invisible character beside a mark defuses it is nowhere promised. So nothing is defused: a line is
written as mrkdwn only when it holds no mark but ours, and as rich text elements otherwise. Slack never parses
those, so any character stays what it is, and what a person copies is exactly what was said.
"""

from __future__ import annotations

import re
from typing import Any

from bot.domain.message import Line, Mention, Moment, Part, Span, Style, plain_line

_ANSI = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
# Controls but newline and tab; marks that reorder what is read; noncharacters and halves of surrogate pairs.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_HALVES = re.compile(r"[\ud800-\udfff]")
# An underscore between letters or digits (no_buffer) starts nothing; every other mark might.
_MARKS = re.compile(r"[*~`]|(?<![^\W_])_|_(?![^\W_])|:[\w+'-]+:|^\s*>", re.MULTILINE)
_PERSON = re.compile(r"[UW][A-Z0-9]{2,20}")
_DATE_FORMAT = "{date_short_pretty} {time}"
_TOKEN_SIZE = 90  # more than a date or a mention takes


def clean(text: str) -> str:
    """Text without ANSI colours, control characters and marks that reorder it; newlines and tabs stay."""
    bare = _ANSI.sub("", text.replace("\r\n", "\n"))
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", _UNSEEN.sub("", bare))


def escape(text: str) -> str:
    """Text in which Slack finds no mention, link or command; these three characters are all it needs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def tidy(parts: Line) -> Line:
    """The line with its texts cleaned, a mention that is no person's id as text, and like spans joined."""
    result: list[Part] = []
    for part in map(_safe, parts):
        last = result[-1] if result else None
        if isinstance(part, Span) and not part.text:
            continue
        if isinstance(part, Span) and isinstance(last, Span) and part.style is last.style:
            result[-1] = Span(last.text + part.text, part.style)
        else:
            result.append(part)
    return tuple(result)


def _safe(part: Part) -> Part:
    if isinstance(part, Mention):
        return part if _PERSON.fullmatch(part.user) else _safe(Span(f"@{part.user}"))
    if isinstance(part, Span):
        text = clean(part.text).replace("\t", "    ")
        return Span(text, part.style if text.strip() else Style.PLAIN)
    return part


def headline(parts: Line) -> Line:
    """The first line as it should read: all bold, unless it says itself what is."""
    if any(isinstance(part, Span) and part.style is Style.BOLD for part in parts):
        return parts
    return tidy(
        tuple(
            Span(part.text, Style.BOLD) if isinstance(part, Span) and part.style is Style.PLAIN else part
            for part in parts
        )
    )


def size(parts: Line) -> int:
    """How many characters the line may take at most, written either way."""
    return sum(len(escape(part.text)) + 2 if isinstance(part, Span) else _TOKEN_SIZE for part in parts)


def shorten(parts: Line, limit: int) -> Line:
    """The line cut at its end, with "…", so that it takes no more than ``limit`` characters."""
    if size(parts) <= limit:
        return parts
    kept: list[Part] = []
    left = limit - len("…") - 2
    for part in parts:
        if size((part,)) <= left:
            kept.append(part)
            left -= size((part,))
            continue
        if isinstance(part, Span):
            kept.append(Span(_fitting(part.text, left - 2), part.style))
        break
    return tidy((*kept, Span("…")))


def _fitting(text: str, limit: int) -> str:
    """The longest start of ``text`` that is no longer than ``limit`` once it is escaped."""
    used = 0
    for place, character in enumerate(text):
        used += len(escape(character))
        if used > limit:
            return text[:place]
    return text


def as_text(parts: Line) -> str:
    """The line for a notification: escaped, with living mentions and dates, without styles."""
    return "".join(_token(part) if not isinstance(part, Span) else escape(part.text) for part in parts)


def as_mrkdwn(parts: Line) -> str | None:
    """The tidy line as mrkdwn, or None when some reader could find a mark in it that is not ours."""
    out: list[str] = []
    before = "\n"
    after_mark = False
    for part in parts:
        if not isinstance(part, Span):
            if after_mark:
                return None
            out.append(_token(part))
            before = "x"
            continue
        if after_mark and not _parts_words(part.text[0]):
            return None
        written = _span(part, before)
        if written is None:
            return None
        out.append(written)
        before = part.text[-1]
        after_mark = part.style is not Style.PLAIN and not before.isspace()
    text = "".join(out)
    return None if re.search(r"^\s*&gt;", text, re.MULTILINE) else text


def _span(part: Span, before: str) -> str | None:
    if part.style is Style.CODE:
        is_whole = part.text == part.text.strip() and not re.search(r"[`\n]", part.text)
        return f"`{escape(part.text)}`" if is_whole and _parts_words(before) else None
    if _MARKS.search(part.text):
        return None
    if part.style is Style.PLAIN:
        return escape(part.text)
    core = part.text.strip()
    lead, _, tail = part.text.partition(core)
    if "\n" in core or not (lead or _parts_words(before)):
        return None
    return f"{lead}*{escape(core)}*{tail}"


def _parts_words(character: str) -> bool:
    """Whether a mark beside this character stands at the edge of a word, so that Slack reads it as a mark."""
    return not character.isalnum() and character not in "*_~`"


def _token(part: Moment | Mention) -> str:
    if isinstance(part, Mention):
        return f"<@{part.user}>"
    return f"<!date^{int(part.at.timestamp())}^{_DATE_FORMAT}|{plain_line((part,))}>"


def as_rich(parts: Line) -> list[dict[str, Any]]:
    """The tidy line as elements of a rich text section; nothing in them is ever parsed."""
    result: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Mention):
            result.append({"type": "user", "user_id": part.user})
        elif isinstance(part, Moment):
            fallback = plain_line((part,))
            result.append(
                {"type": "date", "timestamp": int(part.at.timestamp()), "format": _DATE_FORMAT, "fallback": fallback}
            )
        else:
            result.append(_rich_text(part.text, part.style))
    return result


def _rich_text(text: str, style: Style) -> dict[str, Any]:
    # An element of nothing but blanks may be refused; the zero-width space makes it something.
    element: dict[str, Any] = {"type": "text", "text": text if text.strip() else text + "\N{ZERO WIDTH SPACE}"}
    if style is not Style.PLAIN:
        element["style"] = {style.value: True}
    return element
