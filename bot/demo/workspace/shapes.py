"""How Slack writes down what stands in the room: messages, users, channels, files, and the events about them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.demo.workspace.room import APP, BOT, BOT_USER, TEAM, Channel, File, Happening, Person, Post, Room, micros

Shape = dict[str, Any]


def message(room: Room, post: Post, *, metadata: bool = False) -> Shape:
    """A message as conversations.history gives it."""
    shape: Shape = {"type": "message", "user": post.user, "text": post.text, "ts": post.ts, "team": TEAM}
    if post.user == BOT_USER:
        shape |= {"bot_id": BOT, "app_id": APP, "bot_profile": bot()}
    if post.subtype:
        shape["subtype"] = post.subtype
    if post.blocks:
        shape["blocks"] = [dict(block) for block in post.blocks]
    if post.thread:
        shape |= {"thread_ts": post.thread}
    elif replies := room.replies(post):
        shape |= {"thread_ts": post.ts, "reply_count": len(replies), "latest_reply": replies[-1].ts}
        shape["reply_users"] = sorted({one.user for one in replies})
    if post.edited_at:
        shape["edited"] = {"user": post.user, "ts": post.edited_at}
    if post.reactions:
        shape["reactions"] = [
            {"name": name, "users": list(users), "count": len(users)} for name, users in post.reactions.items()
        ]
    if post.files:
        shape["files"] = [file(room.files[one]) for one in post.files if one in room.files]
    if metadata and post.metadata:
        shape["metadata"] = dict(post.metadata)
    return shape


def user(person: Person) -> Shape:
    """A user as users.info gives it."""
    return {
        "id": person.id,
        "team_id": TEAM,
        "name": person.name,
        "real_name": person.name,
        "deleted": False,
        "is_bot": person.is_bot,
        "tz": "Etc/UTC",
        "profile": {"display_name": person.name, "real_name": person.name, "title": person.about},
    }


def bot() -> Shape:
    """The app's bot as bots.info gives it."""
    return {"id": BOT, "app_id": APP, "user_id": BOT_USER, "name": "upbot", "deleted": False, "team_id": TEAM}


def channel(one: Channel, members: int) -> Shape:
    """A public channel as conversations.info gives it."""
    return {
        "id": one.id,
        "name": one.name,
        "is_channel": True,
        "is_private": False,
        "is_archived": False,
        "is_member": True,
        "is_general": False,
        "num_members": members,
    }


def file(one: File) -> Shape:
    """A file as files.info gives it; ``shares`` fills when it was shown in a channel."""
    public: dict[str, list[Shape]] = {}
    for where, ts in one.shared_in:
        public.setdefault(where, []).append({"ts": ts, "channel_name": where})
    return {
        "id": one.id,
        "created": int(one.at.timestamp()),
        "name": one.name,
        "title": one.title or one.name,
        "user": one.owner,
        "size": one.length,
        "mimetype": one.mime if one.is_complete else "",
        "filetype": one.mime.partition("/")[2] if one.is_complete else "",
        "mode": "hosted",
        "url_private": f"/files/{one.id}",
        "channels": list(public),
        "shares": {"public": public} if public else {},
    }


def event(inside: Mapping[str, Any], at: datetime) -> Shape:
    """An event in the wrapping in which Slack delivers it, with an id of its own."""
    return {
        "token": "workspace",
        "team_id": TEAM,
        "api_app_id": APP,
        "type": "event_callback",
        "event": dict(inside),
        "event_id": f"Ev{secrets.token_hex(5).upper()}",
        "event_time": int(at.timestamp()),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": TEAM,
                "user_id": BOT_USER,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{secrets.token_hex(8)}",
    }


def happened(room: Room, happening: Happening) -> list[Shape]:
    """The inner events that Slack sends for a change, a mention's app_mention last; none for what one person sees."""
    post = happening.post
    if post.ephemeral_to or happening.kind == "reacted":
        return []
    where = {"channel": post.channel, "channel_type": "channel"}
    if happening.kind == "posted":
        return _said(room, post, where)
    shape: Shape = {"type": "message", "hidden": True, "ts": room.stamp(), **where}
    shape["event_ts"] = shape["ts"]
    before = message(room, happening.before or post)
    if happening.kind == "deleted":
        return [{**shape, "subtype": "message_deleted", "deleted_ts": post.ts, "previous_message": before}]
    now = message(room, post)
    return [{**shape, "subtype": "message_changed", "message": now, "previous_message": before}]


def _said(room: Room, post: Post, where: Shape) -> list[Shape]:
    said = {**message(room, post), **where, "event_ts": post.ts}
    if post.thread:
        parent = next((one for one in room.posts(post.channel) if one.ts == post.thread), None)
        said["parent_user_id"] = parent.user if parent else ""
    if post.user != BOT_USER:
        said["client_msg_id"] = secrets.token_hex(16)
    if post.user == BOT_USER or f"<@{BOT_USER}>" not in post.text:
        return [said]
    mention = {key: value for key, value in said.items() if key != "channel_type"}
    return [said, {**mention, "type": "app_mention"}]


def told(room: Room, post: Post) -> Shape:
    """A message as the control API and the page show it: names instead of ids where a person would say them."""

    def name(one: str) -> str:
        return room.people[one].name if one in room.people else one

    return {
        "ts": post.ts,
        "user": name(post.user),
        "text": post.text,
        "blocks": [dict(block) for block in post.blocks],
        "thread_ts": post.thread,
        "ephemeral_to": name(post.ephemeral_to) if post.ephemeral_to else None,
        "edited": post.is_edited,
        "reactions": [
            {"name": sign, "users": [name(one) for one in users], "count": len(users)}
            for sign, users in post.reactions.items()
        ],
        "files": [_shown(room.files[one]) for one in post.files if one in room.files],
    }


def _shown(one: File) -> Shape:
    return {"id": one.id, "name": one.name, "title": one.title or one.name, "mimetype": one.mime}


def is_between(ts: str, oldest: str, latest: str, *, inclusive: bool) -> bool:
    """Whether a message stands between two timestamps; an empty ``latest`` means now."""
    at, least = micros(ts), micros(oldest or "0")
    most = micros(latest) if latest else None
    if inclusive:
        return least <= at and (most is None or at <= most)
    return least < at and (most is None or at < most)
