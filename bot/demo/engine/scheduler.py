"""The clockwork of a simulated server: wakes when an answer is due, a log line is due, or something was broken."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bot.demo.engine import lines
from bot.demo.engine.batch import Batch, Changes, Request
from bot.demo.engine.metrics import Latencies
from bot.demo.engine.sizes import Sizes
from bot.demo.engine.voice import Voice
from bot.demo.machine import Control, Entry, Machine

PULSE = 0.5
"""Seconds between heartbeats, at which also the control file is looked at."""
LINE_GAP = 1.0
"""Seconds between decode lines at least, however fast it decodes."""
PREFILL_RATE = 9_000.0
PUBLISH = 5.0
"""Seconds between notes of how many requests run, for the pretend nvidia-smi."""


@dataclass(slots=True)
class Ticket:
    """What a caller of ``submit`` waits for."""

    request: Request
    started: asyncio.Event
    done: asyncio.Future[Request]


@dataclass(slots=True)
class _Spoken:
    """What the last decode line said, for the next one to count from."""

    at: float
    step: float = 0.0
    decoded: float = 0.0
    throughput: float = 0.0


class Scheduler:
    """Runs a batch on the event loop's clock."""

    def __init__(self, sizes: Sizes, machine: Machine, entry: Entry, voice: Voice, interval: int = 40) -> None:
        self._loop = asyncio.get_running_loop()
        self.batch = Batch(sizes, self._loop.time())
        self.latencies = Latencies()
        self.control = Control()
        self.hung_since: float | None = None
        self.is_mended = asyncio.Event()
        self.is_mended.set()
        self._machine = machine
        self._entry = entry
        self._voice = voice
        self._interval = interval
        self._tickets: dict[str, Ticket] = {}
        self._spoken = _Spoken(self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._mark = 0
        self._dice = random.Random(entry.port)  # noqa: S311 - noise of the decode rate, not a secret
        self._pulse = itertools.count()

    @property
    def throughput(self) -> float:
        """Decoded tokens a second as the last line said it; 0 when nothing runs."""
        return self._spoken.throughput if self.batch.running else 0.0

    @property
    def last_throughput(self) -> float:
        """The same, kept when nothing runs."""
        return self._spoken.throughput

    @property
    def chunk(self) -> int:
        """Prompt tokens that one prefill takes."""
        return 8192

    def submit(self, rid: str, prompt: int, wanted: int) -> Ticket:
        """Take a request."""
        self.catch_up()
        request = Request(rid, prompt, wanted, self._loop.time())
        ticket = Ticket(request, asyncio.Event(), self._loop.create_future())
        self._tickets[rid] = ticket
        self.batch.add(request)
        self.catch_up()
        return ticket

    def knows(self, rid: str) -> bool:
        """Whether a request of that id is not done yet."""
        return rid in self._tickets

    def abort(self, rid: str) -> None:
        """Drop a request, as when its client has gone; one that is done is no error."""
        self.catch_up()
        self.batch.abort(rid)
        ticket = self._tickets.pop(rid, None)
        if ticket is not None and not ticket.done.done():
            ticket.done.set_result(ticket.request)
        self.catch_up()

    def note_ready(self) -> None:
        """Write down that the server is ready."""
        self._entry = replace(self._entry, is_ready=True)
        self._machine.register(self._entry)

    def catch_up(self) -> None:
        """Let the time pass that has passed, tell whom it concerns, and sleep until the next event."""
        now = self._loop.time()
        changes = self.batch.advance(now)
        self._settle(changes)
        if self.batch.running and self._line_due() <= now:
            self._say_decode(now)
        self._arm()

    def pulse(self) -> None:
        """Heartbeat; look whether something was broken or mended, and note how much runs."""
        self._machine.beat(self._entry.pid)
        mark = self._machine.control_mark(self._entry.port)
        if mark != self._mark:
            self._mark = mark
            self.obey(self._machine.control(self._entry.port))
        if next(self._pulse) % round(PUBLISH / PULSE) == 0 and self._entry.running != self.batch.running:
            self._entry = replace(self._entry, running=self.batch.running)
            self._machine.register(self._entry)

    def obey(self, control: Control) -> None:
        """Decode as that control wants it, from now on."""
        self.catch_up()
        self.control = control
        self.hung_since = (self.hung_since or self._loop.time()) if control.is_hung else None
        if control.is_hung:
            self.is_mended.clear()
        else:
            self.is_mended.set()
        self._set_pace()
        self.catch_up()

    def _set_pace(self) -> None:
        noise = 1 + self._dice.gauss(0, 0.006)
        self.batch.pace = 0.0 if self.control.is_hung else self.control.slowdown * noise

    def _settle(self, changes: Changes) -> None:
        for request in changes.admitted:
            if (ticket := self._tickets.get(request.rid)) is not None:
                ticket.started.set()
        self._say_prefill(changes.admitted)
        for request in changes.finished:
            self._observe(request)
            ticket = self._tickets.pop(request.rid, None)
            if ticket is not None and not ticket.done.done():
                ticket.done.set_result(request)

    def _observe(self, request: Request) -> None:
        started, ended = request.started or request.arrived, request.ended or request.arrived
        self.latencies.queue.observe(started - request.arrived)
        self.latencies.first_token.observe(started - request.arrived + request.prompt / PREFILL_RATE)
        self.latencies.whole.observe(ended - request.arrived)

    def _say_prefill(self, admitted: Sequence[Request]) -> None:
        piece: list[Request] = []
        for request in admitted:
            if piece and sum(one.prompt for one in piece) + request.prompt > self.chunk:
                self._say_one_prefill(piece)
                piece = []
            piece.append(request)
        if piece:
            self._say_one_prefill(piece)

    def _say_one_prefill(self, piece: Sequence[Request]) -> None:
        self._voice.say(lines.prefill(self.batch, piece, PREFILL_RATE * self._dice.uniform(0.8, 1.1)))

    def _line_due(self) -> float:
        due = self.batch.time_of_step(self._spoken.step + self._interval)
        return max(due, self._spoken.at + LINE_GAP) if due is not None else float("inf")

    def _say_decode(self, now: float) -> None:
        decoded = self.batch.counters.decoded
        throughput = (decoded - self._spoken.decoded) / (now - self._spoken.at)
        self._spoken = _Spoken(now, self.batch.steps, decoded, throughput)
        self._voice.say(lines.decode(self.batch, throughput))
        self._set_pace()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.batch.next_end()
        if self.batch.running:
            due = min(due if due is not None else float("inf"), self._line_due())
        if due is not None and due != float("inf"):
            self._timer = self._loop.call_at(due, self.catch_up)


async def beat(every: float, act: Callable[[], None]) -> None:
    """Do something again and again, until cancelled."""
    while True:
        act()
        await asyncio.sleep(every)
