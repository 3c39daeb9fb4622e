"""Say nothing of these servers for a while.

silence gpu3 2h because the fan is being replaced        silence alertmanager-3 1h
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.domain.command import Command, Decision, Reply, SilenceAlerts
from bot.domain.fleet import Role
from bot.domain.message import bold, code, says
from bot.domain.moments import ahead
from bot.domain.phrases import span
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

USUAL = timedelta(hours=1)
LONGEST = timedelta(days=7)


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Silence the servers or the alert that were named; never all by a slip."""
    if not words.named and not words.alerts:
        told = says(bold("Silence which? "), code("silence gpu3 2h because …"), ". Nothing was done.")
        return Reply(told, is_ok=False)
    until = ahead(words.when, now) if words.when else now + USUAL
    if until is None or until <= now or until - now > LONGEST:
        how = f"say 2h or 9:00 (UTC), at most {span(LONGEST)} ahead. Nothing was done."
        return Reply(says(bold("Not silenced: "), how), is_ok=False)
    length = until - now
    servers = tuple(server.name for server in world.targets) if words.named else ()
    return SilenceAlerts(servers, length, words.rest[:200], words.alerts)


COMMAND = Command(
    name="silence",
    summary="no alerts about these servers for a while",
    usage="silence <servers|alert> [span] [because …]",
    examples=("silence gpu3 2h because the fan is being replaced",),
    decide=decide,
    aliases=("mute",),
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, alerts=True, when=True, because=True),
    is_everyday=True,
)
