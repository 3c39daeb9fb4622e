"""One server in one look: what is asked, what came, and what is remembered from look to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.domain.diagnosis import Diagnosis
from bot.domain.engine import Engine
from bot.domain.facts import Answer, Gpu, GpuFault, Load, Movement, Outcome, Process, Running, ServerFacts
from bot.domain.fleet import Fleet, Server
from bot.domain.kernel_caches import CacheSeen, KernelCache
from bot.domain.limiting import SEATS_FLAG
from bot.domain.routing import Routed
from bot.ports import Needs
from bot.runtime.probing.logs import LogFollower
from bot.runtime.probing.movement import Mover
from bot.runtime.probing.recognition import Recognised, profile_of, token_of
from bot.runtime.probing.wire import Chunk, Counted, Get, Got

BODY = 2 * 1024 * 1024
"""Metrics of a server with all its histograms take some hundred KB."""
NOT_FOUND = 404


class Memory:
    """What is known of a server from earlier looks; all of it is of one process."""

    def __init__(self, engine: Engine, server: Server) -> None:
        self.mover = Mover()
        self.log = LogFollower(engine, server.log)
        self.process: Process | None = None
        self.earlier_end: tuple[str, str] | None = None
        self.instant_path: str | None = None
        self.missing: set[str] = set()
        self.profile: tuple[object, str | None] = (None, None)

    def meet(self, process: Process | None) -> None:
        """The process as it was just seen; another one may be another version with other paths."""
        if process is None:
            return
        if self.process is None or self.process.identity != process.identity:
            self.instant_path = None
            self.missing.clear()
        self.process = process

    @property
    def identity(self) -> tuple[int, int] | None:
        """Pid and start of the process that was seen last."""
        return self.process.identity if self.process is not None else None


@dataclass(frozen=True, slots=True)
class Question:
    """A get, and what its answer is for."""

    get: Get
    is_instant: bool = False


@dataclass(slots=True)
class ServerLook:
    """What one look has shown of one server so far."""

    server: Server
    engine: Engine
    memory: Memory
    needs: Needs
    fleet: Fleet
    sees_processes: bool = True
    unreachable: str | None = None
    recognised: Recognised | None = None
    instant: Answer | None = None
    health: Answer | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    awaited: int = 0
    movement: Movement = field(default_factory=Movement)
    load: Load = field(default_factory=Load)
    running: Running = field(default_factory=Running)
    diagnosis: Diagnosis | None = None
    chunks: list[Chunk] = field(default_factory=list)
    gpus: tuple[Gpu, ...] = ()
    faults: tuple[GpuFault, ...] | None = None
    caches: dict[KernelCache, CacheSeen] = field(default_factory=dict)
    log_tail: tuple[str, ...] = ()
    routed: dict[str, Routed] = field(default_factory=dict)
    _said: ServerFacts | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the instant facts are in, or will not come."""
        if self.unreachable is not None:
            return True
        return self.instant is not None and (self.recognised is not None or not self.sees_processes)

    def questions(self, limit: timedelta) -> list[Question]:
        """The gets of a look: the instant path, and what is read for numbers."""
        server, memory = self.server, self.memory
        token = token_of(server, memory.process)

        def get(paths: Sequence[str], body: int) -> Get:
            return Get(server.address, server.port, tuple(paths), limit, body, token)

        first = memory.instant_path
        instant = [first] if first else list(self.engine.instant_paths)
        wanted = (*(self.engine.load_paths if self.needs.load else ()), *(self._config_paths()))
        groups = [group for group in alternatives(wanted) if not memory.missing.issuperset(group)]
        self.awaited = len(groups)
        return [Question(get(instant, 0), is_instant=True), *(Question(get(group, BODY)) for group in groups)]

    @property
    def may_stand_still(self) -> bool:
        """Whether requests run and no token of theirs has been seen to move yet."""
        return bool(self.load.running) and self.movement.tokens_per_second is None and self.unreachable is None

    def load_questions(self, limit: timedelta) -> list[Question]:
        """The gets that read the numbers once more."""
        token = token_of(self.server, self.memory.process)
        groups = [one for one in alternatives(self.engine.load_paths) if not self.memory.missing.issuperset(one)]
        self.awaited = len(groups)
        address, port = self.server.address, self.server.port
        return [Question(Get(address, port, group, limit, BODY, token)) for group in groups]

    def _config_paths(self) -> tuple[str, ...]:
        return self.engine.config_paths if self.needs.config else ()

    def got(self, question: Question, got: Got, now: datetime) -> None:
        """Take the answer to one of them."""
        answer = Answer(got.outcome, now, got.status, got.body, got.took, got.why)
        is_missing = got.status == NOT_FOUND
        if question.is_instant:
            self.instant = answer
            self.memory.instant_path = None if is_missing or got.outcome is not Outcome.ANSWERED else got.path
        else:
            self.answers[got.path] = answer
            self.awaited -= 1
            if is_missing:
                self.memory.missing.update(question.get.paths)
            self._count(now)
        self._said = None

    def recognise(self, recognised: Recognised, now: datetime) -> None:
        """Take what the processes say."""
        self.recognised = recognised
        self.memory.meet(recognised.process)
        if recognised.process is not None:
            self.memory.earlier_end = recognised.ended
        chunks, self.chunks = self.chunks, []
        for chunk in chunks:
            self.read(chunk)
        self._count(now)
        self._said = None

    def read(self, chunk: Chunk) -> bool:
        """Take bytes of the log, once it is known whose it is; whether there are more to ask for."""
        if self.recognised is None and self.sees_processes:
            self.chunks.append(chunk)
            return chunk.has_more
        has_more = self.memory.log.take(chunk, self.recognised.process if self.recognised else None)
        self.diagnosis = self.memory.log.diagnosis()
        self._said = None
        return has_more

    def counted(self, cache: KernelCache, counted: Counted, now: datetime) -> None:
        """Take what lies in a cache of kernels."""
        newest = now - counted.quiet if counted.quiet is not None else None
        self.caches[cache] = CacheSeen(counted.files, newest, counted.is_there)
        self._said = None

    def fail(self, why: str) -> None:
        """Its host can't be looked at."""
        self.unreachable = why
        self._said = None

    def mark(self) -> None:
        """Something was set from outside."""
        self._said = None

    def facts(self, now: datetime) -> ServerFacts:
        """Everything so far as a value."""
        if self._said is None:
            self._said = self._facts(now)
        return self._said

    def _count(self, now: datetime) -> None:
        """Read the numbers once all are in and it is known of which process they are."""
        if self.awaited or (self.recognised is None and self.sees_processes):
            return
        if self.needs.load:
            self.load = self.engine.load({path: one for path, one in self.answers.items() if self._is_load(path)})
            self.movement = self.memory.mover.see(self.load, self.memory.identity, now)
        if self.needs.config:
            self.running = self.engine.running(self.answers)

    def _is_load(self, path: str) -> bool:
        return path in self.engine.load_paths

    def _facts(self, now: datetime) -> ServerFacts:
        recognised = self.recognised or Recognised()
        is_earlier = recognised.ended is not None and recognised.ended == self.memory.earlier_end
        is_pending = self.unreachable is None and not self.is_settled and not self._has_health()
        indices = self.server.gpus or recognised.gpus
        return ServerFacts(
            self.server.name,
            now,
            is_pending=is_pending or (self.unreachable is None and self.recognised is None and self.sees_processes),
            unreachable=self.unreachable,
            process=recognised.process,
            port_owner=recognised.port_owner,
            health=self.health,
            instant=self.instant,
            load=self.load,
            running=self._running(recognised.process),
            movement=self.movement,
            diagnosis=self.diagnosis,
            gpus=_chosen(self.gpus, indices),
            faults=_own_faults(self.faults, indices, recognised.process),
            caches=dict(self.caches) if self.caches else None,
            exit_status=None if is_earlier else recognised.exit_status,
            profile=self._profile(recognised.process),
            orphans=recognised.orphans,
            log_tail=self.log_tail,
            sees_processes=self.sees_processes,
            session=recognised.session,
            is_adopted=recognised.is_adopted,
            routed=tuple(self.routed.values()),
        )

    def _has_health(self) -> bool:
        return self.health is not None and self.health.outcome is not Outcome.PENDING

    def _running(self, process: Process | None) -> Running:
        """Its configuration; an engine that never tells its seats has those of its command line."""
        flag = SEATS_FLAG.get(self.engine.name)
        if flag is None or process is None or self.running.max_running is not None:
            return self.running
        seats = self.engine.flags_of(process.argv).value(flag) or ""
        is_number = seats.isascii() and seats.isdecimal() and len(seats) < 10
        return replace(self.running, max_running=int(seats)) if is_number else self.running

    def _profile(self, process: Process | None) -> str | None:
        if process is None:
            return None
        key, profile = self.memory.profile
        if key != (process.identity, process.argv, self.server, self.fleet.profiles):
            profile = profile_of(self.fleet, self.server, self.engine, process.argv)
            self.memory.profile = ((process.identity, process.argv, self.server, self.fleet.profiles), profile)
        return profile


def alternatives(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The paths, each once; ``/get_x`` is the older name of ``/x``, so it is asked only where that is missing."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        newer = f"/{path.removeprefix('/get_')}" if path.startswith("/get_") else path
        group = groups.setdefault(newer if newer in groups else path, [])
        if path not in group:
            group.append(path)
    return [tuple(group) for group in groups.values()]


def _chosen(gpus: tuple[Gpu, ...], indices: tuple[int, ...] | None) -> tuple[Gpu, ...]:
    """A server's own cards; all of them where nobody says which are its own."""
    return tuple(gpu for gpu in gpus if gpu.index in indices) if indices else gpus


def _own_faults(
    faults: tuple[GpuFault, ...] | None, indices: tuple[int, ...] | None, process: Process | None
) -> tuple[GpuFault, ...] | None:
    """What was said of its own cards, or of its process; of all of them where nobody says which are its own."""
    if faults is None or not indices:
        return faults
    pid = process.pid if process is not None else -1
    return tuple(one for one in faults if one.gpu in indices or (one.gpu is None and one.pid == pid))
