"""Whether a start will find its kernels compiled: what was seen of the caches, read against flags and history.

A cache that lies empty is cold. One that was filled by another version of the engine is as good as empty, since
what is compiled is filed under the compiler's and the source's versions; who filled it is told by the past starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.records import StartRecord, Warmth

Version = tuple[int, int, int]

_FILLS_FOR = timedelta(minutes=10)
"""Kernels are compiled for a while after a start too, when requests of new sizes come."""


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A cache that an engine may keep, and where.

    ``place`` are folders in order, of which the first counts whose variables are set: ``("$TRITON_CACHE_DIR",
    "~/.triton/cache")``; ``{user}`` stands for the login. ``since`` and ``until`` (not included) are the engine's
    versions that keep it there. ``is_sure``: every start with flags that use it fills it, so that a missing one is
    cold. ``is_filled_once_made``: who makes the folder fills it, so that an empty one is. Of others nothing follows.
    """

    name: str
    place: tuple[str, ...]
    since: Version | None = None
    until: Version | None = None
    is_sure: bool = False
    is_filled_once_made: bool = False

    def is_of(self, version: Version | None) -> bool:
        """Whether that version keeps it there; where the version is not known, it may."""
        if version is None:
            return True
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)


@dataclass(frozen=True, slots=True)
class CacheSeen:
    """A cache as it was seen: files in it (counting ends at some thousand), and when the newest was written.

    ``entries`` is None where nobody could look. ``is_there`` tells an empty folder from a missing one.
    """

    entries: int | None = None
    newest: datetime | None = None
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class CacheState:
    """The caches of one start taken together. ``cold`` are the names of the empty ones.

    ``made_for`` is the version that filled them, where it is another one than will run.
    """

    warmth: Warmth = Warmth.UNKNOWN
    cold: tuple[str, ...] = ()
    made_for: str | None = None


NOT_SEEN = CacheState()


def state_of(
    seen: Mapping[KernelCache, CacheSeen] | None,
    used: Sequence[KernelCache],
    starts: Iterable[StartRecord],
    server: str,
    version: str | None,
) -> CacheState:
    """What a start of this server would find; ``used`` are the caches that its flags need.

    ``version`` is that of the engine which will run, None where it is not known.
    """
    known = [(one, seen[one]) for one in used if seen is not None and one in seen and seen[one].entries is not None]
    if not known:
        return NOT_SEEN
    filled = {one.name for one, what in known if what.entries}
    empty = [(one, what) for one, what in known if one.name not in filled]
    if any(one.is_sure or (one.is_filled_once_made and what.is_there) for one, what in empty):
        # One of the others that is not even there may be none of this server's.
        names = {one.name for one, what in empty if one.is_sure or one.is_filled_once_made or what.is_there}
        return CacheState(Warmth.COLD, tuple(sorted(names)))
    if not filled:
        return NOT_SEEN
    newest = max((what.newest for _, what in known if what.newest is not None), default=None)
    other = _made_for([one for one in starts if one.server == server], version, newest)
    return CacheState(Warmth.WARM) if other is None else CacheState(Warmth.COLD, made_for=other)


def _made_for(mine: Sequence[StartRecord], version: str | None, newest: datetime | None) -> str | None:
    """The version of the last good start, when this one never started here and nothing was compiled since then."""
    good = [one for one in mine if one.is_ready and one.version is not None]
    if version is None or newest is None or not good or any(one.version == version for one in good):
        return None
    return good[-1].version if newest <= good[-1].at + good[-1].took + _FILLS_FOR else None


def together(states: Iterable[CacheState]) -> CacheState:
    """Several starts at once: cold where one of them is, with all that is missing."""
    every = tuple(states)
    cold = tuple(dict.fromkeys(name for one in every for name in one.cold))
    made_for = next((one.made_for for one in every if one.made_for is not None), None)
    for warmth in (Warmth.COLD, Warmth.WARM):
        if any(one.warmth is warmth for one in every):
            return CacheState(warmth, cold, made_for)
    return NOT_SEEN


def said(state: CacheState) -> str | None:
    """In words, where it says that something may be compiled: "kernel caches are cold: triton – it may compile"."""
    if state.cold:
        return f"kernel caches are cold: {', '.join(state.cold)} – it may compile"
    if state.made_for is not None:
        return f"kernel caches were made for {state.made_for} – it may compile"
    return None
