"""What may go wrong at each act of a bot upon the world: a kill -9, a full disk, a chat that refuses.

A `Fate` counts the acts (each write of the state, each call of the chat, each act on a server or the job) and lets
the one of a given number go wrong. After a kill nothing that is left of the bot reaches the world any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection

from bot.domain.facts import Process
from bot.domain.fleet import Fleet, Job, Router, Server
from bot.domain.message import Message
from bot.ports import Clock, Place, Ref
from bot.stores.sql import Database
from tests.jumping import JumpingClock
from tests.pretend import PretendFleet, PretendJobs, PretendRouters
from tests.tester import Bot, PretendChat


class Killed(BaseException):
    """The bot's process is gone; nothing in it can catch that."""


@dataclass
class Fate:
    """Counts acts; the one of number ``at`` goes wrong by raising what ``wrong`` makes."""

    at: int | None = None
    wrong: Callable[[], BaseException] = Killed
    lasts: int = 1
    count: int = 0
    is_armed: bool = False
    is_dead: bool = False
    met: list[str] = field(default_factory=list)

    def act(self, what: str) -> None:
        """An act upon the world is about to be done, or was just done."""
        if self.is_dead:
            raise Killed
        if not self.is_armed:
            return
        self.count += 1
        if self.at is None or not self.at <= self.count < self.at + self.lasts:
            return
        self.met.append(what)
        error = self.wrong()
        self.is_dead = isinstance(error, Killed)
        raise error

    def rise(self) -> None:
        """A new process of the bot."""
        self.is_armed = self.is_dead = False


class FatedDatabase(Database):
    """A database that fails, or dies before or after a commit."""

    def __init__(self, fate: Fate, *, is_counted: bool = True) -> None:
        self.fate, self.is_counted = fate, is_counted
        super().__init__("sqlite://")

    @contextmanager
    def connection(self, *, is_alone: bool = False) -> Iterator[Connection]:
        if self.is_counted or self.fate.is_dead:
            self.fate.act("store, before")
        with super().connection(is_alone=is_alone) as connection:
            yield connection
        if self.is_counted and self.fate.wrong is Killed:
            self.fate.act("store, after")


class FatedChat(PretendChat):
    """A chat that refuses, is slow, or dies with the bot."""

    def __init__(self, fate: Fate, *, is_counted: bool = True, takes: float = 0.0) -> None:
        super().__init__()
        self.fate, self.is_counted, self.takes = fate, is_counted, takes

    async def _meet(self, what: str) -> None:
        if self.takes:
            await asyncio.sleep(self.takes)
        if self.is_counted or self.fate.is_dead:
            self.fate.act(what)

    async def post(self, place: Place, message: Message) -> Ref:
        await self._meet("post")
        return await super().post(place, message)

    async def edit(self, ref: Ref, message: Message) -> None:
        await self._meet("edit")
        await super().edit(ref, message)

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        await self._meet("whisper")
        await super().whisper(place, user, message)


class FatedFleet(PretendFleet):
    """Servers on which a dead bot can't act."""

    def __init__(self, fleet: Fleet, clock: Clock, fate: Fate) -> None:
        super().__init__(fleet, clock)
        self.fate = fate
        self.routers = FatedRouters(fleet, clock, fate)

    async def start(self, server: Server, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._meet(f"start {server.name}")
        await super().start(server, argv, env)
        self._meet(f"started {server.name}")

    async def end(self, server: Server, process: Process, *, force: bool) -> None:
        self._meet(f"end {server.name}")
        await super().end(server, process, force=force)
        self._meet(f"ended {server.name}")

    def _meet(self, what: str) -> None:
        if self.fate.wrong is Killed or self.fate.is_dead:
            self.fate.act(what)


class FatedRouters(PretendRouters):
    """Routers to which a dead bot can't speak."""

    def __init__(self, fleet: Fleet, clock: Clock, fate: Fate) -> None:
        super().__init__(fleet, clock)
        self.fate = fate

    async def remove(self, router: Router, worker: str) -> None:
        self._meet("remove worker")
        await super().remove(router, worker)
        self._meet("removed worker")

    async def add(self, router: Router, url: str, settings: str, key: str | None) -> bool:
        self._meet("add worker")
        told = await super().add(router, url, settings, key)
        self._meet("added worker")
        return told

    def _meet(self, what: str) -> None:
        if self.fate.wrong is Killed or self.fate.is_dead:
            self.fate.act(what)


class FatedJobs(PretendJobs):
    """A job upon which a dead bot can't act."""

    def __init__(self, fleet: PretendFleet, fate: Fate) -> None:
        super().__init__(fleet)
        self.fate = fate

    async def stop(self, job: Job) -> None:
        self._meet("stop job")
        await super().stop(job)
        self._meet("stopped job")

    async def start(self, job: Job, concurrency: int | None) -> None:
        self._meet("start job")
        await super().start(job, concurrency)
        self._meet("started job")

    def _meet(self, what: str) -> None:
        if self.fate.wrong is Killed or self.fate.is_dead:
            self.fate.act(what)


class FatedBot(Bot):
    """A whole bot whose every act meets its fate."""

    def __init__(self, fleet: Fleet, fate: Fate, *, chat: FatedChat | None = None, store: bool = True) -> None:
        clock = JumpingClock()
        self.fate = fate
        world = FatedFleet(fleet, clock, fate)
        super().__init__(
            fleet,
            database=FatedDatabase(fate, is_counted=store),
            world=world,
            chat=chat or FatedChat(fate),
            clock=clock,
            jobs=FatedJobs(world, fate),
        )

    async def killed(self) -> Bot:
        """A new bot over what the killed one has left."""
        await self.die()
        self.fate.rise()
        return self.restarted()
