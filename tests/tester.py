"""Speaks with a whole bot as people do: say, press, advance, and read what stands in the channel.

def scenario(bot): ...
talk(scenario)   # on the jumping loop, with a pretend fleet behind the ports
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bot.domain.audit import AuditEntry
from bot.domain.errors import ChatError, ConfigError, FleetError, NoSuchGroup, StoreError
from bot.domain.facts import JobState
from bot.domain.flags import Flags
from bot.domain.fleet import (
    Channel,
    Fallback,
    Fleet,
    Hop,
    Host,
    Job,
    Launch,
    Membership,
    Person,
    Profile,
    Role,
    Router,
    Server,
)
from bot.domain.message import Answers, Button, Buttons, Message, Says, plain
from bot.engines.sglang import ENGINE as SGLANG
from bot.plugins import load
from bot.ports import Clock, Heard, Metrics, Place, Pressed, Ref
from bot.runtime.dispatcher import Dispatcher
from bot.runtime.door import Switchboard, is_caller
from bot.runtime.executor import Executor
from bot.runtime.farsight import Farsight
from bot.runtime.gallery import Gallery
from bot.runtime.gathering import Gatherer
from bot.runtime.holding import Holding
from bot.runtime.liaison import Liaison, Remote
from bot.runtime.promises import Promises
from bot.runtime.questions import Desk
from bot.runtime.roster import Roster
from bot.runtime.scribe import Scribe
from bot.runtime.steps import Steps
from bot.runtime.tasks import Tasks
from bot.runtime.watcher import ROUND, Watcher
from bot.runtime.witness import Witness
from bot.stores.audit import SqlAudit
from bot.stores.changes import SqlChanges
from bot.stores.holds import SqlHolds
from bot.stores.kept import SqlKept
from bot.stores.samples import SqlSamples
from bot.stores.sql import Database, SqlOperations, SqlQuestions, SqlStarts
from bot.stores.wishes import SqlWishes
from tests.jumping import JumpingClock, run
from tests.pretend import PretendFleet, PretendJobs
from tests.seeded import SeededDice


def first_night(**changes: Any) -> Fleet:
    """Eight servers with one GPU each in a container, two profiles, a job, ana and bo who may and vic who may look."""
    base = Flags.of({"model-path": "/models/Qwen3.6-27B", "enable-metrics": True})
    host = Host("ct200", (Hop("ssh", (("host", "root@h200-3"),)), Hop("pct", (("id", "200"),))))
    launch = Launch(("python3", "-m", "sglang.launch_server"), base)
    servers = tuple(
        Server(
            f"gpu{n}",
            "ct200",
            30000 + n,
            "sglang",
            launch,
            gpus=(n,),
            log=f"/var/log/sglang/gpu{n}.log",
            usual="extra_buffer",
        )
        for n in range(8)
    )
    profiles = (
        Profile(
            "extra_buffer",
            Flags.of(
                {"mamba-scheduler-strategy": "extra_buffer", "max-running-requests": 64, "mem-fraction-static": "0.85"}
            ),
            job_concurrency=64,
            seats=37,
        ),
        Profile(
            "no_buffer",
            Flags.of(
                {"mamba-scheduler-strategy": "no_buffer", "max-running-requests": 128, "mem-fraction-static": "0.90"}
            ),
            job_concurrency=128,
            seats=72,
            price="no overlap scheduling",
            fallback=Fallback.OFFER,
        ),
    )
    job = Job("datagen", "ct200", ("python3", "client.py"), session="datagen", minimum_servers=1)
    people = (
        Person("ana", Role.OPERATOR, ("U1",)),
        Person("bo", Role.OPERATOR, ("U2",)),
        Person("vic", Role.VIEWER, ("U3",)),
    )
    fleet = Fleet((host,), servers, profiles, (job,), people, (Channel("fleet", ("C1",), ("ct200",)),), target=6250)
    return replace(fleet, **changes)


def behind_a_router(fleet: Fleet) -> Fleet:
    """The same fleet with all its servers behind router front."""
    servers = tuple(
        replace(one, routers=(Membership("front", f"http://127.0.0.1:{one.port}"),)) for one in fleet.servers
    )
    return replace(fleet, servers=servers, routers=(Router("front", fleet.hosts[0].name, 3100),))


@dataclass
class Post:
    """A message as it stands now."""

    ref: Ref
    message: Message
    at: float
    edited: int = 0
    only_for: str | None = None
    was: list[Message] = field(default_factory=list)
    """What stood there before each edit."""

    @property
    def text(self) -> str:
        return plain(self.message)

    @property
    def buttons(self) -> list[Button]:
        return [button for block in self.message.blocks if isinstance(block, Buttons) for button in block.buttons]


@dataclass
class PretendChat:
    """A chat that keeps everything."""

    posts: list[Post] = field(default_factory=list)
    signs: list[tuple[str, str, bool]] = field(default_factory=list)
    number: int = 0

    def _next(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def post(self, place: Place, message: Message) -> Ref:
        ref = Ref(place.channel, self._next(), place.thread)
        self.posts.append(Post(ref, message, self._now()))
        return ref

    async def edit(self, ref: Ref, message: Message) -> None:
        post = next(one for one in self.posts if one.ref.id == ref.id)
        post.was.append(post.message)
        post.message = message
        post.edited += 1

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        self.posts.append(Post(Ref(place.channel, self._next(), place.thread), message, self._now(), only_for=user))

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        self.signs.append((ref.id, sign, on))


@dataclass
class PretendGroups:
    """A chat's user groups; ``is_away`` when it can't be asked, ``asked`` are those that were asked for."""

    groups: dict[str, set[str]] = field(default_factory=dict)
    is_away: bool = False
    asked: list[str] = field(default_factory=list)

    async def members(self, group: str) -> frozenset[str]:
        self.asked.append(group)
        await asyncio.sleep(0.2)
        if self.is_away:
            raise ChatError("Slack can't be asked: no answer")
        if group not in self.groups:
            raise NoSuchGroup(f"Slack has no user group {group}")
        return frozenset(self.groups[group])


class PretendAudit(SqlAudit):
    """The audit, on a disk that can be full."""

    is_full = False

    def write(self, entry: AuditEntry) -> None:
        if self.is_full:
            raise StoreError("the state in upbot.db can't be read or written: database or disk is full")
        super().write(entry)


@dataclass
class PretendPainter:
    """Paints nothing, and remembers what it was given; ``fails`` is why it can't."""

    drawings: list[str] = field(default_factory=list)
    takes: float = 0.4
    fails: FleetError | None = None

    async def png(self, svg: str) -> bytes:
        await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails
        self.drawings.append(svg)
        return b"\x89PNG pretended"


class Bot:
    """A whole bot over a pretend fleet; ``restarted`` makes a new one over the same store, chat and fleet."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        database: Database | None = None,
        world: PretendFleet | None = None,
        chat: PretendChat | None = None,
        clock: Clock | None = None,
        jobs: PretendJobs | None = None,
        metrics: Metrics | None = None,
        alertmanager: Remote | None = None,
        groups: PretendGroups | None = None,
        dice: SeededDice | None = None,
    ) -> None:
        self.fleet_value = fleet
        self.clock = clock or JumpingClock()
        self.database = database or Database("sqlite://")
        self.fleet = world or PretendFleet(fleet, self.clock)
        self.jobs = jobs or PretendJobs(self.fleet)
        self.chat = chat or PretendChat()
        self.tasks = Tasks()
        self.said = 0
        self.reloaded: Callable[[], Awaitable[str]] = self._no_reload
        self.switchboard = Switchboard(self.chat)
        operations, questions, starts = (
            SqlOperations(self.database),
            SqlQuestions(self.database),
            SqlStarts(self.database),
        )
        self.operations, self.questions, self.starts = operations, questions, starts
        engines = {"sglang": SGLANG}
        kept, self.samples, self.painter = SqlKept(self.database), SqlSamples(self.database), PretendPainter()
        self.groups = groups or PretendGroups()
        self.roster = Roster(lambda: self.fleet_value, self.groups, kept, self.clock)
        get_fleet = self.roster.fleet
        self.audit, self.changes = PretendAudit(self.database), SqlChanges(self.database)
        self.scribe = Scribe(self.audit, self.clock, get_fleet)
        eyes = Witness(self.fleet, self.changes, self.clock)
        steps = Steps(
            get_fleet,
            engines,
            eyes,
            self.fleet,
            self.jobs,
            starts,
            self.clock,
            self.fleet.routers,
            operations,
        )
        self.executor = Executor(steps, self.switchboard, operations, self.tasks, self.scribe)
        self.holds = SqlHolds(self.database)
        self.holding = Holding(
            get_fleet, self.holds, self.executor, self.switchboard, self.clock, self.tasks, self.scribe
        )
        commands = tuple(load("handlers", "COMMAND").values())
        self.farsight = Farsight(eyes, get_fleet, engines, self.clock)
        self.watcher = Watcher(
            get_fleet, self.farsight, self.executor, operations, self.switchboard, self.clock, kept, kept
        )
        self.watcher.pace, self.watcher.hindrance = lambda: self.farsight.pace, lambda: self.farsight.hindrance
        self.liaison = Liaison(get_fleet, self.watcher, self.clock, kept)
        self.farsight.metrics = self.liaison.metrics = metrics
        self.liaison.remote = alertmanager
        self.watcher.on_change = self._wake_liaison
        self.promises = Promises(
            get_fleet,
            SqlWishes(self.database),
            operations,
            self.executor.live,
            eyes,
            self.switchboard,
            self.clock,
            self.tasks,
        )
        gatherer = Gatherer(
            get_fleet,
            commands,
            engines,
            eyes,
            self.fleet,
            self.executor,
            questions,
            starts,
            self.clock,
            self.audit,
            self.changes,
            book=lambda: self.watcher.book,
            samples=self.samples,
            wishes=self.promises.of,
            holds=self.holding.live,
        )
        self.dice = dice or SeededDice()
        self.desk = Desk(
            gatherer, self.executor, self.switchboard, questions, self.clock, self.dice, self.tasks, self.scribe
        )
        self.dispatcher = Dispatcher(
            gatherer, self.executor, self.desk, self.switchboard, self.clock, self.tasks, self.scribe, self._reload
        )

        gallery = Gallery(
            get_fleet,
            self.samples,
            operations,
            lambda: self.watcher.book,
            self.painter,
            self.switchboard,
            self.clock,
            self.tasks,
        )
        self.watcher.samples, self.watcher.gallery = self.samples, gallery
        self.dispatcher.alarms, self.dispatcher.charts = self.watcher, gallery
        self.watcher.when_seen, self.dispatcher.promises = self.promises.take, self.promises
        self.dispatcher.holding = self.holding

    def _wake_liaison(self) -> None:
        if self.fleet_value.alertmanager is not None:
            self.tasks.spawn(self.liaison.round(), name="alertmanager")

    async def watch(self, minutes: float) -> None:
        """Let time pass while the watcher looks each five seconds, and a job that runs gets on."""
        end = asyncio.get_running_loop().time() + minutes * 60
        while asyncio.get_running_loop().time() < end:
            begun = asyncio.get_running_loop().time()
            await self.watcher.round()
            await self.liaison.round()
            self.fleet.job_done += 8 * (self.fleet.job_state is JobState.RUNNING)
            await asyncio.sleep(max(0.0, begun + ROUND.total_seconds() - asyncio.get_running_loop().time()))

    async def _reload(self) -> str:
        return await self.reloaded()

    async def _no_reload(self) -> str:
        raise ConfigError("no file", file="fleet.yaml")

    def say(
        self,
        text: str,
        *,
        user: str = "U1",
        thread: str | None = None,
        channel: str = "C1",
        mentions: bool = False,
        ago: float = 0,
    ) -> None:
        """Say something, as ana unless told otherwise."""
        self.said += 1
        at = self.clock.now() - timedelta(seconds=ago)
        self.dispatcher.heard(Heard(Place(channel, thread), f"h{self.said}", user, text, at, mentions))

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def answer(self, text: str, *, user: str = "U1", within: float = 1.0, **more: Any) -> str:
        """Say something and read what stands there after a second."""
        before = len(self.chat.posts)
        self.say(text, user=user, **more)
        await self.advance(within)
        return "\n---\n".join(post.text for post in self.chat.posts[before:])

    def posts(self, thread: str | None = None) -> list[Post]:
        """What stands in the channel, or in a thread."""
        return [post for post in self.chat.posts if post.ref.thread == thread and post.only_for is None]

    @property
    def last(self) -> Post:
        return self.chat.posts[-1]

    def with_button(self, label: str) -> Post:
        """The newest message that has such a button."""
        return next(post for post in reversed(self.chat.posts) if any(b.label == label for b in post.buttons))

    def press(self, label: str, *, user: str = "U1", post: Post | None = None, button: Button | None = None) -> None:
        """Press a button of the newest message that has it, or of a message as it once was."""
        post = post or self.with_button(label)
        button = button or next(b for b in post.buttons if b.label == label)
        does = (
            f"say:{button.does.text}" if isinstance(button.does, Says) else f"{button.does.nonce}:{button.does.choice}"
        )
        assert isinstance(button.does, (Says, Answers))
        place = Place(post.ref.channel, post.ref.thread)
        self.dispatcher.pressed(Pressed(place, post.ref, user, does, self.clock.now(), label))

    def database_has_live(self) -> bool:
        """Whether an operation is written down as being at work."""
        return bool(SqlOperations(self.database).live())

    async def die(self) -> None:
        """The bot ends as with kill -9: nothing is said, nothing is saved any more."""
        await self.tasks.close()

    def restarted(self) -> Bot:
        """A new bot over what is left; its clock goes on."""
        bot = Bot(
            self.fleet_value,
            database=self.database,
            world=self.fleet,
            chat=self.chat,
            clock=self.clock,
            jobs=self.jobs,
            dice=self.dice,
            metrics=self.farsight.metrics,
            alertmanager=self.liaison.remote,
            groups=self.groups,
        )
        bot.said = self.said + 1000
        bot.desk.resume()
        bot.holding.resume()
        bot.executor.resume()
        bot.watcher.load()
        bot.liaison.load()
        bot.promises.load(lambda wish: is_caller(wish.where.channel))
        return bot


def talk(scenario: Callable[[Bot], Awaitable[None]], fleet: Fleet | None = None, **more: Any) -> None:
    """Run a scenario; it can't end while a background task of the bot has died."""

    async def whole() -> None:
        bot = Bot(fleet or first_night(), **more)
        await scenario(bot)
        await bot.tasks.close()
        assert not bot.tasks.failures, bot.tasks.failures

    run(whole())
