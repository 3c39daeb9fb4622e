"""The control API: what scripts, tests and the page do in the workspace, as JSON on the workspace's own address.

- ``GET /control/ready``: 200 once the bot is connected and the fleet is ready, else 503 with the reason.
- ``POST /control/say {channel, user, text, thread?}``: a person says something; ``{"ok": true, "ts": …}``.
- ``POST /control/edit {channel, user, message, text}``: a person changes what they said.
- ``POST /control/press {channel, message, button, user, block_id?}``: a person presses a button of the message with
  that ts, named by its label or its action_id; ``{"ok": true}`` once the bot has acknowledged it. ``block_id`` says
  which row is meant where two have such a button.
- ``POST /control/slash {channel, user, command, text}``: a person types a slash command.
- ``GET /control/messages?channel=&after=ts``: ``{"messages": [{ts, user, text, blocks, thread_ts, ephemeral_to,
  edited, reactions, files}]}`` in order, replies among them, each as it stands now, ``after`` exclusive.
- ``GET /control/servers``: ``{"not_ready": why or null, "servers": [{name, state}], "breakages": [{what, label,
  choices}]}``.
- ``POST /control/break {what, server, choice?, …}``: break something of the pretend fleet; what else stands in
  it is handed on; ``{"ok": true, "said": sentence}``.
- ``POST /control/misbehave {what, …}``: make the workspace misbehave (`bot.demo.workspace.faults.Fault`).

Channels and people are given by name or by id. A refusal is a 4xx ``{"ok": false, "error": name, "reason": sentence}``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.demo.workspace import shapes
from bot.demo.workspace.arguments import MOST_BODY, parsed, reasons
from bot.demo.workspace.faults import Fault, Misbehaviour
from bot.demo.workspace.people import Acts
from bot.demo.workspace.room import Refused, Room, micros
from bot.domain.errors import UpbotError

_Name = Annotated[str, Field(min_length=1, max_length=255)]
_Typed = Annotated[str, Field(max_length=MOST_BODY)]

STATUSES: Mapping[str, int] = {
    "channel_not_found": 404,
    "user_not_found": 404,
    "message_not_found": 404,
    "no_such_button": 404,
    "not_acknowledged": 409,
    "not_broken": 409,
    "expired_url": 404,
    "used_url": 404,
    "request_too_large": 413,
    "msg_too_long": 413,
}


@dataclass(frozen=True, slots=True)
class ServerSign:
    """A server of the pretend fleet, as the panel that breaks things shows it."""

    name: str
    state: str = ""


class Breakage(Protocol):
    """Something that may be done to a server: its name, what the button says, and the choices it has, if any."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def choices(self) -> tuple[str, ...]: ...


BreakThing = Callable[[str, str, Mapping[str, Any]], Awaitable[str]]
"""Breaks ``what`` on ``server``, with what else was sent; says in a sentence what was done, or raises UpbotError."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Say(_Asked):
    """POST /control/say."""

    channel: _Name
    user: _Name
    text: _Typed
    thread: _Name | None = None


class Edit(_Asked):
    """POST /control/edit."""

    channel: _Name
    user: _Name
    message: _Name
    text: _Typed


class Press(_Asked):
    """POST /control/press."""

    channel: _Name
    message: _Name
    button: _Name
    user: _Name
    block_id: _Name | None = None


class Slash(_Asked):
    """POST /control/slash."""

    channel: _Name
    user: _Name
    command: _Name
    text: _Typed = ""


class Break(BaseModel):
    """POST /control/break; what it holds beyond this is the breaker's."""

    model_config = ConfigDict(extra="allow")

    what: _Name
    server: Annotated[str, Field(max_length=255)] = ""


_Model = TypeVar("_Model", bound=BaseModel)


async def body_of(request: web.Request) -> dict[str, Any]:
    """The JSON object in a request's body, whatever it is labelled as; Refused when it is none."""
    body = await request.read()
    if len(body) > MOST_BODY:
        raise Refused("request_too_large", [f"{MOST_BODY} bytes at most"])
    try:
        value = parsed(body)
    except ValueError as exc:
        raise Refused("invalid_json", ["the body is no JSON"]) from exc
    if not isinstance(value, dict):
        raise Refused("json_not_object", ["a JSON object is wanted"])
    return value


def refusal(refused: Refused) -> web.Response:
    """A Refused as an HTTP answer."""
    reason = "; ".join(refused.reasons) or refused.error.replace("_", " ")
    answer = {"ok": False, "error": refused.error, "reason": reason}
    return web.json_response(answer, status=STATUSES.get(refused.error, 400))


class Control:
    """Answers /control/…."""

    def __init__(
        self,
        room: Room,
        acts: Acts,
        faults: Misbehaviour,
        *,
        is_ready: Callable[[], str | None],
        break_thing: BreakThing | None,
        servers: Callable[[], Sequence[ServerSign]],
        breakages: Sequence[Breakage],
    ) -> None:
        self._room = room
        self._acts = acts
        self._faults = faults
        self._is_ready = is_ready
        self._break_thing = break_thing
        self._servers = servers
        self._breakages = breakages

    def routes(self) -> list[web.RouteDef]:
        """The addresses."""
        return [
            web.get("/control/ready", self.ready),
            web.get("/control/messages", _answering(self._messages)),
            web.get("/control/servers", _answering(self._list_servers)),
            web.post("/control/say", _answering(self._say)),
            web.post("/control/edit", _answering(self._edit)),
            web.post("/control/press", _answering(self._press)),
            web.post("/control/slash", _answering(self._slash)),
            web.post("/control/break", _answering(self._break)),
            web.post("/control/misbehave", _answering(self._misbehave)),
        ]

    async def ready(self, _request: web.Request) -> web.Response:
        """Whether one may begin."""
        why_not = self._is_ready()
        if why_not is None:
            return web.json_response({"ok": True})
        return web.json_response({"ok": False, "error": "not_ready", "reason": why_not}, status=503)

    async def _messages(self, request: web.Request) -> dict[str, Any]:
        channel = self._room.channel(request.query.get("channel", ""))
        after = micros(request.query.get("after") or "0")
        posts = [one for one in self._room.posts(channel.id) if micros(one.ts) > after]
        return {"messages": [shapes.told(self._room, one) for one in posts]}

    async def _list_servers(self, _request: web.Request) -> dict[str, Any]:
        can_break = self._break_thing is not None
        return {
            "not_ready": self._is_ready(),
            "servers": [{"name": one.name, "state": one.state} for one in self._servers()] if can_break else [],
            "breakages": [
                {"what": one.name, "label": one.label, "choices": list(one.choices)} for one in self._breakages
            ],
        }

    async def _say(self, request: web.Request) -> dict[str, Any]:
        asked = await _asked(Say, request)
        return {"ts": self._acts.say(asked.channel, asked.user, asked.text, asked.thread).ts}

    async def _edit(self, request: web.Request) -> dict[str, Any]:
        asked = await _asked(Edit, request)
        return {"ts": self._acts.edit(asked.channel, asked.user, asked.message, asked.text).ts}

    async def _press(self, request: web.Request) -> dict[str, Any]:
        asked = await _asked(Press, request)
        await self._acts.press(asked.channel, asked.user, asked.message, asked.button, asked.block_id)
        return {}

    async def _slash(self, request: web.Request) -> dict[str, Any]:
        asked = await _asked(Slash, request)
        await self._acts.slash(asked.channel, asked.user, asked.command, asked.text)
        return {}

    async def _break(self, request: web.Request) -> dict[str, Any]:
        asked = await _asked(Break, request)
        if self._break_thing is None:
            raise Refused("not_broken", ["there is nothing here that could be broken"])
        try:
            done = await self._break_thing(asked.what, asked.server, asked.model_extra or {})
        except UpbotError as exc:
            raise Refused("not_broken", [str(exc)]) from exc
        return {"said": done}

    async def _misbehave(self, request: web.Request) -> dict[str, Any]:
        await self._faults.do(await _asked(Fault, request))
        return {}


async def _asked(kind: type[_Model], request: web.Request) -> _Model:
    try:
        return kind.model_validate(await body_of(request))
    except ValidationError as exc:
        raise Refused("invalid_arguments", reasons(exc)) from exc


_Handler = Callable[[web.Request], Awaitable[web.Response]]


def _answering(act: Callable[[web.Request], Awaitable[dict[str, Any]]]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            return web.json_response({"ok": True, **await act(request)})
        except Refused as exc:
            return refusal(exc)

    return handle
