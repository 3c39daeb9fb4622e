"""What the messages about operations share: a server as it is seen now, its proof, a step in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.diagnosis import Diagnosis
from bot.domain.facts import ServerFacts
from bot.domain.message import Button, Line, Says, bold, line
from bot.domain.operation import Operation
from bot.domain.phrases import count, names, span
from bot.domain.plan import (
    AwaitFree,
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Plan,
    Prove,
    ResumeJob,
    StartServers,
    Step,
    StopJob,
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
        case EndServers(victims):
            return f"stop {count(len(victims), 'server')}"
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
