"""The chains of hops that the contract is tested over, and how a test gets the transport through one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bot.domain.fleet import Hop
from bot.plugins import load
from bot.ports import Transport
from tests.transports.servers import server, stand_in

KINDS = load("bot.transports", "TRANSPORT")
SOON = timedelta(seconds=20)

# Each from the outside in; "ssh" is a server in the process, the others are stand-ins.
CHAINS = ("local", "pct", "docker", "sudo", "sudo docker", "ssh", "ssh pct", "ssh sudo docker")
NAMES = {"pct": "200", "docker": "sglang", "sudo": "root"}


def through(hops: Sequence[Hop]) -> Transport:
    """The transport through the hops, as the program makes it."""
    outer: Transport | None = None
    for hop in hops:
        outer = KINDS[hop.transport].connect(hop, outer)
    assert outer is not None
    return outer


@contextlib.asynccontextmanager
async def chain(directory: Path, names: str) -> AsyncIterator[Transport]:
    """The transport through a chain, with everything that it leads through."""
    async with contextlib.AsyncExitStack() as stack:
        hops: list[Hop] = []
        for kind in names.split():
            if kind == "local":
                hops.append(Hop("local"))
            elif kind == "ssh":
                hops.append((await stack.enter_async_context(server(directory))).hop())
            else:
                made = stand_in(directory, kind)
                made.state(NAMES[kind], "running")
                hops.append(made.hop(NAMES[kind]))
        transport = through(hops)
        try:
            yield transport
        finally:
            await transport.close()


def over(directory: Path, names: str, test: Callable[[Transport], Awaitable[None]]) -> None:
    """Run a test with the transport through a chain."""

    async def main() -> None:
        async with chain(directory, names) as transport:
            await test(transport)

    run(main())


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop of its own, and fail when it leaves a task behind."""

    async def watched() -> None:
        await main
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            await asyncio.wait(left, timeout=3)
        assert [task for task in left if not task.done()] == []

    asyncio.run(watched())
