"""The procedures that end or start servers, as plans: restart, stop and start differ only in their steps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from bot.domain.behind import asked_lines, named, putting_back, routers_of, taking_out, unlisted
from bot.domain.command import Reply
from bot.domain.flags import FlagChange, Flags
from bot.domain.fleet import Fallback, Job, Profile, Server
from bot.domain.guard import (
    before,
    busy,
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
from bot.domain.kernel_caches import said, together
from bot.domain.launching import CUSTOM, caches_found, changes, flag_problems, order, profile_for
from bot.domain.limit_words import brief
from bot.domain.limiting import groups
from bot.domain.message import Line, Lines, Message, Small, bold, code, line, says
from bot.domain.phrases import count, span
from bot.domain.plan import (
    AwaitFree,
    ComparePeers,
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
from bot.domain.saying import Words
from bot.domain.world import World

_PLAIN = re.compile(r"(?!(?:yes|no|on|off|true|false|null)\Z)[A-Za-z0-9/][\w./+-]*", re.IGNORECASE | re.ASCII)
"""Values that need no quotes in a fleet file."""


def restart(words: Words, world: World) -> Reply | Plan:
    """End what runs and start it again, with a profile when one is named."""
    servers = world.targets
    if (refusal := _not_now(world, servers, "restart")) is not None:
        return refusal
    profile = words.profile
    is_new = "--again" in words.options or bool(words.flags.items)
    chosen = servers if is_new else _without_the_same(world, servers, profile)
    if not chosen:
        many = f"{len(servers)}/{len(servers)} already run {profile} and are"
        what = many if len(servers) > 1 else f"{servers[0].name} already runs {profile} and is"
        text = f"{what} healthy: nothing to do."
        again = f"restart {profile} --again" + _named(words)
        return Reply(Message(line(bold(text)), (insist("Restart all the same…", again),)))
    orders = tuple(order(world, server, profile, words.flags) for server in chosen)
    if (refused := _refused(world, chosen, orders, "restarted")) is not None:
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
    out = unlisted(world, servers)
    if not idle and out:
        names = tuple(server.name for server in out)
        title = f"Put {whom(world, out)} back into {named(routers_of(out))}"
        return Plan("start", title, names, putting_back(out), is_preview=words.is_question)
    if not idle:
        verb, them = ("runs", "it") if len(servers) == 1 else ("run", "them")
        return Reply(
            says(
                bold(f"{whom(world, servers)} already {verb}: "),
                "nothing to do. ",
                code("restart"),
                f" ends {them} first.",
            )
        )
    orders = tuple(order(world, server, words.profile) for server in idle)
    if (refused := _refused(world, idle, orders, "started")) is not None:
        return refused
    names = tuple(server.name for server in idle)
    steps: tuple[Step, ...] = (AwaitFree(names), StartServers(orders), Prove(names), *putting_back(idle))
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
        *taking_out(world, alive),
        EndServers(victims(world, alive)),
        AwaitFree(names),
    )
    note = [line(f"job {job.name} will be stopped gracefully and not resumed")] if job is not None else []
    note += asked_lines(world, alive, comes_back=False)
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
    taken = world.busy(tuple(server.name for server in servers))
    if taken is not None:
        return Reply(busy(taken[0], world.now, taken[1]), is_ok=False)
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


def _refused(world: World, servers: Sequence[Server], orders: Sequence[StartOrder], done: str) -> Reply | None:
    """Why these launches would fail, said before anything is stopped; None when nothing speaks against them."""
    for server, new in zip(servers, orders, strict=True):
        checked = flag_problems(world, server, new)
        if checked is None or not checked[1]:
            continue
        reasons = Lines(tuple(line(problem.why) for problem in checked[1]))
        where = f"profile {new.profile}" if new.profile != CUSTOM else "these flags"
        corrected = next((one.corrected for one in checked[1] if one.corrected is not None), None)
        blocks = [reasons, *(_corrected(world, server, new, corrected) if corrected is not None else ())]
        head = line(bold(f"Not {done}: {where} will not start. "), "Nothing was touched.")
        return Reply(Message(head, tuple(blocks)), is_ok=False)
    blocked = obstacles(world, servers)
    return Reply(blocked, is_ok=False) if blocked is not None else None


def _corrected(world: World, server: Server, new: StartOrder, right: Flags) -> list[Lines]:
    """What the fleet file should say, a line for each flag that changes.

    What has another name now, or none, is mended where it stands; another value is the profile's, which goes on top.
    """
    profile = world.fleet.profile(new.profile)
    of_server = {name for name, _ in server.launch.flags} - {name for name, _ in (profile.flags if profile else ())}
    changed = new.flags.changes_to(right)
    gone = [one for one in changed if one.after is None]
    told: dict[bool, list[Line]] = {}
    for change in (one for one in changed if one.after is not None):
        old = next((one for one in gone if one.before == change.after), None)
        gone = [one for one in gone if one is not old]
        instead = f"   instead of {old.name}" if old is not None else ""
        is_own = profile is not None and old is not None and old.name in of_server
        told.setdefault(is_own, []).append(line(code(_as_written(change)), instead))
    for change in gone:
        is_own = profile is not None and change.name in of_server
        told.setdefault(is_own, []).append(line("without ", code(change.name)))
    whose = {False: f"profile {profile.name}" if profile else "the flags", True: f"the flags of {server.name}"}
    return [Lines((line(f"{whose[is_own]} should say:"), *told[is_own])) for is_own in sorted(told)]


def _as_written(change: FlagChange) -> str:
    """A flag as it stands in a fleet file: "page-size: 1", "disable-overlap-schedule: true"."""
    values = [one if _PLAIN.fullmatch(one) else json.dumps(one, ensure_ascii=False) for one in change.after or ()]
    value = values[0] if len(values) == 1 else f"[{', '.join(values)}]" if values else "true"
    return f"{change.name}: {value}"


def _steps(
    world: World, servers: Sequence[Server], orders: tuple[StartOrder, ...], job: Job | None, profile: str | None
) -> tuple[Step, ...]:
    names = tuple(server.name for server in servers)
    doomed = victims(world, servers)
    settings = world.fleet.profile(profile) if profile else None
    concurrency = settings.job_concurrency if settings is not None else None
    return (
        *((StopJob(job.name),) if job is not None else ()),
        *taking_out(world, servers),
        *((EndServers(doomed),) if doomed else ()),
        AwaitFree(names),
        StartServers(orders),
        Prove(names),
        *putting_back(servers),
        *((ResumeJob(job.name, concurrency, job.minimum_servers),) if job is not None else ()),
        *((CompareThroughput(names, world.fleet.limits.compare_after),) if doomed else ()),
    )


def _rolling_steps(world: World, servers: Sequence[Server], orders: tuple[StartOrder, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for server, new in zip(servers, orders, strict=True):
        steps += taking_out(world, (server,))
        if doomed := victims(world, (server,)):
            steps.append(EndServers(doomed))
        steps += [AwaitFree((server.name,)), StartServers((new,)), Prove((server.name,)), *putting_back((server,))]
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
    with_profile += "".join(f" {name}={' '.join(values)}" for name, values in words.flags)
    is_rolling = "--rolling" in words.options and len(servers) > 1
    one_by_one = ", one after the other" if is_rolling else ""
    old = {facts.profile for server in servers if (facts := world.facts(server.name)).profile}
    profile = profile_for(world, servers[0], words.profile)
    is_asked = any(stake.is_alive for stake in at_stake)
    asked = profile if words.profile else None
    caches = together(caches_found(world, server, new) for server, new in zip(servers, orders, strict=True))
    question = Message(
        line(bold(f"Restart {subject}{with_profile}{one_by_one}?")),
        tuple(
            block
            for block in (
                Lines((losses(world, servers, caches.warmth),)),
                _changes(world, servers, orders),
                Small(_small(world, servers, orders, asked, job, caches=said(caches), is_rolling=is_rolling)),
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
        back_to=next(iter(old)) if len(old) == 1 and not old & {CUSTOM, words.profile} else None,
        stops_on_failure=is_rolling,
        is_preview=words.is_question,
        has_alternative=_alternative(words, world, servers) if not is_rolling and len(servers) > 1 else None,
        goes_back=profile is not None and profile.fallback is Fallback.AUTO,
    )


def canary(words: Words, world: World) -> Reply | Plan:
    """Restart one server with a profile, and compare it with its peers before anybody bets the fleet on it."""
    plan = restart(words, world)
    if isinstance(plan, Reply):
        return plan
    (server,) = world.targets
    peers = tuple(one.name for one in world.fleet.servers if one.name != server.name and one.engine == server.engine)
    steps = tuple(step for step in plan.steps if not isinstance(step, CompareThroughput))
    beside = f", beside its {count(len(peers), 'peer')} for {span(world.fleet.limits.compare_after)}?"
    head = line(bold(f"Canary: restart {server.name} with profile {words.profile}{beside}"))
    return replace(
        plan,
        verb="canary",
        question=replace(plan.question, headline=head) if plan.question is not None else None,
        title=f"Canary {server.name} · {words.profile}",
        steps=(*steps, ComparePeers(server.name, peers, world.fleet.limits.compare_after)),
        confirm_label=f"Canary on {server.name}",
    )


def _alternative(words: Words, world: World, servers: Sequence[Server]) -> tuple[str, str]:
    """What may be wiser: a canary for a profile that never ran here, else one server after the other."""
    is_untried = not any(one.is_ready and one.profile == words.profile for one in world.starts)
    if words.profile is not None and is_untried and not words.flags.items:
        last = servers[-1].name
        return f"Canary on {last}", f"canary {words.profile} {last}"
    return _one_by_one(words, servers)


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
    world: World,
    servers: Sequence[Server],
    orders: Sequence[StartOrder],
    profile: Profile | None,
    job: Job | None,
    *,
    caches: str | None,
    is_rolling: bool,
) -> tuple[Line, ...]:
    lines: list[Line] = []
    if (why := _why(world, servers)) and profile is not None and _gives_more(world, servers, profile):
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
    lines.extend(asked_lines(world, servers, comes_back=True, is_rolling=is_rolling))
    if profile is not None:
        lines.append(line(" · ".join(_record(world, servers, profile))))
    if caches is not None:
        lines.append(line(caches))
    return tuple(lines)


def _gives_more(world: World, servers: Sequence[Server], profile: Profile) -> bool:
    """Whether a profile could be what lifts the cap: one with fewer seats than now is asked for other reasons."""
    now = [facts.max_running for server in servers if (facts := world.facts(server.name).load).max_running]
    return profile.seats is None or not now or profile.seats > max(now)


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
        parts.append("never started by me here")
    else:
        failed = sum(not one.is_ready for one in ran)
        took = start_time(ran, servers)
        parts.append(f"run here before{f', {took}' if took else ''}{f', {failed} failed' if failed else ''}")
    return parts


def _why(world: World, servers: Sequence[Server]) -> str:
    """What holds most of the servers back now, when it is their number of seats or their cache."""
    found = groups(world, servers)
    return brief(found[0]) if found else ""
