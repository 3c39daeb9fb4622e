"""Requests that share one GPU: who runs, who waits, and when each is done, as a function of time.

Every running request gets tokens at the same pace, so all that is kept of a request is the step at which it ends;
between two events nothing has to be computed. Times are seconds of a clock that only goes forward.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from bot.demo.engine.sizes import Sizes


def decode_rate(running: int) -> float:
    """Tokens a second of a whole batch."""
    return 60 * running / (1 + 0.0643 * (running - 1)) if running else 0.0


@dataclass(slots=True, eq=False)
class Request:
    """One request. Times and steps are None until they are known."""

    rid: str
    prompt: int
    wanted: int
    arrived: float
    started: float | None = None
    first_step: float = 0.0
    ended: float | None = None
    is_aborted: bool = False

    @property
    def last_step(self) -> float:
        """The step at which its last token comes."""
        return self.first_step + self.wanted


@dataclass(slots=True)
class Counters:
    """What was counted since the start."""

    decoded: float = 0.0
    prompted: int = 0
    generated: int = 0
    finished: int = 0
    aborted: int = 0


@dataclass(slots=True)
class Changes:
    """What happened in a piece of time, in order."""

    admitted: list[Request] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)


class Batch:
    """The running batch and its queue, first come first served."""

    def __init__(self, sizes: Sizes, now: float) -> None:
        self.sizes = sizes
        self.pace = 1.0
        """The fraction of its speed at which it decodes; 0 when it hangs."""
        self.steps = 0.0
        self.counters = Counters()
        self._now = now
        self._running: dict[str, Request] = {}
        self._queue: deque[Request] = deque()
        self._ends: list[tuple[float, int, Request]] = []
        self._order = itertools.count()
        self._base_tokens = 0.0
        self._reserved_tokens = 0
        self._changes = Changes()

    @property
    def running(self) -> int:
        """Requests that decode."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def rids(self) -> list[str]:
        """The ids of all requests that are not done."""
        return [*self._running, *(request.rid for request in self._queue)]

    @property
    def tokens(self) -> int:
        """Tokens in the KV cache."""
        return round(self._base_tokens + self.running * self.steps)

    @property
    def kv_usage(self) -> float:
        """The part of the KV cache that is used."""
        return self.tokens / self.sizes.tokens

    @property
    def slots(self) -> int:
        """State slots that are held."""
        return self.running * self.sizes.held

    @property
    def mamba_usage(self) -> float:
        """The part of the Mamba pool that is held."""
        return self.slots / self.sizes.slots

    @property
    def stepping(self) -> float:
        """Decode steps a second now."""
        return decode_rate(self.running) * self.pace / self.running if self.running else 0.0

    def add(self, request: Request) -> None:
        """Queue a request at the time up to which the batch was advanced, and admit it if there is a seat."""
        self._queue.append(request)
        self._admit()

    def abort(self, rid: str) -> None:
        """Drop a request; what it has decoded is lost."""
        request = self._running.pop(rid, None)
        if request is not None:
            self._release(request)
            self._admit()
        else:
            request = next((one for one in self._queue if one.rid == rid), None)
            if request is None:
                return
            self._queue.remove(request)
        request.is_aborted = True
        self.counters.aborted += 1

    def advance(self, now: float) -> Changes:
        """Let time pass; what was admitted and finished since the last call."""
        while (due := self.next_end()) is not None and due <= now:
            self._flow(due)
            self._finish()
        self._flow(max(now, self._now))
        changes, self._changes = self._changes, Changes()
        return changes

    def next_end(self) -> float | None:
        """When the next request will be done if nothing changes; None when none will."""
        while self._ends and self._ends[0][2].rid not in self._running:
            heapq.heappop(self._ends)
        if not self._ends or not self.stepping:
            return None
        return max(self._now, self._now + (self._ends[0][0] - self.steps) / self.stepping)

    def time_of_step(self, step: float) -> float | None:
        """When that many steps will be done if nothing changes; None when they will not."""
        return self._now + max(0.0, step - self.steps) / self.stepping if self.stepping else None

    def _flow(self, now: float) -> None:
        steps = self.stepping * (now - self._now)
        self.steps += steps
        self.counters.decoded += steps * self.running
        self._now = now

    def _finish(self) -> None:
        last, _, request = heapq.heappop(self._ends)
        self.steps = max(self.steps, last)
        del self._running[request.rid]
        self._release(request)
        request.ended = self._now
        self.counters.finished += 1
        self.counters.prompted += request.prompt
        self.counters.generated += request.wanted
        self._changes.finished.append(request)
        self._admit()

    def _admit(self) -> None:
        while self._queue and self.running < self.sizes.seats and self._fits(self._queue[0]):
            request = self._queue.popleft()
            request.started, request.first_step = self._now, self.steps
            self._running[request.rid] = request
            self._base_tokens += request.prompt - request.first_step
            self._reserved_tokens += request.prompt + request.wanted
            heapq.heappush(self._ends, (request.last_step, next(self._order), request))
            self._changes.admitted.append(request)

    def _fits(self, request: Request) -> bool:
        room = self.sizes.tokens - self._reserved_tokens
        return not self._running or request.prompt + request.wanted <= room

    def _release(self, request: Request) -> None:
        self._base_tokens -= request.prompt - request.first_step
        self._reserved_tokens -= request.prompt + request.wanted
