"""The door for agents and shells: `upbot ask` speaks to the running bot over a local socket.

One JSON object a line. The caller sends ``{"text", "as", "login", "wait", "ago"}`` (``ago``: seconds since it was
typed); the bot answers with ``{"says": …}`` as it goes and ends with ``{"done": true, "ok", "command", "text",
"servers", "operation"}``. A caller looks at everything; what would hurt something healthy becomes a question in the
channel that a person answers, while the caller waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from bot.domain import report
from bot.domain.command import Command
from bot.domain.errors import ConfigError, UpbotError
from bot.domain.fleet import Fleet
from bot.domain.message import Message, plain, says
from bot.domain.operation import Asked, State
from bot.ports import Chat, Clock, Heard, Operations, Place, Questions, Ref
from bot.runtime.dispatcher import Asker, Dispatcher
from bot.runtime.executor import Executor
from bot.runtime.promises import Promises
from bot.runtime.questions import Desk
from bot.text.questions import CONFIRM

_log = structlog.get_logger(__name__)

PREFIX = "ask:"
LONGEST_LINE = 64 * 1024
POLL = timedelta(milliseconds=200)
LOOK_AGAIN = timedelta(seconds=2)
"""So often a bot that answers one caller alone looks whether what they wait for is so."""
RECENT = 50


@dataclass(slots=True)
class _Caller:
    """Who waits at the door: the lines that it has been told already."""

    send: Callable[[dict[str, Any]], Awaitable[None]]
    messages: dict[str, str] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.messages.values())


class Switchboard:
    """A Chat that leads to the real one, and to callers at the door."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._callers: dict[str, _Caller] = {}
        # What is stored of a caller must never be taken for a later one's, not even after a restart.
        self._era = secrets.token_hex(8)
        self._number = 0

    def admit(self, caller: _Caller) -> Place:
        """A place of its own for a caller."""
        self._number += 1
        place = Place(f"{PREFIX}{self._era}:{self._number}")
        self._callers[place.channel] = caller
        return place

    def leave(self, place: Place) -> None:
        """The caller is gone; what is still said to it is not heard."""
        self._callers.pop(place.channel, None)

    async def post(self, place: Place, message: Message) -> Ref:
        if not place.channel.startswith(PREFIX):
            return await self._chat.post(place, message)
        self._number += 1
        ref = Ref(place.channel, f"a{self._number}", place.thread)
        await self._tell(ref, message)
        return ref

    async def edit(self, ref: Ref, message: Message) -> None:
        if not ref.channel.startswith(PREFIX):
            await self._chat.edit(ref, message)
            return
        await self._tell(ref, message)

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        if not place.channel.startswith(PREFIX):
            await self._chat.whisper(place, user, message)
            return
        await self.post(place, message)

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        if not ref.channel.startswith(PREFIX):
            await self._chat.react(ref, sign, on=on)

    async def _tell(self, ref: Ref, message: Message) -> None:
        """A terminal can't edit: of a message that is kept current only the new lines are said."""
        caller = self._callers.get(ref.channel)
        if caller is None:
            return
        text = plain(message)
        caller.messages[ref.id] = text
        told = caller.told.setdefault(ref.id, set())
        fresh = [one for one in text.splitlines() if one not in told]
        told.update(fresh)
        if fresh:
            await caller.send({"says": "\n".join(fresh)})


def is_caller(channel: str) -> bool:
    """Whether that is the place of somebody at the door, who is gone when the bot ends."""
    return channel.startswith(PREFIX)


def person_for(fleet: Fleet, named: str | None, login: str) -> str:
    """Who asks: the person that was named, else the one whose login it is, else nobody in particular.

    ConfigError when a name was given that the fleet file does not know.
    """
    if named is not None:
        person = fleet.person(named)
        if person is None:
            known = ", ".join(one.name for one in fleet.people) or "nobody"
            raise ConfigError(f"no person is called {named!r}; the fleet file knows {known}", key="--as")
        return person.name
    return next((one.name for one in fleet.people if one.login == login), login)


class Nowhere:
    """The chat of a bot that has none: what is said there is not heard."""

    async def post(self, place: Place, message: Message) -> Ref:
        del message
        return Ref(place.channel, "", place.thread)

    async def edit(self, ref: Ref, message: Message) -> None:
        """Not heard."""

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        """Not heard."""

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        """Not seen."""


@dataclass(frozen=True, slots=True)
class Door:
    """Answers one caller after the other, all at once."""

    dispatcher: Dispatcher
    switchboard: Switchboard
    executor: Executor
    desk: Desk
    operations: Operations
    questions: Questions
    fleet: Callable[[], Fleet]
    commands: tuple[Command, ...]
    clock: Clock
    promises: Promises

    async def serve(self, path: Path) -> asyncio.Server:
        """Listen on a socket that only this login can open."""
        _make_way(path)
        before = os.umask(0o177)  # the socket is born with its owner's rights alone
        try:
            return await asyncio.start_unix_server(self._connected, path, limit=LONGEST_LINE)
        finally:
            os.umask(before)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(value: dict[str, Any]) -> None:
            with contextlib.suppress(ConnectionError):
                writer.write(json.dumps(value).encode() + b"\n")
                await writer.drain()

        try:
            request = json.loads(await reader.readline())
            text, person = str(request["text"]), self._who(request.get("as"), str(request["login"]))
            is_waiting, ago = bool(request.get("wait", True)), _span(request.get("ago", 0))
        except (ValueError, KeyError, TypeError, RecursionError):
            await send({"done": True, "ok": False, "error": "not a request"})
        except ConfigError as error:
            await send({"done": True, "ok": False, "error": str(error), "is_usage": True})
        else:
            asking = asyncio.ensure_future(self.answer(text, person, send, is_waiting=is_waiting, ago=ago))
            gone = asyncio.ensure_future(_hung_up(reader))
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not asking.done():
                asking.cancel()
                return
            try:
                await asking
            except UpbotError as error:
                await send({"done": True, "ok": False, "error": str(error)})
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _who(self, named: object, login: str) -> str:
        return person_for(self.fleet(), str(named) if named is not None else None, login)

    async def answer(
        self,
        text: str,
        person: str,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        *,
        is_waiting: bool,
        question_in: Place | None = None,
        ago: timedelta = timedelta(),
    ) -> bool:
        """Answer one caller to the end; whether all was well.

        ``question_in`` is where questions are posted, by default the fleet's first channel. ``ago`` is how long the
        caller has been waiting already.
        """
        caller = _Caller(send)
        place = self.switchboard.admit(caller)
        channels = self.fleet().channels
        default = Place(next(iter(channels[0].ids), channels[0].name)) if channels else place
        asker = Asker(question_in or default)
        try:
            heard = Heard(place, place.channel, person, text, self.clock.now() - ago, mentions_bot=True)
            is_ok = await self.dispatcher.ask(heard, asker)
            operation = None
            if is_waiting:
                is_ok, operation = await self._wait(place, is_ok=is_ok)
            elif self.promises.leave(place):
                await self.switchboard.post(place, says("Who does not wait is not told: it is forgotten."))
                is_ok = False
            await send(self._result(asker, caller, operation, is_ok=is_ok))
        finally:
            self.promises.leave(place)
            self.switchboard.leave(place)
        return is_ok

    async def answer_alone(
        self,
        text: str,
        person: str,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        *,
        may_confirm: bool,
        ago: timedelta = timedelta(),
    ) -> bool:
        """Answer without a channel: a question is answered by the caller where that is allowed, else by nobody."""
        caller = _Caller(send)
        place = self.switchboard.admit(caller)
        asker = Asker(place)
        heard = Heard(place, place.channel, person, text, self.clock.now() - ago, mentions_bot=True)
        is_ok = await self.dispatcher.ask(heard, asker)
        for question in self.desk.open_in(place.channel) if may_confirm else ():
            await self.desk.press(question.nonce, CONFIRM, person, place)
        if self.desk.open_in(place.channel):  # nobody pressed, the press was not theirs, or it is asked anew
            await self.desk.cancel(place.channel, person)
            why = "That press does not count" if may_confirm else "Nobody can press without a running bot"
            await self.switchboard.post(place, says(f"{why}: nothing was done."))
            is_ok = False
        while live := self.executor.untold():
            await self.clock.sleep(POLL)
            is_ok = all(one.id in self._done() for one in live)
        while self.promises.waits_in(place):
            await self.promises.look()
            await self.clock.sleep(LOOK_AGAIN)
        is_ok = is_ok and self.promises.came_true_in(place)
        await send(self._result(asker, caller, None, is_ok=is_ok))
        return is_ok

    def _done(self) -> set[str]:
        return {op.id for op in self.operations.recent(RECENT) if op.state is State.DONE}

    async def _wait(self, place: Place, *, is_ok: bool) -> tuple[bool, str | None]:
        """Until the question and the operation that this caller has caused are over."""
        while self._has_open_question(place) or self.desk.is_acting_for(place.channel):
            await self.clock.sleep(POLL)
        mine = [
            op.id for op in self.operations.recent(RECENT) if any(one.channel == place.channel for one in op.copies)
        ]
        while any(op.id in mine for op in self.executor.untold()) or self.promises.waits_in(place):
            await self.clock.sleep(POLL)
        is_ok = is_ok and self.promises.came_true_in(place)
        if not mine:
            # A question that led to no operation was cancelled, expired, or its press came to nothing.
            return (is_ok and self._ended_question(place) is None), None
        return all(one in self._done() for one in mine), mine[0]

    def _has_open_question(self, place: Place) -> bool:
        return any(one.channel == place.channel for question in self.questions.open() for one in question.copies)

    def _ended_question(self, place: Place) -> Asked | None:
        last = self.questions.last_for(place.channel)
        return last.state if last is not None else None

    def _result(self, asker: Asker, caller: _Caller, operation: str | None, *, is_ok: bool) -> dict[str, Any]:
        return {
            "done": True,
            "ok": is_ok,
            "command": asker.command,
            "text": caller.text,
            "servers": report.servers(asker.world) if asker.world is not None else [],
            "operation": operation,
        }


async def _hung_up(reader: asyncio.StreamReader) -> None:
    """Until the caller has gone; what it sends meanwhile is passed over, and none of it is kept."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(LONGEST_LINE):
            pass


def _span(seconds: Any) -> timedelta:
    """A caller's span, at most a minute; ValueError for what is none."""
    return timedelta(seconds=min(max(float(seconds), 0.0), 60.0))


def _make_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
