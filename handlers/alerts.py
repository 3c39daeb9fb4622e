"""What fires now, and what is silenced.

alerts
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.alerting import alert_lines, silence_lines
from bot.domain.command import Command, Reply
from bot.domain.message import Lines, Message, Small, bold, line, says
from bot.domain.phrases import count
from bot.domain.saying import Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """List the alerts that are on, and the silences."""
    del words
    on = [one for one in world.book.alerts if one.is_on]
    quiet = silence_lines(world.book, now)
    small = (Small(quiet),) if quiet else ()
    if not on:
        return Reply(Message(line(bold("Nothing fires.")), small) if small else says(bold("Nothing fires.")))
    everyone = [server.name for server in world.fleet.servers]
    head = line(bold(count(len(on), "alert")))
    return Reply(Message(head, (Lines(alert_lines(on, everyone, now)), *small)), is_ok=False)


COMMAND = Command(
    name="alerts",
    summary="what fires now, and what is silenced",
    usage="alerts",
    examples=("alerts",),
    decide=decide,
    aliases=("alarms",),
)
