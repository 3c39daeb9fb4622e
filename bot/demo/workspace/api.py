"""The Web API: Slack's methods under /api/, each a function of typed arguments, strict about what it is given.

Errors have Slack's names. Where Slack would only show a broken message (marks that page people, see
`bot.demo.workspace.blocks`), this one refuses, so that a test finds it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from bot.demo.workspace import shapes
from bot.demo.workspace.arguments import (
    Arguments,
    History,
    InChannel,
    Nothing,
    OfGroup,
    OfMessage,
    OfUser,
    OpenView,
    PostEphemeral,
    PostMessage,
    Update,
    raw_arguments,
    understood,
)
from bot.demo.workspace.delivery import SocketMode
from bot.demo.workspace.people import Acts
from bot.demo.workspace.room import BOT, BOT_USER, TEAM, Channel, Post, Refused, Room
from bot.demo.workspace.saying import MOST_TEXT, checked
from bot.demo.workspace.uploads import Uploads
from bot.ports import Clock

MOST_UPDATE = 4_000
SCOPES = (
    "app_mentions:read,channels:history,chat:write,commands,files:read,files:write,reactions:write,usergroups:read,"
    "users:read"
)
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Method:
    """A method: what it takes, and what it does."""

    takes: type[Arguments]
    does: Callable[[Any], Answer]
    opens_with: str = "xoxb-"


class WebApi:
    """Answers /api/METHOD."""

    def __init__(self, room: Room, line: SocketMode, acts: Acts, uploads: Uploads, clock: Clock) -> None:
        self.bot_token = f"xoxb-{secrets.token_hex(12)}"
        self.app_token = f"xapp-1-{secrets.token_hex(12)}"
        self.base = ""
        self._room = room
        self._line = line
        self._acts = acts
        self._clock = clock
        self._methods = self._table(uploads)

    def _table(self, uploads: Uploads) -> Mapping[str, Method]:
        return {
            "api.test": Method(Nothing, lambda _: {}, ""),
            "auth.test": Method(Nothing, self._auth_test),
            "apps.connections.open": Method(Nothing, self._connections_open, "xapp-"),
            "bots.info": Method(Nothing, lambda _: {"bot": shapes.bot()}),
            "chat.postMessage": Method(PostMessage, self._post_message),
            "chat.postEphemeral": Method(PostEphemeral, self._post_ephemeral),
            "chat.update": Method(Update, self._update),
            "chat.delete": Method(OfMessage, self._delete),
            "chat.getPermalink": Method(OfMessage, self._permalink),
            "conversations.list": Method(Nothing, self._list),
            "conversations.info": Method(InChannel, self._info),
            "conversations.history": Method(History, self._history),
            "conversations.replies": Method(History, self._replies),
            "conversations.members": Method(InChannel, self._members),
            "usergroups.users.list": Method(OfGroup, self._group_members),
            "users.info": Method(OfUser, lambda args: {"user": shapes.user(self._room.person(args.user))}),
            "users.list": Method(Nothing, self._users),
            "reactions.add": Method(OfMessage, self._react),
            "reactions.remove": Method(OfMessage, self._unreact),
            "views.open": Method(OpenView, self._open_view),
            **{name: Method(takes, does) for name, (takes, does) in uploads.methods.items()},
        }

    async def handle(self, request: web.Request) -> web.Response:
        """One call."""
        name = request.match_info["method"]
        faults = self._line.faults
        instead = await faults.answer_instead(name, request)
        if instead is not None:
            return instead
        try:
            faults.refuse_if_told(name)
            raw = await raw_arguments(request)
            answer = {"ok": True, **self._call(name, request.headers.get("Authorization", ""), raw)}
        except Refused as exc:
            answer = {"ok": False, "error": exc.error}
            if exc.reasons:
                answer |= {"errors": list(exc.reasons), "response_metadata": {"messages": list(exc.reasons)}}
        if held := faults.stalls(name):
            await self._clock.sleep(held)
        return web.json_response(answer, headers={"X-OAuth-Scopes": SCOPES})

    def _call(self, name: str, header: str, raw: Mapping[str, Any]) -> Answer:
        method = self._methods.get(name)
        if method is None:
            raise Refused("unknown_method")
        self._check_token(method, header.removeprefix("Bearer ").strip() or raw.get("token"))
        return method.does(understood(method.takes, raw))

    def _check_token(self, method: Method, token: Any) -> None:
        if not method.opens_with:
            return
        if not isinstance(token, str) or not token:
            raise Refused("not_authed")
        if token not in (self.bot_token, self.app_token):
            raise Refused("invalid_auth")
        if not token.startswith(method.opens_with):
            raise Refused("not_allowed_token_type")

    def _auth_test(self, _args: Nothing) -> Answer:
        return {
            "url": self.base,
            "team": "Upbot demo",
            "user": "upbot",
            "team_id": TEAM,
            "user_id": BOT_USER,
            "bot_id": BOT,
            "is_enterprise_install": False,
        }

    def _connections_open(self, _args: Nothing) -> Answer:
        return {"url": f"{self.base.replace('http', 'ws', 1)}link/?ticket={self._line.ticket()}"}

    def _post(self, args: PostMessage, channel: Channel, only_for: str | None = None) -> Post:
        text, blocks = checked(self._room, args.text[:MOST_TEXT], args.blocks)
        thread = args.thread_ts or None
        if thread is not None:
            self._room.post(channel.id, thread)
        ts = self._room.stamp()
        return self._room.add(
            Post(ts, channel.id, BOT_USER, text, blocks, thread, only_for, metadata=_metadata(args.metadata))
        )

    def _post_message(self, args: PostMessage) -> Answer:
        channel = self._room.channel(args.channel)
        post = self._post(args, channel)
        return {"channel": channel.id, "ts": post.ts, "message": shapes.message(self._room, post)}

    def _post_ephemeral(self, args: PostEphemeral) -> Answer:
        channel = self._room.channel(args.channel)
        if args.user not in self._room.people:
            raise Refused("user_not_in_channel")
        return {"message_ts": self._post(args, channel, args.user).ts}

    def _own(self, args: InChannel, ts: str, error: str) -> Post:
        post = self._room.post(self._room.channel(args.channel).id, ts)
        if post.ephemeral_to:
            raise Refused("message_not_found")
        if post.user != BOT_USER:
            raise Refused(error)
        return post

    def _update(self, args: Update) -> Answer:
        before = self._own(args, args.ts, "cant_update_message")
        text, blocks = checked(self._room, args.text, args.blocks, most=MOST_UPDATE)
        after = replace(
            before,
            text=text,
            blocks=blocks,
            is_edited=True,
            edited_at=before.edited_at if blocks else self._room.stamp(),
            metadata=_metadata(args.metadata) or before.metadata,
        )
        self._room.change(before, after, BOT_USER)
        shape = shapes.message(self._room, after)
        return {"channel": after.channel, "ts": after.ts, "text": after.text, "message": shape}

    def _delete(self, args: OfMessage) -> Answer:
        post = self._own(args, args.message, "cant_delete_message")
        self._room.remove(post, BOT_USER)
        return {"channel": post.channel, "ts": post.ts}

    def _seen(self, args: OfMessage) -> Post:
        post = self._room.post(self._room.channel(args.channel).id, args.message)
        if post.ephemeral_to:
            raise Refused("message_not_found")
        return post

    def _permalink(self, args: OfMessage) -> Answer:
        post = self._seen(args)
        link = f"{self.base}archives/{post.channel}/p{post.ts.replace('.', '')}"
        return {"channel": post.channel, "permalink": link}

    def _list(self, _args: Nothing) -> Answer:
        members = len(self._room.people)
        channels = [shapes.channel(one, members) for one in self._room.channels.values()]
        return {"channels": channels, "response_metadata": {"next_cursor": ""}}

    def _info(self, args: InChannel) -> Answer:
        return {"channel": shapes.channel(self._room.channel(args.channel), len(self._room.people))}

    def _members(self, args: InChannel) -> Answer:
        self._room.channel(args.channel)
        return {"members": list(self._room.people), "response_metadata": {"next_cursor": ""}}

    def _users(self, _args: Nothing) -> Answer:
        return {"members": [shapes.user(one) for one in self._room.people.values()]}

    def _group_members(self, args: OfGroup) -> Answer:
        group = self._room.group(args.usergroup)
        return {"users": [] if group.is_disabled and not args.include_disabled else list(group.members)}

    def _history(self, args: History) -> Answer:
        channel = self._room.channel(args.channel).id
        top = [one for one in self._room.posts(channel) if not one.thread and not one.ephemeral_to]
        return self._page(args, top[::-1])

    def _replies(self, args: History) -> Answer:
        channel = self._room.channel(args.channel).id
        try:
            parent = self._room.post(channel, args.ts)
        except Refused as exc:
            raise Refused("thread_not_found") from exc
        return self._page(args, [parent, *self._room.replies(parent)])

    def _page(self, args: History, posts: list[Post]) -> Answer:
        wanted = [one for one in posts if is_wanted(one, args)]
        if args.cursor and not re.fullmatch(r"[0-9]{1,6}", args.cursor):
            raise Refused("invalid_cursor")
        start = int(args.cursor or 0)
        end = start + args.limit
        return {
            "messages": [
                shapes.message(self._room, one, metadata=args.include_all_metadata) for one in wanted[start:end]
            ],
            "has_more": end < len(wanted),
            "response_metadata": {"next_cursor": str(end) if end < len(wanted) else ""},
        }

    def _react(self, args: OfMessage) -> Answer:
        post, there = self._reaction(args)
        if BOT_USER in there:
            raise Refused("already_reacted")
        self._room.change(
            post, replace(post, reactions={**post.reactions, args.name: (*there, BOT_USER)}), BOT_USER, "reacted"
        )
        return {}

    def _unreact(self, args: OfMessage) -> Answer:
        post, there = self._reaction(args)
        if BOT_USER not in there:
            raise Refused("no_reaction")
        left = {**post.reactions, args.name: tuple(one for one in there if one != BOT_USER)}
        kept = {name: users for name, users in left.items() if users}
        self._room.change(post, replace(post, reactions=kept), BOT_USER, "reacted")
        return {}

    def _reaction(self, args: OfMessage) -> tuple[Post, tuple[str, ...]]:
        if not re.fullmatch(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?", args.name):
            raise Refused("invalid_name")
        post = self._seen(args)
        return post, post.reactions.get(args.name, ())

    def _open_view(self, args: OpenView) -> Answer:
        """Take a modal; the page does not show it, but the rules for its trigger hold."""
        self._acts.use_trigger(args.trigger_id)
        if not args.view or args.view.get("type") != "modal":
            raise Refused("invalid_arguments", ["view: a modal is wanted"])
        return {"view": {**args.view, "id": f"V{secrets.token_hex(5).upper()}", "team_id": TEAM}}


def is_wanted(post: Post, args: History) -> bool:
    """Whether a message is in the span that was asked for; a thread's first message always is."""
    if args.ts and post.ts == args.ts:
        return True
    return shapes.is_between(post.ts, args.oldest, args.latest, inclusive=args.inclusive)


def _metadata(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given.get("event_type"), str) or not isinstance(given.get("event_payload"), dict):
        raise Refused("invalid_metadata_format")
    return given
