"""Misbehaviour on demand: what Slack does on its bad days, so that the bot's adapter can be tried against it.

Each fault is asked for by a method of `Misbehaviour`, or as JSON over ``POST /control/misbehave`` (`Fault`). The
Web API asks `answer_instead` before it does anything; the connections are told through `Connections`. Beside the
API's methods, "response_url" and "upload" name the addresses that the app was given.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, Protocol

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from bot.demo.workspace.room import Refused
from bot.ports import Clock

_Seconds = Annotated[float, Field(ge=0, le=3600)]
_Times = Annotated[int, Field(ge=1, le=10_000)]


class Connections(Protocol):
    """What the faults need of the Socket Mode side."""

    def abort(self) -> None:
        """Cut every connection without a word."""
        ...

    def mute(self) -> None:
        """Leave the present connections open but dead: no frames, no pongs, nothing heard."""
        ...

    async def disconnect(self, reason: str) -> None:
        """Ask every connection to go and come again, as Slack does before it closes one."""
        ...

    def expire_tickets(self) -> None:
        """The URLs that were given out and not used are good no more."""
        ...


@dataclass(slots=True)
class _Planned:
    """What a method's next calls get instead of an answer."""

    kind: Literal["rate_limit", "fail", "stall", "drop", "refuse"]
    left: int
    span: timedelta = timedelta(0)
    status: int = 500
    error: str = ""


class Fault(BaseModel):
    """A fault as JSON: ``{"what": "rate_limit", "method": "chat.update", "times": 2, "seconds": 1}``.

    ``reason`` is that of a disconnect frame, or Slack's word for a refusal.
    """

    model_config = ConfigDict(extra="forbid")

    what: Literal[
        "rate_limit", "fail", "stall", "drop", "refuse", "refuse_upgrades", "expire_tickets", "abort", "mute",
        "disconnect", "duplicate", "outage", "behave",
    ]  # fmt: skip
    method: Annotated[str, Field(max_length=100)] = ""
    times: _Times = 1
    seconds: _Seconds = 1.0
    status: Annotated[int, Field(ge=400, le=599)] = 500
    reason: Annotated[str, Field(max_length=100)] = "refresh_requested"


class Misbehaviour:
    """The faults that are set; each counts down and is then over."""

    def __init__(self, clock: Clock, connections: Connections) -> None:
        self.duplicates = 0
        self._clock = clock
        self._connections = connections
        self._planned: dict[str, deque[_Planned]] = {}
        self._no_upgrades = 0
        self._out_until: datetime | None = None

    def rate_limit(self, method: str, *, times: int = 1, retry_after: timedelta = timedelta(seconds=1)) -> None:
        """The next calls of a method get 429 with Retry-After (whole seconds, rounded up as Slack's are)."""
        self._plan(method, _Planned("rate_limit", times, retry_after))

    def fail(self, method: str, *, times: int = 1, status: int = 500) -> None:
        """The next calls of a method get this HTTP status and no JSON."""
        self._plan(method, _Planned("fail", times, status=status))

    def stall(self, method: str, *, times: int = 1, span: timedelta) -> None:
        """The next calls of a method are carried out, but answered only after ``span``."""
        self._plan(method, _Planned("stall", times, span))

    def drop(self, method: str, *, times: int = 1) -> None:
        """The next calls of a method lose their connection without an answer, and nothing is done."""
        self._plan(method, _Planned("drop", times))

    def refuse(self, method: str, error: str, *, times: int = 1) -> None:
        """The next calls of a method are refused with that word ("missing_scope"), and nothing is done."""
        self._plan(method, _Planned("refuse", times, error=error))

    def refuse_upgrades(self, times: int = 1) -> None:
        """The next attempts to open a WebSocket get 503; their tickets are used up."""
        self._no_upgrades = times

    def expire_tickets(self) -> None:
        """URLs already given out are good no more."""
        self._connections.expire_tickets()

    def abort(self) -> None:
        """Cut every connection without a word."""
        self._connections.abort()

    def mute(self) -> None:
        """The present connections go half-open: what is sent to them is lost and their pings are not answered."""
        self._connections.mute()

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Slack's disconnect frame (reasons: warning, refresh_requested, too_many_websockets), then a close."""
        await self._connections.disconnect(reason)

    def duplicate(self, times: int = 1) -> None:
        """The next events are delivered twice, acknowledged or not."""
        self.duplicates = times

    def outage(self, span: timedelta) -> None:
        """Slack is away: connections are cut, and for that long calls get 503 and upgrades are refused."""
        self._out_until = self._clock.now() + span
        self._connections.abort()

    def behave(self) -> None:
        """Everything that is set and not used up is off."""
        self._planned.clear()
        self.duplicates = self._no_upgrades = 0
        self._out_until = None

    async def do(self, fault: Fault) -> None:  # noqa: C901 - a table of what may be asked for
        """Carry out a fault that came as JSON."""
        span = timedelta(seconds=fault.seconds)
        match fault.what:
            case "rate_limit":
                self.rate_limit(fault.method, times=fault.times, retry_after=span)
            case "fail":
                self.fail(fault.method, times=fault.times, status=fault.status)
            case "stall":
                self.stall(fault.method, times=fault.times, span=span)
            case "refuse":
                self.refuse(fault.method, fault.reason, times=fault.times)
            case "drop":
                self.drop(fault.method, times=fault.times)
            case "refuse_upgrades":
                self.refuse_upgrades(fault.times)
            case "duplicate":
                self.duplicate(fault.times)
            case "outage":
                self.outage(span)
            case "disconnect":
                await self.disconnect(fault.reason)
            case "abort" | "mute" | "expire_tickets" | "behave":
                getattr(self, fault.what)()

    @property
    def is_out(self) -> bool:
        """Whether an outage goes on."""
        return self._out_until is not None and self._clock.now() < self._out_until

    def takes_duplicate(self) -> bool:
        """Whether this event is to be delivered twice; counts."""
        self.duplicates -= (wanted := self.duplicates > 0)
        return wanted

    def refuses_upgrade(self) -> bool:
        """Whether this upgrade is to be refused; counts."""
        if self.is_out:
            return True
        self._no_upgrades -= (wanted := self._no_upgrades > 0)
        return wanted

    async def answer_instead(self, method: str, request: web.Request) -> web.Response | None:
        """What a call gets instead of being carried out, or None."""
        if self.is_out:
            return web.Response(status=503, text="out of service")
        fault = self._take(method)
        if fault is None:
            return None
        if fault.kind == "rate_limit":
            seconds = str(-(-fault.span // timedelta(seconds=1)))
            return web.json_response(
                {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": seconds}
            )
        if fault.kind == "drop":
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return web.Response(status=fault.status, text="internal error")

    def refuse_if_told(self, method: str) -> None:
        """Refused when this call is to be; counts."""
        line = self._planned.get(method)
        if line and line[0].kind == "refuse":
            raise Refused(self._count(line).error)

    def stalls(self, method: str) -> timedelta:
        """How long the answer of a call that was carried out is to be held back; counts."""
        line = self._planned.get(method)
        if not line or line[0].kind != "stall":
            return timedelta(0)
        fault = self._count(line)
        return fault.span

    def _plan(self, method: str, fault: _Planned) -> None:
        self._planned.setdefault(method, deque()).append(fault)

    def _take(self, method: str) -> _Planned | None:
        line = self._planned.get(method)
        return self._count(line) if line and line[0].kind not in ("stall", "refuse") else None

    def _count(self, line: deque[_Planned]) -> _Planned:
        fault = line[0]
        fault.left -= 1
        if fault.left <= 0:
            line.popleft()
        return fault
