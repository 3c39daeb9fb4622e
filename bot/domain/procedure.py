"""The procedures that end or start servers, as plans: restart, stop and start differ only in their steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bot.domain.command import Reply
from bot.domain.flags import FlagChange
from bot.domain.fleet import Job, Profile, Server
from bot.domain.guard import (
    before,
    busy_reply,
    insist,
    job_at_stake,
    losses,
    obstacles,
    stakes,
    start_time,
    unreachable_reply,
    victims,
    whom,
)
from bot.domain.launching import changes, flag_problems, order, profile_for
from bot.domain.message import Line, Lines, Message, Small, bold, code, line, says
from bot.domain.phrases import about, percent
from bot.domain.plan import (
    AwaitFree,
    CompareThroughput,
    EndServers,
    Plan,
    Prove,
    ResumeJob,
    StartOrder,
    StartServers,
    Step,
    StopJob,
)
from bot.domain.readiness import Readiness
from bot.domain.words import Words
from bot.domain.world import World


def restart(words: Words, world: World) -> Reply | Plan:
    """End what runs and start it again, with a profile when one is named."""
    servers = world.targets
    if (refusal := _not_now(world, servers, "restart")) is not None:
        return refusal
    profile = words.profile
    chosen = _without_the_same(world, servers, profile) if "--again" not in words.options else servers
    if not chosen:
        text = f"{len(servers)}/{len(servers)} already run {profile} and are healthy: nothing to do."
        again = f"restart {profile} --again" + _named(words)
        return Reply(Message(line(bold(text)), (insist("Restart all the same…", again),)))
    orders = tuple(order(world, server, profile) for server in chosen)
    if (refused := _refused(world, chosen, orders)) is not None:
        return refused
    job = job_at_stake(world, chosen)
    is_rolling = "--rolling" in words.options and len(chosen) > 1
    steps = _rolling_steps(world, chosen, orders) if is_rolling else _steps(world, chosen, orders, job, profile)
    return _plan(words, world, chosen, steps, orders, job=None if is_rolling else job)


def start(words: Words, world: World) -> Reply | Plan:
    """Start what does not run; what runs is left as it is."""
    servers = world.targets
    if (refusal := _not_now(world, servers, "start")) is not None:
        return refusal
    idle = tuple(server for server in servers if world.facts(server.name).process is None)
    if not idle:
        return Reply(
            says(bold(f"{whom(world, servers)} already run: "), "nothing to do. ", code("restart"), " ends them first.")
        )
    orders = tuple(order(world, server, words.profile) for server in idle)
    if (refused := _refused(world, idle, orders)) is not None:
        return refused
    names = tuple(server.name for server in idle)
    steps: tuple[Step, ...] = (AwaitFree(names), StartServers(orders), Prove(names))
    title = f"Start {whom(world, idle)}" + (f" · {words.profile}" if words.profile else "")
    return Plan(
        "start", title, names, steps, profile=words.profile, before=before(world, idle), is_preview=words.is_question
    )


def stop(words: Words, world: World) -> Reply | Plan:
    """End what runs, and leave it ended."""
    servers = world.targets
    if (refusal := _not_now(world, servers, "stop")) is not None:
        return refusal
    alive = tuple(server for server in servers if world.facts(server.name).process is not None)
    if not alive:
        return Reply(says(bold(f"{whom(world, servers)}: "), "no process runs there, nothing to stop."))
    job = job_at_stake(world, alive)
    names = tuple(server.name for server in alive)
    steps: tuple[Step, ...] = (
        *((StopJob(job.name),) if job is not None else ()),
        EndServers(victims(world, alive)),
        AwaitFree(names),
    )
    note = [line(f"job {job.name} will be stopped gracefully and not resumed")] if job is not None else []
    question = Message(
        line(bold(f"Stop {whom(world, alive)}?")),
        (Lines((losses(world, alive),)), *((Small(tuple(note)),) if note else ())),
    )
    return Plan(
        "stop",
        f"Stop {whom(world, alive)}",
        names,
        steps,
        question=question,
        confirm_label=f"Stop {whom(world, alive)}",
        stakes=stakes(world, alive),
        before=before(world, alive),
        is_preview=words.is_question,
    )


def _named(words: Words) -> str:
    return "".join(f" {name}" for name in words.targets) if words.named else ""


def _not_now(world: World, servers: Sequence[Server], verb: str) -> Reply | None:
    operation = world.busy(tuple(server.name for server in servers))
    if operation is not None:
        return busy_reply(world, operation)
    return unreachable_reply(world, servers, verb)


def _without_the_same(world: World, servers: Sequence[Server], profile: str | None) -> tuple[Server, ...]:
    """Those that do not run this profile healthily; without a profile asked for, all of them."""
    if profile is None:
        return tuple(servers)
    return tuple(
        server
        for server in servers
        if world.facts(server.name).profile != profile or world.verdict(server.name).readiness is not Readiness.READY
    )


def _refused(world: World, servers: Sequence[Server], orders: Sequence[StartOrder]) -> Reply | None:
    """Why these launches would fail, said before anything is stopped; None when nothing speaks against them."""
    for server, new in zip(servers, orders, strict=True):
        checked = flag_problems(world, server, new)
        if checked is None or not checked[1]:
            continue
        _, problems = checked
        lines: list[Line] = [line(problem.why) for problem in problems]
        corrected = next((one.corrected for one in problems if one.corrected is not None), None)
        blocks = [Lines(tuple(lines))]
        if corrected is not None:
            blocks.append(Lines((line("corrected: ", code(" ".join(corrected.argv()))),)))
        where = f"profile {new.profile}" if new.profile != "custom" else "these flags"
        return Reply(
            Message(line(bold(f"Not restarted: {where} will not start. "), "Nothing was touched."), tuple(blocks)),
            is_ok=False,
        )
    blocked = obstacles(world, servers)
    return Reply(blocked, is_ok=False) if blocked is not None else None


def _steps(
    world: World, servers: Sequence[Server], orders: tuple[StartOrder, ...], job: Job | None, profile: str | None
) -> tuple[Step, ...]:
    names = tuple(server.name for server in servers)
    doomed = victims(world, servers)
    settings = world.fleet.profile(profile) if profile else None
    concurrency = settings.job_concurrency if settings is not None else None
    return (
        *((StopJob(job.name),) if job is not None else ()),
        *((EndServers(doomed),) if doomed else ()),
        AwaitFree(names),
        StartServers(orders),
        Prove(names),
        *((ResumeJob(job.name, concurrency, job.minimum_servers),) if job is not None else ()),
        *((CompareThroughput(names, world.fleet.limits.compare_after),) if doomed else ()),
    )


def _rolling_steps(world: World, servers: Sequence[Server], orders: tuple[StartOrder, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for server, new in zip(servers, orders, strict=True):
        if doomed := victims(world, (server,)):
            steps.append(EndServers(doomed))
        steps += [AwaitFree((server.name,)), StartServers((new,)), Prove((server.name,))]
    steps.append(CompareThroughput(tuple(server.name for server in servers), world.fleet.limits.compare_after))
    return tuple(steps)


def _plan(
    words: Words,
    world: World,
    servers: tuple[Server, ...],
    steps: tuple[Step, ...],
    orders: tuple[StartOrder, ...],
    *,
    job: Job | None,
) -> Plan:
    at_stake = stakes(world, servers)
    subject = whom(world, servers)
    with_profile = f" with profile {words.profile}" if words.profile else ""
    is_rolling = "--rolling" in words.options and len(servers) > 1
    one_by_one = ", one after the other" if is_rolling else ""
    old = {facts.profile for server in servers if (facts := world.facts(server.name)).profile}
    profile = profile_for(world, servers[0], words.profile)
    is_asked = any(stake.is_alive for stake in at_stake)
    question = Message(
        line(bold(f"Restart {subject}{with_profile}{one_by_one}?")),
        tuple(
            block
            for block in (
                Lines((losses(world, servers),)),
                _changes(world, servers, orders),
                Small(_small(world, servers, orders, profile if words.profile else None, job)),
            )
            if block is not None
        ),
    )
    return Plan(
        "restart",
        f"Restart {subject}" + (f" · {words.profile}" if words.profile else "") + one_by_one,
        tuple(server.name for server in servers),
        steps,
        profile=words.profile,
        question=question if is_asked else None,
        confirm_label=f"Restart {subject.split(' (')[0]}",
        stakes=at_stake,
        before=before(world, servers),
        back_to=next(iter(old)) if len(old) == 1 and not old & {"custom", words.profile} else None,
        stops_on_failure=is_rolling,
        is_preview=words.is_question,
        has_alternative=_one_by_one(words, servers) if not is_rolling and len(servers) > 1 else None,
    )


def _one_by_one(words: Words, servers: Sequence[Server]) -> tuple[str, str]:
    profile = f" {words.profile}" if words.profile else ""
    names = "".join(f" {server.name}" for server in servers) if words.named else ""
    return "One by one…", f"restart --rolling{profile}{names or ('' if profile else ' all')}"


def _changes(world: World, servers: Sequence[Server], orders: Sequence[StartOrder]) -> Lines | None:
    """What the launch changes, each flag once; servers that differ from the first are counted."""
    different = [changes(world, server, new) for server, new in zip(servers, orders, strict=True)]
    shown = next((one for one in different if one), ())
    lines = [_change(one) for one in shown[:12]]
    if (others := sum(1 for one in different if one and one != shown)) > 0:
        lines.append(line(f"{others} of them run other flags now"))
    return Lines(tuple(lines)) if lines else None


def _change(change: FlagChange) -> Line:
    after = "off" if change.after is None else " ".join(change.after) or "on"
    was = "–" if change.before is None else " ".join(change.before) or "on"
    return line(code(change.name), f"  {was} → ", bold(after))


def _small(
    world: World, servers: Sequence[Server], orders: Sequence[StartOrder], profile: Profile | None, job: Job | None
) -> tuple[Line, ...]:
    lines: list[Line] = []
    if (why := _why(world, servers)) and profile is not None:
        lines.append(line(f"why: {why}"))
    checks: list[str] = []
    checked = flag_problems(world, servers[0], orders[0])
    engine = servers[0].engine
    if checked is not None:
        checks.append(f"✓ flags known to {engine} {checked[0]}")
    else:
        told = world.installed.get(servers[0].name)
        checks.append("flags not checked" + (f" ({told})" if isinstance(told, str) else ""))
    has_gpus = any(world.facts(server.name).gpus for server in servers)
    checks.append("✓ memory and ports will be free" if has_gpus else "✓ ports will be free")
    if job is not None:
        checks.append(f"✓ job {job.name} stops gracefully and resumes")
    lines.append(line("   ".join(checks)))
    if profile is not None:
        lines.append(line(" · ".join(_record(world, servers, profile))))
    return tuple(lines)


def _record(world: World, servers: Sequence[Server], profile: Profile) -> list[str]:
    parts: list[str] = []
    most = {facts.load.max_running for server in servers if (facts := world.facts(server.name)).load.max_running}
    if profile.seats is not None:
        now = f", now {min(most)}" if most else ""
        parts.append(f"expected: {profile.seats} seats{now}")
    if profile.gain:
        parts.append(profile.gain)
    if profile.price:
        parts.append(f"price: {profile.price}")
    ran = [one for one in world.starts if one.profile == profile.name]
    if not any(one.is_ready for one in ran):
        parts.append("never run here before")
    else:
        failed = sum(not one.is_ready for one in ran)
        took = start_time(ran, servers)
        parts.append(f"run here before{f', {took}' if took else ''}{f', {failed} failed' if failed else ''}")
    return parts


def _why(world: World, servers: Sequence[Server]) -> str:
    """What holds the servers back now, when it is their number of seats."""
    loads = [world.facts(server.name).load for server in servers]
    full = [one for one in loads if one.running is not None and one.max_running]
    if not full:
        return ""
    running = statistics.median(one.running or 0 for one in full)
    most = statistics.median(one.max_running or 0 for one in full)
    if running < 0.8 * most:
        return ""
    queued = sum(one.queued or 0 for one in full)
    parts = [f"{running:.0f} of {most:.0f} seats taken"]
    kv = [one.kv_usage for one in full if one.kv_usage is not None]
    mamba = [one.mamba_usage for one in full if one.mamba_usage is not None]
    if mamba and (not kv or statistics.median(kv) < 0.8):
        parts.append(f"Mamba state holds the cap ({percent(statistics.median(mamba))})")
    elif kv:
        parts.append(f"KV cache {percent(statistics.median(kv))} used")
    parts.append("queue empty" if not queued else f"{about(queued)} queued")
    return ", ".join(parts)
