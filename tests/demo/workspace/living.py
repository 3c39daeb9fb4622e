"""A workspace that listens, and the wall's clock, for the tests in this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.demo.workspace import Pace, ServerSign, Workspace
from bot.domain.errors import UserError
from bot.runtime.clock import SystemClock

QUICK = Pace(
    ack_within=timedelta(milliseconds=400),
    again=(timedelta(0), timedelta(milliseconds=100), timedelta(milliseconds=200)),
)


@dataclass(frozen=True)
class Fault:
    name: str
    label: str
    choices: tuple[str, ...] = ()


BREAKAGES = (
    Fault("kill", "Kill it"),
    Fault("slow", "Slow it down", ("0.6", "0.4")),
    Fault("take-port", "Kill it and take its port"),
    Fault("fail-next", "Let its next start fail", ("out_of_memory", "unknown_flag")),
    Fault("mend", "Mend everything"),
)


@dataclass
class Breaker:
    """Stands for the pretend fleet: remembers what was broken."""

    broken: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    not_ready: str | None = None

    async def break_thing(self, what, server, options) -> str:
        if server == "gpu9":
            raise UserError("there is no gpu9")
        self.broken.append((what, server, dict(options)))
        return f"{server}: {what}"

    def servers(self):
        return [ServerSign(f"gpu{n}", "ready") for n in range(8)]


@asynccontextmanager
async def living(breaker: Breaker | None = None, **kwargs) -> AsyncIterator[Workspace]:
    """A workspace on a free port, stopped at the end."""
    breaker = breaker or Breaker()
    workspace = Workspace(
        **{
            "clock": SystemClock(),
            "port": 0,
            "pace": QUICK,
            "is_ready": lambda: breaker.not_ready,
            "break_thing": breaker.break_thing,
            "servers": breaker.servers,
            "breakages": BREAKAGES,
            **kwargs,
        }
    )
    await workspace.start()
    try:
        yield workspace
    finally:
        await workspace.stop()


def web_client(workspace: Workspace) -> AsyncWebClient:
    """The real SDK, without retries of its own."""
    return AsyncWebClient(token=workspace.bot_token, base_url=workspace.api_url, retry_handlers=[])


async def until(holds: Callable[[], Any], within: float = 5.0) -> Any:
    """Wait for something to become true, and give it back."""
    end = asyncio.get_running_loop().time() + within
    while not (found := holds()):
        assert asyncio.get_running_loop().time() < end, "it did not come true in time"
        await asyncio.sleep(0.01)
    return found


async def call(method: str, url: str, **kwargs) -> tuple[int, Any]:
    """One HTTP request: its status, and its JSON or text."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **kwargs) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await (answer.json() if is_json else answer.text())


def ask(workspace: Workspace, path: str, body: Any) -> Awaitable[tuple[int, Any]]:
    """POST some JSON."""
    return call("POST", f"{workspace.url}{path}", json=body)
