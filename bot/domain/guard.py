"""The kill guard: what would be lost, whether a press is needed, and what is checked before anything dies."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from bot.domain.command import Reply
from bot.domain.eta import is_alike
from bot.domain.facts import JobState, ServerFacts
from bot.domain.fleet import Job, Server
from bot.domain.foreign import foreigners
from bot.domain.leases import Claim, Kind
from bot.domain.message import Button, Buttons, Line, Lines, Look, Message, Says, bold, code, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import about, count, listing, names, span
from bot.domain.plan import Before, Stake, Victim
from bot.domain.readiness import Readiness
from bot.domain.records import StartRecord, Warmth
from bot.domain.world import World


def stakes(world: World, servers: Sequence[Server]) -> tuple[Stake, ...]:
    """What a press would be about, a server each."""
    result = []
    for server in servers:
        process = world.facts(server.name).process
        readiness = world.verdict(server.name).readiness
        result.append(
            Stake(
                server.name,
                process.pid if process else None,
                process.started if process else None,
                readiness.is_alive or process is not None,
                readiness.value,
            )
        )
    return tuple(result)


def victims(world: World, servers: Sequence[Server]) -> tuple[Victim, ...]:
    """The processes that are provably these servers."""
    seen = [(server.name, world.facts(server.name).process) for server in servers]
    return tuple(Victim(name, process.pid, process.started) for name, process in seen if process is not None)


def before(world: World, servers: Sequence[Server]) -> tuple[Before, ...]:
    """What the servers do now, to be compared with afterwards."""
    result = []
    for server in servers:
        facts = world.facts(server.name)
        result.append(
            Before(
                server.name,
                facts.profile,
                facts.load.max_running or facts.running.max_running,
                facts.load.max_total_tokens or facts.running.max_total_tokens,
                facts.load.running,
                rate(facts),
            )
        )
    return tuple(result)


def rate(facts: ServerFacts) -> float | None:
    """Decoded tokens a second: measured between two looks, else what the engine says while it works."""
    if facts.movement.tokens_per_second is not None:
        return facts.movement.tokens_per_second
    if facts.movement.still_since is not None and facts.load.running and not facts.load.counts_at_end:
        return 0.0  # seen to stand still, whatever a gauge that nobody sets any more says
    if not facts.load.running:
        return 0.0 if facts.load.running == 0 else None
    return facts.load.tokens_per_second or None  # a gauge of 0 while requests run has not been set yet


def losses(world: World, servers: Sequence[Server], warmth: Warmth = Warmth.UNKNOWN) -> Line:
    """What would be lost: "8 healthy · 256 requests running · 3.9k tok/s · up 6 h · a start took 3 m 40 s".

    ``warmth`` is how the start would find its kernels: only starts that are alike say how long it takes.
    """
    verdicts = {server.name: world.verdict(server.name).readiness for server in servers}
    parts: list[str] = []
    for readiness, word in (
        (Readiness.READY, "healthy"),
        (Readiness.STARTING, "starting"),
        (Readiness.DRAINING, "draining"),
        (Readiness.HUNG, "hung"),
        (Readiness.UNREACHABLE, "unreachable"),
        (Readiness.UNKNOWN, "without an answer yet"),
    ):
        if number := sum(one is readiness for one in verdicts.values()):
            parts.append(f"{number} {word}")
    if dead := sum(not one.is_alive for one in verdicts.values()):
        parts.append(f"{dead} down")
    facts = [world.facts(server.name) for server in servers]
    if running := sum(one.load.running or 0 for one in facts):
        parts.append(f"{count(running, 'request')} running")
    if queued := sum(one.load.queued or 0 for one in facts):
        parts.append(f"{about(queued)} queued")
    if tokens := sum(rate(one) or 0 for one in facts):
        parts.append(f"{about(tokens)} tok/s")
    if ages := [one.process.age for one in facts if one.process is not None]:
        parts.append(f"up {span(max(ages))}")
    if took := start_time([one for one in world.starts if is_alike(one.caches, warmth)], servers):
        parts.append(took)
    return line(" · ".join(parts))


def start_time(starts: Iterable[StartRecord], servers: Sequence[Server]) -> str | None:
    """How long a start usually takes here: "a start took 3 m 40 s (median of 5)"; None without history."""
    mine = {server.name for server in servers}
    took = [one.took.total_seconds() for one in starts if one.is_ready and one.server in mine]
    if not took:
        return None
    median = span(timedelta(seconds=statistics.median(took)))
    return f"a start took {median}" + (f" (median of {len(took)})" if len(took) > 1 else "")


def busy(operation: Operation, now: datetime, claim: Claim | None = None) -> Message:
    """The answer to a command or a press that another operation is in the way of; ``claim`` is what both want."""
    what = f"{claim.words} is held by " if claim is not None and claim.kind in (Kind.GPU, Kind.PORT) else ""
    buttons = [Button("Show", Says("status")), Button("Cancel that", Says(f"cancel {operation.id}"))]
    if claim is not None and claim.kind not in (Kind.OPERATION, Kind.HOLD):
        buttons.append(Button("Steal…", Says(f"steal {claim.of or operation.id}")))
    return Message(
        line(bold(f"Busy: {what}{operation.plan.verb}"), f" {under_way(operation, now)}"), (Buttons(tuple(buttons)),)
    )


def under_way(operation: Operation, now: datetime) -> str:
    """By whom an operation is carried out, for how long, and where it stands: "by ana since 1 m 10 s, step 3 of 6"."""
    number, told = operation.current, f"by {operation.by} since {span(now - operation.started_at)}"
    if number is None:
        return told
    note = operation.progress[number].note
    return f"{told}, step {number + 1} of {len(operation.plan.steps)}" + (f" ({note})" if note else "")


def obstacles(world: World, servers: Sequence[Server]) -> Message | None:
    """What is in the way of a start on these servers' ports and GPUs, named; None when nothing is."""
    found = foreigners(world, servers)
    if not found:
        return None
    head = line(bold("Not started: "), "something else holds a port or GPU memory. Nothing was touched.")
    lines = tuple(
        line(f"{one.server}: {one.why} by pid {one.pid}{one.age_words}: ", code(one.what)) for one in found[:16]
    )
    able = [one for one in found if one.started is not None][:3]
    buttons = tuple(Button(f"Kill {one.pid}…", Says(f"kill {one.pid}")) for one in able)
    return Message(head, (Lines(lines), *((Buttons(buttons),) if buttons else ())))


def unreachable_reply(world: World, servers: Sequence[Server], verb: str) -> Reply | None:
    """A refusal when not a single one of these servers can be reached."""
    states = [world.verdict(server.name) for server in servers]
    away = [one for one in states if one.readiness in (Readiness.UNREACHABLE, Readiness.UNKNOWN)]
    if len(away) < len(states):
        return None
    why = away[0].reason or "no answer yet"
    return Reply(says(bold(f"Can't {verb}: "), f"{why}. Nothing was touched."), is_ok=False)


def job_at_stake(world: World, servers: Sequence[Server]) -> Job | None:
    """The running job that could not go on without these servers; None when it can, or none runs."""
    touched = {server.name for server in servers}
    left = [
        server.name
        for server in world.fleet.servers
        if server.name not in touched and world.verdict(server.name).readiness is Readiness.READY
    ]
    for job in world.fleet.jobs:
        facts = world.job(job.name)
        if facts is not None and facts.state is JobState.RUNNING and len(left) < job.minimum_servers:
            return job
    return None


def whom(world: World, servers: Sequence[Server]) -> str:
    """Servers as a person says them: "gpu3", or "8 servers"."""
    if len(servers) == 1:
        return servers[0].name
    if len(servers) <= 3:
        return listing(server.name for server in servers)
    if len(servers) == len(world.fleet.servers):
        return f"{len(servers)} servers"
    return f"{len(servers)} servers ({names([s.name for s in servers], [s.name for s in world.fleet.servers])})"


def insist(label: str, command: str) -> Buttons:
    """One button that does it all the same."""
    return Buttons((Button(label, Says(command), Look.PLAIN),))
