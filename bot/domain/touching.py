"""What a decision would act on, so that it can be asked whether its person may; None where it changes nothing."""

from __future__ import annotations

from bot.domain.command import (
    AckAlert,
    Adopt,
    CancelOpen,
    Decision,
    DrawChart,
    Forget,
    Promise,
    Reply,
    SetPace,
    SilenceAlerts,
    UnsilenceAlerts,
)
from bot.domain.people import everything
from bot.domain.plan import Plan
from bot.domain.saying import Words
from bot.domain.watching.alerts import newest_firing
from bot.domain.world import World


def touched(decision: Decision, words: Words, world: World) -> frozenset[str] | None:
    """The servers and jobs; of what may be ended, each thing is asked about by whoever ends it."""
    match decision:
        case Reply() | DrawChart() | Promise() | Forget() | CancelOpen() | Plan(is_preview=True):
            return None
        case Plan():
            return decision.touched or everything(world.fleet)
        case Adopt(processes):
            return frozenset(server for server, _process in processes)
        case SilenceAlerts(servers, _, _) | UnsilenceAlerts(servers):
            return frozenset(servers) or everything(world.fleet)
        case AckAlert(alert):
            return _of_alert(alert, world)
        case SetPace():
            here = [op for op in world.operations if op.where.channel == world.channel]
            return frozenset[str]().union(*(op.plan.touched for op in here))
        case _:  # what says nothing of its own is about what was named, else about everything
            return frozenset(words.targets) if words.named else everything(world.fleet)


def _of_alert(id_: str | None, world: World) -> frozenset[str]:
    alert = world.book.get(id_ or newest_firing(world.book) or "")
    return frozenset(alert.servers if alert is not None else ()) or everything(world.fleet)
