"""Small acts that nobody waits for and that may fail: reactions, and pictures for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from bot.chats.slack.pace import Pace
from bot.chats.slack.web import NotNow, Refused
from bot.ports import Clock

_log = structlog.get_logger(__name__)
_MOST = 100


class Errands:
    """Does them in order, each a few times at most; when too many wait, new ones are left out."""

    def __init__(self, clock: Clock, pace: Pace, tries: int) -> None:
        self._clock = clock
        self._pace = pace
        self._tries = tries
        self._queue: asyncio.Queue[tuple[str, Callable[[], Awaitable[None]], Callable[[], None] | None]]
        self._queue = asyncio.Queue(_MOST)
        self._worker: asyncio.Task[None] | None = None

    def do(self, name: str, act: Callable[[], Awaitable[None]], on_failure: Callable[[], None] | None = None) -> None:
        """Do it soon; ``on_failure`` is called when it could not be done."""
        if self._queue.full():
            _log.warning("too much to do at once, left out", errand=name)
            return
        self._queue.put_nowait((name, act, on_failure))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop; what still waits is left undone."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while not self._queue.empty():
            name, act, on_failure = self._queue.get_nowait()
            if not await self._is_done(name, act) and on_failure is not None:
                on_failure()

    async def _is_done(self, name: str, act: Callable[[], Awaitable[None]]) -> bool:
        wait = self._pace.retry
        for left in reversed(range(self._tries)):
            try:
                await act()
            except Refused as no:
                _log.info("slack refused an errand", errand=name, error=no.error)
                return False
            except NotNow as later:
                _log.info("slack did not take an errand", errand=name, why=str(later), tries_left=left)
                if left:
                    await self._clock.sleep(later.after or wait)
                    wait = min(wait * 2, self._pace.retry_most)
            else:
                return True
        return False
