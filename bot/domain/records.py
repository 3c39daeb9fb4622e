"""What is kept of the past: starts and how long their phases took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum


class Warmth(Enum):
    """Whether a start found its kernels compiled; nobody may have looked, or could."""

    WARM = "warm"
    COLD = "cold"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StartRecord:
    """One start that came to its end: which phases took how long, and whether it got ready.

    ``tokens_per_second`` is what the server decoded a while after it, ``per_request`` what one running request got.
    ``caches`` is how it found the caches of compiled kernels.
    """

    server: str
    profile: str
    at: datetime
    took: timedelta
    is_ready: bool
    phases: Mapping[str, timedelta] = field(default_factory=dict)
    max_running: int | None = None
    max_total_tokens: int | None = None
    cause: str | None = None
    version: str | None = None
    tokens_per_second: float | None = None
    per_request: float | None = None
    caches: Warmth = Warmth.UNKNOWN
