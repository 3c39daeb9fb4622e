"""Eyes that remember: what a whole look shows is compared with what was last kept, and what is new is written down.

It stands before the prober, so that every look counts, whoever asked for it. It costs a comparison in memory; when
the store can't be written it is logged, and the look goes on as if nothing were.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import structlog

from bot.domain.changes import JobMark, ReadinessChange, changed, is_due
from bot.domain.errors import StoreError
from bot.domain.facts import Sight
from bot.domain.fleet import Job, Server
from bot.domain.needs import Needs
from bot.domain.readiness import judge
from bot.ports import Changes, Clock, Eyes

_log = structlog.get_logger(__name__)


class Witness:
    """Looks through other eyes and keeps what has changed."""

    def __init__(self, eyes: Eyes, changes: Changes, clock: Clock) -> None:
        self._eyes = eyes
        self._store = changes
        self._clock = clock
        self._servers: dict[str, ReadinessChange] | None = None
        self._jobs: dict[str, JobMark] = {}

    async def look(
        self, servers: Sequence[Server], *, jobs: Sequence[Job] = (), needs: Needs | None = None
    ) -> AsyncIterator[Sight]:
        async for sight in self._eyes.look(servers, jobs=jobs, needs=needs):
            if sight.is_complete:
                self.saw(sight, needs or Needs())
            yield sight

    def saw(self, sight: Sight, needs: Needs) -> None:
        """Keep what is new in a whole look."""
        try:
            known = self._known()
            changes = self._changes(known, sight, needs)
            marks = [
                JobMark(name, facts.at, facts.state, facts.done, facts.total)
                for name, facts in sight.jobs.items()
                if is_due(self._jobs.get(name), facts)
            ]
            if not changes and not marks:
                return
            self._store.add(changes, marks)
        except StoreError as error:
            _log.warning("look_not_kept", error=str(error))
            return
        known.update({one.server: one for one in changes})
        self._jobs.update({one.job: one for one in marks})

    def _changes(self, known: dict[str, ReadinessChange], sight: Sight, needs: Needs) -> list[ReadinessChange]:
        now = self._clock.now()
        found = []
        for name, facts in sight.servers.items():
            verdict = judge(facts, now)
            if changed(known.get(name), verdict, facts, needs):
                found.append(ReadinessChange(name, facts.at, verdict.readiness, verdict.reason))
        return found

    def _known(self) -> dict[str, ReadinessChange]:
        """What was last kept, read once."""
        if self._servers is None:
            changes, marks = self._store.last()
            self._servers = {one.server: one for one in changes}
            self._jobs = {one.job: one for one in marks}
        return self._servers
