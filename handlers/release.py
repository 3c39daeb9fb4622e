"""End holds: your own, or, as an admin, anybody's.

release gpu3        release
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, EndHold, Reply
from bot.domain.fleet import Role
from bot.domain.holds import hold_lines, releasable, released_words, servers_words
from bot.domain.leases import claims_of
from bot.domain.message import Lines, Message, bold, code, line, says
from bot.domain.people import role_of
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """End what was named; alone, the word ends all that you hold."""
    servers = tuple(server.name for server in world.targets) if words.named else ()
    held = {name for hold in world.holds for name in hold.servers}
    if held.isdisjoint(servers):  # maybe over the same GPU or port, by another name
        wanted = frozenset(claims_of(world.fleet, servers))
        servers = tuple(dict.fromkeys(name for hold in world.holds for name in hold.shares(wanted))) or servers
    by = world.fleet.name_of(world.asker)
    is_admin = role_of(world.fleet, world.asker, world.channel, servers) >= Role.ADMIN
    may, others = releasable(world.holds, servers, by, is_admin=is_admin)
    if others:
        one = next(name for name in others[0].servers if name in servers)
        head = line(bold("Not released: "), "who holds it or an admin may; ", code(f"steal {one}"))
        lines = hold_lines(others, world.fleet, now)
        return Reply(Message(line(head, " takes it over. Nothing was done."), (Lines(lines),)), is_ok=False)
    if not may:
        who = servers_words(servers, world.fleet)
        return Reply(says(f"Nobody holds {who}: nothing to release." if servers else "You hold nothing."))
    if words.is_question:
        return Reply(says(f"This would release {released_words(may, servers, world.fleet)}: nothing was done."))
    return EndHold(tuple(hold.id for hold in may), servers)


COMMAND = Command(
    name="release",
    summary="end holds: yours, or as an admin anybody's",
    usage="release [servers]",
    examples=("release gpu3", "release"),
    decide=decide,
    aliases=("unhold",),
    role=Role.OPERATOR,
    grammar=Grammar(targets=True),
    changes=True,
    is_everyday=True,
)
