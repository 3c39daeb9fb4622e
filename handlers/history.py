"""What was done here: commands, presses and ends of operations, the newest last.

history        history gpu3        history 24h        history gpu3 7d
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.domain.audit import entry_lines, told_since
from bot.domain.command import Command, Reply
from bot.domain.message import Lines, Message, Small, bold, code, line, says
from bot.domain.moments import USUAL_PAST, moment
from bot.domain.phrases import count, names
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

MOST = 20


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Show the newest entries since then, and of the named servers only."""
    since = moment(words.when, now)
    if words.when and since is None:
        return Reply(says("When? ", code("history 24h"), ", ", code("history gpu3"), "."), is_ok=False)
    since = since or now - USUAL_PAST
    found = told_since(world.past.entries, since, frozenset(words.targets) if words.named else None)
    about = f" with {names(words.targets, [one.name for one in world.fleet.servers])}" if words.named else ""
    period = _period(words.when)
    if not found:
        return Reply(says(bold("Nothing was done"), f"{about} {period}."))
    head = line(bold(count(len(found), "entry", "entries")), f"{about} {period}")
    small = []
    if len(found) > MOST:
        small.append(line(f"the newest {MOST} of them · ", code("upbot audit"), " has all"))
    return Reply(Message(head, (Lines(entry_lines(found[-MOST:])), *((Small(tuple(small)),) if small else ()))))


def _period(when: str) -> str:
    """The span as it was typed, or the time of day with its zone."""
    if not when:
        return f"in the last {USUAL_PAST // timedelta(hours=1)} h"
    return f"since {when} UTC" if ":" in when or "-" in when else f"in the last {when}"


COMMAND = Command(
    name="history",
    summary="what was done here, by whom, and how it ended",
    usage="history [servers] [span]",
    examples=("history", "history gpu3", "history 24h"),
    decide=decide,
    aliases=("hist",),
    grammar=Grammar(targets=True, when=True),
    needs_history=True,
    is_everyday=True,
)
