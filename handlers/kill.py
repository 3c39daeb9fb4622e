"""End one process that holds a server's port or GPU memory and is no server of ours: an orphan, or somebody else's.

kill 991
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.foreign import Foreign, foreigners
from bot.domain.message import Lines, Message, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.plan import EndForeign, Plan, Stake
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the end of that one process; its own question, whatever else was asked."""
    del now
    found = foreigners(world, world.fleet.servers)
    one = next((each for each in found if each.pid == words.number), None)
    if one is None:
        known = ", ".join(f"{each.pid} ({each.why})" for each in found[:5])
        rest = f"In the way are: {known}." if known else "Nothing foreign holds a port or GPU memory of the fleet."
        return Reply(says(bold("Nothing was done: "), f"that pid is in no server's way. {rest}"), is_ok=False)
    if one.started is None:
        told = says(bold("Nothing was done: "), f"pid {one.pid} can't be seen from there, so it can't be ended safely.")
        return Reply(told, is_ok=False)
    near = [server for server in world.fleet.servers if server.host == one.host]
    servers = [server.name for server in near if any(each.pid == one.pid for each in foreigners(world, (server,)))]
    return _plan(one, one.started, words, tuple(servers))


def _plan(one: Foreign, started: int, words: Words, servers: tuple[str, ...]) -> Plan:
    title = f"Kill pid {one.pid} on {one.host}"
    about = line(f"{one.why}{one.age_words}: ", code(one.what))
    question = Message(line(bold(f"{title}?")), (Lines((about, line("it is no server of this fleet"))),))
    return Plan(
        "kill",
        title,
        servers,
        (EndForeign(one.server, one.pid, started, one.what),),
        question=question,
        confirm_label=f"Kill {one.pid}",
        stakes=(Stake(f"pid {one.pid}", one.pid, started, is_alive=True, readiness="foreign"),),
        is_preview=words.is_question,
    )


COMMAND = Command(
    name="kill",
    summary="end one foreign process that holds a server's port or GPU memory",
    usage="kill <pid>",
    examples=("kill 991",),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(number=True),
    needs=Needs(gpu=True),
    changes=True,
    is_everyday=True,
)
