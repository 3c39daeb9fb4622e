"""Periodic rounds, by APScheduler; behind a port, since it reads the wall clock itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, time, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler

_LATE = 600
"""Seconds: what is done once a day is done when the time was missed by no more."""


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

    def at(self, time_of_day: time | None, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        if self._scheduler.get_job(name) is not None:
            self._scheduler.remove_job(name)  # what waits for the start is not replaced by an equal name
        if time_of_day is None:
            return
        self._scheduler.add_job(
            work,
            "cron",
            hour=time_of_day.hour,
            minute=time_of_day.minute,
            timezone=UTC,
            id=name,
            coalesce=True,
            misfire_grace_time=_LATE,
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
