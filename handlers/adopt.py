"""Take over a server that somebody started by hand: it is put on record, and nothing else happens to it.

adopt gpu3
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.by_hand import runs_in
from bot.domain.command import Adopt, Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import Line, Lines, Message, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.phrases import listing
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Adopt the processes of the servers that were named; never all by a slip."""
    del now
    if not words.named:
        return Reply(says(bold("Adopt which? "), code("adopt gpu3"), ". Nothing was done."), is_ok=False)
    missing = [server.name for server in world.targets if world.facts(server.name).process is None]
    if missing:
        return Reply(says(bold("Not adopted: "), f"no process of {listing(missing)} is seen."), is_ok=False)
    new = [server for server in world.targets if not world.facts(server.name).is_adopted]
    if not new:
        return Reply(says(f"{listing(server.name for server in world.targets)}: adopted already."))
    if words.is_question:
        return Reply(_preview(world, [server.name for server in new]))
    processes = [(server.name, world.facts(server.name).process) for server in new]
    return Adopt(tuple((name, process) for name, process in processes if process is not None))


def _preview(world: World, names: list[str]) -> Message:
    lines: list[Line] = []
    for server in world.targets:
        process = world.facts(server.name).process
        if server.name in names and process is not None:
            place = runs_in(world, server)
            lines.append(line(f"{server.name}: pid {process.pid}" + (f" in {place}" if place is not None else "")))
    head = line("This would put on record as the bot's own, and touch nothing:")
    return Message(head, (Lines(tuple(lines)),))


COMMAND = Command(
    name="adopt",
    summary="take over servers that somebody started by hand; they are put on record, nothing is touched",
    usage="adopt <servers>",
    examples=("adopt gpu3",),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True),
    needs=Needs(),
    changes=True,
    is_everyday=True,
)
