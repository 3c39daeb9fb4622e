"""What one may say here; made from what stands beside each command.

help        help restart
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.fleet import Role
from bot.domain.message import Lines, Message, Small, bold, code, line, says
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Show one line a command, or one command whole."""
    del now
    wanted = words.rest.strip().lower().rstrip("?!.")
    if not wanted:
        lines = tuple(
            line(code(command.name), f"  {command.summary}")
            for command in sorted(world.commands, key=lambda one: one.name)
        )
        hint = line("targets: a name, port, host, group or range (gpu2-5) · ", code("help restart"), " tells more")
        return Reply(Message(line(bold("Two words are enough")), (Lines(lines), Small((hint,)))))
    command = next((one for one in world.commands if wanted in (one.name, *one.aliases)), None)
    if command is None:
        return Reply(says("I know no command ", code(wanted[:40]), "; ", code("help"), " lists them."), is_ok=False)
    lines = (
        line("usage: ", code(command.usage)),
        line("for example: ", *(part for one in command.examples for part in (code(one), "  "))),
        *((line(f"also: {', '.join(command.aliases)}"),) if command.aliases else ()),
        line(f"who may: {'everybody' if command.role <= Role.VIEWER else command.role.name.lower() + 's'}"),
    )
    return Reply(Message(line(bold(command.name), f"  {command.summary}"), (Lines(lines),)))


COMMAND = Command(
    name="help",
    summary="what one may say here",
    usage="help [command]",
    examples=("help", "help restart"),
    decide=decide,
    aliases=("?", "commands"),
    grammar=Grammar(rest=1),
    is_everyday=True,
)
