"""The real time: the only place that reads the machine's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class SystemClock:
    """Wall time in UTC, and waits on the running loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - this is the clock that all others are told to use

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(0.0, span.total_seconds()))
