"""Hold servers for a while: who wants to end, start or restart them needs your press, or an admin's.

hold gpu4-7 until 9:00 eval running        hold gpu3 2h        hold
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, PutHold, Reply
from bot.domain.fleet import Role
from bot.domain.holds import not_held, servers_words
from bot.domain.leases import LONGEST, REASON
from bot.domain.message import bold, code, says
from bot.domain.moments import ahead, is_of_another, time_of_day
from bot.domain.phrases import span
from bot.domain.saying import Grammar, Words
from bot.domain.views import held_now
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Hold what was named until then; alone, the word tells what is held."""
    if not words.named:
        told = says(bold("Hold which? "), code("hold gpu3 2h why"), ". Nothing was done.")
        return Reply(told, is_ok=False) if words.when else Reply(held_now(world), is_look=True)
    target = world.targets[0].name
    if not words.when:
        how = (code(f"hold {target} until 9:00 why"), " (UTC) or ", code(f"hold {target} 2h"), ". Nothing was done.")
        return Reply(says(bold("Until when? "), *how), is_ok=False)
    lead, _, rest = words.when.partition(" ")
    when = rest if lead in ("until", "till", "for") else words.when
    until = None if is_of_another(when, words.rest) else ahead(when, now)
    if (why := _wrong(until, now)) is not None or until is None:
        return Reply(says(bold("Not held: "), f"{why}. Nothing was done."), is_ok=False)
    servers = tuple(server.name for server in world.targets)
    by = world.fleet.name_of(world.asker)
    refused = not_held(world.fleet, servers, by=by, holds=world.holds, operations=world.operations, now=now)
    if refused is not None:
        return Reply(refused, is_ok=False)
    if words.is_question:
        who = servers_words(servers, world.fleet)
        return Reply(says(f"This would hold {who} for {by} until {time_of_day(until, now)}: nothing was done."))
    return PutHold(servers, until, words.rest[:REASON])


def _wrong(until: datetime | None, now: datetime) -> str | None:
    """What is wrong with an instant, and what to say instead; None when nothing is."""
    if until is None:
        return f"that is no time; say 9:00 (UTC), 2026-11-30T09:00 or 2h, at most {span(LONGEST)} ahead"
    if until <= now:
        return f"{time_of_day(until, now)} is over; it is {now:%H:%M} UTC now"
    if until - now > LONGEST:
        return f"{span(until - now)} is too long; at most {span(LONGEST)}, and it can be said again"
    return None


COMMAND = Command(
    name="hold",
    summary="hold servers for a while: what ends, starts or restarts them needs your press or an admin's",
    usage="hold <servers> <until 9:00 (UTC) or 2h> [why]",
    examples=("hold gpu4-7 until 9:00 eval running", "hold gpu3 2h", "hold"),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, lasts=True),
    changes=True,
    is_everyday=True,
)
