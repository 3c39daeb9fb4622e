"""What Slack tells, as what a person did: a message event becomes Heard, a press of a button Pressed.

Everything else is Ignored, with the reason. Edits are never commands (Slack also reports an unfurled link as one),
and neither is what another bot says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from bot.chats.slack.typed import typed
from bot.ports import Heard, Place, Pressed, Ref

_ALLOWED_SUBTYPES = {None, "thread_broadcast", "file_share"}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is in its workspace."""

    user: str
    bot: str = ""
    team: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something that is not for us, and why."""

    reason: str


class _Event(BaseModel):
    type: str
    channel: str = Field(min_length=1)
    ts: str = Field(min_length=1)
    user: str | None = None
    text: str | None = None
    subtype: str | None = None
    bot_id: str | None = None
    thread_ts: str | None = None
    channel_type: str | None = None
    hidden: bool = False


class _Callback(BaseModel):
    event: _Event
    event_id: str | None = None
    event_time: float | None = None


class _Label(BaseModel):
    text: str = ""


class _Action(BaseModel):
    type: str
    action_id: str = ""
    value: str | None = None
    action_ts: str = ""
    text: _Label = Field(default_factory=_Label)


class _Id(BaseModel):
    id: str = Field(min_length=1)


class _Container(BaseModel):
    message_ts: str = Field(min_length=1)
    thread_ts: str | None = None


class _Shown(BaseModel):
    thread_ts: str | None = None


class _Press(BaseModel):
    user: _Id
    channel: _Id
    container: _Container
    message: _Shown | None = None
    actions: list[_Action] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a person did, and the keys under which the same thing may come again."""

    event: Heard | Pressed
    keys: tuple[str, ...]


def read_event(body: Mapping[str, Any], bot: Identity, now: datetime) -> Incoming | Ignored:
    """A message or a mention of the bot as Heard. ``now`` stands in for a time that can't be read."""
    kind = _kind(body)
    if kind not in {"message", "app_mention"}:
        return Ignored(f"event {kind[:60]}")
    try:
        callback = _Callback.model_validate(body)
    except ValidationError as wrong:
        return Ignored(f"{kind} that can't be read: {_where(wrong)}")
    event = callback.event
    reason = _not_for_us(event, bot)
    if reason:
        return Ignored(reason)
    words = typed(event.text or "", bot.user)
    is_addressed = words.mentions_bot or event.channel_type == "im" or event.type == "app_mention"
    if not words.text and not is_addressed:
        return Ignored("a message without words")
    thread = event.thread_ts if event.thread_ts != event.ts else None
    at = _instant(event.ts) or _instant(str(callback.event_time)) or now
    heard = Heard(Place(event.channel, thread), event.ts, event.user or "", words.text, at, is_addressed)
    keys = [f"message:{event.channel}:{event.ts}"]
    if callback.event_id:
        keys.append(f"event:{callback.event_id}")
    return Incoming(heard, tuple(keys))


def _kind(body: Mapping[str, Any]) -> str:
    event = body.get("event")
    return str(event.get("type", "")) if isinstance(event, Mapping) else ""


def _not_for_us(event: _Event, bot: Identity) -> str:
    if event.subtype not in _ALLOWED_SUBTYPES:
        return f"message of subtype {event.subtype[:40] if event.subtype else ''}"
    if event.hidden:
        return "a hidden message"
    if event.bot_id:
        return "a bot's message"
    if not event.user or event.user == bot.user:
        return "a message of nobody else"
    return ""


def read_press(body: Mapping[str, Any], now: datetime) -> Incoming | Ignored:
    """The first action of an interaction as Pressed, if it is a button of ours in a message."""
    try:
        press = _Press.model_validate(body)
    except ValidationError as wrong:
        return Ignored(f"an interaction that can't be read: {_where(wrong)}")
    action = press.actions[0]
    if action.type != "button" or not action.value:
        return Ignored(f"an action of type {action.type[:40]} that carries nothing")
    stamp = press.container.message_ts
    thread = press.container.thread_ts or (press.message.thread_ts if press.message else None)
    thread = thread if thread != stamp else None
    channel = press.channel.id
    pressed = Pressed(
        Place(channel, thread),
        Ref(channel, stamp, thread),
        press.user.id,
        action.value,
        _instant(action.action_ts) or now,
        action.text.text,
    )
    # Slack sends a press again when its answer was lost; without its time it can't be told from a second press.
    key = f"press:{channel}:{stamp}:{press.user.id}:{action.action_id}:{action.action_ts}"
    return Incoming(pressed, (key,) if action.action_ts else ())


def _instant(stamp: str) -> datetime | None:
    """The instant of a Slack timestamp ("1701000000.000100"), or None when it is none."""
    try:
        return datetime.fromtimestamp(float(stamp), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _where(wrong: ValidationError) -> str:
    first = wrong.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(one) for one in first['loc'])}: {first['msg']}"
