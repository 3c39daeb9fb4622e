"""How each kind of step is done: by looking. A step that is done already costs one look, so it may be run twice.

Every `act` begins with a look and ends with one; what lies between is only what the look showed to be missing.
An operation that was cut off at any instant is therefore resumed by running its current step again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from bot.domain.engine import Engine
from bot.domain.errors import FleetError, StepFailed
from bot.domain.facts import JobFacts, JobState, Process, ServerFacts, Sight
from bot.domain.fleet import Fleet, Job, Server
from bot.domain.foreign import FOREIGN_MIB
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
    PutBack,
    ResumeJob,
    StartOrder,
    StartServers,
    StopJob,
    TakeOut,
    TakeOver,
)
from bot.domain.readiness import Readiness, judge
from bot.ports import Clock, Eyes, Hands, JobHands, Operations, Routers, Starts
from bot.runtime.acting import DYING, KILL_LIMIT, Teller, is_away
from bot.runtime.ending import Ending
from bot.runtime.following import Following
from bot.runtime.routing import PuttingBack, TakingOut, is_ready
from bot.text.operations import Proof

_log = structlog.get_logger(__name__)

POLL = timedelta(seconds=1)
FREE_LIMIT = timedelta(minutes=2)
FOREIGN_GRACE = timedelta(seconds=10)
GIVE_BACK = timedelta(minutes=1)
"""So long an operation that was cancelled or has failed tries to put back what it took out of a router."""


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
    routers: Routers
    operations: Operations

    async def act(self, op: Operation, number: int, teller: Teller) -> None:
        """Do one step to its end. StepFailed when it can't be done for any server at all."""
        step = op.plan.steps[number]
        match step:
            case StopJob(job):
                await self._stop_job(self._job(job), teller)
            case TakeOut() | PutBack():
                await self._route(op, step, teller)
            case EndServers(victims):
                left = [one for one in victims if one.server in op.survivors]
                await Ending(self, left, dict(op.asked), teller).run()
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

    async def _route(self, op: Operation, step: TakeOut | PutBack, teller: Teller) -> None:
        servers = self._servers(op, step.servers)
        if isinstance(step, TakeOut):
            await TakingOut(self, op, step, servers, teller).run()
        else:
            await PuttingBack(self, op, servers, teller).run()

    async def give_back(self, op: Operation, teller: Teller) -> None:
        """Put back what was taken out and still lives; one that may have been signalled is given time to die."""
        names = dict.fromkeys(one.server for one in op.out)
        if op.asked_to_end & names.keys() - set(op.launched):
            await self.clock.sleep(DYING)
        servers = self._servers(op, tuple(names))
        sight = await self.look(servers, Needs(load=True, log=True))
        now = self.clock.now()
        alive = [server for server in servers if is_ready(sight.servers[server.name], now)]
        await PuttingBack(self, op, alive, teller, within=GIVE_BACK).run()

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
            if not is_away(facts) and step.pid not in _pids_in_the_way(facts):
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
        await Following(self, op, orders, teller, caches).run()

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


def _pids_in_the_way(facts: ServerFacts) -> set[int]:
    owner = {facts.port_owner.pid} if facts.port_owner is not None else set()
    return owner | {use.pid for gpu in facts.gpus for use in gpu.uses}


def _held(server: Server, facts: ServerFacts | None) -> str | None:
    """What still holds this server's port or memory; None when nothing does."""
    if facts is None or is_away(facts):
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
