"""A simulated fleet under made-up traffic with scheduled faults: what the alert rules are measured on.

Everything that the rules could come to rely on can be varied: how speed grows with load, noise, how long contexts
are, how many servers there are, how often and how well they are read. One second a step; numpy, for its speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from bot.domain.watching.samples import Reading, Sample

SEATS = 37
PREFILL = 20_000.0
SLOT = 7200
DEALT = ["straggler"] * 3 + ["all_slow"] * 2 + ["dead", "hang", "cap_cut", "lull", "lull", "prompt_heavy"]
EPOCH = datetime(2026, 1, 5, tzinfo=UTC)

Curve = Callable[[np.ndarray], np.ndarray]


def hyperbolic(running: np.ndarray) -> np.ndarray:
    """60 tokens a second alone, 670 with all seats taken."""
    return 60 * running / (1 + 0.0643 * np.maximum(running - 1, 0))


def saturating(running: np.ndarray) -> np.ndarray:
    """An exponential approach to 700."""
    return 700 * (1 - np.exp(-running / 11))


def knee(running: np.ndarray) -> np.ndarray:
    """In proportion up to 14 requests, hardly any more beyond."""
    return np.minimum(45 * running, 630 + 1.5 * (running - 14))


def speculative(running: np.ndarray) -> np.ndarray:
    """Fast while there is room for drafts, which are switched off in two steps as the batch grows."""
    gain = np.where(running <= 8, 2.4, np.where(running <= 20, 1.7, 1.15))
    return 42 * running * gain / (1 + 0.028 * running * gain)


@dataclass(frozen=True)
class Setting:
    """One fleet and its traffic. ``noise`` is the scatter of speed, ``drift`` how far contexts slow it over hours.

    ``wander`` is how far the accepted drafts go up and down within minutes, ``tells_drafts`` whether the engine says
    so. ``lumps`` are counters that move only when a request ends. ``jumps`` are steps of the reader's clock a day.
    """

    name: str
    is_batch: bool
    seed: int
    servers: int = 8
    days: float = 2.0
    curve: Curve = hyperbolic
    noise: float = 0.04
    drift: float = 0.0
    wander: float = 0.0
    tells_drafts: bool = False
    lumps: bool = False
    jumps: int = 0
    every: int = 5
    lost: float = 0.003


@dataclass
class Event:
    """Something that was done to the fleet; seconds."""

    kind: str
    start: int
    end: int
    loss: float
    server: str
    is_scored: bool = True


@dataclass
class Run:
    """A simulation that is under way: iterate over it, then ask for its events."""

    setting: Setting
    events: list[Event] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, Reading]]:
        """True seconds and what was read then, with the clock as the reader sees it."""
        yield from _Fleet(self.setting, self.events).run()


class _Fleet:
    def __init__(self, setting: Setting, events: list[Event]) -> None:
        self.setting = setting
        self.rng = np.random.default_rng(setting.seed)
        self.total = int(setting.days * 86_400)
        self.size = setting.servers
        self.events = events
        self._plan()
        self._weather()
        self.left = np.zeros((self.size, SEATS))
        self.answer = np.zeros((self.size, SEATS))
        self.active = np.zeros((self.size, SEATS), bool)
        self.queues: list[deque[tuple[float, float]]] = [deque() for _ in range(self.size)]
        self.homeless: deque[tuple[float, float]] = deque()
        self.debt = np.zeros(self.size)
        self.tokens = np.zeros(self.size)
        self.prompts = np.zeros(self.size)
        self.queued_for = [0] * len(events)

    def _plan(self) -> None:
        kinds: list[str] = []
        dealt = [kind for kind in DEALT if self.size > 1 or kind != "all_slow"]
        for slot in range(1, self.total // SLOT):
            kinds = kinds or list(self.rng.permutation(dealt))
            start = slot * SLOT + int(self.rng.integers(1200, 4800))
            end = start + int(self.rng.integers(600, 1200))
            victim = f"s{self.rng.integers(self.size)}"
            self.events.append(Event(str(kinds.pop()), start, end, float(self.rng.uniform(0.3, 0.6)), victim))

    def _weather(self) -> None:
        """Speed, seats and demand of every second."""
        shape = (self.size, self.total)
        self.speed = self._wobble(0.97, self.setting.noise, self.size)
        self.down, self.hang = np.zeros(shape, bool), np.zeros(shape, bool)
        self.seats = np.full(shape, SEATS, np.int16)
        self.demand, self.heavy = np.ones(self.total), np.zeros(self.total, bool)
        for server in range(self.size):
            for at in self.rng.integers(self.total, size=self.total // 1800):
                self.speed[server, at : at + int(self.rng.integers(3, 9))] = 0
        hours = np.arange(self.total) / 3600
        self.context = 1 + 0.5 * (1 - np.cos(2 * np.pi * hours / 7)) if self.setting.drift else np.ones(self.total)
        self.speed /= 1 + self.setting.drift * (self.context - 1)
        self.drafts = 2.5 * self._wobble(0.996, self.setting.wander, self.size, shared=0.7)
        self.speed *= self.drafts / 2.5
        for event in self.events:
            self._break(event)

    def _wobble(self, memory: float, scatter: float, rows: int, shared: float = 0.0) -> np.ndarray:
        push = scatter * np.sqrt(1 - memory**2)
        state, all_rows = np.zeros(rows), np.ones((rows, self.total), np.float32)
        if not scatter:
            return all_rows
        for at in range(self.total):
            fresh = self.rng.standard_normal(rows)
            if shared:
                fresh = np.sqrt(1 - shared) * fresh + np.sqrt(shared) * self.rng.standard_normal()
            state = memory * state + push * fresh
            all_rows[:, at] += state
        return np.maximum(all_rows, 0.1)

    def _break(self, event: Event) -> None:
        span, victim = slice(event.start, event.end), int(event.server[1:])
        match event.kind:
            case "straggler":
                self.speed[victim, span] *= 1 - event.loss
            case "all_slow":
                self.speed[:, span] *= 1 - event.loss
            case "dead":
                self.down[victim, span] = True
            case "hang":
                self.hang[victim, span] = True
            case "cap_cut":
                self.seats[victim, span] = int(SEATS * (1 - event.loss) * (1 if self.setting.is_batch else 0.6))
            case "lull":
                self.demand[span] = 0 if self.setting.is_batch else 0.05
            case _:
                self.heavy[span] = True

    def run(self) -> Iterator[tuple[int, Reading]]:
        offset = 0.0
        jumps = set(self.rng.integers(self.total // 5, size=int(self.setting.jumps * self.setting.days)).tolist())
        was_down = np.zeros(self.size, bool)
        for at in range(self.total):
            down = self.down[:, at]
            for server in np.flatnonzero(down & ~was_down):
                self._die(int(server))
            was_down = down
            self._arrive(at, down)
            self._admit(at, down)
            self._work(at)
            if at // 5 in jumps and at % 5 == 0:
                offset += float(self.rng.choice([-3600, -40, -3, 2, 7, 45, 3600]))
            if at % self.setting.every == self.setting.every - 1:
                yield at + 1, self._read(at, offset)
        for number, event in enumerate(self.events):
            event.is_scored = event.kind != "cap_cut" or self.queued_for[number] > (event.end - event.start) / 2

    def _die(self, server: int) -> None:
        """Its requests are asked again elsewhere, without their prompts; its counters are lost."""
        self.homeless.extend((0.0, left) for left in self.left[server][self.active[server]])
        self.homeless.extend(self.queues[server])
        self.queues[server].clear()
        self.active[server] = False
        self.debt[server] = self.tokens[server] = self.prompts[server] = 0

    def _arrive(self, at: int, down: np.ndarray) -> None:
        load = self.active.sum(1) + np.array([len(queue) for queue in self.queues]) + 1e6 * down
        fresh = [*self.homeless, *self._fresh(at, int(load[~down].sum()))]
        self.homeless.clear()
        if down.all():
            self.homeless.extend(fresh[:5000])
            return
        for request in fresh:
            server = int(np.argmin(load))
            load[server] += 1
            self.queues[server].append(request)

    def _fresh(self, at: int, open_now: int) -> list[tuple[float, float]]:
        if self.setting.is_batch:
            wanted = int(self.size * (SEATS + 20) * (self.demand[at] > 0)) - open_now
            count, long, wide = min(max(wanted, 0), 8 * self.size), (1100.0, 620.0), (3.0, 0.35)
        else:
            count, long, wide = self.rng.poisson(self._load(at)), (1100.0, 210.0), (2.7, 1.0)
        if not count:
            return []
        prompts = self.rng.lognormal(np.log(long[0]) - 0.4, 0.9, count) * self.context[at]
        answers = np.maximum(self.rng.lognormal(np.log(long[1]) - 0.32, 0.8, count), 2)
        if self.heavy[at]:
            prompts, answers = prompts * wide[0], answers * wide[1]
        return list(zip(prompts.tolist(), answers.tolist(), strict=True))

    def _load(self, at: int) -> float:
        """Requests in this second: a day's shape, and five-minute tides."""
        if at % 300 == 0 or not hasattr(self, "tide"):
            self.tide = float(self.rng.gamma(16, 1 / 16))
        shape = 0.46 + 0.22 * np.sin(2 * np.pi * (at / 86_400 - 0.3))
        most = self.size * float(self.setting.curve(np.array(float(SEATS))))
        return shape * self.tide * most / 210 * self.demand[at] / (1 + 0.6 * self.setting.drift)

    def _admit(self, at: int, down: np.ndarray) -> None:
        for server, queue in enumerate(self.queues):
            if not queue or down[server]:
                continue
            free = int(self.seats[server, at]) - int(self.active[server].sum())
            while queue and free > 0:
                prompt, answer = queue.popleft()
                place = int(np.argmin(self.active[server]))
                self.active[server, place] = True
                self.left[server, place] = self.answer[server, place] = answer
                self.debt[server] += prompt
                free -= 1

    def _work(self, at: int) -> None:
        running = self.active.sum(1)
        pace = self.speed[:, at] * ~self.hang[:, at] * ~self.down[:, at]
        share = np.minimum(self.debt / PREFILL, 0.85) * (pace > 0)
        read = np.minimum(share * PREFILL * np.minimum(pace, 1.2), self.debt)
        self.debt -= read
        each = self.setting.curve(np.maximum(running, 1).astype(float)) / np.maximum(running, 1) * pace * (1 - share)
        made = np.minimum(self.left, each[:, None]) * self.active
        self.left -= made
        ended = self.active & (self.left <= 1e-9)
        self.tokens += (self.answer * ended).sum(1) if self.setting.lumps else made.sum(1)
        self.prompts += read
        self.active &= ~ended
        for number, event in enumerate(self.events):
            if event.kind == "cap_cut" and event.start <= at < event.end and self.queues[int(event.server[1:])]:
                self.queued_for[number] += 1

    def _read(self, at: int, offset: float) -> Reading:
        seen = ~self.down[:, at] & (self.rng.random(self.size) >= self.setting.lost)
        samples = {f"s{server}": self._sample(int(server), at) for server in np.flatnonzero(seen)}
        expected = frozenset(f"s{server}" for server in range(self.size))
        return Reading(EPOCH + timedelta(seconds=at + 1 + offset), samples, expected)

    def _sample(self, server: int, at: int) -> Sample:
        return Sample(
            round(float(self.tokens[server])),
            round(float(self.prompts[server])),
            int(self.active[server].sum()),
            len(self.queues[server]),
            SEATS,
            accept_length=float(self.drafts[server, at]) if self.setting.tells_drafts else None,
        )
