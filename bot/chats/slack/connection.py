"""The Socket Mode connection, which heals itself.

The SDK would reconnect by itself, but without a bound, a backoff or a way to notice that a socket is open and dead.
So there is one place that opens connections, here: each with a fresh ticket, the new one before the old one is
closed, whenever the old one is closed, silent, deaf, or Slack asks to move. Every envelope is acknowledged, also
those that nobody here understands: Slack stops sending to an app that leaves too many without an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.websockets import SocketModeClient
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import WebSocketException

from bot.chats.slack.echoes import Echoes
from bot.chats.slack.pace import Pace
from bot.chats.slack.secrecy import sdk_logger
from bot.chats.slack.web import NotNow, Refused, Web
from bot.domain.errors import ConfigError
from bot.ports import Clock

_log = structlog.get_logger(__name__)


class _Socket(SocketModeClient):
    """The SDK's client, for its queue and its answers; opening and watching the line is ours."""

    def __init__(self, app_token: str, web: Web) -> None:
        super().__init__(app_token, logger=sdk_logger(), web_client=web.client)
        self.is_asked_to_move = False
        self.has_said_hello = False
        self.opened_at: datetime | None = None

    async def open(self, address: str, *, is_near: bool) -> None:
        """Open the line. The library's own pings are off: nobody would act on them sooner than the watcher."""
        self.current_session = await websocket(address, ping_interval=None, proxy=None if is_near else True)
        self.message_receiver = asyncio.create_task(self.receive_messages())

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        """Called for Slack's disconnect frame; the watcher moves."""
        self.is_asked_to_move = self.is_asked_to_move or force

    async def receive_messages(self) -> None:
        """Until the line closes; the SDK's own goes on reading a closed one, and complains each time."""
        session = self.current_session
        if session is None:
            return
        try:
            async for message in session:
                await self.enqueue_message(message if isinstance(message, str) else message.decode(errors="replace"))
        except (WebSocketException, OSError) as error:
            _log.info("the line to slack broke", error=type(error).__name__)

    @property
    def is_open(self) -> bool:
        session = self.current_session
        return not self.closed and session is not None and session.close_code is None


class Connection:
    """Keeps one live connection. ``prepare`` runs before each attempt and may raise NotNow or ConfigError."""

    def __init__(
        self,
        app: AsyncApp,
        app_token: str,
        web: Web,
        clock: Clock,
        pace: Pace,
        *,
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self._app = app
        self._app_token = app_token
        self._web = web
        self._clock = clock
        self._pace = pace
        self._prepare = prepare
        self._socket: _Socket | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._ours: set[_Socket] = set()
        self._pinged_at: datetime | None = None
        self._connected_since: datetime | None = None
        self.echoes = Echoes(pace.echo)

    @property
    def is_connected(self) -> bool:
        """Whether a socket is open and Slack has said hello on it."""
        return self._socket is not None and self._socket.is_open and self._socket.has_said_hello

    @property
    def connected_since(self) -> datetime | None:
        return self._connected_since if self.is_connected else None

    async def start(self) -> None:
        """Connect, and stay connected. ConfigError for a token that is refused; Slack being away is no error."""
        try:
            await self._renew("the first connection")
        except NotNow as later:
            _log.warning("slack can't be reached yet, trying on", why=str(later))
        self._start_watcher()

    async def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._socket is not None:
            self._discard(self._socket)
        await asyncio.gather(*self._closing, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ watching

    def _start_watcher(self, ended: asyncio.Task[None] | None = None) -> None:
        """Watch; and again should the watcher ever end by a mistake, since nobody else would notice the silence."""
        if ended is not None and (ended.cancelled() or ended.exception() is None):
            return
        if ended is not None:
            _log.critical("the watcher of the connection failed", exc_info=ended.exception())
        self._watcher = asyncio.create_task(self._watch())
        self._watcher.add_done_callback(self._start_watcher)

    async def _watch(self) -> None:
        wait = self._pace.retry
        while True:
            await self._clock.sleep(self._pace.check)
            reason = await self._ailment()
            if reason is None:
                wait = self._pace.retry
                continue
            try:
                await self._renew(reason)
            except NotNow as later:
                _log.warning("no connection to slack", why=str(later), reason=reason)
                await self._clock.sleep(later.after or wait)
                wait = min(wait * 2, self._pace.retry_most)
            except ConfigError as error:
                _log.error("slack refuses the connection", why=str(error))
                await self._clock.sleep(self._pace.retry_most)

    async def _ailment(self) -> str | None:
        """Why the connection must be renewed, or None."""
        socket, now = self._socket, self._clock.now()
        if socket is None or not socket.is_open:
            return "closed"
        if socket.is_asked_to_move:
            return "slack asked to move"
        opened_at = socket.opened_at or now
        if not socket.has_said_hello and now - opened_at > self._pace.hello:
            return "no hello"
        if self.echoes.is_deaf(now):
            return "own messages do not come back"
        if self._pinged_at is None or now - self._pinged_at >= self._pace.ping:
            self._pinged_at = now
            return await self._silence(socket)
        return None

    async def _silence(self, socket: _Socket) -> str | None:
        session = socket.current_session
        if session is None:
            return "closed"
        try:
            async with asyncio.timeout(self._pace.pong.total_seconds()):
                await (await session.ping())
        except TimeoutError:
            return "no pong"
        except (WebSocketException, OSError):
            return "closed"
        return None

    # ------------------------------------------------------------------------------------------------ opening

    async def _renew(self, reason: str) -> None:
        """Open a new connection, then close the old one. NotNow and ConfigError leave the old one as it is."""
        socket = await self._opened()
        socket.opened_at = self._clock.now()
        old, self._socket = self._socket, socket
        self._pinged_at = self._connected_since = socket.opened_at
        self.echoes.forget()
        if old is not None:
            self._discard(old)
        _log.info("connected to slack", reason=reason)

    async def _opened(self) -> _Socket:
        socket: _Socket | None = None
        is_open = False
        try:
            async with asyncio.timeout(self._pace.connect.total_seconds()):
                await self._prepare()
                address = await self._address()
                socket = self._new_socket()
                await socket.open(address, is_near=self._web.is_near)
                is_open = True
                return socket
        except (WebSocketException, OSError, TimeoutError, ValueError) as error:
            raise NotNow(f"the socket did not open ({type(error).__name__})") from error
        finally:
            if socket is not None and not is_open:
                self._discard(socket)

    async def _address(self) -> str:
        try:
            return await self._web.socket_address(self._app_token)
        except Refused as no:
            raise app_token_error(no.error) from no

    def _new_socket(self) -> _Socket:
        socket = _Socket(self._app_token, self._web)
        socket.message_listeners.append(self._frame)
        socket.socket_mode_request_listeners.append(self._envelope)
        self._ours.add(socket)
        return socket

    def _discard(self, socket: _Socket) -> None:
        task = asyncio.create_task(_close(socket, self._pace.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        task.add_done_callback(lambda _: self._ours.discard(socket))

    # ------------------------------------------------------------------------------------------------ frames

    async def _frame(self, client: AsyncBaseSocketModeClient, frame: dict[str, Any], _raw: str | None = None) -> None:
        if frame.get("type") == "hello" and isinstance(client, _Socket):
            client.has_said_hello = True
            others = frame.get("num_connections")
            if isinstance(others, int) and others > len(self._ours):
                _log.warning("another program uses the same app token and takes a part of the events", all=others)
        payload = frame.get("payload")
        event = payload.get("event") if isinstance(payload, dict) else None
        if isinstance(event, dict) and event.get("type") == "message":
            self.echoes.heard(str(event.get("channel")), str(event.get("ts")))

    async def _envelope(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        start = time.time()
        response = await run_async_bolt_app(self._app, request)
        if response.status != 200:
            _log.warning("nobody here understands an envelope", type=request.type, status=response.status)
            response = BoltResponse(status=200, body="")
        try:
            await send_async_response(client, request, response, start)
        except (WebSocketException, OSError, AttributeError) as error:
            _log.info("an answer was lost; slack will send it again", error=type(error).__name__)


async def _close(socket: _Socket, within: timedelta) -> None:
    """Close it and end its tasks; a dead line must not hold us up."""
    tasks = [socket.message_receiver, socket.message_processor]
    session = socket.current_session
    try:
        async with asyncio.timeout(within.total_seconds()):
            await socket.close()  # type: ignore[no-untyped-call]
    except (TimeoutError, WebSocketException, OSError):
        if session is not None:
            session.transport.abort()
    for task in tasks:
        if task is not None:
            task.cancel()
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


def app_token_error(error: str) -> ConfigError:
    """What is wrong with the app-level token, and what to do."""
    remedies = {
        "not_allowed_token_type": "that is no app-level token: it begins with xapp-",
        "missing_scope": "give the app-level token the scope connections:write",
        "forbidden_team": "the app belongs to another workspace",
    }
    what = remedies.get(error, "make a new app-level token (Basic Information, scope connections:write)")
    return ConfigError(f"Slack refused the app token: {error}; {what}", key="SLACK_APP_TOKEN")
