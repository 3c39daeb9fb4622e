"""The real time: the only place that reads the machine's clock."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path


class SystemClock:
    """Wall time in UTC, and waits on the running loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the clock that all others are told to use

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(0.0, span.total_seconds()))


def since_start() -> timedelta:
    """How long this process has been running: who types a command waits for its start too. 0 where nothing says it."""
    try:
        stat = Path("/proc/self/stat").read_text("utf-8")
        started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return timedelta(seconds=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started))
    except (OSError, ValueError, IndexError, AttributeError):
        return timedelta()
