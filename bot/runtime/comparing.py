"""Minutes after its end, measures what an operation has brought, says it, and keeps how fast the servers decode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from bot.domain.errors import FleetError, StoreError
from bot.domain.facts import ServerFacts
from bot.domain.guard import rate
from bot.domain.message import says
from bot.domain.operation import Operation, State
from bot.domain.plan import CompareThroughput
from bot.runtime.ledger import Ledger, Live
from bot.runtime.steps import Steps
from bot.runtime.telling import Narrator
from bot.text import comparing
from bot.text.operations import comparison

_log = structlog.get_logger(__name__)

MEASURE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Comparer:
    """Looks again when the minutes of a comparison are over."""

    steps: Steps
    narrator: Narrator
    ledger: Ledger

    async def compare(self, live: Live) -> None:
        """After its minutes, say what the change has brought; a bot that was away meanwhile says it late."""
        op, step = live.op, comparison(live.op.plan)
        if step is None or op.state is not State.DONE or not op.survivors or op.is_compared:
            return
        await self.steps.clock.sleep((op.ended_at or self.steps.clock.now()) + step.after - self.steps.clock.now())
        names = op.survivors if isinstance(step, CompareThroughput) else (step.server, *step.peers)
        servers = [server for server in self.steps.fleet().servers if server.name in names]
        try:
            total, facts = await self.steps.rates(servers, MEASURE)
        except FleetError as error:
            await self.narrator.thread(live, says(f"Nothing can be compared: {error}"))
        else:
            self._keep_speeds(op, facts)
            if isinstance(step, CompareThroughput):
                await self.narrator.thread(live, comparing.throughput(op, facts, total))
            else:
                await self.narrator.thread(live, comparing.beside_its_peers(op, step, facts))
        self.ledger.note(live, replace(live.op, is_compared=True))

    def _keep_speeds(self, op: Operation, facts: Mapping[str, ServerFacts]) -> None:
        """Note beside the starts how fast they decode; what ran before is noted beside its own start."""
        known = [(one.server, one.profile, one.tokens_per_second, one.running) for one in op.plan.before]
        known += [(name, seen.profile, rate(seen), seen.load.running) for name, seen in facts.items()]
        try:
            for server, profile, speed, running in known:
                if profile is not None and speed and running:
                    self.steps.starts.measured(server, profile, speed, speed / running)
        except StoreError as error:
            _log.warning("speed_not_kept", error=str(error))
