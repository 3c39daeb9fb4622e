"""What is written down of every act: who did what, where, on what sight, and what came of it.

An entry is a value and knows nothing of how it is kept. ``sentence`` says one in a line, for the chat and for
`upbot audit` alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from bot.domain.message import Line, Moment, line
from bot.domain.phrases import about, count
from bot.domain.plan import Plan

MOST_NAMED = 16
"""Of more servers than that only the first are named with their processes."""
_SHOWN = 200
"""Characters of an entry that are shown in a line of chat."""


class Act(Enum):
    """What an entry is about."""

    COMMAND = "command"
    PRESS = "press"
    BEGIN = "begin"
    END = "end"
    CANCEL = "cancel"
    RELOAD = "reload"


class Result(Enum):
    """What came of it: of a command, of a press, of an operation."""

    REFUSED = "refused"
    NOTHING = "nothing to do"
    ASKED = "asked"
    STARTED = "started"
    ACCEPTED = "accepted"
    VOID = "void"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act. ``by`` is a person's name in the fleet file, ``user`` the id by which the chat knows them.

    ``words`` are those that were typed, ``seen`` is what was at stake when it was decided; ``question`` is the code
    of the question that was asked or pressed.
    """

    at: datetime
    act: Act
    result: Result
    by: str = ""
    user: str = ""
    channel: str = ""
    words: str = ""
    why: str = ""
    seen: str = ""
    title: str = ""
    steps: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    operation: str | None = None
    question: str | None = None


def seen(plan: Plan) -> str:
    """What a plan was decided on: "8 ready · 256 running · 5.1k tok/s: gpu0 ready (pid 4001), …"."""
    words = Counter(stake.readiness for stake in plan.stakes)
    parts = [f"{number} {word}" for word, number in words.items()]
    if running := sum(one.running or 0 for one in plan.before):
        parts.append(f"{running} running")
    if rate := sum(one.tokens_per_second or 0 for one in plan.before):
        parts.append(f"{about(rate)} tok/s")
    each = [
        f"{stake.server} {stake.readiness}" + (f" (pid {stake.pid})" if stake.pid is not None else "")
        for stake in plan.stakes[:MOST_NAMED]
    ]
    if (more := len(plan.stakes) - MOST_NAMED) > 0:
        each.append(f"{more} more")
    return ": ".join(part for part in (" · ".join(parts), ", ".join(each)) if part)


def sentence(entry: AuditEntry) -> str:
    """An entry in one line: who, what, and what came of it."""
    came = entry.result.value + (f": {entry.why}" if entry.why else "")
    code = f" {entry.question}" if entry.question else ""
    title = entry.title or count(len(entry.servers), "server")
    match entry.act:
        case Act.COMMAND:
            return f"{entry.by}: {entry.words} – {came}{code}"
        case Act.PRESS:
            return f"{entry.by} pressed{code}{f', {entry.title}' if entry.title else ''} – {came}"
        case Act.BEGIN:
            return f"{entry.operation} begins: {title}, by {entry.by}"
        case Act.END:
            return f"{entry.operation} {title} – {came}"
        case Act.CANCEL:
            said = f"{entry.by}: {entry.words}" if entry.words else entry.by
            return f"{said} – cancelled {entry.title or 'nothing'}"
        case Act.RELOAD:
            return f"{entry.by}: reload – {came}"


def told_since(
    entries: Iterable[AuditEntry], since: datetime, servers: frozenset[str] | None = None
) -> list[AuditEntry]:
    """What is worth telling of since then, of some servers only; a beginning is told by what has led to it."""
    return [
        one
        for one in entries
        if one.at >= since and one.act is not Act.BEGIN and (servers is None or servers & set(one.servers))
    ]


def unanswered(
    entries: Sequence[AuditEntry], operations: frozenset[str], open_codes: frozenset[str]
) -> list[AuditEntry]:
    """Presses that counted and led to nothing, since the bot was killed meanwhile; entries have the newest last.

    ``operations`` are the ids of those that were written down, ``open_codes`` the codes of questions still open: a
    press that was not consumed may be pressed again.
    """
    lost: dict[str, AuditEntry] = {}
    for one in entries:
        if one.act is Act.PRESS and one.question is not None:
            if one.result is Result.ACCEPTED:
                lost[one.question] = one
            elif one.result is Result.VOID:
                lost.pop(one.question, None)
        elif one.act is Act.BEGIN and one.operation in operations:
            answered = [code for code, press in lost.items() if code == one.question or press.title == one.title]
            for code in answered:
                del lost[code]
    return [one for code, one in lost.items() if code not in open_codes]


def entry_lines(entries: Iterable[AuditEntry]) -> tuple[Line, ...]:
    """A line each, with its time."""
    lines = []
    for one in entries:
        text = sentence(one)
        lines.append(line(Moment(one.at), "  ", text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"))
    return tuple(lines)
