"""The operation in this thread reports only a crash and its end.

quiet
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, Reply, SetPace
from bot.domain.fleet import Role
from bot.domain.message import says
from bot.domain.saying import Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Silence the progress notes of what runs here."""
    del words, now
    if not any(one.is_live for one in world.operations):
        return Reply(says("Nothing runs that could be quieter."))
    return SetPace(None)


COMMAND = Command(
    name="quiet",
    summary="a running operation reports only a crash and its end",
    usage="quiet",
    examples=("quiet",),
    decide=decide,
    role=Role.OPERATOR,
    act="change the pace of an operation",
    is_everyday=True,
)
