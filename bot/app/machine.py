"""The machine, assembled around a chat: every part is made here once, and given what it needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from bot.app.monitors import Monitors
from bot.domain.command import Command
from bot.domain.engine import Engine
from bot.domain.errors import ConfigError, StoreError
from bot.domain.fleet import Fleet, Host
from bot.domain.needs import Needs
from bot.domain.phrases import count
from bot.plugins import load
from bot.ports import Chat, Clock, Groups, Launcher, Place, TransportKind
from bot.runtime.dice import SystemDice
from bot.runtime.dispatcher import Dispatcher
from bot.runtime.door import Door, Switchboard, is_caller
from bot.runtime.drawing import Drawer
from bot.runtime.executor import Executor
from bot.runtime.farsight import Farsight
from bot.runtime.gallery import Gallery
from bot.runtime.gathering import Gatherer
from bot.runtime.hands import FleetHands
from bot.runtime.heartbeat import NAME as HEARTBEAT
from bot.runtime.heartbeat import Heart
from bot.runtime.holding import Holding
from bot.runtime.jobs import FleetJobs
from bot.runtime.liaison import Liaison
from bot.runtime.prober import Prober
from bot.runtime.promises import Promises
from bot.runtime.questions import Desk
from bot.runtime.reach import Reach
from bot.runtime.reporter import Reporter
from bot.runtime.roster import REFRESH, Roster
from bot.runtime.schedule import SystemSchedule
from bot.runtime.scribe import Scribe
from bot.runtime.steps import Steps
from bot.runtime.tasks import Tasks
from bot.runtime.watcher import ROUND, Watcher
from bot.runtime.witness import Witness
from bot.settings import MonitorKeys
from bot.stores.audit import SqlAudit
from bot.stores.changes import SqlChanges
from bot.stores.holds import SqlHolds
from bot.stores.kept import SqlKept
from bot.stores.samples import SqlSamples
from bot.stores.sql import Database, SqlOperations, SqlQuestions, SqlStarts
from bot.stores.wishes import SqlWishes

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Plugins:
    """Everything that was found by scanning."""

    commands: Mapping[str, Command]
    engines: Mapping[str, Engine]
    transports: Mapping[str, TransportKind]
    launchers: Mapping[str, Launcher]

    @staticmethod
    def scan() -> Plugins:
        """Find them; ConfigError names the module that is not one."""
        return Plugins(
            load("handlers", "COMMAND"),
            load("bot.engines", "ENGINE"),
            load("bot.transports", "TRANSPORT"),
            load("bot.launchers", "LAUNCHER"),
        )


class FleetSource:
    """The fleet as it was last read well; a wrong file changes nothing."""

    def __init__(self, read: Callable[[], Fleet]) -> None:
        self._read = read
        self.fleet = read()

    def get(self) -> Fleet:
        """The fleet."""
        return self.fleet

    async def reload(self) -> str:
        """Read again and say what changed; ConfigError says why it stays as it was."""
        old, new = self.fleet, self._read()
        self.fleet = new
        told = [
            f"{word} {', '.join(sorted(names)[:8])}"
            for word, names in (
                ("new:", {one.name for one in new.servers} - {one.name for one in old.servers}),
                ("gone:", {one.name for one in old.servers} - {one.name for one in new.servers}),
                (
                    "changed:",
                    {one.name for one in new.servers if one not in old.servers} & {one.name for one in old.servers},
                ),
            )
            if names
        ]
        profiles = count(len(new.profiles), "profile")
        changed = "; ".join(told) or ("nothing changed" if new == old else "servers as they were")
        return f"Fleet file read: {count(len(new.servers), 'server')}, {profiles}; {changed}."


class App:
    """The machine, assembled around a chat. ``begin`` after the chat listens, ``end`` before it is closed."""

    def __init__(  # noqa: PLR0917 - the composition root: what is outside of the machine
        self,
        source: FleetSource,
        plugins: Plugins,
        database: Database,
        chat: Chat,
        clock: Clock,
        groups: Groups | None = None,
        *,
        keys: MonitorKeys = MonitorKeys(),  # noqa: B008 - it is frozen
    ) -> None:
        self.source = source
        self.clock = clock
        self.tasks = Tasks()
        self.reach = Reach(plugins.transports)
        kept, self.samples = SqlKept(database), SqlSamples(database)
        self.roster = Roster(source.get, groups, kept, clock)
        fleet = self.roster.fleet
        self.operations = SqlOperations(database)
        self.questions, starts = SqlQuestions(database), SqlStarts(database)
        commands = tuple(plugins.commands.values())

        def find_host(name: str) -> Host:
            return fleet().host(name)

        self.jobs = FleetJobs(self.reach, find_host, plugins.launchers["process"], clock)
        self.hands = FleetHands(self.reach, find_host, plugins.launchers, plugins.engines, clock)
        self.eyes = Prober(
            fleet=fleet,
            engines=plugins.engines,
            transport=self.reach.transport,
            clock=clock,
            jobs=self.jobs,
            secret=os.environ.get,
        )
        audit, changes = SqlAudit(database), SqlChanges(database)
        self.scribe = Scribe(audit, clock, fleet)
        self.witness = Witness(self.eyes, changes, clock)
        self.switchboard = Switchboard(chat)
        steps = Steps(
            fleet,
            plugins.engines,
            self.witness,
            self.hands,
            self.jobs,
            starts,
            clock,
            self.eyes.routers,
            self.operations,
        )
        self.executor = Executor(steps, self.switchboard, self.operations, self.tasks, self.scribe)
        self.farsight = Farsight(self.witness, fleet, plugins.engines, clock)
        self.watcher = Watcher(
            fleet, self.farsight, self.executor, self.operations, self.switchboard, clock, kept, kept
        )
        self.watcher.pace, self.watcher.hindrance = lambda: self.farsight.pace, lambda: self.farsight.hindrance
        self.liaison = Liaison(fleet, self.watcher, clock, kept)
        self.monitors = Monitors(self, keys)
        self.holding = Holding(
            fleet, SqlHolds(database), self.executor, self.switchboard, clock, self.tasks, self.scribe
        )
        self.promises = Promises(
            fleet,
            SqlWishes(database),
            self.operations,
            self.executor.live,
            self.witness,
            self.switchboard,
            clock,
            self.tasks,
        )
        gatherer = Gatherer(
            fleet,
            commands,
            plugins.engines,
            self.witness,
            self.hands,
            self.executor,
            self.questions,
            starts,
            clock,
            audit,
            changes,
            book=lambda: self.watcher.book,
            samples=self.samples,
            wishes=self.promises.of,
            holds=self.holding.live,
        )
        self.desk = Desk(
            gatherer, self.executor, self.switchboard, self.questions, clock, SystemDice(), self.tasks, self.scribe
        )
        self.dispatcher = Dispatcher(
            gatherer, self.executor, self.desk, self.switchboard, clock, self.tasks, self.scribe, self._read_again
        )
        self.door = Door(
            self.dispatcher,
            self.switchboard,
            self.executor,
            self.desk,
            self.operations,
            self.questions,
            fleet,
            commands,
            clock,
            self.promises,
        )
        gallery = Gallery(
            fleet,
            self.samples,
            self.operations,
            lambda: self.watcher.book,
            Drawer(),
            self.switchboard,
            clock,
            self.tasks,
        )
        self.reporter = Reporter(fleet, self.witness, self.samples, lambda: self.watcher.book, self.switchboard, clock)
        self.watcher.samples, self.watcher.gallery = self.samples, gallery
        self.watcher.when_seen, self.dispatcher.promises = self.promises.take, self.promises
        self.dispatcher.alarms, self.dispatcher.charts = self.watcher, gallery
        self.dispatcher.holding = self.holding
        self.is_chat_connected: Callable[[], bool] = lambda: True
        self.schedule = SystemSchedule()
        self._doorway: asyncio.Server | None = None

    async def begin(self, socket: Path | None) -> None:
        """Go on with what was at work, and open the door."""
        if socket is not None:
            self.watcher.load()  # before anybody can tell of an alert
            await self.monitors.open()
        self.desk.resume()
        self.holding.resume()
        resumed = self.executor.resume()
        if socket is not None:
            self._doorway = await self.door.serve(socket)
            self.promises.load(lambda wish: is_caller(wish.where.channel))
            self.watcher.heart = Heart(socket.with_name(HEARTBEAT), self.clock, self.is_chat_connected)
            self.schedule.every(ROUND, self.watcher.round, name="watch")
            self.schedule.every(REFRESH, self.roster.refresh, name="teams")
            self.tasks.spawn(self.roster.refresh(), name="teams, first")
            self.reporter.plan(self.schedule)
            self.schedule.start()
        self.tasks.spawn(self.look_once(), name="first look")
        if socket is not None:
            self.tasks.spawn(self.ask_installed(), name="flags known")
        _log.info("begun", resumed=resumed, servers=len(self.source.fleet.servers))

    async def reload(self) -> str:
        """Read the fleet file again on a signal to this process; the audit says that nobody typed it."""
        try:
            told = await self._read_again()
        except ConfigError as error:
            self.scribe.reloaded(str(error), "SIGHUP", Place(""), is_read=False)
            raise
        self.scribe.reloaded(told, "SIGHUP", Place(""), is_read=True)
        return told

    async def _read_again(self) -> str:
        """Read the fleet file again, and have everybody know who goes by what it says."""
        told = await self.source.reload()
        if self._doorway is not None:
            await self.monitors.open()
        self.tasks.spawn(self.roster.refresh(), name="teams, again")
        self.reporter.plan(self.schedule)
        return told

    async def ask_installed(self) -> None:
        """Have each program's own flags read before somebody waits for them; what fails is told when it is needed."""
        asked = {(one.host, one.launch.command, one.engine): one for one in self.source.fleet.servers}
        await asyncio.gather(*(self.hands.flags_known(one) for one in asked.values()), return_exceptions=True)

    async def look_once(self) -> None:
        """One look at everything, so that the lines are warm when somebody asks, and movement has its first half."""
        async for _ in self.witness.look(self.source.fleet.servers, needs=Needs(load=True, log=True)):
            pass

    async def end(self) -> None:
        """Leave everything as it is: operations are gone on with at the next start."""
        self.schedule.stop()
        if self._doorway is not None:
            self._doorway.close()
        await self.tasks.close()
        try:
            self.samples.flush()
        except StoreError as error:
            _log.warning("readings_not_kept", error=str(error))
        await self.monitors.close()
        await self.eyes.close()
        await self.reach.close()


@asynccontextmanager
async def running(app: App, socket: Path | None) -> AsyncIterator[App]:
    """The app between its beginning and its end."""
    await app.begin(socket)
    try:
        yield app
    finally:
        await app.end()
