"""How many requests a pool of Mamba states has room for, by the strategy that keeps the states.

A hybrid model's server reserves several state slots for each request and divides the pool by them; that is its cap
on running requests. A request holds fewer than are reserved for it, so the pool can be full at 60 % usage. Read in
SGLang's sources, 0.5.8 to 0.5.23: 1 slot without the radix cache, 3 with no_buffer, 4 with extra_buffer when it is
lazy or overlap scheduling is off, 5 with extra_buffer.
"""

from __future__ import annotations

import re

from bot.domain.flags import Flags

NEW_FLAG, OLD_FLAG = "mamba-radix-cache-strategy", "mamba-scheduler-strategy"
HELD = 3
"""Slots that a request holds at least while extra_buffer decodes: its state and two to alternate between."""

_RENAMED = (0, 5, 14)
_FIRST = (0, 5, 8)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


def version_of(text: str | None) -> tuple[int, int, int] | None:
    """The first three numbers of a version; None when it is not known."""
    match = _VERSION.search(text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else None


def no_buffer_flags(version: str | None) -> str:
    """How no_buffer is asked for in that version; from 0.5.14 it must be told to do without overlap scheduling."""
    number = version_of(version)
    old, new = f"--{OLD_FLAG} no_buffer", f"--{NEW_FLAG} no_buffer --disable-overlap-schedule"
    if number is None:
        return f"{old} (since 0.5.14: {new})"
    return old if number < _RENAMED else new


def strategy(flags: Flags, version: str | None) -> str | None:
    """The strategy that really runs, "auto" resolved; None where neither the flags nor the version tell."""
    asked = flags.value(NEW_FLAG) or flags.value(OLD_FLAG) or "auto"
    if asked != "auto":
        return asked
    number = version_of(version)
    if number is None or number < _FIRST:
        return None
    has_overlap = flags.get("disable-overlap-schedule") is None
    return "extra_buffer" if number >= _RENAMED and has_overlap else "no_buffer"


def reserved(flags: Flags, version: str | None) -> int | None:
    """Slots that are reserved for a request; None where the strategy is not known."""
    if flags.get("disable-radix-cache") is not None:
        return 1
    runs = strategy(flags, version)
    if runs == "extra_buffer":
        return 5 if flags.get("disable-overlap-schedule") is None else 4
    return {"no_buffer": 3, "extra_buffer_lazy": 4}.get(runs or "")


def held(slots: int, usage: float) -> int:
    """Slots that a request really holds, by the usage of the pool when nearly all seats are taken."""
    return min(slots, max(min(HELD, slots), round(usage * slots)))


def pool(seats: float, slots: int, told: float | None = None) -> float:
    """The size of the pool, as the log told it, else the middle of what gives these seats."""
    return told or seats * slots + (slots - 1) / 2


def seats(size: float, slots: int) -> int:
    """The requests that a pool of that size seats."""
    return int(size // slots)
