"""A fleet as a watcher reads it: servers with a speed curve of their own, seen each few seconds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.domain.watching.alerts import Change
from bot.domain.watching.limits import Limits
from bot.domain.watching.samples import JobSample, Reading, Sample
from bot.domain.watching.watch import Watch

START = datetime(2026, 3, 1, 22, 0, tzinfo=UTC)


def rate(running: float) -> float:
    """Tokens a second with so many requests running."""
    return 60 * running / (1 + 0.0643 * max(running - 1, 0))


@dataclass
class Server:
    """What one server does now."""

    running: int = 32
    queued: int = 0
    speed: float = 1.0
    prompts: float = 1000.0
    is_lost: bool = False
    tokens: float = 0.0
    prompt_tokens: float = 0.0
    extras: dict[str, Any] = field(default_factory=dict)


class Fleet:
    """Servers gpu0, gpu1, … and the clock they are read by."""

    def __init__(self, size: int = 8, *, step: float = 5.0, seats: int = 37) -> None:
        self.servers = {f"gpu{number}": Server() for number in range(size)}
        self.at = START
        self.step = step
        self.seats = seats
        self.planned: frozenset[str] = frozenset()
        self.planned_jobs: frozenset[str] = frozenset()
        self.jobs: dict[str, JobSample] = {}
        self.dice = random.Random(7)  # noqa: S311 - noise, no secret

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def every(self, **now: Any) -> None:
        """Make all servers alike in something."""
        for server in self.servers.values():
            for name, value in now.items():
                setattr(server, name, value)

    def read(self) -> Reading:
        """One step later."""
        self.at += timedelta(seconds=self.step)
        all_of_them = {name: self._sample(server) for name, server in self.servers.items()}  # unread, it works on
        samples = {name: one for name, one in all_of_them.items() if not self.servers[name].is_lost}
        return Reading(self.at, samples, frozenset(self.servers), self.planned, dict(self.jobs), self.planned_jobs)

    def _sample(self, server: Server) -> Sample:
        swing = 1 + self.dice.gauss(0, 0.04)
        server.tokens += self.step * rate(server.running) * server.speed * swing
        server.prompt_tokens += self.step * server.prompts * (server.running > 0)
        known = Sample(round(server.tokens), round(server.prompt_tokens), server.running, server.queued, self.seats)
        return replace(known, **server.extras)

    def restart(self, name: str) -> None:
        """Another process, whose counters begin at 0."""
        self[name].tokens = self[name].prompt_tokens = 0.0

    def go(self, watch: Watch, **span: float) -> list[Change]:
        """Let time pass; what the watcher tells in it."""
        changes: list[Change] = []
        for _ in range(round(timedelta(**span).total_seconds() / self.step)):
            changes += watch.take(self.read())
        return changes


def trained(fleet: Fleet, **limits: Any) -> Watch:
    """A watcher that has seen the fleet at work for twenty-five minutes, at changing loads, and has told nothing."""
    watch = Watch(Limits(**limits))
    usual = {name: server.running for name, server in fleet.servers.items()}
    told: list[Change] = []
    for extra in (0, -8, 4, 0, 0):
        for name, server in fleet.servers.items():
            server.running = max(1, usual[name] + extra)
        told += fleet.go(watch, minutes=5)
    assert told == []
    return watch


def said(changes: list[Change]) -> list[tuple[str, str, tuple[str, ...]]]:
    """What was told, in short."""
    return [(change.did.value, change.alert.cause.value, change.servers) for change in changes]
