"""What the messages about operations share: a server as it is seen now, its proof, a step in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.behind import named
from bot.domain.diagnosis import Diagnosis
from bot.domain.facts import ServerFacts
from bot.domain.message import Block, Button, Buttons, Line, Lines, Says, Small, bold, code, line
from bot.domain.operation import Operation, State
from bot.domain.phrases import count, names, span
from bot.domain.plan import (
    AwaitFree,
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Plan,
    Prove,
    PutBack,
    ResumeJob,
    StartServers,
    Step,
    StopJob,
    TakeOut,
    TakeOver,
)
from bot.domain.readiness import Verdict


@dataclass(frozen=True, slots=True)
class View:
    """One server as an operation sees it now."""

    server: str
    verdict: Verdict
    facts: ServerFacts

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What its log says."""
        return self.facts.diagnosis


@dataclass(frozen=True, slots=True)
class Proof:
    """What a server said of itself once it was ready again."""

    server: str
    max_running: int | None = None
    max_total_tokens: int | None = None
    has_flags: bool | None = None
    first_token: timedelta | None = None


_STEP_WORDS: Mapping[type[Step], str] = {
    AwaitFree: "memory and ports free",
    StartServers: "start",
    Prove: "prove",
    CompareThroughput: "compare throughput",
    ComparePeers: "compare with its peers",
    TakeOver: "take over",
}


def step_words(step: Step) -> str:
    """A step in two or three words."""
    match step:
        case StopJob(job):
            return f"stop job {job}"
        case TakeOut(routers=routers):
            return f"out of {named(routers)}"
        case EndServers(victims):
            return f"stop {count(len(victims), 'server')}"
        case PutBack(routers=routers):
            return f"back into {named(routers)}"
        case ResumeJob(job):
            return f"resume job {job}"
        case EndForeign(pid=pid):
            return f"end pid {pid}"
    return _STEP_WORDS[type(step)]


def comparison(plan: Plan) -> CompareThroughput | ComparePeers | None:
    """What a plan compares after its end."""
    return next((step for step in plan.steps if isinstance(step, (CompareThroughput, ComparePeers))), None)


def way_back(op: Operation, servers: Sequence[str]) -> Button | None:
    """The button that starts these servers with the last good profile; None when there is none."""
    if op.plan.back_to is None or not servers:
        return None
    return Button(f"Back to {op.plan.back_to}", Says(f"restart {' '.join(servers)} {op.plan.back_to}"))


def lost_lines(op: Operation) -> tuple[Line, ...]:
    """Those that dropped out, a line for each reason."""
    reasons = dict.fromkeys(why for _, why in op.lost)
    order = list(op.plan.servers)
    return tuple(
        line(f"🔴 {names([name for name, own in op.lost if own == why], order)}   ", bold(why)) for why in reasons
    )


def dotted(parts: Sequence[Line]) -> Line:
    """Parts as one line with dots between them."""
    joined = [one for part in parts for one in (part, line(" · "))]
    return line(*joined[:-1])


def healthy(views: Sequence[View], total: int) -> str:
    """What would be lost, or is still there: "The server is healthy: up 4 m, 12 requests running."."""
    ages = [view.facts.process.age for view in views if view.facts.process is not None]
    running = sum(view.facts.load.running or 0 for view in views)
    who = "The server is healthy" if total == 1 else f"{len(views)} of {total} servers are healthy"
    since = f": up {span(max(ages))}, " if ages else ": "
    return f"{who}{since}{count(running, 'request')} running."


def out_blocks(op: Operation) -> list[Block]:
    """Who is out of a router when it has ended, why, and the way back."""
    if not op.out:
        return []
    order, groups = list(op.plan.servers), dict[str, list[str]]()
    for one in op.out:
        groups.setdefault(f"out of router {one.router}" + (f": {one.why}" if one.why else ""), []).append(one.server)
    if op.plan.verb == "stop" and op.state is State.DONE:
        lines = [line(f"{why}; ", code(f"start {' '.join(who)}"), " puts it back") for why, who in groups.items()]
        return [Small(tuple(lines))]
    servers = dict.fromkeys(one.server for one in op.out)
    is_dead = not servers.keys().isdisjoint({*dict(op.lost), *(op.asked_to_end - set(op.launched))})
    back = Button("Start and put back" if is_dead else "Put back into its router", Says(f"start {' '.join(servers)}"))
    lines = [line(f"🔴 {names(who, order)}   ", bold(why)) for why, who in groups.items()]
    return [Lines(tuple(lines)), Buttons((back,))]


def returned(op: Operation) -> str | None:
    """Who was taken out of a router and is back: "gpu0 is back in router front"."""
    back = [one for one in op.taken if one.is_back]
    if not back:
        return None
    who = names(list(dict.fromkeys(one.server for one in back)), list(op.plan.servers))
    return f"{who} back in {named(tuple(dict.fromkeys(one.router for one in back)))}"
