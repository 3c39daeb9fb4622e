"""Who you are to the bot: your id, your name in the fleet file, what you may, where, over what, and by what.

whoami
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.fleet import Fleet, Person, Role
from bot.domain.message import Line, Lines, LogPiece, Message, Small, bold, code, line
from bot.domain.people import Right, holds_in, reach, rights, said
from bot.domain.phrases import listing
from bot.domain.saying import Words
from bot.domain.world import World

_SLACK_ID = re.compile(r"[UW][A-Z0-9]{1,30}")


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Say it; to somebody who is nobody, what would have to stand in the fleet file."""
    del words, now
    fleet, person = world.fleet, world.fleet.person(world.asker)
    mine = [right for right in rights(fleet, world.asker) if right.grant.role >= Role.OPERATOR]
    here = [right for right in mine if holds_in(fleet, right.grant, world.channel)]
    name = bold(person.name if person is not None else "nobody in the fleet file")
    head = line("You are ", name, " (", code(world.asker), ")")
    lines = _lines("here", here, fleet) or [line("here: viewer, as everybody")]
    lines += _lines("elsewhere", [right for right in mine if right not in here], fleet)
    advice = () if mine else _advice(world, person)
    return Reply(Message(head, (Lines(tuple(lines)), *_unknown_teams(fleet), *advice)))


def _lines(where: str, found: Sequence[Right], fleet: Fleet) -> list[Line]:
    """A line for each right: "here: operator over gpu4-gpu7, by team eval"."""
    lines = []
    for right in found:
        grant, owner = right.grant, right.owner
        places = f" in {listing(grant.channels)}" if grant.channels else ""
        by = f"people: {owner.name}" if isinstance(owner, Person) else f"team {owner.name}"
        over = said(fleet, reach(fleet, grant)) or "nothing"
        lines.append(line(f"{where}: ", bold(grant.role.name.lower()), f" over {over}{places}, by {by}"))
    return lines


def _unknown_teams(fleet: Fleet) -> tuple[Small, ...]:
    unknown = [team.name for team in fleet.teams if team.members is None]
    if not unknown:
        return ()
    return (Small((line(f"who is in team {listing(unknown)} is not known: the chat can't be asked"),)),)


def _advice(world: World, person: Person | None) -> tuple[Lines, LogPiece]:
    """The lines that would make an operator of them; whoever may edit the file adds them."""
    key = "slack" if _SLACK_ID.fullmatch(world.asker) else "login"
    if person is None:
        entry = f"people:\n  yourname: {{role: operator, {key}: {world.asker}}}"
    else:
        known = [f"slack: {', '.join(person.ids)}"] if person.ids else []
        known += [f"login: {person.login}"] if person.login else []
        entry = f"people:\n  {person.name}: {{{', '.join(['role: operator', *known])}}}"
    told = line("To change things you would have to stand in the fleet file (then ", code("reload"), "):")
    return Lines((told,)), LogPiece(entry)


COMMAND = Command(
    name="whoami",
    summary="who you are to the bot, what you may here and elsewhere, and by what",
    usage="whoami",
    examples=("whoami",),
    decide=decide,
)
