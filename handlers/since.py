"""What has changed since then: servers, what was done, and how far the job came. Times of day are in UTC.

since 03:12        since 2h        since 1d gpu3
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bot.domain.audit import entry_lines, told_since
from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.command import Command, Reply
from bot.domain.facts import JobFacts, JobState
from bot.domain.message import Line, Lines, Message, Moment, Small, bold, code, line, says
from bot.domain.moments import moment
from bot.domain.needs import Needs
from bot.domain.phrases import exact, names, span
from bot.domain.readiness import Readiness
from bot.domain.saying import Grammar, Words
from bot.domain.views import DOTS
from bot.domain.world import World

MOST_ENTRIES = 12
MOST_CHANGES = 5
"""Of a longer way the newest steps are shown."""


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Compare what was kept with what is seen now."""
    since = moment(words.when, now)
    if since is None:
        told = says("Since when? ", code("since 03:12"), " (UTC), ", code("since 2h"), ".")
        return Reply(told, is_ok=False)
    ago = span(timedelta(seconds=round((now - since).total_seconds())))
    head = line(bold(f"Since {_when(since, now)}"), f" · {ago} ago")
    servers = frozenset(words.targets) if words.named else None
    entries = told_since(world.past.entries, since, servers)
    done = entry_lines(entries[-MOST_ENTRIES:])
    jobs = _jobs(world, since) if servers is None else ()
    blocks = [Lines(_servers(world, since))]
    blocks += [Lines(done)] if done else []
    blocks += [Lines(jobs)] if jobs else []
    small = [] if done else [line("nothing was done through me")]
    small += (
        [line(f"and {len(entries) - len(done)} earlier ones: ", code("history"))] if len(entries) > len(done) else []
    )
    return Reply(Message(head, (*blocks, *((Small(tuple(small)),) if small else ()))))


def _when(since: datetime, now: datetime) -> str:
    at = since.astimezone(UTC)
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def _servers(world: World, since: datetime) -> tuple[Line, ...]:
    """A line for all that went the same way; those that stayed as they were come last, counted."""
    order = [server.name for server in world.targets]
    ways: dict[tuple[Readiness, ...], list[str]] = {}
    paths: dict[str, list[ReadinessChange]] = {}
    still: dict[tuple[Readiness, str], list[str]] = {}
    for name in order:
        path = _path(world, name, since)
        if len(path) < 2:
            still.setdefault(_stayed(world, name, path, since), []).append(name)
            continue
        paths[name] = path
        ways.setdefault(tuple(one.readiness for one in path), []).append(name)
    lines = [_way(members, order, paths[members[0]]) for members in ways.values()]
    lines += [line(f"{DOTS[dot]} {names(members, order)}  {told}") for (dot, told), members in still.items()]
    return tuple(lines)


def _stayed(world: World, server: str, path: Sequence[ReadinessChange], since: datetime) -> tuple[Readiness, str]:
    """How a server that shows no change is told: a process younger than that was started without anybody looking."""
    if not path:
        return Readiness.UNKNOWN, "not known, then or now"
    one = path[0]
    process = world.facts(server).process
    if one.at >= since:
        return one.readiness, f"{one.readiness.value}, looked at for the first time since"
    if process is not None and process.age < world.now - since:
        return one.readiness, f"{one.readiness.value} then and now, but started anew in between"
    return one.readiness, f"{one.readiness.value} then and now"


def _path(world: World, server: str, since: datetime) -> list[ReadinessChange]:
    """The states one after the other: the one at that time, the changes, and the one that is seen now."""
    path = [one for one in world.past.changes if one.server == server]
    verdict = world.verdict(server)
    if verdict.readiness is not Readiness.UNKNOWN and (not path or path[-1].readiness is not verdict.readiness):
        path.append(ReadinessChange(server, world.facts(server).at, verdict.readiness, verdict.reason))
    before = [one for one in path if one.at < since]
    later = [one for one in path if one.at >= since]
    return [*before[-1:], *later]


def _way(members: Sequence[str], order: Sequence[str], path: Sequence[ReadinessChange]) -> Line:
    """A way: "🔴 gpu3  ready → crashed 03:40 (cuda_oom)"; the times and the reason are those of the first of them."""
    last = path[-1]
    shown = path if len(path) <= MOST_CHANGES else path[-MOST_CHANGES:]
    parts: list[Line] = [line("…")] if len(shown) < len(path) else []
    for number, one in enumerate(shown):
        is_start = number == 0 and len(shown) == len(path)
        why = f" ({one.reason})" if one is last and one.reason else ""
        parts.append(
            line(one.readiness.value) if is_start else line(bold(one.readiness.value), " ", Moment(one.at), why)
        )
    joined = [piece for part in parts for piece in (part, line(" → "))][:-1]
    return line(f"{DOTS[last.readiness]} {names(members, order)}  ", *joined)


def _jobs(world: World, since: datetime) -> tuple[Line, ...]:
    lines = []
    for job in world.fleet.jobs:
        facts = world.job(job.name)
        marks = [one for one in world.past.marks if one.job == job.name]
        if facts is not None and marks:
            lines.append(_job(marks, facts, since))
    return tuple(lines)


def _job(marks: Sequence[JobMark], facts: JobFacts, since: datetime) -> Line:
    first = next((one for one in reversed(marks) if one.at <= since), marks[0])
    told = [line(f"job {facts.job}: ")]
    if first.done is not None and facts.done is not None:
        more = facts.done - first.done
        way = f"{exact(first.done)} → {exact(facts.done)}" if more else f"still at {exact(facts.done)}"
        way = f"begun anew, at {exact(facts.done)}" if more < 0 else way
        told.append(line(bold(way), f" ({more:+,})" if more > 0 else ""))
    if facts.state not in (first.state, JobState.UNKNOWN):
        told.append(line(f"{' · ' if len(told) > 1 else ''}{first.state.value} → {facts.state.value}"))
    if len(told) == 1:
        told.append(line(facts.state.value))
    if first.at > since:
        told.append(line(", first seen ", Moment(first.at)))
    return line(*told)


COMMAND = Command(
    name="since",
    summary="what has changed since then: servers, what was done, the job",
    usage="since <time of day in UTC, or span> [servers]",
    examples=("since 03:12", "since 2h"),
    decide=decide,
    grammar=Grammar(targets=True, when=True),
    needs=Needs(load=True, log=True, movement=True),
    needs_job=True,
    needs_history=True,
    is_everyday=True,
)
