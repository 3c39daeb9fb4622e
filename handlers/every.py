"""How often the operation in this thread reports.

every 10s        every 2m
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from bot.domain.command import Command, Decision, Reply, SetPace
from bot.domain.fleet import Role
from bot.domain.message import code, says
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

_SPAN = re.compile(r"(\d{1,4})\s*(s|sec|seconds?|m|min|minutes?)?", re.IGNORECASE)


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Change the pace of what runs here."""
    del now
    match = _SPAN.fullmatch(words.rest.strip().rstrip("?!."))
    if match is None or not any(one.is_live for one in world.operations):
        return Reply(
            says("Say ", code("every 10s"), " or ", code("every 2m"), " while an operation runs."), is_ok=False
        )
    number = int(match[1])
    is_minutes = (match[2] or "s").lower().startswith("m")
    wanted = timedelta(minutes=number) if is_minutes else timedelta(seconds=number)
    return SetPace(min(max(wanted, timedelta(seconds=5)), timedelta(hours=1)))


COMMAND = Command(
    name="every",
    summary="how often a running operation reports: every 10s",
    usage="every <span>",
    examples=("every 10s", "every 2m"),
    decide=decide,
    role=Role.OPERATOR,
    act="change the pace of an operation",
    grammar=Grammar(rest=2, rest_like=r"\d.*"),
    is_everyday=True,
)
