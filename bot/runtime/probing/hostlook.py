"""One host in one look: everything is asked in one request, and each server's facts grow as answers come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol

from bot.domain.engine import Engine
from bot.domain.errors import FleetError, HopError
from bot.domain.facts import Answer, Outcome
from bot.domain.fleet import Fleet, Host, Server
from bot.domain.kernel_caches import KernelCache
from bot.domain.phrases import span
from bot.ports import Clock
from bot.runtime.probing import gpus
from bot.runtime.probing.hosts import WarmHost
from bot.runtime.probing.line import Source
from bot.runtime.probing.logs import tail_lines, tail_size
from bot.runtime.probing.movement import SHORTEST
from bot.runtime.probing.recognition import ENV, Census, record_path, words_of
from bot.runtime.probing.servers import Question, ServerLook
from bot.runtime.probing.wire import (
    Chunk,
    Counted,
    Folder,
    Got,
    GpusSeen,
    Item,
    KernelLines,
    Processes,
    Request,
    Tail,
    Tailed,
    Watch,
)

HTTP_SHARE = 0.8
"""A server gets this much of a host's time, so that its silence is never taken for the host's."""
MOVEMENT = (SHORTEST + timedelta(milliseconds=50), timedelta(seconds=2))
"""A second shows most that move; one long prefill may take that long, so who stood still gets two more."""
LAST_WAIT = gpus.LIMIT + timedelta(seconds=2)
MOST_ROUNDS = 16
AS_THE_LOGIN = "process"
"""The launcher whose processes have the login's home and environment."""
_HERE = ("::1", "localhost", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound


class Nurse(Protocol):
    """Who keeps the health checks: one at a time for each server, whoever asks."""

    def health(self, server: Server, host: WarmHost, source: Source) -> tuple[Answer, asyncio.Future[Answer]]:
        """What is said while it is under way, and its end."""
        ...


class HostLook:
    """Looks at some servers of one host."""

    def __init__(
        self,
        *,
        warm: WarmHost,
        servers: Sequence[ServerLook],
        fleet: Fleet,
        engines: Mapping[str, Engine],
        clock: Clock,
        nurse: Nurse,
        changed: Callable[[], None],
    ) -> None:
        self.is_settled = False
        self.is_complete = False
        self._warm = warm
        self._servers = servers
        self._fleet = fleet
        self._engines = engines
        self._clock = clock
        self._nurse = nurse
        self._changed = changed
        self._needs = servers[0].needs
        self._questions: list[tuple[ServerLook, Question]] = []
        self._logged = [one for one in servers if one.server.log]
        self._settled = 0
        self._behind: set[str] = set()
        self._heard = asyncio.Event()
        self._counted = asyncio.Event()
        self._folders: list[tuple[Folder, list[tuple[ServerLook, KernelCache]]]] = []
        self._gpus_seen: GpusSeen | None = None
        self._kernel_said: KernelLines | None = None

    async def run(self) -> None:
        """Look; whatever fails is told of these servers."""
        try:
            await self._look(asyncio.get_running_loop().time() + self._patience.total_seconds())
        except FleetError as exc:
            self._fail(str(exc))
        except TimeoutError:
            self._fail(f"{self._warm.label} timed out after {span(self._patience)}")
        finally:
            self.is_settled = self.is_complete = True
            self._changed()

    @property
    def _patience(self) -> timedelta:
        return self._fleet.limits.host_timeout

    def _fail(self, why: str) -> None:
        """The host is lost; what it had told before stays true, only what was to come is missing."""
        for one in self._servers:
            if not one.is_settled:
                one.fail(why)

    async def _look(self, deadline: float) -> None:
        for is_last in (False, True):
            async with asyncio.timeout_at(deadline):
                source = await self._warm.source()
            try:
                await self._ask(source, deadline)
            except HopError:
                # A line that was warm may have died since; that is no news of the host.
                if is_last or source.is_alive:
                    raise
            else:
                return

    async def _ask(self, source: Source, deadline: float) -> None:
        healths = [self._check_health(one, source) for one in self._servers] if self._needs.health else []
        self._heard.clear()
        self._counted.clear()
        self._behind.clear()
        request = self._request()
        if request.watch is None:
            self._counted.set()
        asking = asyncio.ensure_future(source.ask(request, self._take))
        try:
            await self._wait(asking, self._heard, deadline, source)
            await self._wait(asking, self._counted, deadline, None)
            self._settle()
            async with asyncio.timeout(LAST_WAIT.total_seconds()):
                await asyncio.shield(asking)
                await self._catch_up(source)
        except TimeoutError:
            if not self._counted.is_set():
                raise
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self.is_settled = True
        self._changed()
        if self._needs.movement:
            await self._look_for_movement(source)
        if healths:
            await asyncio.wait(healths)

    async def _look_for_movement(self, source: Source) -> None:
        """Read the numbers again a second later, and of those that stood still once more: only that shows a hang."""
        for wait in MOVEMENT:
            working = [one for one in self._servers if one.may_stand_still]
            if not working:
                return
            await self._clock.sleep(wait)
            limit = self._patience * HTTP_SHARE
            self._questions = [(one, question) for one in working for question in one.load_questions(limit)]
            await source.ask(Request(gets=tuple(question.get for _one, question in self._questions)), self._take)

    async def _wait(
        self, asking: asyncio.Future[None], event: asyncio.Event, deadline: float, source: Source | None
    ) -> None:
        """Wait for something of the answer; a line that says nothing at all is given up."""
        waiting = asyncio.create_task(event.wait())
        left = deadline - asyncio.get_running_loop().time()
        asking.add_done_callback(lambda _future: waiting.cancel())
        await asyncio.wait([waiting], timeout=max(left, 0.0))
        waiting.cancel()
        if event.is_set():
            return
        if asking.done():
            asking.result()
            return
        if source is not None:
            self._warm.drop(source)
        raise TimeoutError

    def _request(self) -> Request:
        needs, limit = self._needs, self._patience * HTTP_SHARE
        self._questions = [(one, question) for one in self._servers for question in one.questions(limit)]
        host = self._warm.host
        self._folders = cache_folders(host, self._servers) if needs.caches else []
        return Request(
            gets=tuple(question.get for _one, question in self._questions),
            watch=self._watch(),
            follows=tuple(one.memory.log.question() for one in self._logged) if needs.log else (),
            tails=tuple(Tail(one.server.log, tail_size(needs.tail)) for one in self._logged) if needs.tail else (),
            folders=tuple(folder for folder, _whose in self._folders),
            gpu=gpus.question(host.gpu_query, self._warm.gpu_variant) if needs.gpu else None,
            kernel=gpus.kernel_question(host.kernel_log) if needs.gpu else None,
        )

    def _watch(self) -> Watch | None:
        """All servers of the host are watched for together, so that "as before" holds for every look."""
        host, known = self._warm.host, {server.name for server in self._fleet.servers}
        others = tuple(one.server for one in self._servers if one.server.name not in known)
        asked, watch = self._warm.watch
        if asked != (self._fleet, others):
            watch = watch_of(host, (*others, *(server for server in self._fleet.servers if server.host == host.name)))
            self._warm.watch = ((self._fleet, others), watch)
        return watch

    def _take(self, item: Item) -> None:
        self._heard.set()
        match item:
            case Got(key=key) if 0 <= key < len(self._questions):
                one, question = self._questions[key]
                one.got(question, item, self._clock.now())
            case Processes():
                self._count(item)
            case Chunk(key=key) if 0 <= key < len(self._logged):
                if self._logged[key].read(item):
                    self._behind.add(self._logged[key].server.name)
            case Tailed(key=key) if 0 <= key < len(self._logged):
                self._logged[key].log_tail = tail_lines(item, self._needs.tail)
                self._logged[key].mark()
            case Counted(key=key) if 0 <= key < len(self._folders):
                now = self._clock.now()
                for one, cache in self._folders[key][1]:
                    one.counted(cache, item, now)
            case GpusSeen():
                self._see_gpus(item)
            case KernelLines():
                self._kernel_said = item
                self._share_faults()
            case _:
                return
        self._settle()
        self._changed()

    def _settle(self) -> None:
        # Each answer comes by here, so those that are settled are passed over for good.
        while self._settled < len(self._servers) and self._servers[self._settled].is_settled:
            self._settled += 1
        self.is_settled = self.is_settled or self._settled == len(self._servers)

    def _count(self, item: Processes) -> None:
        warm, now = self._warm, self._clock.now()
        if item.report is not None:
            warm.census = Census(item.report, self._engines.values())
            warm.counted_at = now
        elif self._counted.is_set():
            # What was told at once has been confirmed.
            return
        census = warm.census
        if census is None:
            return
        for one in self._servers:
            if not one.sees_processes:
                continue
            if census.report.is_readable:
                one.recognise(warm.aged(census.recognise(one.server, one.engine, warm.host.state_dir), now), now)
            else:
                one.sees_processes = False
                one.mark()
        self._share_gpus()
        self._counted.set()

    def _see_gpus(self, seen: GpusSeen) -> None:
        if seen.cards:
            self._warm.gpu_variant = gpus.variant_of(self._warm.gpu_variant, seen.variant)
            self._warm.gpu_buses.update(gpus.buses(seen))
        self._gpus_seen = seen
        self._share_gpus()
        self._share_faults()

    def _share_gpus(self) -> None:
        """Say of each process that holds GPU memory whose it is, as far as the processes are known by now."""
        census, fleet, warm = self._warm.census, self._fleet, self._warm
        if self._gpus_seen is None:
            return
        owners: dict[int, str] = {}
        for server in fleet.servers if census is not None else ():
            engine = self._engines.get(server.engine)
            if server.host == warm.host.name and engine is not None and census is not None:
                process = census.recognise(server, engine, warm.host.state_dir).process
                owners.update({process.pid: server.name} if process is not None else {})
        cards = gpus.read(self._gpus_seen, owners)
        for one in self._servers:
            one.gpus = cards
            one.mark()

    def _share_faults(self) -> None:
        """Say what the kernel told of GPUs, of each as its number where it is known."""
        if self._kernel_said is None:
            return
        found = gpus.faults(self._kernel_said, self._warm.gpu_buses, self._clock.now())
        for one in self._servers:
            if is_here(one.server, has_hops=bool(self._warm.host.hops)):
                one.faults = found
                one.mark()

    async def _catch_up(self, source: Source) -> None:
        """Read logs that grew by more than one piece since the last look."""
        for _round in range(MOST_ROUNDS):
            if not self._behind:
                return
            behind, self._behind = self._behind, set()
            self._logged = [one for one in self._servers if one.server.name in behind]
            follows = tuple(one.memory.log.question() for one in self._logged)
            await source.ask(Request(follows=follows), self._take)

    def _check_health(self, one: ServerLook, source: Source) -> asyncio.Future[Answer]:
        """Ask, or join who asked; a check that ends after nobody looks any more ends all the same."""
        one.health, end = self._nurse.health(one.server, self._warm, source)
        one.mark()
        mine: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        end.add_done_callback(partial(self._healthy, one, mine))
        return mine

    def _healthy(self, one: ServerLook, mine: asyncio.Future[Answer], end: asyncio.Future[Answer]) -> None:
        if mine.done():
            return
        if end.cancelled():
            one.health = Answer(Outcome.BROKEN, self._clock.now(), why="the look was ended")
        else:
            one.health = end.result()
        one.mark()
        mine.set_result(one.health)
        self._changed()


def is_here(server: Server, *, has_hops: bool) -> bool:
    """Whether a server's processes are those of its host: not where this machine asks a foreign address."""
    return has_hops or server.address.startswith("127.") or server.address in _HERE


def cache_folders(
    host: Host, servers: Sequence[ServerLook]
) -> list[tuple[Folder, list[tuple[ServerLook, KernelCache]]]]:
    """The folders of compiled kernels, each once, with the servers that keep theirs there.

    Only those of servers that are started as the login itself: a unit or a container has a home of its own.
    """
    found: dict[Folder, list[tuple[ServerLook, KernelCache]]] = {}
    for one in servers:
        if one.server.launcher != AS_THE_LOGIN or not is_here(one.server, has_hops=bool(host.hops)):
            continue
        env = dict(one.server.launch.env)
        for cache in one.engine.kernel_caches:
            names = {place.partition("/")[0][1:] for place in cache.place if place.startswith("$")} | {"HOME"}
            own = tuple((name, env[name]) for name in sorted(names) if name in env)
            found.setdefault(Folder(cache.place, own), []).append((one, cache))
    return list(found.items())


def watch_of(host: Host, servers: Sequence[Server]) -> Watch | None:
    """What is told of a host's processes for these servers; None where none of them run there."""
    watched = [server for server in servers if is_here(server, has_hops=bool(host.hops))]
    if not watched:
        return None
    return Watch(
        ports=tuple(sorted({server.port for server in watched})),
        words=words_of(watched),
        records=tuple(record_path(host.state_dir, server.name) for server in watched),
        env=ENV,
    )
