"""What each server is doing, how busy it is, and what the fleet makes against its target.

status        status gpu2-5
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from datetime import datetime

from bot.domain.alerting import alert_lines
from bot.domain.behind import standing_lines
from bot.domain.command import Command, Reply
from bot.domain.facts import JobState, ServerFacts
from bot.domain.fleet import Server
from bot.domain.gpu_faults import is_grave, said, telling
from bot.domain.guard import rate
from bot.domain.limiting import lost
from bot.domain.message import Line, Lines, Message, Small, Table, bold, line
from bot.domain.needs import Needs
from bot.domain.phrases import about, count, names, percent
from bot.domain.phrases import target as goal
from bot.domain.readiness import Readiness
from bot.domain.saying import Grammar, Words
from bot.domain.views import DOTS, MANY, footer, hosts_of
from bot.domain.world import World

MOST_FAULTS = 4


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Say what is the same once, and what differs in a row each."""
    del words
    servers = world.targets
    everything = [one.name for one in world.fleet.servers]
    ready = [one for one in servers if world.verdict(one.name).readiness is Readiness.READY]
    named = line(bold(names([one.name for one in servers], everything)), " · ")
    part = line() if len(servers) == len(everything) else named
    head = line(bold(f"{len(ready)}/{len(servers)} ready"), " · ", part, hosts_of(servers))
    above = (*_alike(world, servers), *standing_lines(world, servers))
    shown = servers if len(servers) <= MANY else _odd(world, servers)
    rows = tuple(_row(world, server) for server in shown)
    blocks = [Lines(above)] if above else []
    return Reply(
        Message(
            head,
            (
                *blocks,
                *_alerts(world, now),
                *_faults(world, servers, now),
                *((Table(("server", "running", "tok/s"), rows),) if rows else ()),
                Lines(_rates(world, servers)),
                Small(footer(world)),
            ),
        ),
        is_ok=len(ready) == len(servers),
    )


def _alerts(world: World, now: datetime) -> tuple[Lines, ...]:
    """What fires now."""
    on = [one for one in world.book.alerts if one.is_on]
    everyone = [server.name for server in world.fleet.servers]
    return (Lines(alert_lines(on, everyone, now)),) if on else ()


def _faults(world: World, servers: Sequence[Server], now: datetime) -> tuple[Lines, ...]:
    """What the kernel's log says of their GPUs, the gravest of each server."""
    found = [(server.name, telling(world.facts(server.name), now)[:1]) for server in servers]
    lines = [line(f"{name}: ", bold(said(one, now))) for name, faults in found for one in faults if is_grave(one)]
    return (Lines(tuple(lines[:MOST_FAULTS])),) if lines else ()


def _row(world: World, server: Server) -> tuple[Line, ...]:
    facts, verdict = world.facts(server.name), world.verdict(server.name)
    name = line(f"{DOTS[verdict.readiness]} {server.name}")
    if verdict.readiness is not Readiness.READY:
        return (name, line(bold(verdict.readiness.value)), line(verdict.reason))
    most = facts.load.max_running or facts.running.max_running
    running = "–" if facts.load.running is None else f"{facts.load.running}" + (f"/{most}" if most else "")
    if facts.load.queued:
        running += f" +{facts.load.queued}"
    tokens = rate(facts)
    return (name, line(running), line("–" if tokens is None else about(tokens)))


def _alike(world: World, servers: Sequence[Server]) -> tuple[Line, ...]:
    """What holds for all, or the range of it; a server far from the others is named."""
    seen = {server.name: world.facts(server.name) for server in servers}
    parts: list[str] = []
    profiles = {name: facts.profile for name, facts in seen.items() if facts.process is not None}
    if profiles:
        common = statistics.mode(profiles.values())
        parts.append(f"profile {common or 'unknown'}")
        parts.extend(f"{name}: {other or 'unknown'}" for name, other in profiles.items() if other != common)
    queued = sum(facts.load.queued or 0 for facts in seen.values())
    if any(facts.load.queued is not None for facts in seen.values()):
        parts.append(f"queue {queued:,}")
    for word, get in _USAGES:
        if told := _range(seen, get):
            parts.append(f"{word} {told}")
    if memory := _memory(list(seen.values())):
        parts.append(memory)
    return (line(" · ".join(parts)),) if parts else ()


_USAGES: tuple[tuple[str, Callable[[ServerFacts], float | None]], ...] = (
    ("KV", lambda facts: facts.load.kv_usage),
    ("Mamba", lambda facts: facts.load.mamba_usage),
)


def _range(seen: dict[str, ServerFacts], get: Callable[[ServerFacts], float | None]) -> str:
    values = {name: value for name, facts in seen.items() if (value := get(facts)) is not None}
    if not values:
        return ""
    middle = statistics.median(values.values())
    odd = {name: value for name, value in values.items() if abs(value - middle) > 0.15}
    near = [value for name, value in values.items() if name not in odd]
    low, high = percent(min(near)), percent(max(near))
    told = high if low == high else f"{low.removesuffix(' %')}–{high}"
    return told + "".join(f" ({name} {percent(value)})" for name, value in list(odd.items())[:3])


def _memory(seen: Sequence[ServerFacts]) -> str:
    gpus = {gpu.uuid or str(gpu.index): gpu for facts in seen for gpu in facts.gpus}
    used = [gpu.memory_used_mib for gpu in gpus.values() if gpu.memory_used_mib is not None]
    total = [gpu.memory_total_mib for gpu in gpus.values() if gpu.memory_total_mib is not None]
    if not used or not total:
        return ""
    low, high = min(used) // 1024, max(used) // 1024
    return f"GPU {low if low == high else f'{low}–{high}'} of {max(total) // 1024} GiB"


def _odd(world: World, servers: Sequence[Server]) -> tuple[Server, ...]:
    """Of many servers, those that are not ready, and the slowest few of the rest."""
    return tuple(one for one in servers if world.verdict(one.name).readiness is not Readiness.READY)[:MANY]


def _rates(world: World, servers: Sequence[Server]) -> tuple[Line, ...]:
    known = [tokens for server in servers if (tokens := rate(world.facts(server.name))) is not None]
    if not known:
        return (line("tok/s: not known yet"),)
    total = sum(known)
    is_whole = len(servers) == len(world.fleet.servers)
    target = f" of {goal(world.fleet.target)}" if world.fleet.target and is_whole else ""
    text = [bold(f"{about(total)}{target} tok/s")]
    lines = [line(*text, "" if len(known) == len(servers) else f" from {count(len(known), 'server')}")]
    for job in world.fleet.jobs if is_whole else ():
        facts = world.job(job.name)
        if facts is not None and facts.state is JobState.RUNNING and facts.rate and total > 0:
            share = lost(total, facts.rate)
            tail = f": {percent(share)} is lost between them" if share is not None else ""
            lines.append(line(f"{about(facts.rate)} arrive at the job{tail}"))
    silent = [server.name for server in servers if world.facts(server.name).movement.still_since is not None]
    if silent:
        lines.append(line(f"no tokens from {names(silent, [server.name for server in servers])}"))
    return tuple(lines)


COMMAND = Command(
    name="status",
    summary="how busy each server is, tok/s against the target, the job, what goes on",
    usage="status [servers]",
    examples=("status", "status gpu2-5"),
    decide=decide,
    aliases=("st", "s", "stat"),
    grammar=Grammar(targets=True, recalls=True),
    needs=Needs(load=True, config=True, log=True, gpu=True, movement=True, router=True),
    needs_job=True,
)
