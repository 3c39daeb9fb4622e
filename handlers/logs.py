"""The last lines of a server's log, as plain text.

logs gpu3        logs gpu3 100        logs
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.diagnosis import said_cause
from bot.domain.message import Block, Lines, LogPiece, Message, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

USUAL = 20
MOST = 100


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Show the tail of one log, or of a few."""
    del now
    if len(world.targets) > 4 and not words.named:
        return Reply(says(bold("Whose logs? "), code("logs gpu3"), " or ", code("logs gpu3 100"), "."), is_ok=False)
    wanted = min(words.number or USUAL, MOST)
    each = max(3, wanted // len(world.targets)) if len(world.targets) > 1 else wanted
    blocks: list[Block] = []
    for server in world.targets[:8]:
        facts = world.facts(server.name)
        tail = facts.log_tail[-each:]
        if facts.unreachable is not None:
            blocks.append(Lines((line(f"{server.name}: ", facts.unreachable),)))
        elif not tail:
            none = "nothing yet in" if facts.process is not None else "no log at"
            blocks.append(Lines((line(f"{server.name}: {none} ", code(server.log or "(none configured)")),)))
        else:
            blocks.append(LogPiece("\n".join(tail), title=f"{server.name} · {server.log}"))
        diagnosis = facts.diagnosis
        if diagnosis is not None and diagnosis.is_crashed and diagnosis.cause:
            cause = bold(f"{server.name} crashed: {said_cause(diagnosis.cause)}")
            blocks.append(Lines((line(cause, f" · {diagnosis.remedy or ''}"),)))
    names = ", ".join(server.name for server in world.targets[:8])
    return Reply(Message(line(bold(f"Log of {names}")), tuple(blocks)))


COMMAND = Command(
    name="logs",
    summary="the last lines of a server's log",
    usage="logs [servers] [lines]",
    examples=("logs gpu3", "logs gpu3 100"),
    decide=decide,
    aliases=("log", "tail"),
    grammar=Grammar(targets=True, number=True, recalls=True),
    needs=Needs(log=True, tail=MOST),
)
