"""What the workspace remembers: people, channels, messages, reactions and files; no network and no clock.

Everything is bounded: the oldest messages and files go when there are too many, since this is a demo's and a
test's workspace and nothing is written down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bot.domain.errors import UpbotError

TEAM = "T0UPBOT"
APP = "A0UPBOT"
BOT = "B0UPBOT"
BOT_USER = "U0UPBOT"
MOST_MESSAGES = 5_000
MOST_FILES = 200
MOST_BYTES = 64 * 1024 * 1024


class Refused(UpbotError):
    """The workspace says no: Slack's name for it, and for people the reasons."""

    def __init__(self, error: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(": ".join([error, *reasons[:1]]))
        self.error = error
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of the workspace. ``about`` is shown beside the name ("operator")."""

    id: str
    name: str
    about: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A user group: people who are meant together. One that is switched off stays there, with nobody in it."""

    id: str
    members: tuple[str, ...] = ()
    is_disabled: bool = False


PEOPLE = (
    Person("U0ANA", "ana", "operator"),
    Person("U0BO", "bo", "operator"),
    Person("U0VIC", "vic", "viewer"),
)
UPBOT = Person(BOT_USER, "upbot", "app", is_bot=True)


@dataclass(frozen=True, slots=True)
class Channel:
    """A place where people talk."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Post:
    """One message as it stands now.

    ``is_edited`` says that it was changed at all; ``edited_at`` is Slack's mark, which blocks do not get.
    """

    ts: str
    channel: str
    user: str
    text: str
    blocks: tuple[Mapping[str, Any], ...] = ()
    thread: str | None = None
    ephemeral_to: str | None = None
    is_edited: bool = False
    edited_at: str | None = None
    reactions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = None
    subtype: str | None = None

    @property
    def buttons(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The buttons of the message, each with its block's id."""
        for block in self.blocks:
            inside = block.get("elements", ()) if block["type"] == "actions" else (block.get("accessory", {}),)
            for one in inside:
                if one.get("type") == "button":
                    yield block["block_id"], one


@dataclass(frozen=True, slots=True)
class File:
    """An upload; it can be shown once it is complete."""

    id: str
    name: str
    length: int
    at: datetime
    owner: str = BOT_USER
    title: str = ""
    content: bytes | None = None
    is_complete: bool = False
    shared_in: tuple[tuple[str, str], ...] = ()

    @property
    def mime(self) -> str:
        """The kind, by its first bytes; what is no picture is never shown as anything but bytes."""
        start = (self.content or b"")[:12]
        if start.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png"
        if start.startswith(b"\xff\xd8\xff"):
            return "image/jpeg"
        return "image/gif" if start.startswith((b"GIF87a", b"GIF89a")) else "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something changed: ``kind`` is posted, edited, deleted or reacted; ``before`` is how the message stood."""

    kind: str
    post: Post
    before: Post | None = None
    by: str = ""


def micros(ts: str) -> int:
    """A timestamp as a number that compares; Refused when it is none."""
    found = re.fullmatch(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?", ts)
    if not found:
        raise Refused("invalid_arguments", ["not a timestamp"])
    return int(found[1]) * 1_000_000 + int((found[2] or "0").ljust(6, "0"))


def _channel(name: str) -> Channel:
    """A channel with an id that says which it is: C0FLEET."""
    return Channel("C0" + re.sub(r"[^A-Z0-9]", "", name.upper()), name)


class Room:
    """The workspace's content. Whoever must know of changes stands in ``watchers`` and is called at once."""

    def __init__(self, people: Iterable[Person], channels: Sequence[str], now: Callable[[], datetime]) -> None:
        self.people = {one.id: one for one in (*people, UPBOT)}
        self.channels = {one.id: one for one in map(_channel, channels)}
        self.groups: dict[str, Group] = {}
        self.files: dict[str, File] = {}
        self.watchers: list[Callable[[Happening], None]] = []
        self._posts: dict[str, dict[str, Post]] = {one: {} for one in self.channels}
        self._now = now
        self._last = 0

    def stamp(self) -> str:
        """A timestamp that no other message has and that is later than all before."""
        self._last = max(self._last + 1, int(self._now().timestamp() * 1_000_000))
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def channel(self, name_or_id: str) -> Channel:
        """The channel of that name, with or without its #, or of that id; Refused when there is none."""
        wanted = name_or_id.removeprefix("#")
        for one in self.channels.values():
            if wanted in (one.id, one.name):
                return one
        raise Refused("channel_not_found")

    def person(self, name_or_id: str) -> Person:
        """The person of that name or id; Refused when there is none."""
        for one in self.people.values():
            if name_or_id in (one.id, one.name):
                return one
        raise Refused("user_not_found")

    def group(self, id_: str) -> Group:
        """The user group of that id; Refused when there is none."""
        if id_ not in self.groups:
            raise Refused("no_such_subteam")
        return self.groups[id_]

    def posts(self, channel: str) -> list[Post]:
        """All messages of a channel in their order, thread replies and ephemeral ones among them."""
        return list(self._posts[channel].values())

    def post(self, channel: str, ts: str) -> Post:
        """One message; Refused when it is gone or never was."""
        found = self._posts[channel].get(ts)
        if found is None:
            raise Refused("message_not_found")
        return found

    def replies(self, post: Post) -> list[Post]:
        """The replies in a message's thread that all can see."""
        return [one for one in self._posts[post.channel].values() if one.thread == post.ts and not one.ephemeral_to]

    def add(self, post: Post) -> Post:
        """A new message. A reply to a reply belongs to the thread of the first message, as in Slack."""
        if post.thread is not None:
            parent = self.post(post.channel, post.thread)
            post = replace(post, thread=parent.thread or parent.ts)
        messages = self._posts[post.channel]
        messages[post.ts] = post
        if len(messages) > MOST_MESSAGES:
            del messages[next(iter(messages))]
        self._tell(Happening("posted", post, by=post.user))
        return post

    def change(self, before: Post, after: Post, by: str, kind: str = "edited") -> Post:
        """The message stands otherwise now."""
        self._posts[before.channel][before.ts] = after
        self._tell(Happening(kind, after, before, by))
        return after

    def remove(self, post: Post, by: str) -> None:
        """The message is gone."""
        del self._posts[post.channel][post.ts]
        self._tell(Happening("deleted", post, post, by))

    def keep(self, file: File) -> File:
        """Remember an upload, or how it stands now."""
        self.files[file.id] = file
        while len(self.files) > MOST_FILES or sum(len(one.content or b"") for one in self.files.values()) > MOST_BYTES:
            del self.files[next(iter(self.files))]
        return file

    def complete_files(self) -> set[str]:
        """The uploads that a message may show."""
        return {one.id for one in self.files.values() if one.is_complete}

    def _tell(self, happening: Happening) -> None:
        for watcher in self.watchers:
            watcher(happening)
