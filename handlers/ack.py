"""An alert was seen: it stays, and asks no more.

ack        ack a-9
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import AckAlert, Command
from bot.domain.fleet import Role
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> AckAlert:
    """The one that was named, or the newest that fires."""
    del world, now
    return AckAlert(words.rest.strip().rstrip("?!.") or None)


COMMAND = Command(
    name="ack",
    summary="you have seen an alert: the newest, or the one of that id",
    usage="ack [alert]",
    examples=("ack", "ack a-9"),
    decide=decide,
    aliases=("seen",),
    role=Role.OPERATOR,
    grammar=Grammar(rest=1),
    is_everyday=True,
)
