"""Follows starts, phase by phase, until each server is ready or gone, and keeps how long each took."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from bot.domain.diagnosis import said_cause
from bot.domain.errors import StepFailed, StoreError
from bot.domain.facts import ServerFacts
from bot.domain.fleet import Server
from bot.domain.kernel_caches import NOT_SEEN, CacheSeen, CacheState, KernelCache, state_of
from bot.domain.needs import Needs
from bot.domain.operation import Operation
from bot.domain.phrases import span
from bot.domain.plan import (
    StartOrder,
)
from bot.domain.readiness import Readiness, judge
from bot.domain.records import StartRecord
from bot.runtime.acting import AWAY_LIMIT, DYING, Teller

if TYPE_CHECKING:
    from bot.runtime.steps import Steps

_log = structlog.get_logger(__name__)

FOLLOW = timedelta(seconds=2)
RECENT = 200
SPAWN_GRACE = timedelta(seconds=6)
"""A process that was just started may not be seen yet; a second look is cheaper than a false alarm."""


class Following:
    """Follows starts until each is ready or gone; the failed ones do not stop the others."""

    def __init__(
        self,
        steps: Steps,
        op: Operation,
        orders: list[StartOrder],
        teller: Teller,
        caches: Mapping[str, Mapping[KernelCache, CacheSeen] | None],
    ) -> None:
        self.steps = steps
        self.teller = teller
        self.caches = caches
        self.found: dict[str, tuple[str | None, CacheState]] = {}
        self.orders = {one.server: one for one in orders}
        self.begun = steps.clock.now()
        self.started_at = op.started_at
        self.waiting = list(self.orders)
        self.ready: set[str] = set()
        self.suspected: dict[str, datetime] = {}
        self.doubted: set[str] = set()
        self.missing: dict[str, int] = {}
        self.away: dict[str, datetime] = {}
        self.phases: dict[str, dict[str, timedelta]] = {name: {} for name in self.orders}
        self.last: dict[str, tuple[str, datetime]] = {}

    async def run(self) -> None:
        """Look every two seconds; StepFailed when not one got ready."""
        for name in self.caches:
            self._weigh_caches(name, None)
        while self.waiting:
            await self.steps.clock.sleep(FOLLOW)
            fleet = self.steps.fleet()
            everyone = [fleet.server(name) for name in self.orders]
            # Who seems to be gone is looked at once more: with what the kernel says of its GPUs.
            needs = Needs(log=True, load=True, tail=20, gpu=bool(self.missing))
            sight = await self.steps.look(everyone, needs)
            self.teller.saw(sight.servers)
            for name in list(self.waiting):
                if self._is_over(fleet.server(name), sight.servers[name]):
                    self.waiting.remove(name)
            number = len(self.orders)
            self.teller.note(f"starting {number}" if self.waiting else f"{len(self.ready)}/{number} started")
        if not self.ready:
            raise StepFailed("no server came up")

    def _is_over(self, server: Server, facts: ServerFacts) -> bool:
        now = self.steps.clock.now()
        verdict = judge(facts, now)
        self._follow_phase(server.name, facts, now)
        if verdict.readiness is Readiness.READY:
            if server.name in self.doubted:
                self.teller.said(f"{server.name}: ready after all")
            self.ready.add(server.name)
            self._record(server.name, facts, now, is_ready=True)
            return True
        if verdict.readiness in (Readiness.UNREACHABLE, Readiness.UNKNOWN):
            since = self.away.setdefault(server.name, now)
            if now - since > AWAY_LIMIT:
                self.teller.lost(server.name, f"{verdict.reason}; not known how its start went")
                return True
            return False
        self.away.pop(server.name, None)
        if facts.process is None:
            return self._is_gone(server.name, facts, verdict.reason, now)
        self.missing.pop(server.name, None)
        self._doubt(server.name, facts, now)
        if now - self.begun > server.start_limit:
            self.teller.lost(server.name, f"not ready after {span(server.start_limit)}: {verdict.reason}; left running")
            return True
        return False

    def _doubt(self, name: str, facts: ServerFacts, now: datetime) -> None:
        """What looks like a crash while the process lives on is told once, and the process is not given up."""
        diagnosis = facts.diagnosis
        if diagnosis is None or not diagnosis.is_crashed or name in self.doubted:
            return
        if now - self.suspected.setdefault(name, now) < DYING:
            return
        self.doubted.add(name)
        line = f": {diagnosis.decisive_line.strip()[:300]}" if diagnosis.decisive_line else ""
        self.teller.said(f"{name}: {said_cause(diagnosis.cause)} in the log, but its process lives{line}")

    def _is_gone(self, name: str, facts: ServerFacts, reason: str, now: datetime) -> bool:
        """No process: a crash, once it was looked at twice and had its time to appear."""
        self.missing[name] = self.missing.get(name, 0) + 1
        is_told = facts.exit_status is not None or (facts.diagnosis is not None and facts.diagnosis.is_crashed)
        if self.missing[name] < 2 or (not is_told and now - self.begun < SPAWN_GRACE):
            return False
        why = reason if reason != "no process" else "the process is gone without a word"
        self._record(name, facts, now, is_ready=False)
        self.teller.crashed(name, why, facts)
        self.teller.lost(name, why)
        return True

    def _follow_phase(self, name: str, facts: ServerFacts, now: datetime) -> None:
        phase = facts.diagnosis.phase.value if facts.diagnosis is not None and facts.diagnosis.phase else "spawned"
        last = self.last.get(name)
        if last is None or last[0] != phase:
            if last is not None:
                spent = self.phases[name].get(last[0], timedelta())
                self.phases[name][last[0]] = spent + (now - last[1])
            self.last[name] = (phase, now)
        self.teller.phase_seen(name, facts)
        if facts.diagnosis is not None and facts.diagnosis.version is not None:
            self._weigh_caches(name, facts.diagnosis.version)

    def _weigh_caches(self, name: str, version: str | None) -> None:
        """Say what the caches were worth to this start, by what is known of its version now."""
        known = self.found.get(name)
        if name not in self.caches or (known is not None and known[0] == version):
            return
        server = self.steps.fleet().server(name)
        used = self.steps.engines[server.engine].caches_used(version, self.orders[name].flags)
        try:
            starts = self.steps.starts.recent(RECENT)
        except StoreError as error:  # then only what lies there counts
            _log.warning("starts_not_read", error=str(error))
            starts = ()
        state = state_of(self.caches[name], used, starts, name, version)
        self.found[name] = (version, state)
        self.teller.found_caches(name, state)

    def _record(self, name: str, facts: ServerFacts, now: datetime, *, is_ready: bool) -> None:
        diagnosis = facts.diagnosis
        record = StartRecord(
            name,
            self.orders[name].called,
            self.begun,
            now - self.begun,
            is_ready,
            dict(self.phases[name]),
            facts.load.max_running,
            facts.load.max_total_tokens,
            None if is_ready or diagnosis is None else diagnosis.cause,
            diagnosis.version if diagnosis is not None else None,
            caches=self.found.get(name, (None, NOT_SEEN))[1].warmth,
        )
        try:
            self.steps.starts.add(record)
        except StoreError as error:  # a start that can't be remembered is still a start
            _log.warning("start_not_kept", server=name, error=str(error))
