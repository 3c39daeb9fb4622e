"""Slack as a Chat: says what the bot says, and tells a Listener what people do.

In Socket Mode (an app token is set) nothing has to be reachable from outside; in HTTP mode (a signing secret, no app
token) Slack calls an address of ours. Both go through the same listeners.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

import structlog
from aiohttp import web as http
from slack_bolt.authorization import AuthorizeResult

from bot.chats.slack.connection import Connection
from bot.chats.slack.errands import Errands
from bot.chats.slack.events import Identity, Ignored, Incoming, read_event, read_press
from bot.chats.slack.listeners import bolt_app
from bot.chats.slack.markup import clean, escape
from bot.chats.slack.outbox import Outbox
from bot.chats.slack.pace import Pace
from bot.chats.slack.web import NotNow, Refused, Web
from bot.domain.errors import ChatError, ConfigError, NoSuchGroup, StoreError
from bot.domain.message import Message, Picture, says
from bot.ports import Clock, Heard, Listener, Place, Pressed, Ref

_log = structlog.get_logger(__name__)
_REMEMBERED = 5_000
_UPLOAD_TRIES = 5


class Seen(Protocol):
    """Remembers for at least ten minutes, over restarts too, what was handled: Slack delivers some things twice."""

    def seen(self, key: str, at: datetime) -> bool:
        """Whether the key is known already; from now on it is. ``at`` is when it came. StoreError when it can't."""
        ...


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """How to reach the workspace. The tokens are secrets and are never shown."""

    bot_token: str = field(repr=False)
    app_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    base_url: str = "https://slack.com/api/"
    listen_host: str = "127.0.0.1"
    """In HTTP mode; behind a proxy that Slack can reach."""
    listen_port: int = 3000
    path: str = "/slack/events"


class Slack:
    """A Chat, and its Groups. ``start`` before anything else, ``stop`` at the end."""

    def __init__(self, settings: SlackSettings, seen: Seen, clock: Clock, pace: Pace | None = None) -> None:
        _check(settings)
        self._settings = settings
        self._seen = seen
        self._clock = clock
        self._pace = pace = pace or Pace()
        self._web = Web(settings.bot_token, settings.base_url, pace.call)
        self._identity: Identity | None = None
        self._listener: Listener | None = None
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._outbox = Outbox(self._web, clock, pace, on_said=self._said, on_picture=self._picture)
        self._reactions = Errands(clock, pace, tries=1)
        self._uploads = Errands(clock, pace, tries=_UPLOAD_TRIES)
        self._app = bolt_app(
            self._web.client,
            settings.signing_secret,
            authorized=self._authorized,
            on_event=self._on_event,
            on_press=self._on_press,
        )
        self._connection: Connection | None = None
        if settings.app_token:
            self._connection = Connection(self._app, settings.app_token, self._web, clock, pace, prepare=self._identify)
        self._identifying: asyncio.Task[None] | None = None
        self._runner: http.AppRunner | None = None
        self._served_since: datetime | None = None
        self._address = ""

    # ------------------------------------------------------------------------------------------------ its life

    async def start(self, listener: Listener) -> None:
        """Log in and listen. ConfigError when Slack refuses a token; when Slack is away it goes on trying."""
        self._listener = listener
        await self._web.open()
        try:
            await self._enter()
        except ConfigError:
            await self.stop()
            raise

    async def introduce(self) -> Identity:
        """Ask Slack once who the bot is, without listening; ConfigError when it refuses, ChatError when it is away."""
        await self._web.open()
        try:
            await self._identify()
        except NotNow as later:
            raise ChatError(f"Slack can't be reached: {later}") from later
        finally:
            await self._web.close()
        return self._identity or Identity("")

    async def _enter(self) -> None:
        if self._connection is not None:
            await self._connection.start()
            return
        await self._serve()
        try:
            await self._identify()
        except NotNow as later:
            _log.warning("slack can't be reached yet", why=str(later))
            self._identifying = asyncio.create_task(self._identify_later())

    async def _identify_later(self) -> None:
        while self._identity is None:
            await self._clock.sleep(self._pace.retry_most)
            try:
                await self._identify()
            except NotNow as later:
                _log.info("slack can't be reached yet", why=str(later))
            except ConfigError as error:
                _log.error("slack refuses the bot", why=str(error))

    async def stop(self) -> None:
        """Stop listening, give up what still waits, close everything."""
        if self._connection is not None:
            await self._connection.stop()
        if self._identifying is not None:
            self._identifying.cancel()
            await asyncio.gather(self._identifying, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._served_since = None
        await self._outbox.close()
        await self._reactions.close()
        await self._uploads.close()
        await self._web.close()

    @property
    def is_connected(self) -> bool:
        """Whether Slack can tell us what people do, as far as can be seen from here."""
        return self._connection.is_connected if self._connection is not None else self._served_since is not None

    @property
    def connected_since(self) -> datetime | None:
        return self._connection.connected_since if self._connection is not None else self._served_since

    @property
    def identity(self) -> Identity | None:
        """Who the bot is; None until Slack was reached for the first time."""
        return self._identity

    @property
    def waiting(self) -> int:
        """How many posts and edits Slack has not taken yet."""
        return self._outbox.waiting

    @property
    def address(self) -> str:
        """In HTTP mode, where it listens."""
        return self._address

    async def _serve(self) -> None:
        within = self._pace.close.total_seconds()
        app = self._app.web_app(self._settings.path)
        self._runner = http.AppRunner(app, access_log=None, shutdown_timeout=within)
        await self._runner.setup()
        site = http.TCPSite(self._runner, self._settings.listen_host, self._settings.listen_port)
        try:
            await site.start()
        except OSError as error:
            where = f"{self._settings.listen_host}:{self._settings.listen_port}"
            raise ConfigError(f"can't listen on {where}: {error.strerror}") from error
        host, port = self._runner.addresses[0][:2]
        self._address = f"http://{host}:{port}{self._settings.path}"
        self._served_since = self._clock.now()

    async def _identify(self) -> None:
        if self._identity is not None:
            return
        try:
            answer = await self._web.who_am_i()
        except Refused as no:
            raise _bot_token_error(no.error) from no
        self._identity = Identity(
            str(answer.get("user_id", "")),
            str(answer.get("bot_id", "")),
            str(answer.get("team_id", "")),
            str(answer.get("user", "")),
        )
        _log.info("logged in to slack", user=self._identity.name, team=answer.get("team"))

    def _authorized(self) -> AuthorizeResult:
        who = self._identity or Identity("")
        return AuthorizeResult(
            enterprise_id=None,
            team_id=who.team,
            bot_user_id=who.user,
            bot_id=who.bot,
            bot_token=self._settings.bot_token,
        )

    # ------------------------------------------------------------------------------------------------ to Slack

    async def post(self, place: Place, message: Message) -> Ref:
        return await self._outbox.post(place, message)

    async def edit(self, ref: Ref, message: Message) -> None:
        await self._outbox.edit(ref, message)

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        await self._outbox.post(place, message, to=user)

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        stamp = self._outbox.real_id(ref)
        if stamp is not None:
            self._reactions.do(
                f"{sign} {'on' if on else 'off'}", lambda: self._web.react(ref.channel, stamp, sign, on=on)
            )

    async def members(self, group: str) -> frozenset[str]:
        try:
            return frozenset(await self._web.group_members(group))
        except Refused as no:
            if no.error == "no_such_subteam":
                raise NoSuchGroup(f"Slack has no user group {group}") from no
            raise ChatError(f"Slack does not tell who is in {group}: {no}") from no
        except NotNow as later:
            raise ChatError(f"Slack can't be asked who is in {group}: {later}") from later

    def _said(self, ref: Ref) -> None:
        if self._connection is not None:
            self._connection.echoes.said(ref.channel, ref.id, self._clock.now())

    def _picture(self, ref: Ref, picture: Picture) -> None:
        thread = ref.thread or ref.id

        async def upload() -> None:
            await self._web.upload(ref.channel, thread, picture, escape(clean(picture.alt)))

        def told() -> None:
            lost = says("The picture could not be uploaded. It shows: ", picture.alt)
            self._outbox.leave(Place(ref.channel, thread), lost)

        self._uploads.do(f"picture {picture.name}", upload, told)

    # ------------------------------------------------------------------------------------------------ from Slack

    def _on_event(self, body: dict[str, Any]) -> None:
        self._hand_on(read_event(body, self._identity or Identity(""), self._clock.now()))

    def _on_press(self, body: dict[str, Any]) -> None:
        self._hand_on(read_press(body, self._clock.now()))

    def _hand_on(self, incoming: Incoming | Ignored) -> None:
        if isinstance(incoming, Ignored):
            _log.debug("ignored", reason=incoming.reason)
            return
        if self._listener is None or self._is_known(incoming.keys):
            return
        event = incoming.event
        if isinstance(event, Heard):
            self._listener.heard(replace(event, place=self._known_place(event.place)))
        else:
            self._listener.pressed(self._known_press(event))

    def _known_place(self, place: Place) -> Place:
        if place.thread is None:
            return place
        return Place(place.channel, self._outbox.known_as(place.channel, place.thread))

    def _known_press(self, event: Pressed) -> Pressed:
        place = self._known_place(event.place)
        stamp = self._outbox.known_as(event.message.channel, event.message.id)
        return replace(event, place=place, message=Ref(event.message.channel, stamp, place.thread))

    def _is_known(self, keys: tuple[str, ...]) -> bool:
        """Whether any key was handled before; all of them are from now on."""
        return any([self._is_repeated(key) for key in keys])  # noqa: C419 - each key must be remembered

    def _is_repeated(self, key: str) -> bool:
        if key in self._handled:
            return True
        self._handled[key] = None
        if len(self._handled) > _REMEMBERED:
            self._handled.popitem(last=False)
        try:
            return self._seen.seen(key, self._clock.now())
        except StoreError as error:
            # Looking must go on without a disk; what destroys is refused by whoever can't write it down.
            _log.error("can't remember what was handled", why=str(error))
            return False


def _check(settings: SlackSettings) -> None:
    if not settings.bot_token:
        raise ConfigError("no bot token (OAuth & Permissions of the app, begins with xoxb-)", key="SLACK_BOT_TOKEN")
    if settings.bot_token.startswith("xapp-"):
        raise ConfigError("that is the app-level token; the bot token begins with xoxb-", key="SLACK_BOT_TOKEN")
    if settings.app_token.startswith(("xoxb-", "xoxp-")):
        raise ConfigError("that is a bot token; the app-level token begins with xapp-", key="SLACK_APP_TOKEN")
    if not (settings.app_token or settings.signing_secret):
        raise ConfigError("set an app token (Socket Mode) or a signing secret (HTTP mode)", key="SLACK_APP_TOKEN")


def _bot_token_error(error: str) -> ConfigError:
    what = {
        "account_inactive": "the app was removed from the workspace: install it again",
        "token_revoked": "install the app again and take its new token",
        "token_expired": "token rotation is on: turn it off for this app, or take a new token",
    }.get(error, "take the Bot User OAuth Token of the app (begins with xoxb-)")
    return ConfigError(f"Slack refused the bot token: {error}; {what}", key="SLACK_BOT_TOKEN")
