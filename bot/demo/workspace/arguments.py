"""What the Web API's methods take, as pydantic models: from a query, a form or JSON, all of it untrusted.

A form carries nested values as JSON text, so those fields are read either way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bot.demo.workspace.room import Refused

MOST_BODY = 1024 * 1024
DEEPEST = 40


def _from_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return parsed(value) if value else None


def parsed(text: str | bytes) -> Any:
    """JSON that is not nested so deeply that it could hurt; ValueError otherwise."""
    try:
        value = json.loads(text)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if _is_deeper(value, DEEPEST):
        raise ValueError("nested too deeply")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inside)


_Word = Annotated[str, Field(max_length=255)]
_Body = Annotated[str, Field(max_length=500_000)]
_Blocks = Annotated[Any, BeforeValidator(_from_json)]
_Object = Annotated[dict[str, Any] | None, BeforeValidator(_from_json)]


class Arguments(BaseModel):
    """The base of all; like Slack, it passes over what it does not know."""

    model_config = ConfigDict(extra="ignore")


class Nothing(Arguments):
    """A method that needs nothing."""


class InChannel(Arguments):
    """A method about a channel."""

    channel: _Word = ""


class Said(InChannel):
    """What may be said: text, blocks, or both."""

    text: _Body = ""
    blocks: _Blocks = None
    metadata: _Object = None


class PostMessage(Said):
    """chat.postMessage."""

    thread_ts: _Word | None = None


class PostEphemeral(PostMessage):
    """chat.postEphemeral."""

    user: _Word = ""


class Update(Said):
    """chat.update."""

    ts: _Word = ""


class OfMessage(InChannel):
    """chat.delete, chat.getPermalink, reactions: one message, by either of its two names."""

    ts: _Word = ""
    message_ts: _Word = ""
    timestamp: _Word = ""
    name: _Word = ""

    @property
    def message(self) -> str:
        return self.ts or self.message_ts or self.timestamp


class History(InChannel):
    """conversations.history and conversations.replies."""

    ts: _Word = ""
    oldest: _Word = "0"
    latest: _Word = ""
    inclusive: bool = False
    include_all_metadata: bool = False
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: _Word = ""


class OfUser(Arguments):
    """users.info."""

    user: _Word = ""


class OfGroup(Arguments):
    """usergroups.users.list."""

    usergroup: Annotated[str, Field(min_length=1, max_length=255)]
    include_disabled: bool = False


class OpenView(Arguments):
    """views.open."""

    trigger_id: _Word = ""
    view: _Object = None


class UploadUrl(Arguments):
    """files.getUploadURLExternal."""

    filename: _Word = ""
    length: Annotated[int, Field(ge=1, le=MOST_BODY * 4)]


class Uploaded(Arguments):
    """One file of files.completeUploadExternal."""

    id: _Word
    title: _Word | None = None


class CompleteUpload(Arguments):
    """files.completeUploadExternal."""

    files: Annotated[list[Uploaded], BeforeValidator(_from_json), Field(min_length=1, max_length=20)]
    channel_id: _Word | None = None
    thread_ts: _Word | None = None
    initial_comment: Annotated[str, Field(max_length=40_000)] | None = None


class OfFile(Arguments):
    """files.info."""

    file: _Word = ""


async def raw_arguments(request: web.Request) -> Mapping[str, Any]:
    """Everything a call carries, wherever it stands: the query, a form, or a JSON object."""
    found: dict[str, Any] = dict(request.query)
    body = await request.read()
    if len(body) > MOST_BODY:
        raise Refused("request_too_large")
    if request.content_type == "application/json" and body:
        try:
            value = parsed(body)
        except ValueError as exc:
            raise Refused("invalid_json") from exc
        if not isinstance(value, dict):
            raise Refused("json_not_object")
        return found | value
    if request.content_type == "application/x-www-form-urlencoded":
        try:
            form = await request.post()
        except (ValueError, LookupError) as exc:
            raise Refused("invalid_form_data") from exc
        return found | {key: value for key, value in form.items() if isinstance(value, str)}
    return found


def understood(kind: type[Arguments], raw: Mapping[str, Any]) -> Any:
    """The arguments as that model; Refused when a value is no such thing."""
    try:
        return kind.model_validate(dict(raw))
    except ValidationError as exc:
        raise Refused("invalid_arguments", reasons(exc)) from exc


def reasons(wrong: ValidationError) -> list[str]:
    """What pydantic found, without repeating the value."""
    return [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"[:200] for one in wrong.errors()[:10]]
