"""Not be told any more of what one wanted to be told.

forget
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Forget
from bot.domain.saying import Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Forget:
    """All of it."""
    del words, world, now
    return Forget()


COMMAND = Command(
    name="forget",
    summary='take back every "tell me when"',
    usage="forget",
    examples=("forget",),
    decide=decide,
    is_everyday=True,
)
