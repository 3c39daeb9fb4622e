"""Background tasks that nobody loses: each is held, named, and its death is logged and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class Tasks:
    """Holds tasks until they end; `failures` is what tests look at, since a task must not die unseen."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self.failures: list[BaseException] = []

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start work in the background."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
            _log.error("task_died", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel all and wait until they have ended."""
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
