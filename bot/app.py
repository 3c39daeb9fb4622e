"""The composition root: the only module that names adapters. It assembles the bot, runs it and takes it down.

State lies in one folder (``upbot.db``, ``ask.sock``, ``lock``); one bot holds its lock. Chats and the demo are
imported by the ways that use them: they take most of a second, in which `upbot ask` is to have answered.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain.command import Command
from bot.domain.engine import Engine
from bot.domain.errors import ChatError, ConfigError, StoreError, UserError
from bot.domain.fleet import Fleet, Host
from bot.domain.needs import Needs
from bot.domain.phrases import count
from bot.plugins import load
from bot.ports import Chat, Clock, Launcher, Place, TransportKind
from bot.runtime.clock import SystemClock, since_start
from bot.runtime.dice import SystemDice
from bot.runtime.dispatcher import Dispatcher
from bot.runtime.doctor import Finding, bad, good, look_at_hosts, look_at_people
from bot.runtime.door import Door, Nowhere, Switchboard, person_for
from bot.runtime.drawing import Drawer
from bot.runtime.executor import Executor
from bot.runtime.gallery import Gallery
from bot.runtime.gathering import Gatherer
from bot.runtime.hands import FleetHands
from bot.runtime.heartbeat import NAME as HEARTBEAT
from bot.runtime.heartbeat import Heart
from bot.runtime.jobs import FleetJobs
from bot.runtime.prober import Prober
from bot.runtime.questions import Desk
from bot.runtime.reach import Reach
from bot.runtime.reporter import Reporter
from bot.runtime.schedule import SystemSchedule
from bot.runtime.scribe import Scribe
from bot.runtime.steps import Steps
from bot.runtime.tasks import Tasks
from bot.runtime.watcher import ROUND, Watcher
from bot.runtime.witness import Witness
from bot.settings import Environment, load_fleet
from bot.stores import backup
from bot.stores.audit import SqlAudit
from bot.stores.audit import Verified as Verified  # noqa: PLC0414 - what the command line prints
from bot.stores.changes import SqlChanges
from bot.stores.kept import SqlKept
from bot.stores.samples import SqlSamples
from bot.stores.sql import Database, SqlOperations, SqlQuestions, SqlSeen, SqlStarts

if TYPE_CHECKING:
    from bot.chats.slack import Slack
    from bot.demo.fleet import SimulatedFleet

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

    def __init__(
        self,
        source: FleetSource,
        plugins: Plugins,
        database: Database,
        chat: Chat,
        clock: Clock,
    ) -> None:
        self.source = source
        self.clock = clock
        self.tasks = Tasks()
        self.reach = Reach(plugins.transports)
        fleet = source.get
        self.operations = SqlOperations(database)
        self.questions, starts = SqlQuestions(database), SqlStarts(database)
        commands = tuple(plugins.commands.values())

        def find_host(name: str) -> Host:
            return fleet().host(name)

        self.jobs = FleetJobs(self.reach, find_host, plugins.launchers["process"], clock)
        self.hands = FleetHands(self.reach, find_host, plugins.launchers, plugins.engines, clock)
        self.eyes = Prober(
            fleet=fleet, engines=plugins.engines, transport=self.reach.transport, clock=clock, jobs=self.jobs
        )
        audit, changes = SqlAudit(database), SqlChanges(database)
        self.scribe = Scribe(audit, clock, fleet)
        self.witness = Witness(self.eyes, changes, clock)
        self.switchboard = Switchboard(chat)
        steps = Steps(fleet, plugins.engines, self.witness, self.hands, self.jobs, starts, clock)
        self.executor = Executor(steps, self.switchboard, self.operations, self.tasks, self.scribe)
        kept, self.samples = SqlKept(database), SqlSamples(database)
        self.watcher = Watcher(fleet, self.witness, self.executor, self.operations, self.switchboard, clock, kept, kept)
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
        self.dispatcher.alarms, self.dispatcher.charts = self.watcher, gallery
        self.is_chat_connected: Callable[[], bool] = lambda: True
        self.schedule = SystemSchedule()
        self._doorway: asyncio.Server | None = None

    async def begin(self, socket: Path | None) -> None:
        """Go on with what was at work, and open the door."""
        self.desk.resume()
        resumed = self.executor.resume()
        if socket is not None:
            self._doorway = await self.door.serve(socket)
            self.watcher.load()
            self.watcher.heart = Heart(socket.with_name(HEARTBEAT), self.clock, self.is_chat_connected)
            self.schedule.every(ROUND, self.watcher.round, name="watch")
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


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the folder's lock; ConfigError when another bot has it."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"the state can't be kept in {state}: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ConfigError(
            "another bot runs on this state; stop it first, or give this one another --state", file=str(state)
        ) from error
    try:
        yield
    finally:
        os.close(handle)


async def until_stopped(on_hangup: Callable[[], Awaitable[object]] | None = None) -> None:
    """Wait for SIGTERM or SIGINT; SIGHUP does what was given."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    pending: set[asyncio.Task[Any]] = set()

    async def hang_up() -> None:
        if on_hangup is not None:
            try:
                _log.info("reloaded", told=await on_hangup())
            except ConfigError as error:
                _log.error("not_reloaded", why=str(error))

    def hung_up() -> None:
        task = loop.create_task(hang_up())
        pending.add(task)
        task.add_done_callback(pending.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        await stopped.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def configure_logging(*, is_json: bool, level: str = "info", hide: Callable[[str], str] = lambda text: text) -> None:
    """Log to stderr, a JSON object a line for machines, else for eyes; secrets are hidden on the way out."""

    def hiding(_: object, __: str, event: Any) -> Any:
        return {key: hide(value) if isinstance(value, str) else value for key, value in event.items()}

    renderer: Any = structlog.processors.JSONRenderer() if is_json else structlog.dev.ConsoleRenderer(colors=False)
    number = getattr(logging, level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hiding,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def first_place(fleet: Fleet) -> Place | None:
    """Where questions from the door are asked."""
    if not fleet.channels:
        return None
    channel = fleet.channels[0]
    return Place(channel.ids[0] if channel.ids else channel.name)


# The ways to run it


@dataclass(frozen=True, slots=True)
class Setup:
    """Where everything is: the environment, and the plug-ins that were found."""

    environment: Environment
    plugins: Plugins
    clock: Clock

    @staticmethod
    def of(environ: Mapping[str, str], *, fleet: Path | None = None, state: Path | None = None) -> Setup:
        """From the environment, with what was said on the command line on top."""
        found = Environment.of(environ)
        found = replace(found, fleet_file=fleet or found.fleet_file, state_dir=state or found.state_dir)
        return Setup(found, Plugins.scan(), SystemClock())

    def source(self) -> FleetSource:
        """The fleet file, read; ConfigError says what is wrong in it."""
        return FleetSource(self.read_fleet)

    def read_fleet(self) -> Fleet:
        """Read the fleet file as it stands now."""
        known = self.plugins
        return load_fleet(
            self.environment.fleet_file,
            transports=known.transports,
            engines=tuple(known.engines),
            launchers=tuple(known.launchers),
        )

    def person(self, login: str) -> str:
        """Who of the fleet file has this login."""
        return person_for(self.read_fleet(), None, login)

    def database(self) -> Database:
        """The state's database."""
        url = self.environment.database
        return Database(url) if url is not None else Database.file(self.environment.state_dir / "upbot.db")

    @property
    def database_url(self) -> str:
        """Where the state's database is, as SQLAlchemy says it; it may hold a password."""
        return self.environment.database or f"sqlite:///{self.environment.state_dir / 'upbot.db'}"

    @property
    def socket(self) -> Path:
        """Where the running bot's door is."""
        return self.environment.state_dir / "ask.sock"


async def run_slack(setup: Setup, *, http: bool = False) -> None:
    """Run in Slack until SIGTERM."""
    from bot.chats.slack import Slack, SlackSettings  # noqa: PLC0415 - see above

    tokens = setup.environment.tokens.required(socket_mode=not http)
    source = setup.source()
    with locked(setup.environment.state_dir):
        database = setup.database()
        settings = SlackSettings(
            tokens.bot, "" if http else tokens.app, tokens.signing_secret, setup.environment.slack_api
        )
        slack = Slack(settings, SqlSeen(database), setup.clock)
        app = App(source, setup.plugins, database, slack, setup.clock)
        app.is_chat_connected = lambda: slack.is_connected
        await slack.start(app.dispatcher)
        try:
            async with running(app, setup.socket):
                await until_stopped(app.reload)
        finally:
            await slack.stop()
            database.close()


async def run_console(setup: Setup, user: str) -> None:
    """Run in the terminal until the input ends."""
    from bot.chats.console import Console  # noqa: PLC0415 - see above

    source = setup.source()
    with locked(setup.environment.state_dir):
        database = setup.database()
        place = first_place(source.fleet)
        console = Console(setup.clock, user, channel=place.channel if place is not None else "console")
        app = App(source, setup.plugins, database, console, setup.clock)
        async with running(app, setup.socket):
            await console.run(app.dispatcher)
            while app.executor.live():
                await setup.clock.sleep(timedelta(seconds=0.2))
        database.close()


async def run_demo(
    setup: Setup, home: Path, login: str, *, port: int, base_port: int, speed: float, started: Callable[[str], None]
) -> None:
    """Run everything on this machine until SIGTERM: a workspace with a page, a simulated fleet, and the bot."""
    from bot.chats.slack import Slack, SlackSettings  # noqa: PLC0415 - see above
    from bot.demo.faults import FAULTS, Faults  # noqa: PLC0415 - see above
    from bot.demo.fleet import SimulatedFleet  # noqa: PLC0415 - see above
    from bot.demo.workspace import ServerSign, Workspace  # noqa: PLC0415 - see above

    simulated = SimulatedFleet(home / "fleet", base_port, speed, session=f"upbot-demo-{base_port}")
    faults = Faults(simulated.machine)
    not_ready = ["the simulated fleet is starting"]

    async def break_thing(what: str, server: str, more: Mapping[str, Any]) -> str:
        try:
            return faults.apply(what, source.fleet.server(server).port, str(more.get("choice") or ""))
        except (KeyError, ValueError) as error:
            raise UserError(f"can't be broken: {error}") from error

    workspace = Workspace(
        clock=setup.clock,
        port=port,
        is_ready=lambda: not_ready[0] if not_ready else None,
        break_thing=break_thing,
        servers=lambda: [ServerSign(server.name) for server in source.fleet.servers],
        breakages=FAULTS,
    )
    setup = replace(setup, environment=replace(setup.environment, fleet_file=home / "fleet.yaml"))
    setup.environment.fleet_file.parent.mkdir(parents=True, exist_ok=True)
    setup.environment.fleet_file.write_text(simulated.fleet_file(login=login), encoding="utf-8")
    source = setup.source()
    with locked(setup.environment.state_dir):
        database = setup.database()
        try:
            await workspace.start()
            await simulated.start()
            started(workspace.url)
            settings = SlackSettings(workspace.bot_token, workspace.app_token, base_url=workspace.api_url)
            slack = Slack(settings, SqlSeen(database), setup.clock)
            app = App(source, setup.plugins, database, slack, setup.clock)
            app.is_chat_connected = lambda: slack.is_connected
            await slack.start(app.dispatcher)
            async with running(app, setup.socket):
                becoming = asyncio.ensure_future(_become_ready(simulated, slack, app, not_ready))
                await until_stopped(app.reload)
                becoming.cancel()
            await slack.stop()
        finally:
            await simulated.stop()
            await workspace.stop()
            database.close()


async def _become_ready(simulated: SimulatedFleet, slack: Slack, app: App, not_ready: list[str]) -> None:
    await simulated.wait_ready()
    await app.look_once()
    not_ready[:] = ["the bot is connecting"]
    while not slack.is_connected:
        await app.clock.sleep(timedelta(milliseconds=50))
    not_ready.clear()


async def ask_alone(
    setup: Setup, text: str, person: str, send: Callable[[dict[str, Any]], Awaitable[None]], *, may_confirm: bool
) -> bool:
    """Answer one question without a running bot; a question that needs a press is answered only by ``--yes``."""
    source = setup.source()
    if may_confirm and not source.fleet.limits.ask_may_confirm:
        raise ConfigError(
            "--yes is not allowed: set limits: ask_may_confirm: true, or start the bot and let a person press",
            file=str(setup.environment.fleet_file),
        )
    database = setup.database()
    app = App(source, setup.plugins, database, Nowhere(), setup.clock)
    try:
        return await app.door.answer_alone(text, person, send, may_confirm=may_confirm, ago=since_start())
    finally:
        await app.end()
        database.close()


async def ask(
    setup: Setup,
    text: str,
    person: str | None,
    login: str,
    send: Callable[[dict[str, Any]], Awaitable[None]],
    *,
    is_waiting: bool,
    may_confirm: bool,
) -> bool:
    """Ask the running bot through its door, or answer alone when none runs; whether all was well."""
    try:
        reader, writer = await asyncio.open_unix_connection(setup.socket, limit=2**24)
    except OSError:
        fleet = setup.read_fleet()
        return await ask_alone(setup, text, person_for(fleet, person, login), send, may_confirm=may_confirm)
    if may_confirm:
        writer.close()
        raise ConfigError("--yes is for when no bot runs; one does, so a person presses in the channel")
    waited = since_start().total_seconds()
    request = {"text": text, "as": person, "login": login, "wait": is_waiting, "ago": waited}
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        while line := await reader.readline():
            value = json.loads(line)
            if value.get("is_usage"):
                raise ConfigError(value["error"])
            await send(value)
            if value.get("done"):
                return bool(value["ok"])
    finally:
        writer.close()
    await send({"error": "the bot ended while it was answering", "done": True})
    return False


@contextmanager
def audit_of(setup: Setup) -> Iterator[SqlAudit]:
    """The audit as it is kept; StoreError when there is no state yet."""
    if setup.environment.database is None and not (setup.environment.state_dir / "upbot.db").exists():
        raise StoreError(f"there is no state in {setup.environment.state_dir} yet")
    database = setup.database()
    try:
        yield SqlAudit(database)
    finally:
        database.close()


@contextmanager
def samples_of(setup: Setup) -> Iterator[SqlSamples]:
    """What the watcher has read, as it is kept; StoreError when there is no state yet."""
    if setup.environment.database is None and not (setup.environment.state_dir / "upbot.db").exists():
        raise StoreError(f"there is no state in {setup.environment.state_dir} yet")
    database = setup.database()
    try:
        yield SqlSamples(database)
    finally:
        database.close()


def back_up(setup: Setup, target: Path) -> int:
    """Copy the state into a new file; its size in bytes."""
    return backup.back_up(setup.database_url, target)


async def check(setup: Setup) -> list[Finding]:
    """Look at the fleet file, the tokens, the state and every host; never changes anything there."""
    try:
        source = setup.source()
    except ConfigError as error:
        return [bad(str(error), "docs/fleet-file.md has every key")]
    fleet = source.fleet
    findings = [good(f"{setup.environment.fleet_file}: {count(len(fleet.servers), 'server')}"), look_at_people(fleet)]
    findings += await _check_slack(setup)
    try:
        database = setup.database()
    except StoreError as error:
        return [*findings, bad(str(error), "choose another --state, or make room")]
    findings.append(good(f"state in {setup.environment.state_dir}"))
    app = App(source, setup.plugins, database, Nowhere(), setup.clock)
    try:
        return findings + await look_at_hosts(fleet, app.eyes, app.hands, app.clock)
    finally:
        await app.end()
        database.close()


async def _check_slack(setup: Setup) -> list[Finding]:
    from bot.chats.slack import Slack, SlackSettings  # noqa: PLC0415 - see above

    tokens, advice = setup.environment.tokens, "docs/slack.md says where to get it"
    if not tokens.bot:
        return [bad("SLACK_BOT_TOKEN is not set", advice)]
    findings = []
    if not tokens.app and not tokens.signing_secret:
        findings.append(bad("SLACK_APP_TOKEN is not set", advice))
    settings = SlackSettings(tokens.bot, tokens.app, tokens.signing_secret, setup.environment.slack_api)
    try:
        who = await Slack(settings, SqlSeen(Database("sqlite://")), setup.clock).introduce()
    except (ConfigError, ChatError) as error:
        return [*findings, bad(f"Slack: {error}", "docs/slack.md")]
    return [*findings, good(f"Slack: logged in as {who.name}")]
