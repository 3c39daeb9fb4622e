"""How servers, jobs and operations are shown, the same in every command and in the machine's own messages."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.facts import JobFacts, JobState
from bot.domain.fleet import Server
from bot.domain.guard import under_way
from bot.domain.holds import hold_lines, hold_words, servers_words
from bot.domain.message import Line, Lines, Message, bold, code, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import about, count, exact, listing, span, stopwatch
from bot.domain.readiness import Readiness
from bot.domain.world import World

DOTS = {
    Readiness.READY: "🟢",
    Readiness.STARTING: "🟡",
    Readiness.DRAINING: "🟡",
    Readiness.UNKNOWN: "🟡",
    Readiness.UNREACHABLE: "🟡",
    Readiness.HUNG: "🔴",
    Readiness.CRASHED: "🔴",
    Readiness.DOWN: "🔴",
}
"""Ready, on its way or not known, needs a person; a word always stands beside it."""

MANY = 10
"""Up to so many servers have a line each; beyond, what is alike is one line."""


MOST_HELD = 20
"""So many holds are listed."""


def hosts_of(servers: Sequence[Server]) -> str:
    """Where these servers are: up to two hosts by name."""
    hosts = list(dict.fromkeys(server.host for server in servers))
    return ", ".join(hosts) if len(hosts) <= 2 else f"{len(hosts)} hosts"


def job_line(facts: JobFacts) -> str:
    """A job in one line: "job datagen: running at 61,204 of 193,000 · 3.9k tok/s · 5 h to go"."""
    words = {
        JobState.RUNNING: "running",
        JobState.STOPPED: "stopped",
        JobState.DONE: "done",
        JobState.UNKNOWN: "not known",
    }[facts.state]
    text = f"job {facts.job}: {words}"
    if facts.state is JobState.UNKNOWN and facts.why:
        return f"{text} ({facts.why})"
    if facts.done is not None:
        text += f" at {exact(facts.done)}" + (f" of {exact(facts.total)}" if facts.total is not None else "")
    if facts.state is JobState.STOPPED and (facts.total is None or (facts.done or 0) < facts.total):
        text += ", can resume"
    if facts.state is JobState.RUNNING:
        text += f" · {about(facts.rate)} tok/s" if facts.rate else ""
        text += f" · {span(facts.eta)} to go" if facts.eta is not None else ""
    return text


def operation_line(operation: Operation, world: World) -> str:
    """A live operation in one line."""
    number = operation.current
    step = f", step {number + 1} of {len(operation.plan.steps)}" if number is not None else ""
    note = f" ({operation.progress[number].note})" if number is not None and operation.progress[number].note else ""
    return f"{operation.plan.title} by {operation.by}, {stopwatch(world.now - operation.started_at)}{step}{note}"


def footer(world: World) -> tuple[Line, ...]:
    """The small print below a look: jobs, and what else goes on."""
    is_looking = not world.sight.is_complete
    seen = [(job.name, world.job(job.name)) for job in world.fleet.jobs]
    jobs = [
        job_line(facts) if facts is not None else f"job {name}: looking"
        for name, facts in seen
        if facts is not None or is_looking
    ]
    live = [operation_line(one, world) for one in world.operations if one.is_live]
    rest = " · ".join(live) if live else "nothing else running"
    return (line(" · ".join([*jobs, rest])), *hold_lines(world.holds, world.fleet, world.now))


def held_now(world: World) -> Message:
    """All that is held: by people, a line each, and what live operations work on."""
    told = [hold_words(hold, world.fleet, world.now) for hold in world.holds]
    for op in world.operations:
        who = servers_words(op.plan.servers, world.fleet) or listing(one.words for one in op.held)
        told.append(f"{who} held by {op.plan.verb} {under_way(op, world.now)} · {op.id}")
    if not told:
        return says(bold("Nothing is held. "), code("hold gpu3 2h why"))
    more = [f"and {len(told) - MOST_HELD} more"] if len(told) > MOST_HELD else []
    lines = tuple(line(one) for one in [*told[:MOST_HELD], *more])
    return Message(line(bold(count(len(told), "hold"))), (Lines(lines),))
