"""Ends processes: asked first, forced after their grace time, each only when a look shows it alive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from bot.domain.errors import FleetError, StepFailed
from bot.domain.facts import ServerFacts
from bot.domain.fleet import Server
from bot.domain.needs import Needs
from bot.domain.phrases import listing, span
from bot.domain.plan import (
    Victim,
)
from bot.runtime.acting import AWAY_LIMIT, KILL_LIMIT, Teller, is_away

if TYPE_CHECKING:
    from bot.runtime.steps import Steps

_log = structlog.get_logger(__name__)

POLL = timedelta(seconds=1)


class Ending:
    """Ends processes: SIGTERM, a grace time, SIGKILL to the tree, each only after a look that shows it alive."""

    def __init__(self, steps: Steps, victims: list[Victim], asked: dict[str, datetime], teller: Teller) -> None:
        self.steps = steps
        self.victims = victims
        self.teller = teller
        self.total = len(victims)
        self.asked = asked
        self.forced: dict[str, datetime] = {}
        self.away_since: datetime | None = None

    async def run(self) -> None:
        """Until none of them lives; StepFailed when their host stays away."""
        while True:
            fleet = self.steps.fleet()
            sight = await self.steps.look([fleet.server(one.server) for one in self.victims], Needs(log=True))
            self.teller.saw(sight.servers)
            left = [one for one in self.victims if _still_there(one, sight.servers.get(one.server))]
            self.teller.note(f"{self.total - len(left)}/{self.total} stopped")
            if not left:
                return
            away = [one for one in left if is_away(sight.servers.get(one.server))]
            self._mind_the_away(away)
            for victim in left:
                if victim not in away:
                    await self._one(fleet.server(victim.server), sight.servers[victim.server])
            await self.steps.clock.sleep(POLL)

    def _mind_the_away(self, away: Sequence[Victim]) -> None:
        now = self.steps.clock.now()
        self.away_since = (self.away_since or now) if away else None
        if self.away_since is not None and now - self.away_since > AWAY_LIMIT:
            who = listing(one.server for one in away)
            raise StepFailed(f"{who} could not be reached for {span(AWAY_LIMIT)}; not known what runs there")

    async def _one(self, server: Server, facts: ServerFacts) -> None:
        process, now, name = facts.process, self.steps.clock.now(), server.name
        if process is None:
            return
        try:
            if name not in self.asked:
                await self.steps.hands.end(server, process, force=False)
                self.asked[name] = now
                self.teller.asked(name, now)
            elif name not in self.forced and now - self.asked[name] > server.grace:
                tree = f"SIGKILL to pid {process.pid} and its tree"
                self.teller.said(f"{name} did not end within {span(server.grace)}: {tree}")
                await self.steps.hands.end(server, process, force=True)
                self.forced[name] = now
            elif name in self.forced and now - self.forced[name] > KILL_LIMIT:
                self.teller.lost(name, f"pid {process.pid} survives SIGKILL (stuck in the driver?)")
                self.victims = [one for one in self.victims if one.server != name]
        except FleetError as error:
            _log.warning("end_failed", server=name, error=str(error))
            self.teller.note(f"{name}: {error}; trying again")


def _still_there(victim: Victim, facts: ServerFacts | None) -> bool:
    """Whether that very process lives; what we can't see counts as living."""
    if facts is None or is_away(facts):
        return True
    return facts.process is not None and facts.process.identity == (victim.pid, victim.started)
