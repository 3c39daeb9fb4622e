"""Start servers that do not run; what runs is left as it is, and put back where its router lacks it.

start gpu3        start no_buffer
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import bold, code, says
from bot.domain.needs import Needs
from bot.domain.procedure import start
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the start, or ask which servers are meant."""
    del now
    if not world.targets:
        return Reply(
            says(bold("Start which? "), code("start gpu3"), " or ", code("start all"), ". Nothing was done."),
            is_ok=False,
        )
    return start(words, world)


COMMAND = Command(
    name="start",
    summary="start what does not run, put back what its router lacks",
    usage="start [servers] [profile]",
    examples=("start gpu3", "start no_buffer"),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, profile=True),
    needs=Needs(load=True, config=True, log=True, gpu=True, caches=True, router=True),
    needs_job=True,
    changes=True,
    is_everyday=True,
    asks_installed=True,
)
