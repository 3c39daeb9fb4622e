"""What a decision would act on, so that it can be asked whether its person may, and what is a person's to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from bot.domain.command import (
    AckAlert,
    Adopt,
    CancelOpen,
    Decision,
    DrawChart,
    EndHold,
    Forget,
    Promise,
    PutHold,
    Reply,
    SetPace,
    SilenceAlerts,
    UnsilenceAlerts,
)
from bot.domain.fleet import Fleet, Role
from bot.domain.operation import Operation, Question
from bot.domain.people import everything, refusal, role_of
from bot.domain.plan import Plan, TakeOver
from bot.domain.saying import Words
from bot.domain.watching.alerts import newest_firing
from bot.domain.world import World

Ended = TypeVar("Ended", Operation, Question)


def touched(decision: Decision, words: Words, world: World) -> frozenset[str] | None:
    """The servers and jobs; None where it changes nothing. Of what would be ended each thing is asked about alone."""
    match decision:
        case Reply() | DrawChart() | Promise() | Forget() | CancelOpen() | Plan(is_preview=True):
            return None
        case Plan():
            return of_plan(decision, world.fleet, world.operations)
        case Adopt(processes):
            return frozenset(server for server, _process in processes)
        case SilenceAlerts() | UnsilenceAlerts():
            return _of_alerts(decision.servers, decision.alerts, world)
        case PutHold(servers, _, _):
            return frozenset(servers) or everything(world.fleet)
        case EndHold(holds, servers):
            return frozenset(servers or (name for one in world.holds if one.id in holds for name in one.servers))
        case AckAlert(alert):
            return _of_alert(alert, world)
        case SetPace():
            here = [op for op in world.operations if op.where.channel == world.channel]
            return frozenset[str]().union(*(of_plan(op.plan, world.fleet) for op in here))
        case _:  # what says nothing of its own is about what was named, else about everything
            return frozenset(words.targets) if words.named else everything(world.fleet)


def of_plan(plan: Plan, fleet: Fleet, operations: Iterable[Operation] = ()) -> frozenset[str]:
    """What a plan acts on, and what it takes over from operations; one that names nothing is about everything."""
    taken = {id_ for step in plan.steps if isinstance(step, TakeOver) for id_ in step.operations}
    robbed = (op.plan.touched for op in operations if op.id in taken)
    return plan.touched.union(*robbed) or everything(fleet)


def _of_alert(id_: str | None, world: World) -> frozenset[str]:
    alert = world.book.get(id_ or newest_firing(world.book) or "")
    return frozenset(alert.servers if alert is not None else ()) or everything(world.fleet)


def _of_alerts(servers: Sequence[str], ids: Sequence[str], world: World) -> frozenset[str]:
    """These servers and those of these alerts; none of either is everything, and so is an alert about no server."""
    if not ids:
        return frozenset(servers) or everything(world.fleet)
    return frozenset(servers).union(*(_of_alert(id_, world) for id_ in ids))


def theirs_to_end(fleet: Fleet, user: str, channel: str, open_: Sequence[Ended]) -> list[Ended]:
    """What of it a person may end there; a question that they have asked themselves they always may."""
    person = fleet.person(user)
    name = person.name if person is not None else user
    return [
        one
        for one in open_
        if (isinstance(one, Question) and one.asker == name)
        or role_of(fleet, user, channel, of_plan(one.plan, fleet)) >= Role.OPERATOR
    ]


def refusal_to_end(fleet: Fleet, user: str, channel: str, open_: Sequence[Operation | Question]) -> str | None:
    """Why none of it is theirs to end, and who may."""
    acted_on = frozenset[str]().union(*(of_plan(one.plan, fleet) for one in open_))
    return refusal(fleet, user, Role.OPERATOR, "cancel", channel, acted_on)
