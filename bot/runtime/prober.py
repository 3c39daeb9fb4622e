"""Looks at servers and jobs: all hosts at once, what is known at once told at once, the rest as it comes.

Every look asks each host one request over its warm line (``bot.runtime.probing``). One host that is silent
delays nobody: its servers become ``unreachable`` when its time is over. A health check may take its engine a
token and many seconds, and one that is given up stays behind in the engine as an orphan, so there is at most
one in flight a server, which everybody shares and nobody cancels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from bot.domain.engine import Engine
from bot.domain.errors import FleetError
from bot.domain.facts import Answer, JobFacts, Outcome, ServerFacts, Sight
from bot.domain.fleet import Fleet, Host, Job, Router, Server
from bot.domain.routing import Routed, Standing, Worker, of_server, standing
from bot.ports import Clock, JobHands, Needs, Transport
from bot.runtime.probing.hostlook import HostLook, is_here
from bot.runtime.probing.hosts import WarmHost
from bot.runtime.probing.line import Source
from bot.runtime.probing.recognition import token_of
from bot.runtime.probing.routers import FleetRouters
from bot.runtime.probing.servers import Memory, ServerLook
from bot.runtime.probing.wire import Get, Got, Item, Request

HEALTH_LIMIT = timedelta(seconds=25)
"""SGLang gives its own check up after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT); who gives up sooner leaves an orphan."""
JOB_LIMIT = timedelta(seconds=6)
TOGETHER = 0.02
"""Partial answers are told together when they come within this many seconds; settled and complete at once."""


class Prober:
    """The eyes: implements ``Eyes``. Close it before its transports."""

    def __init__(
        self,
        *,
        fleet: Callable[[], Fleet],
        engines: Mapping[str, Engine],
        transport: Callable[[Host], Transport],
        clock: Clock,
        jobs: JobHands | None = None,
        secret: Callable[[str], str | None] = lambda _name: None,
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._transport = transport
        self._clock = clock
        self._jobs = jobs
        self.routers = FleetRouters(fleet, self.answer, secret)
        self._hosts: dict[Host, WarmHost] = {}
        self._memories: dict[tuple[str, Host, int, str, str], Memory] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._healths: dict[tuple[str, Host, int], tuple[Answer, asyncio.Task[Answer]]] = {}

    async def look(
        self, servers: Sequence[Server], *, jobs: Sequence[Job] = (), needs: Needs | None = None
    ) -> AsyncIterator[Sight]:
        """Look at all at once; the last sight is the complete one."""
        look = _Look(self._clock)
        self._begin(look, servers, jobs, needs or Needs())
        try:
            # Warm hosts are asked first, so that they work while the first sight is put together.
            for _step in range(2):
                await asyncio.sleep(0)
            sight = look.sight()
            yield sight
            while not sight.is_complete:
                await look.news()
                sight = look.sight()
                yield sight
        finally:
            await look.end()

    def health(self, server: Server, host: WarmHost, source: Source) -> tuple[Answer, asyncio.Future[Answer]]:
        """The check that is under way, or a new one."""
        key = (server.address, host.host, server.port)
        if key not in self._healths:
            begun = Answer(Outcome.PENDING, self._clock.now())
            token = token_of(server, self._memory(server, host.host).process)
            task = asyncio.create_task(self._check(server, source, token))
            self._healths[key] = (begun, task)
            task.add_done_callback(lambda _task: self._healths.pop(key, None))
        return self._healths[key]

    async def close(self) -> None:
        """End every scout, and the health checks with them."""
        tasks = [task for _begun, task in self._healths.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        hosts, self._hosts = list(self._hosts.values()), {}
        await asyncio.gather(*(host.close() for host in hosts), *self._ending)

    async def _check(self, server: Server, source: Source, token: str | None) -> Answer:
        path = self._engines[server.engine].health_path
        return await self._answer(source, Get(server.address, server.port, (path,), HEALTH_LIMIT, 0, token))

    async def answer(self, host: Host, get: Get) -> Answer:
        """One request over the host's warm line; what failed on the way is the answer's outcome and why."""
        try:
            async with asyncio.timeout(get.limit.total_seconds()):
                source = await self._warm(host).source()
        except TimeoutError:
            return Answer(Outcome.TIMED_OUT, self._clock.now(), took=get.limit, why=f"{host.name} timed out")
        except FleetError as exc:
            return Answer(Outcome.BROKEN, self._clock.now(), why=str(exc))
        return await self._answer(source, get)

    async def _answer(self, source: Source, get: Get) -> Answer:
        answers: list[Answer] = []

        def tell(item: Item) -> None:
            if isinstance(item, Got):
                now = self._clock.now()
                answers.append(Answer(item.outcome, now, item.status, item.body, item.took, item.why))

        try:
            async with asyncio.timeout(get.limit.total_seconds() + 5):
                await source.ask(Request(gets=(get,)), tell)
        except TimeoutError:
            return Answer(Outcome.TIMED_OUT, self._clock.now(), took=get.limit, why="no answer in time")
        except FleetError as exc:
            return Answer(Outcome.BROKEN, self._clock.now(), why=str(exc))
        return answers[-1] if answers else Answer(Outcome.BROKEN, self._clock.now(), why="no answer")

    def _warm(self, host: Host) -> WarmHost:
        if host not in self._hosts:
            self._hosts[host] = WarmHost(host, self._transport)
        return self._hosts[host]

    def _memory(self, server: Server, host: Host) -> Memory:
        key = (server.name, host, server.port, server.engine, server.log)
        if key not in self._memories:
            self._memories[key] = Memory(self._engines[server.engine], server)
        return self._memories[key]

    def _begin(self, look: _Look, servers: Sequence[Server], jobs: Sequence[Job], needs: Needs) -> None:
        fleet = self._fleet()
        self._forget(fleet)
        by_host: dict[Host, list[ServerLook]] = {}
        configured = {host.name: host for host in fleet.hosts}
        for server in servers:
            host, engine = configured.get(server.host), self._engines.get(server.engine)
            if host is None or engine is None:
                why = f"host {server.host} is not configured" if host is None else f"no engine is named {server.engine}"
                look.servers.append(ServerFacts(server.name, self._clock.now(), unreachable=why))
                continue
            seen = is_here(server, has_hops=bool(host.hops))
            one = ServerLook(server, engine, self._memory(server, host), needs, fleet, seen)
            look.servers.append(one)
            by_host.setdefault(host, []).append(one)
        for host, ones in by_host.items():
            look.add(
                HostLook(
                    warm=self._warm(host),
                    servers=ones,
                    fleet=fleet,
                    engines=self._engines,
                    clock=self._clock,
                    nurse=self,
                    changed=look.tell,
                )
            )
        for job in jobs:
            look.add_job(job, self._look_at_job)
        if needs.router:
            for router in fleet.routers:
                look.add_router(router, self.routers.workers)

    async def _look_at_job(self, job: Job) -> JobFacts:
        unknown = JobFacts(job.name, self._clock.now())
        if self._jobs is None:
            return replace(unknown, why="nobody looks at jobs here")
        try:
            async with asyncio.timeout(JOB_LIMIT.total_seconds()):
                return await self._jobs.look(job)
        except TimeoutError:
            return replace(unknown, why=f"no answer within {JOB_LIMIT.total_seconds():g} s")
        except FleetError as exc:
            return replace(unknown, why=str(exc))

    def _forget(self, fleet: Fleet) -> None:
        """Let go of hosts that are not configured any more, or differently now."""
        for host in [host for host in self._hosts if host not in fleet.hosts]:
            for key in [key for key in self._memories if key[1] == host]:
                del self._memories[key]
            task = asyncio.create_task(self._hosts.pop(host).close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


class _Look:
    """One look: its hosts and jobs, and what was seen of them so far."""

    def __init__(self, clock: Clock) -> None:
        self.servers: list[ServerLook | ServerFacts] = []
        self._clock = clock
        self._jobs: dict[str, JobFacts | None] = {}
        self._routers: dict[str, bool] = {}
        self._hosts: list[HostLook] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._was_settled = self._was_complete = False

    def add(self, host: HostLook) -> None:
        """Look at a host too."""
        self._hosts.append(host)
        self._tasks.append(asyncio.create_task(host.run()))

    def add_job(self, job: Job, look_at: Callable[[Job], Awaitable[JobFacts]]) -> None:
        """Look at a job too."""

        async def look() -> None:
            self._jobs[job.name] = await look_at(job)
            self.tell()

        self._jobs[job.name] = None
        self._tasks.append(asyncio.create_task(look()))

    def add_router(self, router: Router, workers: Callable[[Router], Awaitable[tuple[Worker, ...]]]) -> None:
        """Look too at how the servers stand with a router."""
        mine = [
            (one, member.url)
            for one in self.servers
            if isinstance(one, ServerLook)
            for member in one.server.routers
            if member.router == router.name
        ]

        async def look() -> None:
            try:
                listed = await workers(router)
                seen = [Routed(router.name, standing(of_server(listed, url))) for _one, url in mine]
            except FleetError as exc:
                seen = [Routed(router.name, Standing.UNKNOWN, str(exc))] * len(mine)
            for (one, _url), routed in zip(mine, seen, strict=True):
                one.routed[router.name] = routed
                one.mark()
            self._routers[router.name] = True
            self.tell()

        if mine:
            self._routers[router.name] = False
            self._tasks.append(asyncio.create_task(look()))

    def tell(self) -> None:
        """There is more to tell; what settles or completes the look is told without delay."""
        self._changed.set()
        if (not self._was_settled and self._is_settled()) or (not self._was_complete and self._is_complete()):
            self._urgent.set()

    def sight(self) -> Sight:
        """Everything so far."""
        now = self._clock.now()
        self._changed.clear()
        self._urgent.clear()
        self._was_settled, self._was_complete = self._is_settled(), self._is_complete()
        seen = [one.facts(now) if isinstance(one, ServerLook) else one for one in self.servers]
        jobs = {name: facts for name, facts in self._jobs.items() if facts is not None}
        return Sight(now, {facts.server: facts for facts in seen}, jobs, self._was_settled, self._was_complete)

    async def news(self) -> None:
        """Wait until there is more to tell; a mistake of our own, or of an engine's reader, is raised here."""
        await self._changed.wait()
        if not self._urgent.is_set():
            waiting = asyncio.create_task(self._urgent.wait())
            await asyncio.wait([waiting], timeout=TOGETHER)
            waiting.cancel()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def end(self) -> None:
        """Stop waiting; what others wait for goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_settled(self) -> bool:
        return all(host.is_settled for host in self._hosts)

    def _is_complete(self) -> bool:
        is_seen = all(host.is_complete for host in self._hosts) and all(self._routers.values())
        return is_seen and all(facts for facts in self._jobs.values())
