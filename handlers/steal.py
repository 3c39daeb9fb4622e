"""Take over what an operation or somebody's hold has: asked first, pressed, and told to whoever had it.

steal gpu3        steal op-12
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bot.domain.command import Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.guard import under_way, whom
from bot.domain.holds import hold_words
from bot.domain.leases import Claim, Hold, claims_of
from bot.domain.message import Line, Lines, Message, Small, bold, code, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import listing
from bot.domain.plan import Plan, Stake, TakeOver
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the takeover of all that is held by others of these servers, or of an operation by its id."""
    del now
    if not words.named and not words.words:
        return Reply(says(bold("Steal which? "), code("steal gpu3"), ". Nothing was done."), is_ok=False)
    targets = world.targets if words.named else ()
    servers = tuple(server.name for server in targets)
    wanted, by = frozenset(claims_of(world.fleet, servers)), world.fleet.name_of(world.asker)
    operations = [op for op in world.operations if _is_meant(op, words.words, wanted)]
    holds = [hold for hold in world.holds if hold.meets(wanted)]
    others = [hold for hold in holds if hold.by != by]
    who = listing([*([whom(world, targets)] if targets else []), *words.words])
    if not operations and not others:
        told = f"You hold {who} yourself; release ends that." if holds else f"Nobody holds {who}: nothing to steal."
        return Reply(says(told))
    title = f"Steal {who}"
    passed = dict.fromkeys(name for hold in others for name in hold.shares(wanted))
    return Plan(
        "steal",
        title,
        tuple(dict.fromkeys((*servers, *passed))),
        (TakeOver(tuple(op.id for op in operations), tuple(hold.id for hold in others), servers),),
        question=_question(title, operations, [hold.only(hold.shares(wanted)) or hold for hold in others], world),
        confirm_label=title.partition(" (")[0],
        stakes=(
            *(_stake(op.id, f"at work ({op.plan.verb} by {op.by})") for op in operations),
            *(_stake(hold.id, f"held by {hold.by}") for hold in others),
        ),
        is_preview=words.is_question,
    )


def _is_meant(op: Operation, ids: Sequence[str], wanted: frozenset[Claim]) -> bool:
    """Whether a live operation is named, or holds what is named; a takeover is over in seconds by itself."""
    is_takeover = any(isinstance(step, TakeOver) for step in op.plan.steps)
    return op.is_live and not is_takeover and (op.id in ids or not wanted.isdisjoint(op.held))


def _question(title: str, operations: Sequence[Operation], holds: Sequence[Hold], world: World) -> Message:
    """Who has it, for how long, and what a press leaves."""
    lines: list[Line] = []
    for op in operations:
        lines.append(line(bold(f"{op.plan.title} ({op.id})"), f" {under_way(op, world.now)}"))
        lines.append(line("it is cancelled where it stands; what it has ended or launched is left as it is"))
    for hold in holds:
        lines.append(line(hold_words(hold, world.fleet, world.now)))
        lines.append(line("it passes to whoever presses"))
    robbed = listing(dict.fromkeys([*(op.by for op in operations), *(hold.by for hold in holds)]))
    return Message(line(bold(f"{title}?")), (Lines(tuple(lines)), Small((line(f"{robbed} will be told"),))))


def _stake(id_: str, state: str) -> Stake:
    """What is taken over, by its id: another one than was asked about voids the press."""
    return Stake(id_, None, None, is_alive=True, readiness=state)


COMMAND = Command(
    name="steal",
    summary="take over what an operation or somebody's hold has; asks first, and tells whoever had it",
    usage="steal <servers or operation>",
    examples=("steal gpu3", "steal op-12"),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, operations=True),
    changes=True,
    is_everyday=True,
)
