"""How long a start still takes by what past starts took, and when one takes longer than ever; silent without history.

A start whose kernels are compiled anew takes minutes more than one that finds them cached. So there are two
histories: one that found the caches cold is compared with cold ones alone (what stands at 0 % for minutes then is
compiling, whatever warm ones took), one that found them warm with all that are not known to have been cold. Where
nobody looked at the caches only the log shows which it is: in the compiling phase, only past starts that compiled too
are compared with.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.diagnosis import Phase
from bot.domain.kernel_caches import NOT_SEEN, CacheState
from bot.domain.kernel_caches import together as all_caches
from bot.domain.records import StartRecord, Warmth

LONGEST_HISTORY = 10
OVER = 1.5
"""So many times the longest that a phase has ever taken is more than chance."""
SLACK = timedelta(seconds=30)
"""And at least so much longer: a phase of two seconds may take five."""

_ORDER = (
    Phase.SPAWNED,
    Phase.LOADING_WEIGHTS,
    Phase.ALLOCATING_CACHE,
    Phase.JIT_COMPILING,
    Phase.CAPTURING_GRAPHS,
    Phase.WARMING_UP,
)
"""Phases as a start passes them; kernels are compiled before graphs are captured."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A server that is longer in a phase than it ever was, and how long that was at most."""

    server: str
    phase: Phase
    in_phase: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class Outlook:
    """How starts go on, by their history; ``first_with`` is a profile that never started here before.

    ``caches`` is how they found their kernels.
    """

    to_go: timedelta | None = None
    overdue: tuple[Overdue, ...] = ()
    first_with: str | None = None
    caches: CacheState = NOT_SEEN


NOTHING_KNOWN = Outlook()


def outlook(
    starts: Sequence[StartRecord],
    server: str,
    profile: str,
    phase: Phase | None,
    in_phase: timedelta,
    *,
    caches: CacheState = NOT_SEEN,
) -> Outlook:
    """One server's start; ``in_phase`` is how long it has been in ``phase``."""
    if not any(one.is_ready and one.profile == profile for one in starts):
        return Outlook(first_with=profile, caches=caches)
    longest = longest_in(starts, server, profile, phase, caches.warmth)
    if phase is not None and longest is not None and in_phase > max(longest * OVER, longest + SLACK):
        return Outlook(overdue=(Overdue(server, phase, in_phase, longest),), caches=caches)
    return Outlook(to_go=remaining(starts, server, profile, phase, in_phase, warmth=caches.warmth), caches=caches)


def together(outlooks: Iterable[Outlook]) -> Outlook:
    """Several starts at once: the longest of what remains, known only where it is of each and none is overdue."""
    seen = tuple(outlooks)
    overdue = tuple(one for each in seen for one in each.overdue)
    known = [each.to_go for each in seen if each.to_go is not None]
    to_go = max(known, default=None) if len(known) == len(seen) else None
    first_with = next((each.first_with for each in seen if each.first_with), None)
    return Outlook(to_go or None, overdue, first_with, all_caches(each.caches for each in seen))


def remaining(
    starts: Sequence[StartRecord],
    server: str,
    profile: str,
    phase: Phase | None,
    in_phase: timedelta,
    *,
    warmth: Warmth = Warmth.UNKNOWN,
) -> timedelta | None:
    """The median of what remained at this point of past starts of this server with this profile.

    Falls back to other servers' starts with the profile. None without a past start that got ready and is alike, and
    while kernels are compiled where none was ever compiled before.
    """
    past = _past(starts, server, profile, phase, warmth)
    if not past:
        return None
    return timedelta(seconds=statistics.median(_rest(one, phase, in_phase) for one in past))


def longest_in(
    starts: Sequence[StartRecord],
    server: str,
    profile: str,
    phase: Phase | None,
    warmth: Warmth = Warmth.UNKNOWN,
) -> timedelta | None:
    """The longest that a good start has been in a phase; None where none of them has been there."""
    if phase is None:
        return None
    past = _past(starts, server, profile, phase, warmth)
    return max((one.phases[phase.value] for one in past if phase.value in one.phases), default=None)


def is_alike(past: Warmth, warmth: Warmth) -> bool:
    """Whether a past start may say something of one that found its caches like this."""
    if warmth is Warmth.COLD:
        return past is Warmth.COLD
    return warmth is Warmth.UNKNOWN or past is not Warmth.COLD


def _past(
    starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None, warmth: Warmth
) -> list[StartRecord]:
    """The good starts to compare with, the newest few."""
    good = [one for one in starts if one.is_ready and one.profile == profile and is_alike(one.caches, warmth)]
    if phase is Phase.JIT_COMPILING and any(one.phases for one in good):
        good = [one for one in good if phase.value in one.phases]
    mine = [one for one in good if one.server == server] or good
    return mine[-LONGEST_HISTORY:]


def _rest(start: StartRecord, phase: Phase | None, in_phase: timedelta) -> float:
    if phase is None or not start.phases:
        return max(0.0, (start.took - in_phase).total_seconds())
    place = _ORDER.index(phase) if phase in _ORDER else 0
    later = {one.value for one in _ORDER[place + 1 :]}
    rest = sum((span.total_seconds() for name, span in start.phases.items() if name in later), 0.0)
    here = start.phases.get(phase.value, timedelta()).total_seconds()
    return rest + max(0.0, here - in_phase.total_seconds())
