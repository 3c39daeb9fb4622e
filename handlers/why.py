"""What limits throughput now, in one sentence with its numbers, the lever, and the profile that would help.

why        why gpu3
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime

from bot.domain import limit_words, limiting
from bot.domain.alerting import pace_words
from bot.domain.command import Command, Reply
from bot.domain.facts import JobFacts, JobState, ServerFacts
from bot.domain.fleet import Server
from bot.domain.foreign import FOREIGN_MIB
from bot.domain.gpu_faults import is_grave, said, telling
from bot.domain.guard import rate
from bot.domain.limiting import Gain, Group, Limit
from bot.domain.message import Block, Button, Buttons, Line, Lines, Message, Says, Small, bold, code, line
from bot.domain.needs import Needs
from bot.domain.phrases import about, names, percent, span
from bot.domain.phrases import target as goal
from bot.domain.readiness import Readiness
from bot.domain.saying import Grammar, Words
from bot.domain.views import DOTS, footer
from bot.domain.watching.causes import Cause
from bot.domain.world import World

LOW_ACCEPTANCE = 1.5
"""Tokens a step below which guessing them ahead costs more than it brings."""
SLOW = 0.75
"""A server below this share of what the others make at as many requests is slow."""
ALIKE = 0.2
"""Servers are compared whose running requests differ by no more than that."""
MOST_BRAKES = 8
LONGEST_BUTTON = 200


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Say first what does not run, then which GPU is broken, what limits, what brakes; the first is the headline."""
    del words
    servers = world.targets
    if not world.sight.is_complete and any(_is_still_looked_at(world, server) for server in servers):
        return Reply(Message(line("Looking…"), (Small(footer(world)),)))
    groups = limiting.groups(world, servers)
    gain = limiting.best_gain(world, groups[0]) if groups else None
    brakes = _brakes(world, servers)
    braking = [one for _, one in brakes[:MOST_BRAKES]]
    if len(brakes) > MOST_BRAKES:
        braking.append(line(f"… and {len(brakes) - MOST_BRAKES} more"))
    limits = _limits(world, servers, groups, gain)
    is_braked = len({name for name, _ in brakes}) * 2 > len(servers)
    told = [*_not_ready(world, servers), *_faults(world, servers, now, are_grave=True)]
    told += braking + limits if is_braked else limits + braking
    told += _faults(world, servers, now, are_grave=False)
    told += _rates(world, servers)
    if not told:
        return Reply(Message(line("No server is meant, so nothing is limited.")), is_ok=False)
    blocks: list[Block] = [Lines(tuple(told[1:]))] if told[1:] else []
    if buttons := _buttons(world, groups, gain):
        blocks.append(Buttons(buttons))
    is_ready = all(world.verdict(server.name).readiness is Readiness.READY for server in servers)
    return Reply(Message(told[0], (*blocks, Small(footer(world)))), is_ok=is_ready)


def _is_still_looked_at(world: World, server: Server) -> bool:
    """Whether a server that answers has not told its numbers yet, though it may."""
    is_ready = world.verdict(server.name).readiness is Readiness.READY
    return is_ready and world.facts(server.name).load.running is None


def _not_ready(world: World, servers: Sequence[Server]) -> list[Line]:
    """Those that give nothing now, a line for each state: "🔴 gpu3 is hung: no token for 40 s"."""
    found: dict[tuple[Readiness, str], list[str]] = {}
    for server in servers:
        verdict = world.verdict(server.name)
        if verdict.readiness is not Readiness.READY:
            found.setdefault((verdict.readiness, _reason(world, server)), []).append(server.name)
    order = [server.name for server in servers]
    return [
        line(
            f"{DOTS[readiness]} {_who(members, order)} {'is' if len(members) == 1 else 'are'} ",
            bold(_state(readiness)),
            f": {reason}{_percents(world, members)}" if reason else "",
        )
        for (readiness, reason), members in sorted(found.items(), key=lambda item: DOTS[item[0][0]] != "🔴")
    ][:10]


def _who(members: Sequence[str], order: Sequence[str]) -> str:
    shown = names(members, order)
    return shown if len(shown) <= 100 else f"{len(members)} servers"


def _state(readiness: Readiness) -> str:
    return "without an answer yet" if readiness is Readiness.UNKNOWN else readiness.value


def _reason(world: World, server: Server) -> str:
    """Why it is not ready; of a start only the phase, so that servers in one phase are one line."""
    verdict, diagnosis = world.verdict(server.name), world.facts(server.name).diagnosis
    if verdict.readiness is Readiness.STARTING and diagnosis is not None and diagnosis.is_starting and diagnosis.phase:
        return diagnosis.phase.words
    return verdict.reason


def _percents(world: World, members: Sequence[str]) -> str:
    """How far those in one phase are: " 45–60 %"."""
    seen = [
        diagnosis.progress_percent
        for name in members
        if (diagnosis := world.facts(name).diagnosis) is not None and diagnosis.progress_percent is not None
    ]
    if not seen:
        return ""
    low, high = min(seen), max(seen)
    return f" {low} %" if low == high else f" {low}–{high} %"


def _brakes(world: World, servers: Sequence[Server]) -> list[tuple[str, Line]]:
    """What slows single servers, whatever limits them all."""
    ready = [server for server in servers if world.verdict(server.name).readiness is Readiness.READY]
    found: list[tuple[str, Line]] = []
    for server in ready:
        facts = world.facts(server.name)
        brakes = (*_gpu_brakes(server, facts), *_known_slowness(world, server), *_engine_brakes(server, facts))
        found += [(server.name, one) for one in brakes]
    slow = _slower(world, ready)
    braked = {name for name, _ in found}
    return [*found, *((name, one) for name, one in slow if name not in braked)]


def _known_slowness(world: World, server: Server) -> list[Line]:
    """That its own past says it is slow: there is an alert about it."""
    return [
        line(f"{server.name}: ", bold(f"slow for {span(world.now - one.since)}"), f", {pace_words(one.evidence)}")
        for one in world.book.alerts
        if one.is_on and one.cause is Cause.SLOW_SERVER and server.name in one.servers
    ]


def _faults(world: World, servers: Sequence[Server], now: datetime, *, are_grave: bool) -> list[Line]:
    """What the kernel's log says of their GPUs: what stands in the way, or what is only worth knowing."""
    found = [(server.name, one) for server in servers for one in telling(world.facts(server.name), now)[:2]]
    shown = [(name, one) for name, one in found if is_grave(one) is are_grave]
    return [line(f"{name}: ", bold(said(one, now))) for name, one in shown[:MOST_BRAKES]]


def _gpu_brakes(server: Server, facts: ServerFacts) -> list[Line]:
    found: list[Line] = []
    for gpu in facts.gpus:
        if gpu.clock_limits:
            heat = f", {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
            why = limit_words.clocks(gpu.clock_limits)
            found.append(
                line(f"{server.name}: ", bold(f"GPU {gpu.index} clock limited"), f": {why}{heat}{_pace(facts)}")
            )
        for use in gpu.uses:
            if use.server is None and (use.memory_mib is None or use.memory_mib >= FOREIGN_MIB):
                size = f"{use.memory_mib / 1024:.0f} GiB of it" if use.memory_mib is not None else "memory of it"
                age = f", {span(use.age)} old" if use.age is not None else ""
                head = bold(f"GPU {gpu.index} is shared with a foreign process")
                found.append(line(f"{server.name}: ", head, f": pid {use.pid}{age} holds {size}, ", code(use.name)))
    return found


def _pace(facts: ServerFacts) -> str:
    tokens, running = rate(facts), facts.load.running
    return f"; {about(tokens)} tok/s at {running} running" if tokens and running else ""


def _engine_brakes(server: Server, facts: ServerFacts) -> list[Line]:
    found: list[Line] = []
    load = facts.load
    if load.cuda_graph is False and load.running:
        flag = "--enforce-eager taken away" if server.engine == "vllm" else "a higher --cuda-graph-max-bs"
        told = f": {load.running} run; {flag} would cover them, for some memory"
        found.append(line(f"{server.name}: ", bold("decodes without CUDA graphs"), told))
    if load.accept_length is not None and 0 < load.accept_length < LOW_ACCEPTANCE and load.running:
        told = f": {load.accept_length:.2f} tokens a step; fewer draft tokens, or none, would be faster"
        found.append(line(f"{server.name}: ", bold("speculative decoding does not pay"), told))
    return found


def _slower(world: World, ready: Sequence[Server]) -> list[tuple[str, Line]]:
    """Those that make clearly less than the others at about as many requests."""
    seen = {server.name: world.facts(server.name) for server in ready}
    busy = {
        name: (running, tokens)
        for name, facts in seen.items()
        if (running := facts.load.running) and (tokens := rate(facts)) is not None
    }
    usual: dict[int, float] = {}
    for number in {running for running, _ in busy.values()}:
        alike = [tokens for running, tokens in busy.values() if abs(running - number) <= ALIKE * max(running, number)]
        usual[number] = statistics.median(alike) if len(alike) > 2 else 0.0
    return [
        (
            name,
            line(
                f"{name}: ",
                bold("slower than the others"),
                f": {about(tokens)} tok/s at {running} running, where the others make {about(usual[running])}",
            ),
        )
        for name, (running, tokens) in busy.items()
        if tokens < SLOW * usual[running]
    ]


def _limits(world: World, servers: Sequence[Server], groups: Sequence[Group], gain: Gain | None) -> list[Line]:
    """The sentence of each group, the largest with its lever."""
    order = [server.name for server in servers]
    told: list[Line] = []
    for number, group in enumerate(groups):
        whose = f"{_who(group.servers, order)}: " if len(group.works) < len(servers) and len(servers) > 1 else ""
        text = limit_words.sentence(group, _client(world))
        head, colon, rest = text.partition(": ") if number == 0 else ("", "", text)
        told.append(line(whose, bold(head + colon), rest))
        if number == 0 and (lever := _lever(world, group, gain)):
            told.append(line(lever))
    return told


def _lever(world: World, group: Group, gain: Gain | None) -> str:
    if group.limit is Limit.DEMAND:
        return limit_words.client_lever(group.works, _client(world))
    if gain is None:
        own = limit_words.lever(group)
        more = f" It would only be filled if {_client(world)} pushed more." if group.is_client_slow and own else ""
        return own + more
    price = f" Price: {gain.profile.price}." if gain.profile.price else ""
    return limit_words.gain(gain, group) + _pushes(world, group, gain) + price


def _pushes(world: World, group: Group, gain: Gain) -> str:
    """That the client must push more as well, and whether the profile sees to that."""
    if not group.is_client_slow:
        return ""
    wanted = gain.profile.job_concurrency
    if wanted is None or _job(world) is None:
        return f" And {_client(world)} must push more."
    return f" And {_client(world)} would push more: it resumes with a concurrency of {wanted}."


def _job(world: World) -> JobFacts | None:
    """The job that feeds the servers now, else the one that does not."""
    seen = [facts for job in world.fleet.jobs if (facts := world.job(job.name)) is not None]
    running = [facts for facts in seen if facts.state is JobState.RUNNING]
    return next(iter([*running, *seen]), None)


def _client(world: World) -> str:
    facts = _job(world)
    return f"job {facts.job}" if facts is not None and facts.state is JobState.RUNNING else "the client"


def _rates(world: World, servers: Sequence[Server]) -> list[Line]:
    """The decode sum against the target, and what of it arrives at the job; only of the whole fleet."""
    known = [tokens for server in servers if (tokens := rate(world.facts(server.name))) is not None]
    if len(servers) != len(world.fleet.servers) or not sum(known):
        return []
    total = sum(known)
    parts = [f"{about(total)}{f' of {goal(world.fleet.target)}' if world.fleet.target else ''} tok/s are decoded"]
    facts = _job(world)
    if facts is not None and facts.state is JobState.RUNNING and facts.rate:
        share = limiting.lost(total, facts.rate)
        tail = f": {percent(share)} is lost between them" if share is not None else ""
        is_more = facts.rate > (1 + limiting.LOSS) * total  # its own mean looks further back than ours
        parts.append(
            f"the job counts {about(facts.rate)}" if is_more else f"{about(facts.rate)} arrive at the job{tail}"
        )
    return [line(", ".join(parts))]


def _buttons(world: World, groups: Sequence[Group], gain: Gain | None) -> tuple[Button, ...]:
    facts = _job(world)
    is_idle = bool(groups) and groups[0].limit is Limit.IDLE
    if is_idle and facts is not None and facts.state is JobState.STOPPED:
        return (Button(f"Start job {facts.job}", Says(f"job start {facts.job}")),)
    if gain is None:
        return ()
    does = f"restart{_named(world, groups[0].servers)} {gain.profile.name}"
    return (Button(f"Restart {gain.profile.name}…", Says(does)),) if len(does) <= LONGEST_BUTTON else ()


def _named(world: World, servers: Sequence[str]) -> str:
    """The servers as one would type them; nothing where they are what the channel means anyway."""
    chosen = set(servers)
    if chosen == {server.name for server in world.fleet.defaults(world.channel)}:
        return ""
    if chosen == {server.name for server in world.fleet.servers}:
        return " all"
    return "".join(f" {name}" for name in servers)


COMMAND = Command(
    name="why",
    summary="what limits throughput now, and what would help",
    usage="why [servers]",
    examples=("why", "why gpu3"),
    decide=decide,
    grammar=Grammar(targets=True),
    needs=Needs(load=True, config=True, log=True, gpu=True, movement=True),
    needs_job=True,
    is_everyday=True,
)
