"""Periodic rounds, by APScheduler; behind a port, since it reads the wall clock itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler


class SystemSchedule:
    """Implements `Schedule`. A missed round is not made up for: the next one looks anyway."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler()

    def every(self, span: timedelta, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self._scheduler.add_job(
            work,
            "interval",
            seconds=span.total_seconds(),
            id=name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=1,
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
