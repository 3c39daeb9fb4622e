"""Read the fleet file again; a wrong file changes nothing and says why.

reload
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, ReloadFleet
from bot.domain.fleet import Role
from bot.domain.saying import Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> ReloadFleet:
    """Ask for the file to be read."""
    del words, world, now
    return ReloadFleet()


COMMAND = Command(
    name="reload",
    summary="read the fleet file again; a wrong one changes nothing",
    usage="reload",
    examples=("reload",),
    decide=decide,
    role=Role.OPERATOR,
)
