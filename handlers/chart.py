"""A picture of tokens a second and of running requests, two hours back or as far as is asked.

chart        chart gpu3        chart 6h        chart gpu0-3 2d
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.domain.command import Command, Decision, DrawChart, Reply
from bot.domain.message import code, says
from bot.domain.moments import moment
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

USUAL = timedelta(hours=2)
SHORTEST = timedelta(minutes=5)
LONGEST = timedelta(weeks=6)


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Draw the named servers, or those of the channel."""
    began = moment(words.when, now) if words.when else now - USUAL
    if began is None or began >= now:
        return Reply(says("How long? ", code("chart 6h"), ", ", code("chart gpu3 2d"), "."), is_ok=False)
    servers = tuple(server.name for server in world.targets)
    return DrawChart(servers, min(max(now - began, SHORTEST), LONGEST))


COMMAND = Command(
    name="chart",
    summary="a picture of tokens a second and running requests",
    usage="chart [servers] [span]",
    examples=("chart", "chart gpu3 6h"),
    decide=decide,
    aliases=("graph", "plot"),
    grammar=Grammar(targets=True, when=True),
    is_everyday=True,
)
