"""Socket Mode: one-time URLs, the WebSockets, and envelopes that are sent again until they are acknowledged.

As Slack does it: each envelope goes to one of the app's connections, an event that nobody acknowledges within three
seconds is sent again at once, a minute later and five minutes after that, and what a person pressed or a slash
command is never sent again. A connection that comes while an event waits for one gets it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog
from aiohttp import WSMsgType, web

from bot.demo.workspace.faults import Misbehaviour
from bot.demo.workspace.room import APP
from bot.ports import Clock

_log = structlog.get_logger(__name__)
MOST_TICKETS = 1000
Ack = Mapping[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take here; a test shortens them.

    ``again`` holds the waits before each further attempt, counted from the end of the one before.
    """

    ack_within: timedelta = timedelta(seconds=3)
    again: tuple[timedelta, ...] = (timedelta(0), timedelta(minutes=1), timedelta(minutes=5))
    ticket_life: timedelta = timedelta(seconds=30)
    trigger_life: timedelta = timedelta(seconds=3)
    response_life: timedelta = timedelta(minutes=30)
    ping_every: timedelta = timedelta(seconds=10)
    share_lag: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver an envelope: on which connection (None: there was none) and whether it was acked."""

    envelope: str
    kind: str
    attempt: int
    connection: int | None
    is_acked: bool


class _Connection:
    def __init__(self, number: int, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.number = number
        self.socket = socket
        self.is_mute = False
        self._request = request

    async def send(self, frame: Mapping[str, Any]) -> None:
        if self.is_mute:
            return
        try:
            await self.socket.send_str(json.dumps(frame))
        except (ConnectionError, RuntimeError) as exc:
            _log.debug("a connection went away", why=str(exc))

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


class SocketMode:
    """The app's connections to the workspace."""

    def __init__(self, clock: Clock, pace: Pace) -> None:
        self.deliveries: deque[Delivery] = deque(maxlen=1000)
        self.faults = Misbehaviour(clock, self)
        self._clock = clock
        self._pace = pace
        self._tickets: dict[str, datetime] = {}
        self._connections: list[_Connection] = []
        self._arrived = asyncio.Event()
        self._count = 0
        self._turn = 0
        self._acks: dict[str, asyncio.Future[Ack]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def ticket(self) -> str:
        """A ticket for one connection, good for a short time."""
        ticket = secrets.token_hex(16)
        self._tickets[ticket] = self._clock.now() + self._pace.ticket_life
        if len(self._tickets) > MOST_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        return ticket

    def expire_tickets(self) -> None:
        self._tickets.clear()

    def abort(self) -> None:
        for one in tuple(self._connections):
            one.abort()
            self._connections.remove(one)

    def mute(self) -> None:
        for one in self._connections:
            one.is_mute = True

    async def disconnect(self, reason: str) -> None:
        frame = {"type": "disconnect", "reason": reason, "debug_info": {"host": "workspace"}}
        for one in tuple(self._connections):
            await one.send(frame)
            self.spawn(self._close_later(one))

    async def _close_later(self, connection: _Connection) -> None:
        """A client that was asked to go has some seconds; then its connection is closed from here."""
        await self._clock.sleep(self._pace.ack_within)
        await connection.socket.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background; a failure is logged, and `stop` ends what is left."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("the workspace failed", exc_info=task.exception())

    async def stop(self) -> None:
        """End the background work and cut the connections."""
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """A client comes with its ticket."""
        good_until = self._tickets.pop(request.query.get("ticket", ""), None)
        if self.faults.refuses_upgrade():
            return web.Response(status=503, text="out of service")
        if good_until is None or good_until < self._clock.now():
            return web.Response(status=408, text="the ticket was used, or is too old")
        socket = web.WebSocketResponse(autoping=False, max_msg_size=1024 * 1024, timeout=1)
        if not socket.can_prepare(request):
            return web.Response(status=400, text="a WebSocket is wanted here")
        await socket.prepare(request)
        self._count += 1
        connection = _Connection(self._count, socket, request)
        await self._welcome(connection)
        pings = asyncio.get_running_loop().create_task(self._ping(connection))
        try:
            await self._listen(connection)
        finally:
            pings.cancel()
            if connection in self._connections:
                self._connections.remove(connection)
        return socket

    async def _welcome(self, connection: _Connection) -> None:
        self._connections.append(connection)
        hello = {
            "type": "hello",
            "num_connections": len(self._connections),
            "connection_info": {"app_id": APP},
            "debug_info": {"host": "workspace", "approximate_connection_time": 3600},
        }
        await connection.send(hello)
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def _ping(self, connection: _Connection) -> None:
        while not connection.socket.closed:
            await self._clock.sleep(self._pace.ping_every)
            if not connection.is_mute:
                try:
                    await connection.socket.ping(b"workspace")
                except (ConnectionError, RuntimeError):
                    return

    async def _listen(self, connection: _Connection) -> None:
        async for frame in connection.socket:
            if connection.is_mute:
                continue
            if frame.type is WSMsgType.PING:
                await connection.socket.pong(frame.data)
            elif frame.type is WSMsgType.TEXT:
                self._hear(frame.data)

    def _hear(self, text: str) -> None:
        try:
            frame = json.loads(text)
        except (ValueError, RecursionError):
            return
        name = frame.get("envelope_id") if isinstance(frame, dict) else None
        ack = self._acks.get(name) if isinstance(name, str) else None
        if ack is not None and not ack.done():
            payload = frame.get("payload")
            ack.set_result(payload if isinstance(payload, dict) else {})

    def tell(self, payload: Mapping[str, Any]) -> None:
        """Deliver an event, again and again where it is not acknowledged; returns at once."""
        for _ in range(1 + self.faults.takes_duplicate()):
            self.spawn(self._deliver(payload))

    async def _deliver(self, payload: Mapping[str, Any]) -> None:
        envelope = {"type": "events_api", "payload": payload, "accepts_response_payload": False}
        reason = ""
        for attempt, wait in enumerate((timedelta(0), *self._pace.again)):
            if wait:
                await self._clock.sleep(wait)
            retry = {"retry_attempt": attempt, "retry_reason": reason}
            before = len(self._connections)
            if await self._attempt({**envelope, **retry}, attempt) is not None:
                return
            reason = "timeout" if before else "http_error"

    async def ask(self, kind: str, payload: Mapping[str, Any]) -> Ack | None:
        """Deliver what a person did, once; the payload of the ack, or None when there was none in time."""
        return await self._attempt(
            {"type": kind, "payload": payload, "accepts_response_payload": kind == "slash_commands"}, 0
        )

    async def _attempt(self, envelope: Mapping[str, Any], attempt: int) -> Ack | None:
        name = secrets.token_hex(12)
        connection = await self._next_connection()
        acked: Ack | None = None
        if connection is not None:
            self._acks[name] = asyncio.get_running_loop().create_future()
            try:
                await connection.send({"envelope_id": name, **envelope})
                acked = await self._within(self._acks[name])
            finally:
                del self._acks[name]
        number = connection.number if connection is not None else None
        self.deliveries.append(Delivery(name, str(envelope["type"]), attempt, number, acked is not None))
        return acked

    async def _next_connection(self) -> _Connection | None:
        if not self._connections and await self._within(asyncio.ensure_future(self._arrived.wait())) is None:
            return None
        self._turn += 1
        return self._connections[self._turn % len(self._connections)] if self._connections else None

    async def _within(self, future: asyncio.Future[_T]) -> _T | None:
        alarm = asyncio.ensure_future(self._clock.sleep(self._pace.ack_within))
        either: set[asyncio.Future[Any]] = {future, alarm}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else None
        finally:
            alarm.cancel()
            future.cancel()
