"""Eyes for the watch of a big fleet: a Prometheus is read for all servers, and only those in doubt are looked at.

Chosen over reading Prometheus alone: a target that it can't scrape may be starting, dead, or merely cut off from it,
and only an own look tells these apart. What no metric tells (profile, seats, clocks) is looked at every few minutes.
Where no Prometheus is configured these are just the eyes behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.domain.engine import Engine
from bot.domain.errors import FleetError
from bot.domain.facts import Answer, Outcome, Running, ServerFacts, Sight
from bot.domain.fleet import Fleet, Job, Server
from bot.domain.monitors import PrometheusSource
from bot.domain.needs import Needs
from bot.domain.phrases import listing
from bot.ports import Clock, Eyes, Metrics, Scraped

OWN_LOOK = timedelta(minutes=5)
_PAGE = "/metrics"
_MOST_NAMED = 4
_KNOWS_ENOUGH = Needs(load=True, log=True, gpu=True)


@dataclass(frozen=True, slots=True)
class _Known:
    """What an own look has shown and no metric tells."""

    profile: str | None
    max_running: int | None


class Farsight:
    """Implements `Eyes`; gives one sight a look, the complete one."""

    def __init__(self, eyes: Eyes, fleet: Callable[[], Fleet], engines: Mapping[str, Engine], clock: Clock) -> None:
        self._eyes = eyes
        self._fleet = fleet
        self._engines = engines
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._looked_at: datetime | None = None
        self.metrics: Metrics | None = None
        self.hindrance: str | None = None
        """Why some or all servers had to be looked at although Prometheus was to tell of them; None: all is well."""

    @property
    def pace(self) -> timedelta:
        """How far apart readings can be told from each other; nothing: as often as one likes."""
        source = self._fleet().prometheus
        return source.scrape_interval if source is not None and self.metrics is not None else timedelta()

    async def look(
        self, servers: Sequence[Server], *, jobs: Sequence[Job] = (), needs: Needs | None = None
    ) -> AsyncIterator[Sight]:
        source = self._fleet().prometheus
        if source is None or self.metrics is None:
            self.hindrance = None
            async for sight in self._eyes.look(servers, jobs=jobs, needs=needs):
                yield sight
            return
        try:
            told = await self._told(source, servers, self.metrics)
        except FleetError as error:
            yield await self._without(source, str(error), servers, jobs, needs)
            return
        missing = [one.name for one in servers if one.name not in told]
        self.hindrance = _unknown(missing)
        yield await self._mixed(servers, told, jobs, needs or Needs())

    async def _told(self, source: PrometheusSource, servers: Sequence[Server], metrics: Metrics) -> dict[str, Scraped]:
        """What Prometheus has of these servers, by name."""
        wanted = {one.name for one in servers}
        named = {value: name for value, name in self._fleet().labelled(source.labelling).items() if name in wanted}
        engines = {one.engine for one in servers} & set(self._engines)
        names = frozenset(name for engine in engines for name in self._engines[engine].metric_names)
        scraped = await metrics.scraped(source, tuple(named), names) if named else {}
        return {named[value]: one for value, one in scraped.items() if value in named}

    async def _without(
        self, source: PrometheusSource, why: str, servers: Sequence[Server], jobs: Sequence[Job], needs: Needs | None
    ) -> Sight:
        """While Prometheus is away: look at all, or say of all that they can't be seen."""
        if source.falls_back:
            self.hindrance = f"{why}: all servers are looked at directly"
            return await self._own(servers, jobs, needs)
        self.hindrance = None  # the blindness says it
        sight = await self._own((), jobs, needs)
        now = self._clock.now()
        return replace(sight, servers={one.name: ServerFacts(one.name, now, unreachable=why) for one in servers})

    async def _mixed(
        self, servers: Sequence[Server], told: Mapping[str, Scraped], jobs: Sequence[Job], needs: Needs
    ) -> Sight:
        seen = {one.name: facts for one in servers if (facts := self._facts(one, told.get(one.name))) is not None}
        now = self._clock.now()
        is_due = needs.gpu and (self._looked_at is None or now - self._looked_at >= OWN_LOOK)
        doubtful = [one for one in servers if is_due or one.name not in seen]
        sight = await self._own(doubtful, jobs, needs | _KNOWS_ENOUGH if is_due else needs)
        if is_due:
            self._looked_at = now
        for name, facts in sight.servers.items():
            self._learn(facts)
            seen[name] = self._merged(facts, seen.get(name))
        return replace(sight, servers={one.name: seen[one.name] for one in servers if one.name in seen})

    def _facts(self, server: Server, scraped: Scraped | None) -> ServerFacts | None:
        """What a scrape says of a server; None where it says nothing, or nothing good."""
        engine = self._engines.get(server.engine)
        if scraped is None or not scraped.is_up or engine is None:
            return None
        answer = Answer(Outcome.ANSWERED, scraped.at, 200, scraped.page)
        load = engine.load({_PAGE: answer})
        if load.running is None:
            return None
        known = self._known.get(server.name, _Known(None, None))
        return ServerFacts(
            server.name,
            self._clock.now(),
            instant=replace(answer, body=b""),
            load=load,
            running=Running(max_running=known.max_running),
            profile=known.profile,
            sees_processes=False,
            read_at=scraped.at,
        )

    def _learn(self, facts: ServerFacts) -> None:
        if facts.process is not None:
            seats = facts.load.max_running or facts.running.max_running
            before = self._known.get(facts.server)
            is_same = before is not None and before.profile == facts.profile
            self._known[facts.server] = _Known(
                facts.profile, seats or (before.max_running if is_same and before else None)
            )

    def _merged(self, own: ServerFacts, scraped: ServerFacts | None) -> ServerFacts:
        """An own look counts more, but numbers come from one source as long as that has them."""
        known = self._known.get(own.server)
        if own.is_pending or own.unreachable is not None:
            return scraped or own
        if scraped is None or (own.sees_processes and own.process is None):
            return own
        running = replace(own.running, max_running=known.max_running if known is not None else None)
        return replace(own, load=scraped.load, running=running, read_at=scraped.read_at)

    async def _own(self, servers: Sequence[Server], jobs: Sequence[Job], needs: Needs | None) -> Sight:
        sight = Sight(self._clock.now())
        if not servers and not jobs:
            return sight
        async for sight in self._eyes.look(servers, jobs=jobs, needs=needs):  # noqa: B007 - the last one
            pass
        return sight


def _unknown(missing: Sequence[str]) -> str | None:
    if not missing:
        return None
    some = list(missing[:_MOST_NAMED])
    some += [f"{len(missing) - _MOST_NAMED} more"] if len(missing) > _MOST_NAMED else []
    return f"Prometheus has nothing fresh of {listing(some)}: looked at directly"
