"""Watches the fleet: a look each five seconds through the probe path, the rules, and what they say told in the channel.

The rules are pure (`bot.domain.watching`); here is what has to touch the world: the rounds, the channel, the store.
An alert has one message that is kept current, and short notes in its thread. What was told and what was learned is
kept, so that a restart neither repeats nor forgets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from bot.domain import gpu_faults
from bot.domain.errors import StoreError, UpbotError, UserError
from bot.domain.facts import GpuFault, JobFacts, JobState, ServerFacts, Sight
from bot.domain.fleet import Fleet, Server
from bot.domain.message import Message
from bot.domain.needs import Needs
from bot.domain.operation import Operation, left_down
from bot.domain.plan import ResumeJob, StopJob
from bot.domain.readiness import Readiness, judge
from bot.domain.watching import alerts
from bot.domain.watching.alerts import Alert, Book, Change, Did, Silence
from bot.domain.watching.causes import Cause
from bot.domain.watching.limits import Limits
from bot.domain.watching.samples import JobSample, Reading, Sample
from bot.domain.watching.watch import Watch
from bot.ports import Chat, Clock, Eyes, Operations, Place, Ref, Samples
from bot.runtime.complaint import Complaint
from bot.runtime.executor import Executor
from bot.runtime.gallery import Gallery
from bot.runtime.heartbeat import Heart
from bot.text import alerts as text

_log = structlog.get_logger(__name__)

ROUND = timedelta(seconds=5)
GPU_ROUNDS = 6
KEEP_LEARNED = timedelta(minutes=5)
LOOK_BACK = 100
"""Operations in which it is looked for who stopped a server."""
REDRAW = timedelta(seconds=60)
OLDEST = 60.0


class Keep(Protocol):
    """Remembers a few texts by name, over restarts."""

    def get(self, name: str) -> str | None: ...
    def put(self, name: str, text: str) -> None: ...


class Books(Protocol):
    """Reads and writes a book of alerts as text."""

    def book_text(self, book: Book) -> str: ...
    def book_of(self, text: str) -> Book: ...


@dataclass(slots=True)
class _Told:
    """Where an alert stands in each channel."""

    refs: dict[str, Ref] = field(default_factory=dict)
    at: datetime | None = None


class Watcher:
    """Looks, decides, tells."""

    def __init__(  # noqa: PLR0917 - the machine's parts, given once by the composition root
        self,
        fleet: Callable[[], Fleet],
        eyes: Eyes,
        executor: Executor,
        operations: Operations,
        chat: Chat,
        clock: Clock,
        keep: Keep,
        books: Books,
    ) -> None:
        self._fleet = fleet
        self._eyes = eyes
        self._executor = executor
        self._operations = operations
        self._chat = chat
        self._clock = clock
        self._keep = keep
        self._books = books
        self._watch = Watch(Limits())
        self._told: dict[str, _Told] = {}
        self._round = 0
        self._kept_at: datetime | None = None
        self._blindness = Complaint(self.say, clock, text.blind, text.sees_again)
        self._hindered = Complaint(self.say, clock, text.hindrance, text.hindrance_over)
        self._alive_at: dict[str, datetime] = {}
        self._limits: dict[str, tuple[tuple[str, ...], float | None]] = {}
        self._faults: dict[str, GpuFault] = {}
        self._troubled: frozenset[str] = frozenset()
        self._asks_kernel = False
        self.seen_at: datetime | None = None
        """When the last round ended that saw anything: the heartbeat that an outside monitor checks."""
        self.samples: Samples | None = None
        self.gallery: Gallery | None = None
        self.heart: Heart | None = None
        self.pace: Callable[[], timedelta] = timedelta
        """How far apart readings are at least, where somebody else reads the servers for us."""
        self.hindrance: Callable[[], str | None] = lambda: None
        """Why the eyes see less well than they were to."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when alerts or silences have changed."""
        self._looked_at: datetime | None = None
        self.when_seen: Callable[[Sight], None] = lambda _sight: None
        """Whoever else is to know what each look has shown."""

    @property
    def book(self) -> Book:
        """All alerts and silences."""
        return self._watch.book

    @property
    def planned(self) -> frozenset[str]:
        """The servers that an operation works on, or did a moment ago."""
        return self._watch.planned()

    def load(self) -> None:
        """Know again what was told and learned before the bot ended; what can't be read is learned anew."""
        try:
            if (kept := self._keep.get("alerts")) is not None:
                self._watch.book = self._books.book_of(kept)
            if (told := self._keep.get("told")) is not None:
                self._told = {name: _told_of(one) for name, one in json.loads(told).items()}
            if (learned := self._keep.get("learned")) is not None:
                self._watch.load(json.loads(learned))
        except (StoreError, ValueError, KeyError, TypeError) as error:
            _log.warning("watching_begins_anew", error=str(error))

    # The rounds

    async def round(self) -> None:
        """One look and what comes of it; a round that fails is told as blindness, never as recovery."""
        await self._look()
        if self.heart is not None:
            self.heart.beat(self.seen_at)

    async def _look(self) -> None:
        fleet, now = self._fleet(), self._clock.now()
        if self._looked_at is not None and timedelta() <= now - self._looked_at < self.pace() - ROUND / 2:
            return
        self._looked_at = now
        # Who fell into trouble just now may have lost its GPU: that is asked at once, not half a minute later.
        needs = Needs(load=True, log=True, gpu=self._round % GPU_ROUNDS == 0 or self._asks_kernel)
        self._round += 1
        sight = Sight(now)
        async for sight in self._eyes.look(fleet.servers, jobs=fleet.jobs, needs=needs):  # noqa: B007 - the last one
            pass
        self.when_seen(sight)
        self._mind_trouble(sight)
        reading = self._reading(sight, fleet)
        await self._mind_blindness(reading, sight)
        await self._hindered.mind(self.hindrance())
        if not reading.servers and fleet.servers:
            return
        self.seen_at = self._clock.now()
        changes = self._watch.take(reading)
        self._keep_reading(reading)
        await self._tell(changes)
        self._remember()

    def _mind_trouble(self, sight: Sight) -> None:
        """Keep what the kernel said of each server's GPUs, and note whether it must be asked once more."""
        now = self._clock.now()
        for name, facts in sight.servers.items():
            if facts.faults is not None:
                fault = gpu_faults.reason(facts.faults, now, now)
                if fault is not None:
                    self._faults[name] = fault
        bad = (Readiness.DOWN, Readiness.CRASHED, Readiness.HUNG)
        troubled = frozenset(name for name, facts in sight.servers.items() if judge(facts, now).readiness in bad)
        self._asks_kernel = bool(troubled - self._troubled)
        self._troubled = troubled

    def _recent_fault(self, name: str, now: datetime) -> tuple[GpuFault | None, float | None]:
        """The gravest that the kernel said of a server's GPUs in the last hour, and how many seconds ago."""
        fault = self._faults.get(name)
        if fault is None or now - fault.at > gpu_faults.TELLING:
            return None, None
        return fault, max(0.0, (now - fault.at).total_seconds())

    def _reading(self, sight: Sight, fleet: Fleet) -> Reading:
        now = self._clock.now()
        live = self._executor.live()
        samples = {
            server.name: sample
            for server in fleet.servers
            if (sample := self._sample(server, sight.servers.get(server.name), now)) is not None
        }
        stopping = {step.job for op in live for step in op.plan.steps if isinstance(step, (StopJob, ResumeJob))}
        return Reading(
            now,
            samples,
            frozenset(server.name for server in fleet.servers),
            frozenset(name for op in live for name in op.plan.servers) | self._stopped(samples),
            {name: _job_sample(facts) for name, facts in sight.jobs.items() if facts.state is not JobState.UNKNOWN},
            frozenset(stopping),
        )

    def _stopped(self, samples: Mapping[str, Sample]) -> frozenset[str]:
        """The dead servers that are so because somebody had them stopped."""
        now = self._clock.now()
        dead = frozenset(name for name, sample in samples.items() if sample.is_dead)
        self._alive_at |= dict.fromkeys(samples.keys() - dead, now)
        return dead & left_down(self._operations.recent(LOOK_BACK), self._alive_at) if dead else dead

    def _sample(self, server: Server, facts: ServerFacts | None, now: datetime) -> Sample | None:
        """A server's numbers; None when nobody could look."""
        if facts is None or facts.is_pending or facts.unreachable is not None:
            return None
        verdict = judge(facts, now)
        readiness = verdict.readiness
        if facts.gpus:
            reasons = tuple(dict.fromkeys(one for gpu in facts.gpus for one in gpu.clock_limits))
            heat = [gpu.temperature_c for gpu in facts.gpus if gpu.temperature_c is not None]
            self._limits[server.name] = (reasons, max(heat, default=None))
        reasons, heat_c = self._limits.get(server.name, ((), None))
        load, process = facts.load, facts.process
        is_dead = facts.sees_processes and process is None
        fault, fault_age = self._recent_fault(server.name, now)
        if not is_dead and load.running is None and readiness is not Readiness.STARTING:
            return None
        return Sample(
            tokens_total=load.tokens_total,
            prompt_tokens_total=load.prompt_tokens_total,
            running=load.running,
            queued=load.queued,
            max_running=load.max_running or facts.running.max_running,
            kv_usage=load.kv_usage,
            mamba_usage=load.mamba_usage,
            accept_length=load.accept_length,
            clock_limits=reasons,
            temperature_c=heat_c,
            requests_total=load.requests_total,
            profile=facts.profile,
            process=process.identity if process is not None else None,
            is_starting=readiness is Readiness.STARTING,
            is_dead=is_dead,
            age=_age(facts, now),
            why=verdict.reason if is_dead and verdict.reason != "no process" else None,
            fault_code=fault.code if fault is not None else None,
            fault_gpu=fault.gpu if fault is not None else None,
            fault_age=fault_age,
        )

    async def _mind_blindness(self, reading: Reading, sight: Sight) -> None:
        is_blind = not reading.servers and bool(reading.expected)
        why = next((one.unreachable for one in sight.servers.values() if one.unreachable), "nothing answers")
        await self._blindness.mind(why if is_blind else None)

    # What is told

    async def _tell(self, changes: Sequence[Change]) -> None:
        now = self._clock.now()
        for change in changes:
            _log.info("alert", did=change.did.value, cause=change.alert.cause.value, servers=change.servers)
            if change.did is Did.NOTE:
                await self.say(text.note(change.alert, self._everyone))
            else:
                await self._tell_one(change)
        for one in self._watch.book.alerts:
            told = self._told.get(one.id)
            if one.is_on and told is not None and (told.at is None or now - told.at >= REDRAW):
                await self._draw(one)
        if changes:
            try:
                self._save(self._watch.book)
            except StoreError as error:
                _log.warning("alerts_not_kept", error=str(error))
            self.on_change()
        self._keep_ended(changes)

    async def _tell_one(self, change: Change) -> None:
        one = change.alert
        if one.id not in self._told:
            if not one.is_on or change.did is Did.SILENCED:
                return
            self._told[one.id] = _Told()
            for place in self._places:
                ref = await self._post(place, self._message(one))
                if ref is not None:
                    self._told[one.id].refs[place.channel] = ref
            self._told[one.id].at = self._clock.now()
            if self.gallery is not None and (one.servers or one.cause is not Cause.FOREIGN):
                self.gallery.show_alert(one, list(self._told[one.id].refs.values()))
            return
        await self._draw(one)
        for ref in self._told[one.id].refs.values():
            await self._post(Place(ref.channel, ref.id), text.told(change, self._everyone, self._clock.now()))

    async def _draw(self, one: Alert) -> None:
        told = self._told[one.id]
        told.at = self._clock.now()
        for ref in told.refs.values():
            try:
                await self._chat.edit(ref, self._message(one))
            except UpbotError as error:
                _log.warning("alert_not_shown", error=str(error))

    def _message(self, one: Alert) -> Message:
        return text.alert(one, self._everyone, self._clock.now(), self._last_change(one))

    def _last_change(self, one: Alert) -> Operation | None:
        """The last operation on any of these servers before the fault began."""
        for op in reversed(self._operations.recent(20)):
            if op.started_at <= one.since and (not one.servers or set(op.plan.servers) & set(one.servers)):
                return op
        return None

    @property
    def _everyone(self) -> list[str]:
        return [server.name for server in self._fleet().servers]

    @property
    def _places(self) -> list[Place]:
        return [
            Place(next(iter(channel.ids), channel.name)) for channel in self._fleet().channels if channel.gets_alerts
        ]

    async def say(self, message: Message) -> None:
        for place in self._places:
            await self._post(place, message)

    async def _post(self, place: Place, message: Message) -> Ref | None:
        try:
            return await self._chat.post(place, message)
        except UpbotError as error:
            _log.warning("alert_not_told", error=str(error))
            return None

    # What people say to it

    async def ack(self, id_: str | None, by: str) -> Alert:
        """Somebody has seen an alert; without an id the newest that fires. UserError when there is none."""
        wanted = id_ or alerts.newest_firing(self._watch.book)
        if wanted is None:
            raise UserError("nothing fires that could be acknowledged")
        try:
            book, changes = alerts.ack(self._watch.book, wanted, by, self._clock.now())
        except KeyError as error:
            raise UserError(f"there is no alert {wanted}") from error
        except ValueError as error:
            raise UserError(f"alert {wanted} is over, or not told yet") from error
        await self.change(book, changes)
        return next(one for one in book.alerts if one.id == wanted)

    async def silence(
        self,
        servers: frozenset[str],
        length: timedelta,
        by: str,
        because: str,
        ids: frozenset[str] = frozenset(),
    ) -> Silence:
        """Say nothing of these servers, or of the alerts of these ids, for a while. UserError when there is no such."""
        for one in ids:
            if self._watch.book.get(one) is None:
                raise UserError(f"there is no alert {one}")
        now = self._clock.now()
        number = int(now.timestamp())
        while any(one.id == f"s-{number}" for one in self._watch.book.silences):
            number += 1
        new = Silence(f"s-{number}", now + length, by, now, because, servers, alerts=ids)
        await self.change(*alerts.silence(self._watch.book, new))
        return new

    async def unsilence(self, servers: frozenset[str], ids: frozenset[str] = frozenset()) -> None:
        """End the silences about these servers and alerts, or all."""
        await self.change(*alerts.unsilence(self._watch.book, servers, self._clock.now(), ids))

    async def change(self, book: Book, changes: Sequence[Change]) -> None:
        """Keep a book that somebody has gone on with, and tell what changed in it. StoreError when it can't be kept."""
        self._save(book)
        self._watch.book = book
        await self._tell(changes)
        self.on_change()

    # What is kept

    def _save(self, book: Book) -> None:
        self._keep.put("alerts", self._books.book_text(book))
        live = {one.id for one in book.alerts}
        self._told = {name: told for name, told in self._told.items() if name in live}
        self._keep.put("told", json.dumps({name: _plain(told) for name, told in self._told.items()}))

    def _keep_reading(self, reading: Reading) -> None:
        if self.samples is None:
            return
        try:
            self.samples.add(reading, self._watch.expected())
        except StoreError as error:
            _log.warning("reading_not_kept", error=str(error))

    def _keep_ended(self, changes: Sequence[Change]) -> None:
        if self.samples is None:
            return
        for change in changes:
            if change.did is Did.RESOLVED:
                try:
                    self.samples.ended(change.alert)
                except StoreError as error:
                    _log.warning("alert_not_kept", error=str(error))

    def _remember(self) -> None:
        now = self._clock.now()
        if self._kept_at is not None and now - self._kept_at < KEEP_LEARNED:
            return
        self._kept_at = now
        try:
            self._keep.put("learned", json.dumps(self._watch.dump()))
        except StoreError as error:
            _log.warning("learned_not_kept", error=str(error))


def _age(facts: ServerFacts, now: datetime) -> float | None:
    """How many seconds old the numbers are, where somebody else has read them; its clock may differ a little."""
    if facts.read_at is None:
        return None
    return min(max((now - facts.read_at).total_seconds(), 0.0), OLDEST)


def _job_sample(facts: JobFacts) -> JobSample:
    is_done = facts.state is JobState.DONE
    return JobSample(facts.state is JobState.RUNNING, is_done, facts.done, facts.total, facts.rate)


def _plain(told: _Told) -> dict[str, Any]:
    return {"refs": {name: [ref.channel, ref.id, ref.thread] for name, ref in told.refs.items()}}


def _told_of(plain: Any) -> _Told:
    return _Told({name: Ref(*one) for name, one in plain["refs"].items()})
