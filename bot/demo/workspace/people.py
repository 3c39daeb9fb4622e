"""What people do: say, edit, press and type slash commands, told to the app; and the response URLs it answers to."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from bot.demo.workspace import shapes
from bot.demo.workspace.delivery import Pace, SocketMode
from bot.demo.workspace.room import APP, BOT_USER, TEAM, Channel, Person, Post, Refused, Room
from bot.demo.workspace.saying import Blocks, checked
from bot.ports import Clock

MOST_TYPED = 40_000
USES = 5

_SPECIAL = re.compile(
    r"(?P<link>https?://[^\s<>|]+)"
    r"|(?<![\w.@/-])(?P<domain>[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|io|ai|dev|bar|sh))(?![\w.-])"
    r"|(?<!\w)@(?P<name>[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*)"
)


def typed(text: str, room: Room) -> str:
    """A person's words as Slack passes them on: brackets escaped, names and addresses made into marks."""
    names = {one.name: one.id for one in room.people.values()}

    def mark(found: re.Match[str]) -> str:
        if found["name"]:
            known = names.get(found["name"].lower())
            return f"<@{known}>" if known else found[0]
        return f"<{found[0]}>" if found["link"] else f"<http://{found[0]}|{found[0]}>"

    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(mark, escaped)


@dataclass(slots=True)
class _Address:
    """What a response URL stands for, and how often it may still be used."""

    channel: str
    user: str
    message: str | None
    until: datetime
    left: int = USES


class Acts:
    """People's acts, and what the app may do in return."""

    def __init__(self, room: Room, line: SocketMode, clock: Clock, pace: Pace) -> None:
        self.base = ""
        self._room = room
        self._line = line
        self._clock = clock
        self._pace = pace
        self._addresses: dict[str, _Address] = {}
        self._triggers: dict[str, datetime] = {}
        self._used: dict[str, None] = {}

    def say(self, channel: str, user: str, text: str, thread: str | None = None) -> Post:
        """A person says something; the app hears of it at once. ``text`` is what they typed."""
        if not text.strip():
            raise Refused("no_text")
        if len(text) > MOST_TYPED:
            raise Refused("msg_too_long")
        where, who = self._room.channel(channel), self._human(user)
        return self._room.add(Post(self._room.stamp(), where.id, who.id, typed(text, self._room), thread=thread))

    def edit(self, channel: str, user: str, ts: str, text: str) -> Post:
        """A person changes what they said."""
        before = self._room.post(self._room.channel(channel).id, ts)
        if before.user != self._human(user).id:
            raise Refused("cant_update_message")
        words = typed(text, self._room)
        after = replace(before, text=words, is_edited=True, edited_at=self._room.stamp())
        return self._room.change(before, after, before.user)

    async def press(self, channel: str, user: str, ts: str, button: str, row: str | None = None) -> None:
        """A person presses a button, named by its label or action id, and it is acknowledged; Refused otherwise."""
        where, who = self._room.channel(channel), self._human(user)
        post = self._room.post(where.id, ts)
        if post.ephemeral_to not in (None, who.id):
            raise Refused("message_not_found", ["only another person sees that message"])
        block_id, element = _button(post, button, row)
        await self._acknowledged("interactive", self._pressed(where, who, post, block_id, element))

    async def slash(self, channel: str, user: str, command: str, text: str) -> None:
        """A person types a slash command; what the app acknowledges it with is shown to them."""
        if not re.fullmatch(r"/[a-z0-9_-]{1,32}", command):
            raise Refused("invalid_arguments", ["command: a slash and a word are wanted"])
        where, who = self._room.channel(channel), self._human(user)
        payload = {
            **self._common(),
            "team_id": TEAM,
            "team_domain": "upbot-demo",
            "channel_id": where.id,
            "channel_name": where.name,
            "user_id": who.id,
            "user_name": who.name,
            "command": command,
            "text": typed(text, self._room),
            "response_url": self._response_url(where.id, who.id, None),
        }
        ack = await self._acknowledged("slash_commands", payload)
        if ack.get("text") or ack.get("blocks"):
            self.answer(ack, where.id, who.id)

    async def _acknowledged(self, kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        ack = await self._line.ask(kind, payload)
        if ack is None:
            within = self._pace.ack_within.total_seconds()
            raise Refused("not_acknowledged", [f"the app did not acknowledge it within {within:g} s"])
        return ack

    def _common(self) -> dict[str, Any]:
        return {
            "token": "workspace",
            "api_app_id": APP,
            "trigger_id": self._trigger(),
            "enterprise": None,
            "is_enterprise_install": False,
        }

    def _pressed(
        self, where: Channel, who: Person, post: Post, block_id: str, element: Mapping[str, Any]
    ) -> dict[str, Any]:
        container = {
            "type": "message",
            "message_ts": post.ts,
            "channel_id": where.id,
            "is_ephemeral": bool(post.ephemeral_to),
        }
        if post.thread:
            container["thread_ts"] = post.thread
        payload = {
            **self._common(),
            "type": "block_actions",
            "user": {"id": who.id, "username": who.name, "name": who.name, "team_id": TEAM},
            "team": {"id": TEAM, "domain": "upbot-demo"},
            "channel": {"id": where.id, "name": where.name},
            "container": container,
            "state": {"values": {}},
            "response_url": self._response_url(where.id, who.id, post.ts),
            "actions": [{**element, "block_id": block_id, "action_ts": self._room.stamp()}],
        }
        return payload if post.ephemeral_to else {**payload, "message": shapes.message(self._room, post)}

    def _human(self, user: str) -> Person:
        who = self._room.person(user)
        if who.is_bot:
            raise Refused("user_not_found", ["only people can be spoken as"])
        return who

    def _trigger(self) -> str:
        name = f"{secrets.randbelow(10**12)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self._triggers[name] = self._clock.now() + self._pace.trigger_life
        if len(self._triggers) > 1000:
            del self._triggers[next(iter(self._triggers))]
        return name

    def use_trigger(self, name: str) -> None:
        """A trigger is good for one view and a few seconds; Refused otherwise."""
        until = self._triggers.pop(name, None)
        if until is None:
            raise Refused("exchanged_trigger_id" if name in self._used else "invalid_trigger_id")
        self._used[name] = None
        if len(self._used) > 1000:
            del self._used[next(iter(self._used))]
        if until < self._clock.now():
            raise Refused("expired_trigger_id")

    def _response_url(self, channel: str, user: str, message: str | None) -> str:
        secret = secrets.token_hex(16)
        until = self._clock.now() + self._pace.response_life
        self._addresses[secret] = _Address(channel, user, message, until)
        if len(self._addresses) > 1000:
            del self._addresses[next(iter(self._addresses))]
        return f"{self.base}response/{secret}"

    def respond(self, secret: str, body: Mapping[str, Any]) -> None:
        """The app used a response URL: replace or delete the message that was pressed, or say something."""
        address = self._addresses.get(secret)
        if address is None or address.until < self._clock.now():
            raise Refused("expired_url")
        if address.left <= 0:
            raise Refused("used_url")
        address.left -= 1
        if address.message and (body.get("replace_original") or body.get("delete_original")):
            self._rewrite(self._room.post(address.channel, address.message), body)
            return
        self.answer(body, address.channel, address.user)

    def _rewrite(self, before: Post, body: Mapping[str, Any]) -> None:
        if body.get("delete_original"):
            self._room.remove(before, BOT_USER)
            return
        text, blocks = _content(self._room, body)
        self._room.change(before, replace(before, text=text, blocks=blocks, is_edited=True), BOT_USER)

    def answer(self, body: Mapping[str, Any], channel: str, user: str) -> None:
        """Say something as the app, to that person alone unless it says in_channel."""
        text, blocks = _content(self._room, body)
        thread = body.get("thread_ts") if isinstance(body.get("thread_ts"), str) else None
        only_for = None if body.get("response_type") == "in_channel" else user
        self._room.add(Post(self._room.stamp(), channel, BOT_USER, text, blocks, thread, only_for))


def _content(room: Room, body: Mapping[str, Any]) -> tuple[str, Blocks]:
    text = body.get("text")
    if text is not None and not isinstance(text, str):
        raise Refused("invalid_arguments", ["text: must be a string"])
    return checked(room, text or "", body.get("blocks"))


def _button(post: Post, wanted: str, row: str | None) -> tuple[str, Mapping[str, Any]]:
    buttons = list(post.buttons)
    for block_id, one in buttons:
        if row in (None, block_id) and wanted in (one["text"]["text"], one.get("action_id")):
            return block_id, one
    labels = [one["text"]["text"] for _, one in buttons]
    raise Refused("no_such_button", [f"it has {', '.join(labels)}" if labels else "it has no buttons"])
