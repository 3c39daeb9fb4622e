"""Stop servers and leave them stopped; alone, the word cancels what is open.

stop gpu3        stop
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.by_hand import with_sessions
from bot.domain.command import CancelOpen, Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import bold, code, says
from bot.domain.needs import Needs
from bot.domain.operation import Asked
from bot.domain.procedure import stop
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the stop; without a server it means what is open here."""
    del now
    if world.targets:
        return with_sessions(stop(words, world), world)
    is_open = any(one.is_live for one in world.operations) or any(one.state is Asked.OPEN for one in world.questions)
    if is_open:
        return CancelOpen()
    return Reply(
        says(bold("Stop which? "), code("stop gpu3"), " or ", code("stop all"), ". Nothing was done."), is_ok=False
    )


COMMAND = Command(
    name="stop",
    summary="stop servers; alone: cancel what is open",
    usage="stop [servers]",
    examples=("stop gpu3", "stop"),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True),
    needs=Needs(router=True, load=True, log=True),
    needs_job=True,
    changes=True,
    is_everyday=True,
)
