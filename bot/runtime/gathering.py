"""Gathers the world for a decision: what the command needs of servers and jobs, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.domain.command import Command, Decision
from bot.domain.engine import Engine
from bot.domain.errors import FleetError
from bot.domain.facts import Sight
from bot.domain.fleet import Fleet, Server
from bot.domain.holds import guarded
from bot.domain.leases import Hold
from bot.domain.moments import USUAL_PAST, moment
from bot.domain.needs import Needs
from bot.domain.people import role_of
from bot.domain.saying import Words
from bot.domain.tally import Tally, tally
from bot.domain.watching.alerts import Book
from bot.domain.wishes import Wish
from bot.domain.world import Installed, Past, World
from bot.ports import Audit, Changes, Clock, Eyes, Hands, Place, Questions, Samples, Starts
from bot.runtime.executor import Executor

HISTORY = 500
ENTRIES = 1_000
"""So many of the newest entries of the audit a command that tells of the past gets to know."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who says what where."""

    words: Words
    command: Command
    place: Place
    user: str

    def decide(self, world: World, *, covered: Collection[str] = ()) -> Decision:
        """What is to be done in that world, as people's holds leave it; ``covered`` are holders who have agreed."""
        return guarded(self.command.decide(self.words, world, world.now), self.command, world, covered)


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Makes worlds out of looks."""

    fleet: Callable[[], Fleet]
    commands: Sequence[Command]
    engines: Mapping[str, Engine]
    eyes: Eyes
    hands: Hands
    executor: Executor
    questions: Questions
    starts: Starts
    clock: Clock
    audit: Audit
    changes: Changes
    book: Callable[[], Book] = Book
    samples: Samples | None = None
    wishes: Callable[[str], tuple[Wish, ...]] = lambda _user: ()
    holds: Callable[[], tuple[Hold, ...]] = tuple

    async def worlds(self, asking: Asking) -> AsyncIterator[World]:
        """The world as it gets known, the last one complete; a command that needs nothing gets one at once."""
        fleet = self.fleet()
        base = self._base(asking, fleet)
        servers = self._servers(asking, base)
        jobs = fleet.jobs if asking.command.needs_job else ()
        if asking.command.needs is None and not jobs:
            yield base
            return
        is_asked = asking.command.asks_installed and bool(base.targets)
        answers = asyncio.ensure_future(self._installed(base.targets if is_asked else ()))
        try:
            async for sight in self.eyes.look(servers, jobs=jobs, needs=asking.command.needs or Needs()):
                base = replace(base, sight=sight, now=self.clock.now())
                yield base
            if is_asked:
                yield replace(base, installed=await answers, now=self.clock.now())
        finally:
            answers.cancel()

    async def whole(self, asking: Asking) -> World:
        """The world when the look is complete, with the operations and holds of that moment."""
        world = self._base(asking, self.fleet())
        async for world in self.worlds(asking):  # noqa: B007 - the last one counts
            pass
        return replace(world, operations=self.executor.live(), holds=self.holds())

    def _servers(self, asking: Asking, base: World) -> tuple[Server, ...]:
        """Whom to look at: a command that changes something decides with the whole fleet in view."""
        if asking.command.needs is None:
            return ()
        return base.fleet.servers if asking.command.changes or not base.targets else base.targets

    def _base(self, asking: Asking, fleet: Fleet) -> World:
        now = self.clock.now()
        place = asking.place
        past = self._past(asking, now) if asking.command.needs_history else Past()
        return World(
            fleet=fleet,
            now=now,
            asker=asking.user,
            role=role_of(fleet, asking.user, place.channel),
            channel=place.channel,
            thread=place.thread,
            sight=Sight(now),
            targets=tuple(server for server in fleet.servers if server.name in asking.words.targets),
            operations=self.executor.live(),
            questions=tuple(one for one in self.questions.open() if one.where.channel == place.channel),
            commands=tuple(self.commands),
            engines=self.engines,
            starts=self.starts.recent(HISTORY),
            past=past,
            book=self.book(),
            holds=self.holds(),
            tally=self._tally(asking, now) if asking.command.needs_samples else None,
            wishes=self.wishes(asking.user),
        )

    def _past(self, asking: Asking, now: datetime) -> Past:
        since = moment(asking.words.when, now) or now - USUAL_PAST
        changes, marks = self.changes.since(since)
        return Past(self.audit.recent(ENTRIES), changes, marks)

    def _tally(self, asking: Asking, now: datetime) -> Tally | None:
        if self.samples is None:
            return None
        since = moment(asking.words.when, now) or now - USUAL_PAST
        servers = asking.words.targets or tuple(server.name for server in self.fleet().servers)
        courses = self.samples.since(since, servers)
        return tally(courses, (*self.samples.alerts(since), *self.book().alerts), since, now)

    async def _installed(self, servers: Sequence[Server]) -> Mapping[str, Installed | str]:
        answers = await asyncio.gather(*(self._one_installed(server) for server in servers))
        return dict(zip((server.name for server in servers), answers, strict=True))

    async def _one_installed(self, server: Server) -> Installed | str:
        try:
            version, flags = await self.hands.flags_known(server)
        except FleetError as error:
            return str(error)
        return Installed(version, flags)
