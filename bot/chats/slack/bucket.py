"""A bucket of tokens: so many acts at once, and after that so many a minute."""

from __future__ import annotations

from datetime import datetime, timedelta


class Bucket:
    """``take`` says how long to wait; nothing is taken unless that is no time at all."""

    def __init__(self, a_minute: int, at_once: int) -> None:
        self._every = timedelta(minutes=1) / a_minute
        self._most = at_once
        self._full_at: datetime | None = None

    def take(self, now: datetime) -> timedelta:
        """Take a token and return zero, or return the time until there is one."""
        full_at = max(self._full_at, now) if self._full_at is not None else now
        missing = (full_at - now) / self._every
        if missing > self._most - 1:
            return full_at - now - self._every * (self._most - 1)
        self._full_at = full_at + self._every
        return timedelta()
