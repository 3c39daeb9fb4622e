"""What a person's hold means for what others want: said in each question and refusal, and whose press is needed.

Every decision passes `guarded`, whatever command it comes from, so no command has to know of holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime

from bot.domain.command import Adopt, Command, Decision, Reply
from bot.domain.errors import UserError
from bot.domain.fleet import Fleet, Role
from bot.domain.guard import busy
from bot.domain.leases import MOST_NAMED, UNKNOWN, Claim, Hold, claims_of
from bot.domain.message import Block, Button, Buttons, Line, Lines, Message, Says, Small, bold, line
from bot.domain.moments import time_of_day
from bot.domain.operation import Operation, in_the_way
from bot.domain.people import role_of
from bot.domain.phrases import names, span
from bot.domain.plan import Plan, StopJob, TakeOver
from bot.domain.world import World

LONGEST = 120
"""Characters of servers' names in a line."""
MOST_STOLEN = 16
"""So many servers a button names."""


class Held(UserError):
    """Somebody's hold was set on it since it was decided."""

    def __init__(self, hold: Hold) -> None:
        super().__init__(f"{hold.by} holds {hold.what} now: nothing was done. Say it again")


def servers_words(servers: Sequence[str], fleet: Fleet) -> str:
    """Servers as they are told in a line: "gpu4-gpu7"; too many apart are counted."""
    told = names(servers, [server.name for server in fleet.servers])
    return told if len(told) <= LONGEST else f"{len(servers)} servers"


def hold_words(hold: Hold, fleet: Fleet, now: datetime) -> str:
    """A hold in one line: "gpu4-gpu7 held by ana since 12 m, until 09:00 UTC: eval running"."""
    who = servers_words(hold.servers, fleet)
    told = f"{who} held by {hold.by} since {span(now - hold.since)}, until {time_of_day(hold.until, now)}"
    return told + (f": {hold.reason}" if hold.reason else "")


def hold_lines(holds: Sequence[Hold], fleet: Fleet, now: datetime) -> tuple[Line, ...]:
    """The first few of them a line each, and how many more there are."""
    lines = [line(hold_words(hold, fleet, now)) for hold in holds[:MOST_NAMED]]
    more = len(holds) - len(lines)
    return (*lines, line(f"and {more} more: holds")) if more else tuple(lines)


def touched(plan: Plan, fleet: Fleet, holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """The holds that a plan acts upon: on its servers, on their ports and GPUs, or fed by the job that it stops.

    The fleet does not say which servers a job feeds, so a job that is stopped may starve any of them.
    """
    if any(isinstance(step, TakeOver) for step in plan.steps):
        return ()
    wanted, starves = frozenset(claims_of(fleet, plan.servers)), any(isinstance(step, StopJob) for step in plan.steps)
    return tuple(hold for hold in holds if starves or hold.meets(wanted))


def unasked(plan: Plan, fleet: Fleet, holds: Iterable[Hold]) -> Hold | None:
    """A hold by somebody whom this plan was not decided for; None when it knows all whom it touches."""
    known = {hold.by for hold in plan.held}
    return next((hold for hold in touched(plan, fleet, holds) if hold.by not in known), None)


def guarded(decision: Decision, command: Command, world: World, covered: Collection[str] = ()) -> Decision:
    """A decision as the holds leave it: a plan asks its holders, an adoption is theirs, a refusal names them.

    ``covered`` are holders who have agreed already.
    """
    match decision:
        case Plan():
            return _asking(decision, world, covered)
        case Adopt(processes):
            return _adopting(decision, [server for server, _ in processes], world)
        case Reply(message, False) if command.changes and command.needs is not None:
            wanted = frozenset(claims_of(world.fleet, (server.name for server in world.targets)))
            held = [hold for hold in world.holds if hold.meets(wanted)]
            lines = hold_lines(held, world.fleet, world.now)
            return (
                replace(decision, message=replace(message, blocks=_with(message.blocks, lines))) if held else decision
            )
    return decision


def _with(blocks: tuple[Block, ...], lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """Lines put in before the buttons, which are last."""
    last = next((place for place, block in enumerate(blocks) if isinstance(block, Buttons)), len(blocks))
    return (*blocks[:last], Small(lines), *blocks[last:])


def _asking(plan: Plan, world: World, covered: Collection[str]) -> Plan:
    held = touched(plan, world.fleet, world.holds)
    if not held:
        return plan
    plan = replace(plan, held=held)
    if all(hold.by in covered for hold in held):
        return plan
    label = plan.confirm_label if plan.needs_confirmation else plan.title.partition(" · ")[0].partition(" (")[0]
    question = plan.question or Message(line(bold(f"{plan.title}?")))
    blocks = (Lines(hold_lines(held, world.fleet, world.now)), *question.blocks)
    return replace(plan, question=replace(question, blocks=blocks), confirm_label=label)


def _adopting(decision: Adopt, servers: Sequence[str], world: World) -> Decision:
    wanted, who = frozenset(claims_of(world.fleet, servers)), world.fleet.name_of(world.asker)
    others = [hold for hold in world.holds if hold.by != who and hold.meets(wanted)]
    if not others or role_of(world.fleet, world.asker, world.channel, servers) >= Role.ADMIN:
        return decision
    head = line(bold("Not adopted: "), f"{_able(others)} may say it.")
    return Reply(
        Message(head, (Small(hold_lines(others, world.fleet, world.now)), _steal(others, wanted))), is_ok=False
    )


def _able(holds: Iterable[Hold]) -> str:
    """Who may: of several holders none alone."""
    holder = _holder(holds)
    return f"{holder} or an admin" if holder is not None else "an admin"


def _holder(holds: Iterable[Hold]) -> str | None:
    """The one person who holds all of it; None when they are several, or nobody knows who."""
    holders = {hold.by for hold in holds}
    return holders.pop() if len(holders) == 1 and UNKNOWN not in holders else None


def _steal(holds: Iterable[Hold], wanted: AbstractSet[Claim]) -> Buttons:
    """A button that asks for what is wanted and held; what is not wanted for itself (a job's servers) is held whole."""
    servers = dict.fromkeys(name for hold in holds for name in hold.shares(wanted) or hold.servers)
    return Buttons((Button("Steal…", Says(f"steal {' '.join([*servers][:MOST_STOLEN])}")),))


def whose_press(plan: Plan, but: str | None = None) -> str | None:
    """Whose press a plan needs because of holds: "ana's or an admin's"; None when nobody holds anything of it.

    ``but`` is the asker, where somebody else must press: of a hold of theirs that is an admin.
    """
    if not plan.held:
        return None
    holder = _holder(plan.held)
    return f"{holder}'s or an admin's press" if holder not in (None, but) else "an admin's press"


def not_theirs(plan: Plan, fleet: Fleet, holds: Sequence[Hold], by: str, now: datetime) -> Message | None:
    """Why an operator's press does not count: somebody else holds what it touches, then as now; None when it does.

    A hold that was set since the question was asked is not answered here: the question is void, and asked anew.
    """
    asked = {hold.by for hold in plan.held}
    others = [hold for hold in touched(plan, fleet, holds) if hold.by in asked and hold.by != by]
    if not others:
        return None
    head = line(bold("Not yours to press: "), f"{_able(others)} may.")
    wanted = frozenset(claims_of(fleet, plan.servers))
    return Message(head, (Small(hold_lines(others, fleet, now)), _steal(others, wanted)))


# Putting and ending holds


def not_held(
    fleet: Fleet,
    servers: Collection[str],
    *,
    by: str,
    holds: Sequence[Hold],
    operations: Iterable[Operation],
    now: datetime,
) -> Message | None:
    """Why these servers can't be held by this person: somebody else holds them, or works on them; None when they can.

    What is theirs already they may hold longer, or shorter.
    """
    wanted = frozenset(claims_of(fleet, servers))
    others = [hold for hold in holds if hold.by != by and hold.meets(wanted)]
    if others:
        head = line(bold("Not held: "), "somebody else has it. Nothing was done.")
        return Message(head, (Lines(hold_lines(others, fleet, now)), _steal(others, wanted)))
    mine = {name for hold in holds if hold.by == by for name in hold.servers}
    new = claims_of(fleet, [name for name in servers if name not in mine])
    taken = in_the_way(new, [op for op in operations if op.owner != by])
    return busy(taken[0], now, taken[1]) if taken is not None else None


def releasable(
    holds: Sequence[Hold], servers: Collection[str], by: str, *, is_admin: bool
) -> tuple[tuple[Hold, ...], tuple[Hold, ...]]:
    """Of the holds on these servers (none named: all of theirs) those that this person may end, and the others."""
    meant = [hold for hold in holds if set(hold.servers) & set(servers)] if servers else [*holds]
    may = tuple(hold for hold in meant if hold.by == by or (is_admin and servers))
    return may, tuple(hold for hold in meant if hold not in may) if servers else ()


def released_words(holds: Sequence[Hold], servers: Collection[str], fleet: Fleet) -> str:
    """What is free again: "gpu4, gpu5"."""
    free = [name for hold in holds for name in hold.servers if not servers or name in servers]
    return servers_words(free, fleet)
