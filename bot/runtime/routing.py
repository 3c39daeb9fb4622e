"""How servers are taken out of their routers and put back: by looking at the routers' own lists, again and again.

A router answers that it has queued something and does it a moment later, its ids change with every registration, and
it may be restarted in between. So nothing is believed but its list, where a server is known by its URL. What a worker
was registered with is written down before it is removed: whoever comes back after a kill -9 can put it back as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from bot.domain.behind import named
from bot.domain.errors import FleetError, StepFailed, StoreError
from bot.domain.facts import Process, ServerFacts
from bot.domain.fleet import Membership, Server
from bot.domain.needs import Needs
from bot.domain.operation import Operation
from bot.domain.phrases import count, listing, span
from bot.domain.plan import TakeOut
from bot.domain.readiness import Readiness, judge
from bot.domain.routing import Routed, Standing, Taken, Worker, base, of_server, standing
from bot.runtime.probing.recognition import token_of

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from bot.runtime.acting import Teller
    from bot.runtime.steps import Steps

POLL = timedelta(seconds=1)
PATIENCE = timedelta(seconds=15)
"""So long a router may give no answer before a server is ended without having been taken out of it."""
ASK_AGAIN = timedelta(seconds=10)
"""What a router has queued and not done by then is asked for once more."""
REMOVED_BY = timedelta(seconds=15)
"""An entry that was to be removed and still stands there by then stays."""
REMOVE_LIMIT = timedelta(seconds=30)
"""So long a router may list what it was asked to remove."""
ADD_AGAIN = timedelta(seconds=30)
BACK_LIMIT = timedelta(minutes=5)
"""A router may have been restarted, and two health checks of its default are two minutes apart."""
CALM = 2
"""So many looks in a row must show no request: one that the router has just sent is not counted yet."""
_REMEMBERED = 200

Pair = tuple[str, str]


class _Pairs:
    """Servers and their routers, and what each router lists."""

    def __init__(self, steps: Steps, op: Operation, servers: Sequence[Server], teller: Teller) -> None:
        self.steps = steps
        self.teller = teller
        self.is_strict = op.plan.stops_on_failure
        self.servers = {server.name: server for server in servers}
        self.pending: dict[Pair, Membership] = {
            (server.name, member.router): member for server in servers for member in server.routers
        }
        self.taken: dict[Pair, Taken] = {one.pair: one for one in op.taken}
        self.begun = steps.clock.now()
        self.asked: dict[Pair, datetime] = {}

    @property
    def now(self) -> datetime:
        """The time."""
        return self.steps.clock.now()

    async def lists(self) -> dict[str, tuple[Worker, ...] | FleetError]:
        """What each router that is still concerned lists, or why it can't be asked."""
        names = tuple(dict.fromkeys(router for _, router in self.pending))
        return dict(zip(names, await asyncio.gather(*(self._list(name) for name in names)), strict=True))

    async def _list(self, name: str) -> tuple[Worker, ...] | FleetError:
        try:
            return await self.steps.routers.workers(self.steps.fleet().router(name))
        except KeyError:
            return StepFailed(f"router {name} is not in the fleet file any more")
        except FleetError as error:
            return error

    def is_due(self, pair: Pair, again: timedelta) -> bool:
        """Whether it is time to ask (again)."""
        last = self.asked.get(pair)
        return last is None or self.now - last >= again


class TakingOut(_Pairs):
    """Takes servers out, then waits for their requests to end."""

    def __init__(self, steps: Steps, op: Operation, step: TakeOut, servers: Sequence[Server], teller: Teller) -> None:
        super().__init__(steps, op, servers, teller)
        self.limit = step.limit
        self.where = named(step.routers)
        self.earlier = {one.pair: one for one in op.out}
        self.failing: dict[Pair, tuple[datetime, str]] = {}
        self.first: dict[Pair, datetime] = {}
        self.calm: dict[str, int] = {}
        self.left: dict[str, int | None] = {}
        self.longest = timedelta()
        self.is_skipped = False

    async def run(self) -> None:
        """Until none of them gets requests and those under way have ended; StepFailed when a rolling one can't."""
        draining = dict(self.servers)
        while True:
            await self._take_out()
            sight = await self.steps.look(list(draining.values()), Needs(load=True, log=True))
            waiting = {name for name, _ in self.pending}
            self.teller.saw({name: self._seen(name, facts, waiting) for name, facts in sight.servers.items()})
            for name in [name for name in draining if name not in waiting and self._is_over(name, sight.servers[name])]:
                del draining[name]
            self.teller.note(self._words(waiting, draining))
            if not draining:
                return
            await self.steps.clock.sleep(POLL)

    def _words(self, waiting: set[str], draining: dict[str, Server]) -> str:
        if waiting:
            return f"taking {count(len(waiting), 'server')} out of {self.where}"
        known = [left for left in self.left.values() if left is not None]
        if draining:
            return f"draining: {count(sum(known), 'request')} left" if known else "draining: requests can't be counted"
        if self.is_skipped:
            return f"{self.where} could not be asked"
        if not any(one.server in self.servers for one in self.taken.values()):
            return f"not in {self.where}"
        if sum(known):
            return f"drained, {count(sum(known), 'request')} left running after {span(self.longest)}"
        unknown = f" for {span(self.longest)}, requests could not be counted" if len(known) < len(self.left) else ""
        return f"out of {self.where}, drained{unknown}"

    async def _take_out(self) -> None:
        for router, listed in (await self.lists()).items():
            for pair in [pair for pair in self.pending if pair[1] == router]:
                try:
                    if isinstance(listed, FleetError):
                        raise listed
                    await self._one(pair, listed)
                except FleetError as error:
                    since, _ = self.failing.get(pair, (self.now, ""))
                    self.failing[pair] = since, str(error)
                else:
                    self.failing.pop(pair, None)
        self._mind_the_failing()

    async def _one(self, pair: Pair, listed: Sequence[Worker]) -> None:
        mine = of_server(listed, self.pending[pair].url)
        sending = [one for one in mine if not one.is_draining]
        if not sending:
            del self.pending[pair]
            return
        if pair not in self.taken or self.taken[pair].is_back:
            first = sending[0]
            taken = Taken(*pair, base(first.url), self.now, first.settings, tuple(one.id for one in sending))
            self.teller.takes(taken)
            self.taken[pair] = taken
        elif (earlier := self.earlier.get(pair)) and all(one.id in earlier.entries for one in sending):
            self.asked.setdefault(pair, earlier.at)  # by a bot that was killed since
        if self.is_due(pair, ASK_AGAIN):
            for one in sending:
                await self.steps.routers.remove(self.steps.fleet().router(pair[1]), one.id)
            self.asked[pair] = self.now
        if self.now - self.first.setdefault(pair, self.now) >= REMOVE_LIMIT:
            raise StepFailed(f"router {pair[1]} does not remove {pair[0]}")

    def _mind_the_failing(self) -> None:
        """What can't be done is tried again for a while; then a rolling restart ends, and others go on."""
        over: dict[str, list[Pair]] = {}
        for pair, (since, why) in self.failing.items():
            if pair in self.pending and self.now - since >= PATIENCE:
                over.setdefault(why, []).append(pair)
        for why, pairs in over.items():
            who = listing(name for name, _ in pairs)
            if self.is_strict:
                raise StepFailed(f"{why}: {who} was not taken out, and is left as it is")
            self.is_skipped = True
            self.teller.said(f"{why}: going on without it; requests on {who} may be lost")
            for pair in pairs:
                del self.pending[pair]

    def _seen(self, name: str, facts: ServerFacts, waiting: set[str]) -> ServerFacts:
        mine = [one for one in self.taken.values() if one.server == name]
        if name in waiting or not mine:
            return facts
        return replace(facts, routed=tuple(Routed(one.router, Standing.DRAINING) for one in mine))

    def _is_over(self, name: str, facts: ServerFacts) -> bool:
        """Whether its requests have ended, can't, or may not go on any longer."""
        since = max((one.at for one in self.taken.values() if one.server == name), default=None)
        is_dead = facts.process is None and facts.sees_processes and not facts.is_pending and not facts.unreachable
        if since is None or is_dead:
            return True
        left = None if facts.load.running is None else facts.load.running + (facts.load.queued or 0)
        self.left[name] = left
        if judge(facts, self.now).readiness in (Readiness.STARTING, Readiness.HUNG):
            return True
        self.calm[name] = self.calm.get(name, 0) + 1 if left == 0 else 0
        self.longest = max(self.longest, self.now - since)
        return self.calm[name] >= CALM or self.now - since >= self.limit


class PuttingBack(_Pairs):
    """Puts servers back, and waits until their routers list them as healthy."""

    def __init__(
        self, steps: Steps, op: Operation, servers: Sequence[Server], teller: Teller, *, within: timedelta = BACK_LIMIT
    ) -> None:
        super().__init__(steps, op, servers, teller)
        self.within = within
        self.where = named(tuple(dict.fromkeys(router for _, router in self.pending)))
        self.total = len(self.servers)
        self.whys: dict[Pair, str] = {}

    async def run(self) -> None:
        """Until all are back, or the limit has passed; StepFailed when a rolling restart must not go on."""
        while self.pending:
            servers = [self.servers[name] for name in dict.fromkeys(name for name, _ in self.pending)]
            sight = await self.steps.look(servers, Needs(log=True))
            self._drop_the_dead(sight.servers)
            for router, listed in (await self.lists()).items():
                for pair in [pair for pair in self.pending if pair[1] == router]:
                    await self._one(pair, listed, sight.servers[pair[0]].process)
            waiting = {name for name, _ in self.pending}
            why = next((f" ({self.whys[pair]})" for pair in self.pending if pair in self.whys), "")
            self.teller.note(f"{self.total - len(waiting)}/{self.total} back in {self.where}{why}")
            if self.pending and self.now - self.begun >= self.within:
                self._give_up()
            if self.pending:
                await self.steps.clock.sleep(POLL)

    async def _one(self, pair: Pair, listed: tuple[Worker, ...] | FleetError, process: Process | None) -> None:
        if isinstance(listed, FleetError):
            self.whys[pair] = str(listed)
            return
        mine = of_server(listed, self.pending[pair].url)
        match standing(mine):
            case Standing.HEALTHY if self._is_going(pair, mine):
                self.whys[pair] = f"router {pair[1]} was asked to remove it"
            case Standing.HEALTHY:
                del self.pending[pair]
                if pair in self.taken:
                    self.teller.takes(replace(self.taken[pair], is_back=True, why=""), is_sure=False)
            case Standing.ABSENT if self.is_due(pair, ADD_AGAIN):
                await self._add(pair, process)
            case Standing.ABSENT:
                self.whys[pair] = self.whys.get(pair) or f"router {pair[1]} does not list it"
            case Standing.UNHEALTHY:
                self.whys[pair] = f"router {pair[1]} takes it for unhealthy"
            case _:
                self.whys[pair] = f"router {pair[1]} is still draining it"

    def _is_going(self, pair: Pair, mine: Sequence[Worker]) -> bool:
        """Whether these are the entries that it was asked to remove, which it does a moment later."""
        taken = self.taken.get(pair)
        if taken is None or taken.is_back or self.now - taken.at >= REMOVED_BY:
            return False
        return any(one.id in taken.entries for one in mine)

    async def _add(self, pair: Pair, process: Process | None) -> None:
        server = self.servers[pair[0]]
        if pair not in self.taken or self.taken[pair].is_back:
            before = self.taken.get(pair) or self._remembered(pair)
            taken = Taken(*pair, self.pending[pair].url, self.now)
            taken = replace(taken, url=before.url, settings=before.settings) if before is not None else taken
            self.teller.takes(taken, is_sure=False)
            self.taken[pair] = taken
        known = self.taken[pair]
        self.asked[pair] = self.now
        self.whys.pop(pair, None)
        try:
            router = self.steps.fleet().router(pair[1])
            if not await self.steps.routers.add(router, known.url, known.settings, token_of(server, process)):
                self.teller.said(f"{server.name}: router {pair[1]} refused what it was registered with; added without")
        except FleetError as error:
            self.whys[pair] = str(error)
            del self.asked[pair]

    def _remembered(self, pair: Pair) -> Taken | None:
        """How a server stood in the router when it was last taken out, by whatever operation."""
        try:
            recent = self.steps.operations.recent(_REMEMBERED)
        except StoreError as error:
            _log.warning("operations_not_read", error=str(error))
            return None
        return next((one for op in reversed(recent) for one in op.taken if one.pair == pair), None)

    def _drop_the_dead(self, seen: Mapping[str, ServerFacts]) -> None:
        """One that died meanwhile is lost, and its router would wait for it in vain."""
        for name in dict.fromkeys(name for name, _ in self.pending):
            facts = seen[name]
            if facts.process is None and facts.sees_processes and not facts.unreachable and not facts.is_pending:
                self.teller.lost(name, f"gone again: {judge(facts, self.now).reason}")
                self.pending = {pair: one for pair, one in self.pending.items() if pair[0] != name}

    def _give_up(self) -> None:
        told: dict[str, list[str]] = {}
        for pair in self.pending:
            why = self.whys.get(pair) or f"router {pair[1]} does not list it"
            told.setdefault(why, []).append(pair[0])
            if pair in self.taken:
                self.teller.takes(replace(self.taken[pair], why=why), is_sure=False)
            else:
                self.teller.takes(Taken(*pair, self.pending[pair].url, self.now, why=why), is_sure=False)
        self.pending.clear()
        words = "; ".join(f"{listing(who)}: {why}" for why, who in told.items())
        if self.is_strict:
            raise StepFailed(f"not back after {span(self.within)}: {words}")
        self.teller.note(f"not back: {words}")


def is_ready(facts: ServerFacts, now: datetime) -> bool:
    """Whether a server may get requests again."""
    return judge(facts, now).readiness is Readiness.READY
