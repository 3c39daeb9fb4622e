"""One host as it is kept warm: the line to it, opened once at a time, and what it told last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from bot.domain.errors import HopError
from bot.domain.facts import Process
from bot.domain.fleet import Host
from bot.ports import Transport
from bot.runtime.probing.bare import Bare
from bot.runtime.probing.line import Line, NoPython, Source
from bot.runtime.probing.recognition import Census, Recognised
from bot.runtime.probing.wire import Watch

OPEN_LIMIT = timedelta(seconds=20)
"""A login may take longer than a look waits; the next look then finds the line warm."""


class WarmHost:
    """The line to a host, and the last census of its processes."""

    def __init__(self, host: Host, transport: Callable[[Host], Transport]) -> None:
        self.host = host
        self.census: Census | None = None
        self.counted_at: datetime | None = None
        self.gpu_variant = 0
        self.gpu_buses: dict[str, int] = {}
        self.watch: tuple[object, Watch | None] = (None, None)
        self._transport = transport
        self._source: Source | None = None
        self._opening: asyncio.Task[Source] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def label(self) -> str:
        """What is said to be silent when nothing comes: the first hop, or this machine."""
        return self.host.hops[0].transport if self.host.hops else "this machine"

    async def source(self) -> Source:
        """Who answers for this host; opened when it is not, for all who wait, whoever of them gives up."""
        if self._source is not None and self._source.is_alive:
            return self._source
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def drop(self, source: Source) -> None:
        """Give a line up that went silent."""
        if self._source is source:
            self._source = None
        task = asyncio.create_task(source.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End the scout."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._source is not None:
            self.drop(self._source)
        if self._closing:
            await asyncio.wait(self._closing)

    def aged(self, found: Recognised, now: datetime) -> Recognised:
        """What the last census says, its processes as old as they are now."""
        if self.counted_at is None or now <= self.counted_at:
            return found
        passed, process, owner = now - self.counted_at, found.process, found.port_owner
        older = _older(process, passed)
        return replace(found, process=older, port_owner=older if owner is process else _older(owner, passed))

    async def _open(self) -> Source:
        if self._source is not None:
            self.drop(self._source)
        self.census = self.counted_at = None
        transport = self._transport(self.host)
        try:
            async with asyncio.timeout(OPEN_LIMIT.total_seconds()):
                self._source = await Line.open(transport, self.host.name)
        except TimeoutError:
            raise HopError(self.label, f"timed out after {OPEN_LIMIT.total_seconds():g} s") from None
        except NoPython:
            self._source = Bare(transport, self.host.name)
        return self._source

    def _opened(self, task: asyncio.Task[Source]) -> None:
        self._opening = None
        if not task.cancelled():
            # Everybody may have given up waiting: then nobody needs to know.
            task.exception()


def _older(one: Process | None, passed: timedelta) -> Process | None:
    if one is None:
        return None
    return Process(one.pid, one.started, one.argv, one.user, one.age + passed, one.parent, one.directory)
