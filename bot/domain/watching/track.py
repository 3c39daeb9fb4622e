"""The recent past of one server, made of what lies between two readings of it; bounded, whatever comes."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from bot.domain.watching.samples import Sample
from bot.domain.watching.timeline import FORGET_AFTER, Break

_STEPS = 130
_STILLS = 200
_MANY_AT_ONCE = 8
_SAME = 0.5


class Step(NamedTuple):
    """What a server did between two readings. Times are steady seconds, ``prompts`` prompt tokens a second.

    ``low`` and ``high`` are the requests that ran at its two ends, ``expected`` the tokens that these usually give;
    ``context`` is the part of the cache that a request holds on average, 0 where that is not told.
    A masked step is one that no speed may be read from: a ramp (to or from nothing too), a burst of prompts.
    """

    end: float
    span: float
    tokens: float
    prompts: float
    low: float
    high: float
    queued: int
    expected: float
    is_masked: bool
    context: float = 0.0

    @property
    def running(self) -> float:
        """Requests that ran, on average."""
        return (self.low + self.high) / 2


class Raw(NamedTuple):
    """A step before anybody has said what was expected of it."""

    end: float
    span: float
    tokens: float
    prompts: float
    low: int
    high: int
    queued: int
    is_ramp: bool
    context: float


class Errors(NamedTuple):
    """How many requests, and how many errors, there had been."""

    at: float
    requests: float
    errors: float


class Memory(NamedTuple):
    """How many bytes of the host's memory were held, of how many that may be."""

    at: float
    used: float
    limit: float


class Fault(NamedTuple):
    """What the kernel's log named last of its GPUs, and when."""

    at: float
    code: int | None
    gpu: int | None


class Track:
    """One server's past. ``misses`` counts readings in a row without it, ``reads`` those in a row with it."""

    __slots__ = (
        "_fresh",
        "_last_at",
        "birth",
        "errors",
        "fault",
        "first_miss",
        "is_dead",
        "is_starting",
        "last",
        "limited_since",
        "memory",
        "misses",
        "moved_at",
        "ramped_at",
        "reads",
        "restarts",
        "steps",
        "still_demand",
        "still_expected",
        "still_running",
        "still_seconds",
        "stills",
        "waited",
        "was_lost",
        "why",
    )

    def __init__(self, now: float) -> None:
        self.last: Sample | None = None
        self._last_at = now
        self.steps: deque[Step] = deque(maxlen=_STEPS)
        self.errors: deque[Errors] = deque(maxlen=32)
        self.memory: deque[Memory] = deque(maxlen=240)
        self.restarts: deque[float] = deque(maxlen=16)
        self.stills: deque[tuple[float, float]] = deque(maxlen=_STILLS)
        self._fresh: deque[Step] = deque(maxlen=_STEPS)
        self.waited = 0
        self.misses = 0
        self.reads = 0
        self.first_miss = now
        self.birth = now
        self.moved_at = now
        self.ramped_at = -math.inf
        self.still_running = 0
        self.still_demand = False
        self.still_expected = 0.0
        self.still_seconds = 0.0
        self.limited_since: float | None = None
        self.fault: Fault | None = None
        self.is_dead = False
        self.is_starting = False
        self.was_lost = False
        self.why: str | None = None

    def take(self, sample: Sample | None, now: float, broken: Break) -> Raw | None:
        """Go on to a reading; what lies between the last one and this, where a speed may be read from it.

        ``now`` is when the sample was true. What was true no later than the last one says nothing new.
        """
        if broken is Break.GAP:
            self._forget(now)
        if sample is not None and sample.fault_age is not None:
            self.fault = Fault(now - sample.fault_age, sample.fault_code, sample.fault_gpu)
        if sample is None or sample.is_dead:
            self._miss(sample, now)
            return None
        if sample.age is not None and self.last is not None and now <= self._last_at + _SAME:
            return None
        self.was_lost = bool(self.misses)
        self.misses = 0
        self.reads += 1
        self.is_dead = False
        self.is_starting = sample.is_starting
        raw = self._between(sample, now, broken)
        self.last, self._last_at = sample, now
        self._note(sample, now)
        return raw

    def _miss(self, sample: Sample | None, now: float) -> None:
        if not self.misses:
            self.first_miss = now
        self.misses += 1
        self.reads = 0
        self.is_dead = sample is not None
        self.why = sample.why if sample is not None else None
        self.is_starting = False

    def _forget(self, now: float) -> None:
        self.drop_steps()
        self.errors.clear()
        self.last = None
        self._last_at = now
        self._moves(now)

    def _between(self, new: Sample, now: float, broken: Break) -> Raw | None:
        old = self.last
        if old is None or now - self._last_at > FORGET_AFTER:
            self._moves(now)
            if old is not None and _is_other(old, new):
                self._restart(now)
            return None
        if _is_other(old, new):
            self._restart(now)
            return None
        if new.is_starting or new.tokens_total is None or old.tokens_total is None:
            self._moves(now)
            return None
        span, tokens = now - self._last_at, new.tokens_total - old.tokens_total
        running, before = new.running or 0, old.running or 0
        fresh = (new.prompt_tokens_total or 0.0) - (old.prompt_tokens_total or 0.0)
        self._stand(max(tokens, fresh), before, running, new.queued or 0, now)
        if broken is not Break.NONE or span <= 0 or new.running is None or old.running is None:
            return None
        if running >= 2 * before + _MANY_AT_ONCE:
            self.ramped_at = now
        is_ramp = not min(running, before) or abs(running - before) > max(3.0, 0.35 * max(running, before))
        return Raw(now, span, tokens, max(0.0, fresh) / span, before, running, new.queued or 0, is_ramp, _context(new))

    def _stand(self, tokens: float, before: int, running: int, queued: int, now: float) -> None:
        """Note for how long tokens have stood still while requests ran."""
        if tokens > 0 or not (running or queued) or not before:
            if self.still_seconds and tokens > 0:
                self.stills.append((self.still_seconds, self.still_expected))
            elif self.still_seconds:
                self._forgive_still()
            self._moves(now)
            return
        self.still_seconds = now - self.moved_at
        self.still_demand = self.still_demand or bool(queued) or running > self.still_running
        self.still_running = min(self.still_running, running) if self.still_expected else running

    def _forgive_still(self) -> None:
        """It stood still for there was nothing to do: the number of running requests was that of before."""
        for kept in (self.steps, self._fresh):
            while kept and kept[-1].end > self.moved_at:
                kept.pop()

    def _moves(self, now: float) -> None:
        self.moved_at = now
        self.still_seconds = 0.0
        self.still_expected = 0.0
        self.still_demand = False
        self.still_running = 1 << 30

    def _restart(self, now: float) -> None:
        self.restarts.append(now)
        self.birth = now
        self.drop_steps()
        self.errors.clear()
        self.memory.clear()
        self._moves(now)

    def _note(self, sample: Sample, now: float) -> None:
        if sample.clock_limits:
            self.limited_since = now if self.limited_since is None else self.limited_since
        else:
            self.limited_since = None
        if sample.errors_total is not None and (not self.errors or now - self.errors[-1].at >= 10):
            self.errors.append(Errors(now, sample.requests_total or 0.0, sample.errors_total))
        used, limit = sample.memory_bytes, sample.memory_limit_bytes
        if used is not None and limit and (not self.memory or now - self.memory[-1].at >= 60):
            self.memory.append(Memory(now, used, limit))

    def add(self, step: Step) -> None:
        """Keep a step whose expectation is known now."""
        self.steps.append(step)
        self._fresh.append(step)
        if self.still_seconds:
            self.still_expected += step.expected

    def drop_steps(self) -> None:
        """What was lately says nothing about what comes now."""
        self.steps.clear()
        self._fresh.clear()
        self.waited = 0

    def ripe(self, until: float) -> list[Step]:
        """The steps up to an instant that were not asked for before."""
        ripe = []
        while self._fresh and self._fresh[0].end <= until:
            step = self._fresh.popleft()
            self.waited = self.waited + 1 if step.queued else 0
            ripe.append(step)
        return ripe


def _context(sample: Sample) -> float:
    return sample.kv_usage / sample.running if sample.kv_usage and sample.running else 0.0


def _is_other(old: Sample, new: Sample) -> bool:
    """Whether a counter or an identity says that this is another process than before."""
    if old.process is not None and new.process is not None and old.process != new.process:
        return True
    if old.tokens_total is None or new.tokens_total is None:
        return False
    return new.tokens_total < old.tokens_total - 0.5
