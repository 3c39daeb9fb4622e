"""What was done here: commands, presses and ends of operations, the newest last.

history        history gpu3        history 24h        history gpu3 7d
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.domain.audit import entry_lines, told_since
from bot.domain.command import Command, Grammar, Reply
from bot.domain.message import Lines, Message, Small, bold, code, line, says
from bot.domain.moments import USUAL_PAST, moment
from bot.domain.phrases import count, names, span
from bot.domain.words import Words
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
    ago = span(_rounded(now - since))
    if not found:
        return Reply(says(bold("Nothing was done"), f"{about} in the last {ago}."))
    head = line(bold(count(len(found), "entry", "entries")), f"{about} in the last {ago}")
    small = []
    if len(found) > MOST:
        small.append(line(f"the newest {MOST} of them · ", code("upbot audit"), " has all"))
    return Reply(Message(head, (Lines(entry_lines(found[-MOST:])), *((Small(tuple(small)),) if small else ()))))


def _rounded(value: timedelta) -> timedelta:
    return timedelta(seconds=round(value.total_seconds()))


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
