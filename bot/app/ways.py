"""The ways to run it: in Slack, on a console, as a demo, for one question, as a doctor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.app.machine import App, FleetSource, Plugins, running
from bot.app.process import locked, until_stopped
from bot.domain.errors import ChatError, ConfigError, StoreError, UserError
from bot.domain.fleet import Fleet
from bot.domain.phrases import count
from bot.ports import Clock, Place
from bot.runtime.clock import SystemClock, since_start
from bot.runtime.doctor import (
    Finding,
    bad,
    good,
    look_at_hosts,
    look_at_people,
    look_at_routers,
    look_at_teams,
)
from bot.runtime.door import Nowhere, person_for
from bot.settings import Environment, load_fleet
from bot.stores import backup
from bot.stores.audit import SqlAudit
from bot.stores.audit import Verified as Verified  # noqa: PLC0414 - what the command line prints
from bot.stores.samples import SqlSamples
from bot.stores.sql import Database, SqlSeen

if TYPE_CHECKING:
    from bot.chats.slack import Slack
    from bot.demo.fleet import SimulatedFleet


def first_place(fleet: Fleet) -> Place | None:
    """Where questions from the door are asked."""
    if not fleet.channels:
        return None
    channel = fleet.channels[0]
    return Place(channel.ids[0] if channel.ids else channel.name)


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
        app = App(source, setup.plugins, database, slack, setup.clock, slack, keys=setup.environment.monitors)
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
        app = App(source, setup.plugins, database, console, setup.clock, keys=setup.environment.monitors)
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
            app = App(source, setup.plugins, database, slack, setup.clock, slack, keys=setup.environment.monitors)
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
    findings += await _check_slack(setup, fleet)
    try:
        database = setup.database()
    except StoreError as error:
        return [*findings, bad(str(error), "choose another --state, or make room")]
    findings.append(good(f"state in {setup.environment.state_dir}"))
    app = App(source, setup.plugins, database, Nowhere(), setup.clock, keys=setup.environment.monitors)
    try:
        findings += await app.monitors.check()
        findings += await look_at_hosts(fleet, app.eyes, app.hands, app.clock)
        return findings + await look_at_routers(fleet, app.eyes.routers)
    finally:
        await app.end()
        database.close()


async def _check_slack(setup: Setup, fleet: Fleet) -> list[Finding]:
    from bot.chats.slack import Slack, SlackSettings  # noqa: PLC0415 - see above

    tokens, advice = setup.environment.tokens, "docs/slack.md says where to get it"
    if not tokens.bot:
        return [bad("SLACK_BOT_TOKEN is not set", advice)]
    findings = []
    if not tokens.app and not tokens.signing_secret:
        findings.append(bad("SLACK_APP_TOKEN is not set", advice))
    settings = SlackSettings(tokens.bot, tokens.app, tokens.signing_secret, setup.environment.slack_api)
    slack = Slack(settings, SqlSeen(Database("sqlite://")), setup.clock)
    try:
        who = await slack.introduce()
    except (ConfigError, ChatError) as error:
        return [*findings, bad(f"Slack: {error}", "docs/slack.md")]
    return [*findings, good(f"Slack: logged in as {who.name}"), *await look_at_teams(fleet, slack)]
