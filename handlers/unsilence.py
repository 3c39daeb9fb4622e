"""End silences.

unsilence gpu3        unsilence
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, UnsilenceAlerts
from bot.domain.fleet import Role
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> UnsilenceAlerts:
    """Those about the servers or the alert that were named, or all."""
    del now
    return UnsilenceAlerts(tuple(server.name for server in world.targets) if words.named else (), words.alerts)


COMMAND = Command(
    name="unsilence",
    summary="end the silences about these servers, or all",
    usage="unsilence [servers|alert]",
    examples=("unsilence gpu3", "unsilence"),
    decide=decide,
    aliases=("unmute",),
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, alerts=True),
)
