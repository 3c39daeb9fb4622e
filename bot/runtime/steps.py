"""How each kind of step is done: by looking. A step that is done already costs one look, so it may be run twice.

Every `act` begins with a look and ends with one; what lies between is only what the look showed to be missing.
An operation that was cut off at any instant is therefore resumed by running its current step again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from bot.domain.diagnosis import said_cause
from bot.domain.engine import Engine
from bot.domain.errors import FleetError, StepFailed, StoreError
from bot.domain.facts import JobFacts, JobState, Process, ServerFacts, Sight
from bot.domain.fleet import Fleet, Job, Server
from bot.domain.foreign import FOREIGN_MIB
from bot.domain.kernel_caches import NOT_SEEN, CacheSeen, CacheState, KernelCache, state_of
from bot.domain.launching import as_launched, command
from bot.domain.needs import Needs
from bot.domain.operation import Operation
from bot.domain.phrases import about, count, exact, listing, span
from bot.domain.plan import (
    AwaitFree,
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Prove,
    ResumeJob,
    StartOrder,
    StartServers,
    StopJob,
    TakeOver,
    Victim,
)
from bot.domain.readiness import Readiness, judge
from bot.domain.records import StartRecord
from bot.ports import Clock, Eyes, Hands, JobHands, Starts
from bot.text.operations import Proof

_log = structlog.get_logger(__name__)

POLL = timedelta(seconds=1)
FOLLOW = timedelta(seconds=2)
FREE_LIMIT = timedelta(minutes=2)
KILL_LIMIT = timedelta(seconds=20)
AWAY_LIMIT = timedelta(minutes=5)
FOREIGN_GRACE = timedelta(seconds=10)
RECENT = 200
DYING = timedelta(seconds=8)
"""What has crashed takes some seconds to be gone: SGLang waits five for its GPUs to settle."""
SPAWN_GRACE = timedelta(seconds=6)
"""A process that was just started may not be seen yet; a second look is cheaper than a false alarm."""


class Teller(Protocol):
    """Who wants to know while a step is at work."""

    def note(self, text: str) -> None:
        """What the step has to say in a few words; kept with it."""
        ...

    def saw(self, facts: Mapping[str, ServerFacts]) -> None: ...
    def lost(self, server: str, why: str) -> None: ...
    def crashed(self, server: str, why: str, facts: ServerFacts) -> None: ...
    def said(self, text: str) -> None:
        """Something that can't wait, for the thread."""
        ...

    def asked(self, server: str, at: datetime) -> None:
        """A server was asked to end; kept, since its drain may outlast the bot."""
        ...

    def launched(self, server: str) -> None: ...
    def proved(self, proof: Proof) -> None: ...
    def phase_seen(self, server: str, facts: ServerFacts) -> None: ...
    def found_caches(self, server: str, state: CacheState) -> None:
        """How a start has found the caches of its kernels."""
        ...


@dataclass(frozen=True, slots=True)
class Steps:
    """Does steps, given eyes and hands."""

    fleet: Callable[[], Fleet]
    engines: Mapping[str, Engine]
    eyes: Eyes
    hands: Hands
    jobs: JobHands
    starts: Starts
    clock: Clock

    async def act(self, op: Operation, number: int, teller: Teller) -> None:
        """Do one step to its end. StepFailed when it can't be done for any server at all."""
        step = op.plan.steps[number]
        match step:
            case StopJob(job):
                await self._stop_job(self._job(job), teller)
            case EndServers(victims):
                left = [one for one in victims if one.server in op.survivors]
                await _Ending(self, left, dict(op.asked), teller).run()
            case AwaitFree(servers):
                await self._await_free(self._servers(op, servers), teller)
            case StartServers(orders):
                await self._start(op, [one for one in orders if one.server in op.survivors], teller)
            case Prove(servers):
                await self._prove(op, self._servers(op, servers), teller)
            case ResumeJob():
                await self._resume_job(op, step, teller)
            case EndForeign():
                await self._end_foreign(step, teller)
            case CompareThroughput() | ComparePeers() | TakeOver():
                pass  # the executor does these: they are about operations

    def _servers(self, op: Operation, names: Sequence[str]) -> list[Server]:
        fleet = self.fleet()
        return [fleet.server(name) for name in names if name in op.survivors]

    def _job(self, name: str) -> Job:
        job = self.fleet().job(name)
        if job is None:
            raise StepFailed(f"job {name} is not in the fleet file any more")
        return job

    async def look(self, servers: Sequence[Server], needs: Needs) -> Sight:
        """One whole look."""
        last = Sight(self.clock.now())
        async for sight in self.eyes.look(servers, needs=needs):
            last = sight
        return last

    # The job

    async def _stop_job(self, job: Job, teller: Teller) -> None:
        facts = await self.jobs.look(job)
        if facts.state is JobState.UNKNOWN:
            raise StepFailed(f"job {job.name} can't be seen: {facts.why}")
        if facts.state is JobState.RUNNING:
            teller.note(f"stopping job {job.name}")
            await self.jobs.stop(job)
        begun = self.clock.now()
        while facts.state is JobState.RUNNING:
            if self.clock.now() - begun > job.stop_limit:
                raise StepFailed(f"job {job.name} did not end within {span(job.stop_limit)} of being asked")
            await self.clock.sleep(POLL)
            facts = await self.jobs.look(job)
        saved = f", {exact(facts.done)} saved" if facts.done is not None else ""
        teller.note(f"job stopped{saved}")

    async def _resume_job(self, op: Operation, step: ResumeJob, teller: Teller) -> None:
        job = self._job(step.job)
        ready = await self._ready_servers()
        if len(ready) < step.minimum_servers:
            teller.note(f"job not resumed: {len(ready)} of at least {count(step.minimum_servers, 'server')} ready")
            raise StepFailed(
                f"job {job.name} was not resumed: {count(len(ready), 'server')} ready, "
                f"it needs {step.minimum_servers}; `job start` starts it all the same"
            )
        facts = await self.jobs.look(job)
        if facts.state is not JobState.RUNNING:
            await self.jobs.start(job, step.concurrency)
            facts = await self._job_is_running(job)
        teller.note("job resumed" if op.plan.servers else f"job {job.name} started")

    async def _ready_servers(self) -> list[str]:
        servers = self.fleet().servers
        sight = await self.look(servers, Needs(log=True))
        now = self.clock.now()
        return [name for name, facts in sight.servers.items() if judge(facts, now).readiness is Readiness.READY]

    async def _job_is_running(self, job: Job) -> JobFacts:
        for _ in range(10):
            await self.clock.sleep(POLL)
            facts = await self.jobs.look(job)
            if facts.state in (JobState.RUNNING, JobState.DONE):
                return facts
        raise StepFailed(f"job {job.name} was started and does not run: {facts.why or facts.state.value}")

    # Waiting for what they held

    async def _end_foreign(self, step: EndForeign, teller: Teller) -> None:
        """SIGTERM, ten seconds, SIGKILL to its tree; only that pid with that start time."""
        server, begun = self.fleet().server(step.server), self.clock.now()
        process, is_forced = Process(step.pid, step.started), False
        await self.hands.end(server, process, force=False)
        while True:
            await self.clock.sleep(POLL)
            sight = await self.look([server], Needs(gpu=True))
            facts = sight.servers[server.name]
            if not _is_away(facts) and step.pid not in _pids_in_the_way(facts):
                teller.note(f"pid {step.pid} is gone")
                return
            spent = self.clock.now() - begun
            if spent > FOREIGN_GRACE and not is_forced:
                is_forced = True
                teller.said(f"pid {step.pid} did not end within {span(FOREIGN_GRACE)}: SIGKILL to it and its tree")
                await self.hands.end(server, process, force=True)
            if spent > FOREIGN_GRACE + KILL_LIMIT:
                raise StepFailed(f"pid {step.pid} survives SIGKILL")

    async def _await_free(self, servers: list[Server], teller: Teller) -> None:
        begun = self.clock.now()
        while servers:
            sight = await self.look(servers, Needs(gpu=True, log=True))
            teller.saw(sight.servers)
            held = {server.name: why for server in servers if (why := _held(server, sight.servers.get(server.name)))}
            if not held:
                has_gpus = any(facts.gpus for facts in sight.servers.values())
                teller.note("memory and ports free" if has_gpus else "ports free (GPU memory can't be seen)")
                return
            teller.note(f"waiting for {listing(sorted(set(held.values())))}")
            if self.clock.now() - begun > FREE_LIMIT:
                for name, why in held.items():
                    teller.lost(name, f"{why} after {span(FREE_LIMIT)}")
                servers = [server for server in servers if server.name not in held]
                if not servers:
                    raise StepFailed("nothing could be started: " + listing(sorted(set(held.values()))))
            await self.clock.sleep(POLL)

    # Starting

    async def _start(self, op: Operation, orders: list[StartOrder], teller: Teller) -> None:
        if not orders:
            raise StepFailed("no server is left to start")
        fleet = self.fleet()
        looked_at = [as_launched(fleet, fleet.server(one.server), one) for one in orders]
        sight = await self.look(looked_at, Needs(log=True, caches=True))
        idle = [one for one in orders if sight.servers[one.server].process is None and one.server not in op.launched]
        # Whoever runs already has begun to fill them.
        caches = {one.server: sight.servers[one.server].caches for one in idle}
        teller.note(f"starting {len(orders)}")
        await asyncio.gather(*(self._launch(fleet.server(one.server), one, teller) for one in idle))
        await _Following(self, op, orders, teller, caches).run()

    async def _launch(self, server: Server, new: StartOrder, teller: Teller) -> None:
        try:
            argv, env = command(self.fleet(), self.engines[server.engine], server, new)
            await self.hands.start(server, argv, env)
        except FleetError as error:
            teller.lost(server.name, f"could not be started: {error}")
        else:
            teller.launched(server.name)

    # Proving

    async def _prove(self, op: Operation, servers: list[Server], teller: Teller) -> None:
        if not servers:
            raise StepFailed("no server came up")
        orders = {one.server: one for step in op.plan.steps if isinstance(step, StartServers) for one in step.orders}
        teller.note("one token from each")
        spent = await asyncio.gather(*(self._warm(server, teller) for server in servers))
        sight = await self.look(servers, Needs(load=True, config=True))
        teller.saw(sight.servers)
        good = 0
        for server, seconds in zip(servers, spent, strict=True):
            facts = sight.servers[server.name]
            if seconds is None or facts.process is None:
                teller.lost(server.name, "ready, but it generated nothing" if seconds is None else "gone again")
                continue
            good += 1
            engine, new = self.engines[server.engine], orders.get(server.name)
            wanted = new.flags if new is not None else None
            seats = facts.load.max_running or facts.running.max_running
            tokens = facts.load.max_total_tokens or facts.running.max_total_tokens
            runs = engine.flags_of(facts.process.argv)
            teller.proved(
                Proof(server.name, seats, tokens, runs.includes(wanted) if wanted else None, timedelta(seconds=seconds))
            )
        if not good:
            raise StepFailed("no server generated a token")
        teller.note(f"{good}/{len(servers)} proved")

    async def _warm(self, server: Server, teller: Teller) -> float | None:
        try:
            return await self.hands.warm_up(server)
        except FleetError as error:
            teller.said(f"{server.name}: warm-up failed: {error}")
            return None

    # Comparing

    async def rates(self, servers: Sequence[Server], over: timedelta) -> tuple[float | None, Mapping[str, ServerFacts]]:
        """Decoded tokens a second of all these servers over a span, and what was seen at its end."""
        await self.look(servers, Needs(load=True))
        await self.clock.sleep(over)
        sight = await self.look(servers, Needs(load=True))
        known = [
            rate
            for facts in sight.servers.values()
            if (rate := facts.movement.tokens_per_second or facts.load.tokens_per_second) is not None
        ]
        return (sum(known) if known else None), sight.servers


class _Ending:
    """Ends processes: SIGTERM, a grace time, SIGKILL to the tree, each only after a look that shows it alive."""

    def __init__(self, steps: Steps, victims: list[Victim], asked: dict[str, datetime], teller: Teller) -> None:
        self.steps = steps
        self.victims = victims
        self.teller = teller
        self.total = len(victims)
        self.asked = asked
        self.forced: dict[str, datetime] = {}
        self.away_since: datetime | None = None

    async def run(self) -> None:
        """Until none of them lives; StepFailed when their host stays away."""
        while True:
            fleet = self.steps.fleet()
            sight = await self.steps.look([fleet.server(one.server) for one in self.victims], Needs(log=True))
            self.teller.saw(sight.servers)
            left = [one for one in self.victims if _still_there(one, sight.servers.get(one.server))]
            self.teller.note(f"{self.total - len(left)}/{self.total} stopped")
            if not left:
                return
            away = [one for one in left if _is_away(sight.servers.get(one.server))]
            self._mind_the_away(away)
            for victim in left:
                if victim not in away:
                    await self._one(fleet.server(victim.server), sight.servers[victim.server])
            await self.steps.clock.sleep(POLL)

    def _mind_the_away(self, away: Sequence[Victim]) -> None:
        now = self.steps.clock.now()
        self.away_since = (self.away_since or now) if away else None
        if self.away_since is not None and now - self.away_since > AWAY_LIMIT:
            who = listing(one.server for one in away)
            raise StepFailed(f"{who} could not be reached for {span(AWAY_LIMIT)}; not known what runs there")

    async def _one(self, server: Server, facts: ServerFacts) -> None:
        process, now, name = facts.process, self.steps.clock.now(), server.name
        if process is None:
            return
        try:
            if name not in self.asked:
                await self.steps.hands.end(server, process, force=False)
                self.asked[name] = now
                self.teller.asked(name, now)
            elif name not in self.forced and now - self.asked[name] > server.grace:
                tree = f"SIGKILL to pid {process.pid} and its tree"
                self.teller.said(f"{name} did not end within {span(server.grace)}: {tree}")
                await self.steps.hands.end(server, process, force=True)
                self.forced[name] = now
            elif name in self.forced and now - self.forced[name] > KILL_LIMIT:
                self.teller.lost(name, f"pid {process.pid} survives SIGKILL (stuck in the driver?)")
                self.victims = [one for one in self.victims if one.server != name]
        except FleetError as error:
            _log.warning("end_failed", server=name, error=str(error))
            self.teller.note(f"{name}: {error}; trying again")


class _Following:
    """Follows starts until each is ready or gone; the failed ones do not stop the others."""

    def __init__(
        self,
        steps: Steps,
        op: Operation,
        orders: list[StartOrder],
        teller: Teller,
        caches: Mapping[str, Mapping[KernelCache, CacheSeen] | None],
    ) -> None:
        self.steps = steps
        self.teller = teller
        self.caches = caches
        self.found: dict[str, tuple[str | None, CacheState]] = {}
        self.orders = {one.server: one for one in orders}
        self.begun = steps.clock.now()
        self.started_at = op.started_at
        self.waiting = list(self.orders)
        self.ready: set[str] = set()
        self.suspected: dict[str, datetime] = {}
        self.doubted: set[str] = set()
        self.missing: dict[str, int] = {}
        self.away: dict[str, datetime] = {}
        self.phases: dict[str, dict[str, timedelta]] = {name: {} for name in self.orders}
        self.last: dict[str, tuple[str, datetime]] = {}

    async def run(self) -> None:
        """Look every two seconds; StepFailed when not one got ready."""
        for name in self.caches:
            self._weigh_caches(name, None)
        while self.waiting:
            await self.steps.clock.sleep(FOLLOW)
            fleet = self.steps.fleet()
            everyone = [fleet.server(name) for name in self.orders]
            # Who seems to be gone is looked at once more: with what the kernel says of its GPUs.
            needs = Needs(log=True, load=True, tail=20, gpu=bool(self.missing))
            sight = await self.steps.look(everyone, needs)
            self.teller.saw(sight.servers)
            for name in list(self.waiting):
                if self._is_over(fleet.server(name), sight.servers[name]):
                    self.waiting.remove(name)
            number = len(self.orders)
            self.teller.note(f"starting {number}" if self.waiting else f"{len(self.ready)}/{number} started")
        if not self.ready:
            raise StepFailed("no server came up")

    def _is_over(self, server: Server, facts: ServerFacts) -> bool:
        now = self.steps.clock.now()
        verdict = judge(facts, now)
        self._follow_phase(server.name, facts, now)
        if verdict.readiness is Readiness.READY:
            if server.name in self.doubted:
                self.teller.said(f"{server.name}: ready after all")
            self.ready.add(server.name)
            self._record(server.name, facts, now, is_ready=True)
            return True
        if verdict.readiness in (Readiness.UNREACHABLE, Readiness.UNKNOWN):
            since = self.away.setdefault(server.name, now)
            if now - since > AWAY_LIMIT:
                self.teller.lost(server.name, f"{verdict.reason}; not known how its start went")
                return True
            return False
        self.away.pop(server.name, None)
        if facts.process is None:
            return self._is_gone(server.name, facts, verdict.reason, now)
        self.missing.pop(server.name, None)
        self._doubt(server.name, facts, now)
        if now - self.begun > server.start_limit:
            self.teller.lost(server.name, f"not ready after {span(server.start_limit)}: {verdict.reason}; left running")
            return True
        return False

    def _doubt(self, name: str, facts: ServerFacts, now: datetime) -> None:
        """What looks like a crash while the process lives on is told once, and the process is not given up."""
        diagnosis = facts.diagnosis
        if diagnosis is None or not diagnosis.is_crashed or name in self.doubted:
            return
        if now - self.suspected.setdefault(name, now) < DYING:
            return
        self.doubted.add(name)
        line = f": {diagnosis.decisive_line.strip()[:300]}" if diagnosis.decisive_line else ""
        self.teller.said(f"{name}: {said_cause(diagnosis.cause)} in the log, but its process lives{line}")

    def _is_gone(self, name: str, facts: ServerFacts, reason: str, now: datetime) -> bool:
        """No process: a crash, once it was looked at twice and had its time to appear."""
        self.missing[name] = self.missing.get(name, 0) + 1
        is_told = facts.exit_status is not None or (facts.diagnosis is not None and facts.diagnosis.is_crashed)
        if self.missing[name] < 2 or (not is_told and now - self.begun < SPAWN_GRACE):
            return False
        why = reason if reason != "no process" else "the process is gone without a word"
        self._record(name, facts, now, is_ready=False)
        self.teller.crashed(name, why, facts)
        self.teller.lost(name, why)
        return True

    def _follow_phase(self, name: str, facts: ServerFacts, now: datetime) -> None:
        phase = facts.diagnosis.phase.value if facts.diagnosis is not None and facts.diagnosis.phase else "spawned"
        last = self.last.get(name)
        if last is None or last[0] != phase:
            if last is not None:
                spent = self.phases[name].get(last[0], timedelta())
                self.phases[name][last[0]] = spent + (now - last[1])
            self.last[name] = (phase, now)
        self.teller.phase_seen(name, facts)
        if facts.diagnosis is not None and facts.diagnosis.version is not None:
            self._weigh_caches(name, facts.diagnosis.version)

    def _weigh_caches(self, name: str, version: str | None) -> None:
        """Say what the caches were worth to this start, by what is known of its version now."""
        known = self.found.get(name)
        if name not in self.caches or (known is not None and known[0] == version):
            return
        server = self.steps.fleet().server(name)
        used = self.steps.engines[server.engine].caches_used(version, self.orders[name].flags)
        try:
            starts = self.steps.starts.recent(RECENT)
        except StoreError as error:  # then only what lies there counts
            _log.warning("starts_not_read", error=str(error))
            starts = ()
        state = state_of(self.caches[name], used, starts, name, version)
        self.found[name] = (version, state)
        self.teller.found_caches(name, state)

    def _record(self, name: str, facts: ServerFacts, now: datetime, *, is_ready: bool) -> None:
        diagnosis = facts.diagnosis
        record = StartRecord(
            name,
            self.orders[name].called,
            self.begun,
            now - self.begun,
            is_ready,
            dict(self.phases[name]),
            facts.load.max_running,
            facts.load.max_total_tokens,
            None if is_ready or diagnosis is None else diagnosis.cause,
            diagnosis.version if diagnosis is not None else None,
            caches=self.found.get(name, (None, NOT_SEEN))[1].warmth,
        )
        try:
            self.steps.starts.add(record)
        except StoreError as error:  # a start that can't be remembered is still a start
            _log.warning("start_not_kept", server=name, error=str(error))


def _still_there(victim: Victim, facts: ServerFacts | None) -> bool:
    """Whether that very process lives; what we can't see counts as living."""
    if facts is None or _is_away(facts):
        return True
    return facts.process is not None and facts.process.identity == (victim.pid, victim.started)


def _pids_in_the_way(facts: ServerFacts) -> set[int]:
    owner = {facts.port_owner.pid} if facts.port_owner is not None else set()
    return owner | {use.pid for gpu in facts.gpus for use in gpu.uses}


def _is_away(facts: ServerFacts | None) -> bool:
    return facts is None or facts.is_pending or facts.unreachable is not None


def _held(server: Server, facts: ServerFacts | None) -> str | None:
    """What still holds this server's port or memory; None when nothing does."""
    if facts is None or _is_away(facts):
        return f"{server.name}, which can't be reached"
    if facts.port_owner is not None and (facts.process is None or facts.process.pid != facts.port_owner.pid):
        return f"port {server.port} (pid {facts.port_owner.pid})"
    if facts.process is not None:
        return None
    if facts.orphans:
        return f"a worker that {server.name} left (pid {facts.orphans[0].pid})"
    for gpu in facts.gpus:
        for use in gpu.uses:
            if use.memory_mib is None or use.memory_mib >= FOREIGN_MIB:
                return f"GPU {gpu.index} (pid {use.pid} holds {about(use.memory_mib or 0)} MiB)"
        if not gpu.uses and gpu.memory_used_mib is not None and gpu.memory_used_mib > 2 * FOREIGN_MIB:
            return f"GPU {gpu.index} ({about(gpu.memory_used_mib)} MiB still taken)"
    return None
