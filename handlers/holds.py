"""What is held now, by people and by operations.

holds
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.saying import Words
from bot.domain.views import held_now
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """List people's holds, and what live operations work on."""
    del words, now
    return Reply(held_now(world))


COMMAND = Command(
    name="holds",
    summary="what is held now, by people and by operations, and until when",
    usage="holds",
    examples=("holds",),
    decide=decide,
    aliases=("leases",),
    is_everyday=True,
)
