"""A pretend fleet in memory, on the jumping clock: it starts in phases, serves, hangs, dies and holds memory.

It stands behind the ports Eyes, Hands and JobHands, so a whole conversation runs without a process or a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.errors import FleetError, StepFailed
from bot.domain.facts import (
    Answer,
    Gpu,
    GpuFault,
    GpuUse,
    JobFacts,
    JobState,
    Load,
    Movement,
    Outcome,
    Process,
    Running,
    ServerFacts,
    Sight,
)
from bot.domain.fleet import Fleet, Job, Router, Server
from bot.domain.kernel_caches import CacheSeen, KernelCache
from bot.domain.launching import CUSTOM, flags_for
from bot.domain.needs import Needs
from bot.domain.routing import Routed, Standing, Worker, of_server, standing
from bot.engines.sglang import ENGINE
from bot.ports import Clock

SEATS = {"extra_buffer": 5, "no_buffer": 3}
PHASES = (
    (3, Phase.SPAWNED),
    (33, Phase.LOADING_WEIGHTS),
    (36, Phase.ALLOCATING_CACHE),
    (70, Phase.CAPTURING_GRAPHS),
    (74, Phase.WARMING_UP),
)
"""Until which second of a start which phase lasts."""
STARTS_IN = 74


_flags = cache(ENGINE.flags_of)
"""Read once for each command line: a day of looks asks for them a hundred thousand times."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass
class PretendServer:
    """One server's state."""

    server: Server
    argv: tuple[str, ...] = ()
    pid: int | None = None
    since: datetime | None = None
    memory_free_at: datetime | None = None
    stands_still_since: datetime | None = None
    ignores_sigterm: bool = False
    is_silent: bool = False
    """Its host answers nothing."""
    unreachable: str | None = None
    fails_next: Diagnosis | None = None
    crash: Diagnosis | None = None
    exit_status: int | None = None
    foreign: Process | None = None
    session: str | None = None
    """The tmux window that somebody started it in."""
    is_adopted: bool = False
    speed: float = 1.0
    extra_start: float = 0.0
    load_says: dict[str, Any] = field(default_factory=dict)
    """Numbers that it tells instead of its own, by the names of Load."""
    gpu_says: dict[str, Any] = field(default_factory=dict)
    """What its GPUs show instead, by the names of Gpu."""
    faults: tuple[GpuFault, ...] | None = None
    """What the kernel's log says of its GPUs; None where it can't be read."""
    caches: dict[str, int] | None = None
    """How many files lie in each cache of kernels that is there; None where nobody can look."""
    signals: list[str] = field(default_factory=list)
    tokens: float = 0.0
    """Decoded since its process began, up to ``tokens_at``."""
    tokens_at: datetime | None = None


@dataclass
class PretendRouter:
    """One router: its list, what it does late, and what is wrong with it."""

    name: str
    clock: Clock
    workers: dict[str, Worker] = field(default_factory=dict)
    drains_for: float = 0.0
    """So many seconds an entry stays as draining, as SMG has it."""
    queue: float = 0.3
    """So many seconds until what was accepted is done."""
    fails: FleetError | None = None
    """Whatever it is asked."""
    refuses: FleetError | None = None
    """Whatever it is asked to change."""
    takes: float = 0.0
    never_healthy: bool = False
    refuses_settings: bool = False
    number: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    added: list[tuple[str, str, str | None]] = field(default_factory=list)

    def lists(self, url: str, settings: str = "{}") -> None:
        """It has this worker."""
        self.number += 1
        one = Worker(f"w{self.number}", url, not self.never_healthy, settings=settings)
        self.workers[one.id] = one

    def drop(self, id_: str) -> None:
        """It has removed that worker."""
        self.workers.pop(id_, None)

    def add_late(self, url: str, settings: str) -> None:
        """What was queued is done, once."""
        if not of_server(tuple(self.workers.values()), url):
            self.lists(url, settings)


class PretendRouters:
    """The routers of a fleet that exists only here."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self.fleet = fleet
        self.all = {one.name: PretendRouter(one.name, clock) for one in fleet.routers}
        self.most_out = 0

    def list_all(self, settings: str = "{}") -> None:
        """Each router has its servers."""
        for server in self.fleet.servers:
            for member in server.routers:
                self.all[member.router].lists(member.url, settings)

    def standings(self, server: Server) -> tuple[Routed, ...]:
        """How a server stands."""
        return tuple(
            Routed(one.router, standing(of_server(tuple(self.all[one.router].workers.values()), one.url)))
            for one in server.routers
        )

    def is_sent_to(self, server: Server) -> bool:
        """Whether any router sends it requests."""
        return any(one.standing is Standing.HEALTHY for one in self.standings(server))

    def count(self) -> None:
        """Note how many are out at once."""
        out = sum(not self.is_sent_to(server) for server in self.fleet.servers if server.routers)
        self.most_out = max(self.most_out, out)

    async def workers(self, router: Router) -> tuple[Worker, ...]:
        one = await self._reached(router)
        return tuple(one.workers.values())

    async def remove(self, router: Router, worker: str) -> None:
        one = await self._reached(router, is_change=True)
        one.asked.append(("remove", one.workers[worker].url if worker in one.workers else "gone"))
        loop = asyncio.get_running_loop()
        loop.call_later(one.queue, self._removes, one, worker)

    def _removes(self, one: PretendRouter, worker: str) -> None:
        if worker not in one.workers:
            return
        one.workers[worker] = replace(one.workers[worker], is_healthy=False, is_draining=True)
        if one.drains_for:
            asyncio.get_running_loop().call_later(one.drains_for, one.drop, worker)
        else:
            one.drop(worker)
        self.count()

    async def add(self, router: Router, url: str, settings: str, key: str | None) -> bool:
        one = await self._reached(router, is_change=True)
        one.asked.append(("add", url))
        is_fine = not (one.refuses_settings and settings != "{}")
        one.added.append((url, settings if is_fine else "{}", key))
        asyncio.get_running_loop().call_later(one.queue, one.add_late, url, settings if is_fine else "{}")
        return is_fine

    async def _reached(self, router: Router, *, is_change: bool = False) -> PretendRouter:
        one = self.all[router.name]
        await one.clock.sleep(seconds(0.01 + one.takes))
        if one.fails is not None:
            raise one.fails
        if is_change and one.refuses is not None:
            raise one.refuses
        return one


class PretendFleet:
    """Eyes, Hands and JobHands of a fleet that exists only here."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self.fleet = fleet
        self.clock = clock
        self.servers = {one.name: PretendServer(one) for one in fleet.servers}
        self.next_pid = 4000
        self.signalled: list[tuple[str, int, str]] = []
        self.started: list[tuple[str, tuple[str, ...]]] = []
        self.job_state = JobState.STOPPED
        self.job_done = 61_204
        self.job_rate = 3_900.0
        self.job_starts: list[int | None] = []
        self.job_stops = 0
        self.running = 32
        self.known = frozenset(
            f"--{name}"
            for name in [
                "model-path",
                "port",
                "host",
                "mamba-scheduler-strategy",
                "mem-fraction-static",
                "max-running-requests",
                "enable-metrics",
            ]
        )
        self.version = "0.5.13"
        self.health_takes = seconds(1.2)
        self.routers = PretendRouters(fleet, clock)
        self.visitors = 0
        """So many requests each server gets through its router, while it is in it."""
        self.visits_take = 6.0
        """So many seconds until those of a server that was taken out have ended."""
        self.lost_visits = 0
        self.out_since: dict[str, datetime] = {}

    # Set-up

    def run_all(self, profile: str = "extra_buffer", *, age: timedelta = timedelta(hours=6)) -> None:
        """All servers run and have been ready for a while."""
        for name in self.servers:
            self.run(name, profile, age=age)

    def run(self, name: str, profile: str = "extra_buffer", *, age: timedelta = timedelta(hours=6)) -> None:
        """One server runs a profile since a while."""
        one = self.servers[name]
        flags = flags_for(one.server, self.fleet.profile(profile))
        self._spawn(one, ENGINE.launch_argv(one.server, flags), self.clock.now() - age)

    def _spawn(self, one: PretendServer, argv: Sequence[str], since: datetime) -> None:
        self.next_pid += 1
        one.pid, one.argv, one.since = self.next_pid, tuple(argv), since
        one.exit_status, one.crash, one.stands_still_since = None, None, None
        one.session, one.is_adopted = None, False

    def die(self, name: str, crash: Diagnosis | None = None, exit_status: int | None = None) -> None:
        """A server is gone."""
        one = self.servers[name]
        one.pid = None
        one.crash, one.exit_status = crash, exit_status
        one.memory_free_at = self.clock.now() + seconds(4)

    # Eyes

    async def look(
        self, servers: Sequence[Server], *, jobs: Sequence[Job] = (), needs: Needs | None = None
    ) -> AsyncIterator[Sight]:
        needs = needs or Needs()
        pending = {one.name: ServerFacts(one.name, self.clock.now(), is_pending=True) for one in servers}
        yield Sight(self.clock.now(), pending, {}, is_settled=False, is_complete=False)
        await self.clock.sleep(seconds(0.05))
        silent = [one for one in servers if self.servers[one.name].is_silent]
        seen = {one.name: self._facts(one.name, needs, is_first=True) for one in servers if one not in silent}
        told = {job.name: await self._job(job) for job in jobs}
        facts = {**pending, **seen}
        has_health = needs.health and any(f.health is not None for f in seen.values())
        yield Sight(self.clock.now(), facts, told, is_settled=not silent, is_complete=not silent and not has_health)
        if has_health:
            await self.clock.sleep(self.health_takes)
            seen = {one.name: self._facts(one.name, needs, is_first=False) for one in servers if one not in silent}
            facts = {**facts, **seen}
            yield Sight(self.clock.now(), facts, told, is_settled=not silent, is_complete=not silent)
        if silent:
            await self.clock.sleep(seconds(3))
            for one in silent:
                why = f"ssh {one.host} timed out after 3 s"
                facts = {**facts, one.name: ServerFacts(one.name, self.clock.now(), unreachable=why)}
            yield Sight(self.clock.now(), facts, told)

    def _facts(self, name: str, needs: Needs, *, is_first: bool) -> ServerFacts:
        one, now = self.servers[name], self.clock.now()
        if one.unreachable is not None:
            return ServerFacts(name, now, unreachable=one.unreachable)
        self._advance(one, now)
        facts = ServerFacts(name, now, exit_status=one.exit_status, port_owner=one.foreign)
        if needs.log:
            facts = replace(facts, diagnosis=self._diagnosis(one, now))
        if needs.router:
            facts = replace(facts, routed=self._routed(one.server))
        if needs.gpu:
            facts = replace(facts, gpus=self._gpus(one, now), faults=one.faults)
        if needs.caches and one.caches is not None:
            facts = replace(facts, caches=self._caches(one.caches, now))
        if needs.tail:
            facts = replace(facts, log_tail=self._tail(one))
        if one.pid is None or one.since is None:
            return facts
        age = now - one.since
        process = Process(one.pid, one.pid * 100, one.argv, "root", age)
        facts = replace(facts, process=process, profile=self._profile(one))
        facts = replace(facts, session=one.session, is_adopted=one.is_adopted)
        if age.total_seconds() < STARTS_IN + one.extra_start - 4:
            refused = Answer(Outcome.REFUSED, now)
            return replace(facts, instant=refused, health=refused if needs.health else None)
        is_warming = age.total_seconds() < STARTS_IN + one.extra_start
        status = 503 if is_warming else 200
        answer = Answer(Outcome.ANSWERED, now, status)
        health = Answer(Outcome.PENDING, now) if is_first and status == 200 else answer
        facts = replace(facts, port_owner=process, instant=answer, health=health if needs.health else None)
        if is_warming:
            return facts
        seats = self._seats(one)
        running = min(self.running, seats) if self.job_state is JobState.RUNNING else 0
        running += self._visits(one, now)
        per = 60 / (1 + 0.0643 * max(0, running - 1)) * one.speed
        still = one.stands_still_since
        rate = 0.0 if still else running * per
        one.tokens += rate * (now - (one.tokens_at or now)).total_seconds()
        one.tokens_at = now
        load = Load(
            running, 0, seats, self._tokens(one), tokens_per_second=rate, tokens_total=one.tokens,
            kv_usage=0.21, mamba_usage=0.61 if running else 0.0,
        )  # fmt: skip
        load = replace(load, **one.load_says)
        movement = Movement(still, 0.0 if still else load.tokens_per_second) if needs.load else Movement()
        return replace(
            facts,
            load=load if needs.load else Load(running=running),
            movement=movement,
            running=Running(self.version, max_running=seats, max_total_tokens=self._tokens(one))
            if needs.config
            else Running(),
        )

    def _visits(self, one: PretendServer, now: datetime) -> int:
        """The requests that came through a router and have not ended yet."""
        name = one.server.name
        if not one.server.routers or not self.visitors:
            return 0
        if self.routers.is_sent_to(one.server):
            self.out_since.pop(name, None)
            return self.visitors
        since = self.out_since.setdefault(name, now)
        left = 1 - (now - since).total_seconds() / self.visits_take if self.visits_take else 0
        return max(0, round(self.visitors * left))

    def _routed(self, server: Server) -> tuple[Routed, ...]:
        known = {one.router: one for one in self.routers.standings(server)}
        return tuple(
            Routed(name, Standing.UNKNOWN, str(why)) if (why := self.routers.all[name].fails) else one
            for name, one in known.items()
        )

    def _advance(self, one: PretendServer, now: datetime) -> None:
        if one.pid is None or one.since is None or one.fails_next is None:
            return
        if (now - one.since).total_seconds() > 20:
            crash = one.fails_next
            one.fails_next = None
            self.die(one.server.name, crash, 1)

    def _profile(self, one: PretendServer) -> str:
        flags = _flags(one.argv)
        for profile in self.fleet.profiles:
            if flags.includes(profile.flags):
                return profile.name
        return CUSTOM

    def _seats(self, one: PretendServer) -> int:
        flags = _flags(one.argv)
        slots = 217 if flags.value("mem-fraction-static") == "0.90" else 187
        return min(slots // SEATS.get(self._profile(one), 5), int(flags.value("max-running-requests") or 1000))

    def _tokens(self, one: PretendServer) -> int:
        return 392_000 if _flags(one.argv).value("mem-fraction-static") == "0.90" else 381_000

    def _diagnosis(self, one: PretendServer, now: datetime) -> Diagnosis | None:
        if one.crash is not None:
            return one.crash
        if one.pid is None or one.since is None:
            return None
        age = (now - one.since).total_seconds() - one.extra_start
        last = 0
        for until, phase in PHASES:
            if age < until:
                done = max(0.0, (age - last) / (until - last))
                step = f"{int(done * 23)}/23" if phase is Phase.CAPTURING_GRAPHS else None
                percent = int(done * 100) if phase in (Phase.LOADING_WEIGHTS, Phase.CAPTURING_GRAPHS) else None
                return Diagnosis("sglang", self.version, phase, progress_percent=percent, step=step)
            last = until
        return Diagnosis("sglang", self.version, Phase.SERVING, is_ready=True)

    def _gpus(self, one: PretendServer, now: datetime) -> tuple[Gpu, ...]:
        gpus = []
        for index in one.server.gpus:
            uses: tuple[GpuUse, ...] = ()
            if one.pid is not None:
                uses = (GpuUse(one.pid, "sglang::scheduler", 120_000, one.server.name),)
            is_held = one.pid is not None or (one.memory_free_at is not None and now < one.memory_free_at)
            gpu = Gpu(index, f"GPU-{index}", "H200", 120_000 if is_held else 4, 143_771, uses=uses)
            gpus.append(replace(gpu, **one.gpu_says))
        return tuple(gpus)

    def _caches(self, files: Mapping[str, int], now: datetime) -> Mapping[KernelCache, CacheSeen]:
        newest = now - timedelta(days=1)
        return {
            cache: CacheSeen(files.get(cache.name, 0), newest if files.get(cache.name) else None, cache.name in files)
            for cache in ENGINE.kernel_caches
        }

    def _tail(self, one: PretendServer) -> tuple[str, ...]:
        if one.crash is not None and one.crash.decisive_line:
            return ("Load weight begin. avail mem=139.00 GB", one.crash.decisive_line)
        return ("The server is fired up and ready to roll!",)

    async def _job(self, job: Job) -> JobFacts:
        rate = None
        if self.job_state is JobState.RUNNING:
            rate = self.job_rate
        return JobFacts(job.name, self.clock.now(), self.job_state, self.job_done, 193_000, rate)

    # Hands

    async def start(self, server: Server, argv: Sequence[str], env: Mapping[str, str]) -> None:
        one = self.servers[server.name]
        if one.unreachable is not None:
            raise StepFailed(one.unreachable)
        assert one.pid is None, f"{server.name} was started twice"
        self.started.append((server.name, tuple(argv)))
        self._spawn(one, argv, self.clock.now())

    async def end(self, server: Server, process: Process, *, force: bool) -> None:
        one = self.servers[server.name]
        sign = "KILL" if force else "TERM"
        self.signalled.append((server.name, process.pid, sign))
        if one.pid == process.pid:
            self.lost_visits += self._visits(one, self.clock.now())
        if one.foreign is not None and one.foreign.pid == process.pid:
            one.foreign = None
        if one.pid != process.pid or (one.ignores_sigterm and not force):
            return
        await self.clock.sleep(seconds(0.1))
        if not force:
            asyncio.get_running_loop().call_later(2.0, self._gone, one, process.pid)
        else:
            self._gone(one, process.pid)

    def _gone(self, one: PretendServer, pid: int) -> None:
        if one.pid == pid:
            one.pid = None
            one.exit_status = 0
            one.memory_free_at = self.clock.now() + seconds(4)

    async def adopt(self, server: Server, process: Process) -> None:
        one = self.servers[server.name]
        if one.pid != process.pid:
            raise StepFailed(f"{server.name}, pid {process.pid}, can't be adopted: it is gone")
        one.is_adopted = True

    async def warm_up(self, server: Server) -> float:
        one = self.servers[server.name]
        if one.pid is None or one.stands_still_since is not None:
            raise StepFailed("no token within 30 s")
        await self.clock.sleep(seconds(0.3))
        return 0.3

    async def flags_known(self, server: Server) -> tuple[str, frozenset[str]]:
        return self.version, self.known


class PretendJobs:
    """The job's hands: it stops three seconds after being asked."""

    def __init__(self, fleet: PretendFleet) -> None:
        self.fleet = fleet
        self.never_stops = False

    async def look(self, job: Job) -> JobFacts:
        return await self.fleet._job(job)

    async def stop(self, job: Job) -> None:
        self.fleet.job_stops += 1
        if not self.never_stops:
            asyncio.get_running_loop().call_later(3.0, self._stopped)

    def _stopped(self) -> None:
        self.fleet.job_state = JobState.STOPPED

    async def start(self, job: Job, concurrency: int | None) -> None:
        assert self.fleet.job_state is not JobState.RUNNING, "the job was started twice"
        self.fleet.job_starts.append(concurrency)
        self.fleet.job_state = JobState.RUNNING
