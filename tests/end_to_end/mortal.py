"""`upbot run` that ends itself by SIGKILL at a moment that was chosen: before, in or after the n-th act of a step.

An act is whatever crosses a port of the bot: ``save`` (a transaction), ``post``, ``edit``, ``whisper``, ``look``,
``wait``, and on the host ``term``, ``slay``, ``launch``, ``ask job``, ``start job``, ``run``. Each is counted within
its step and noted in a file. Counting begins with the first press, or at once. ``in`` is while a call is under way:
its script already runs, its request is sent, its transaction is open.

Only the waits are shorter than in life. The process is forked from one that has imported everything, since sixty
restarts of the bot would take a minute for that alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Connection

from bot.app.machine import App, Plugins, running
from bot.app.process import configure_logging, locked, until_stopped
from bot.app.ways import Setup
from bot.chats.slack import Slack, SlackSettings
from bot.chats.slack.pace import Pace
from bot.domain.fleet import Hop
from bot.domain.message import Message
from bot.launchers._process_scripts import KILL_TREE, START, TERMINATE
from bot.ports import Channel, Chat, Clock, Completed, Heard, Listener, Place, Pressed, Ref, Transport, TransportKind
from bot.runtime._job_scripts import INTERRUPT, KEYS, OPEN
from bot.runtime.executor import Executor
from bot.stores.sql import Database, SqlSeen

HURRY = 5
"""So many times shorter are the waits."""
ACTS = {TERMINATE: "term", KILL_TREE: "slay", START: "launch", INTERRUPT: "ask job", KEYS: "ask job", OPEN: "start job"}
UNDER_WAY = 0.006
"""Seconds after the beginning of a call in which it is certainly under way; a script takes ten times as long."""

Plugins.scan()
"""Imports them, for those who are forked from here."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When the bot dies."""

    step: str
    act: str
    number: int = 1
    when: str = "before"

    def __str__(self) -> str:
        return f"{self.step}: {self.when} {self.act} {self.number}"


@dataclass
class Mortality:
    """Counts acts and ends the process at its moment."""

    moment: Moment | None
    file: Path
    is_armed: bool = False
    executor: Executor | None = None
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    has_begun: bool = False

    def step(self) -> str:
        """What the bot is at: a step of its operation, or what lies before and behind all steps."""
        live = self.executor.live() if self.executor is not None else ()
        if live:
            self.has_begun = True
            number = live[0].current
            return "all steps done" if number is None else type(live[0].plan.steps[number]).__name__
        if self.executor is not None and self.executor.untold():
            return "end"
        return "afterwards" if self.has_begun else "press"

    @contextmanager
    def act(self, what: str) -> Iterator[None]:
        """Around an act."""
        if not self.is_armed:
            yield
            return
        step = self.step()
        self.counts[step, what] += 1
        number = self.counts[step, what]
        with self.file.open("a", encoding="utf-8") as acts:
            acts.write(f"{step}\t{what}\t{number}\t{time.monotonic():.3f}\n")
        is_it = self.moment is not None and replace(self.moment, when="before") == Moment(step, what, number)
        when = self.moment.when if self.moment is not None and is_it else ""
        if when == "before":
            die()
        if when == "in" and what != "save":
            asyncio.get_running_loop().call_later(UNDER_WAY, die)
        yield
        if when:
            die()


def die() -> None:
    """Gone, in this very instruction."""
    os.kill(os.getpid(), signal.SIGKILL)


class MortalDatabase(Database):
    """Dies around a transaction, or in it before it is kept."""

    def __init__(self, url: str, fate: Mortality) -> None:
        self.fate = fate
        super().__init__(url)

    @contextmanager
    def connection(self, *, is_alone: bool = False) -> Iterator[Connection]:
        is_inside = self.fate.moment is not None and self.fate.moment.when == "in"
        if is_inside:
            with super().connection(is_alone=is_alone) as connection, self.fate.act("save"):
                yield connection
        else:
            with self.fate.act("save"), super().connection(is_alone=is_alone) as connection:
                yield connection


class MortalClock:
    """Dies around a wait, and hurries."""

    def __init__(self, clock: Clock, fate: Mortality) -> None:
        self.clock, self.fate = clock, fate

    def now(self) -> datetime:
        return self.clock.now()

    async def sleep(self, span: timedelta) -> None:
        with self.fate.act("wait"):
            await self.clock.sleep(span / HURRY)


class MortalChat:
    """Dies around what is said."""

    def __init__(self, chat: Chat, fate: Mortality) -> None:
        self.chat, self.fate = chat, fate

    async def post(self, place: Place, message: Message) -> Ref:
        with self.fate.act("post"):
            return await self.chat.post(place, message)

    async def edit(self, ref: Ref, message: Message) -> None:
        with self.fate.act("edit"):
            await self.chat.edit(ref, message)

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        with self.fate.act("whisper"):
            await self.chat.whisper(place, user, message)

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        await self.chat.react(ref, sign, on=on)


class MortalTransport:
    """Dies around what is done on the host."""

    def __init__(self, inner: Transport, fate: Mortality) -> None:
        self.inner, self.fate = inner, fate

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        what = next((ACTS[word] for word in argv[:3] if word in ACTS), "run")
        with self.fate.act(what):
            return await self.inner.run(argv, stdin=stdin, timeout=timeout)

    async def open(self, argv: Sequence[str]) -> Channel:
        return MortalChannel(await self.inner.open(argv), self.fate)

    async def close(self) -> None:
        await self.inner.close()


class MortalChannel:
    """The warm line, on which looks are asked for."""

    def __init__(self, inner: Channel, fate: Mortality) -> None:
        self.inner, self.fate = inner, fate

    async def send(self, data: bytes) -> None:
        with self.fate.act("look"):
            await self.inner.send(data)

    async def receive(self) -> bytes:
        return await self.inner.receive()

    async def close(self) -> None:
        await self.inner.close()

    @property
    def errors(self) -> bytes:
        return self.inner.errors


@dataclass(frozen=True, slots=True)
class MortalKind:
    """The transport plug-in around another one."""

    kind: TransportKind
    fate: Mortality

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def settings(self) -> type[BaseModel]:
        return self.kind.settings

    @property
    def shorthand(self) -> str:
        return self.kind.shorthand

    def label(self, hop: Hop) -> str:
        return self.kind.label(hop)

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        return MortalTransport(self.kind.connect(hop, outer), self.fate)


class Armer:
    """Hands on what people do; with the first press the counting begins."""

    def __init__(self, listener: Listener, fate: Mortality) -> None:
        self.listener, self.fate = listener, fate

    def heard(self, event: Heard) -> None:
        self.listener.heard(event)

    def pressed(self, event: Pressed) -> None:
        self.fate.is_armed = True
        self.listener.pressed(event)


async def run(setup: Setup, fate: Mortality) -> None:
    """As `bot.app.ways.run_slack`, around the ports."""
    tokens, source = setup.environment.tokens, setup.source()
    kinds = {name: MortalKind(kind, fate) for name, kind in setup.plugins.transports.items()}
    plugins: Any = replace(setup.plugins, transports=kinds)
    with locked(setup.environment.state_dir):
        Database.file(setup.environment.state_dir / "upbot.db").close()
        database = MortalDatabase(setup.database_url, fate)
        settings = SlackSettings(tokens.bot, tokens.app, base_url=setup.environment.slack_api)
        pace = Pace(edits_a_minute=HURRY * Pace().edits_a_minute)
        slack = Slack(settings, SqlSeen(database), setup.clock, pace)
        app = App(source, plugins, database, MortalChat(slack, fate), MortalClock(setup.clock, fate))
        app.is_chat_connected = lambda: slack.is_connected
        fate.executor = app.executor
        await slack.start(Armer(app.dispatcher, fate))
        try:
            async with running(app, setup.socket):
                await until_stopped(app.reload)
        finally:
            await slack.stop()
            database.close()


def live(environment: Mapping[str, str], log: Path, fate: Mortality) -> None:
    """A whole process: `upbot run` in that environment, until its moment or SIGTERM."""
    os.environ.clear()
    os.environ.update(environment)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    configure_logging(is_json=False)
    asyncio.run(run(Setup.of(os.environ), fate))
