"""How long a start still takes by what past starts took, and when one takes longer than ever; silent without history.

A start whose kernels are compiled anew takes minutes more than one that finds them cached, and only the log shows
which it is: in the compiling phase, only past starts that compiled too are compared with.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.diagnosis import Phase
from bot.domain.records import StartRecord

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
    """How starts go on, by their history; ``first_with`` is a profile that never started here before."""

    to_go: timedelta | None = None
    overdue: tuple[Overdue, ...] = ()
    first_with: str | None = None


NOTHING_KNOWN = Outlook()


def outlook(
    starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None, in_phase: timedelta
) -> Outlook:
    """One server's start; ``in_phase`` is how long it has been in ``phase``."""
    if not any(one.is_ready and one.profile == profile for one in starts):
        return Outlook(first_with=profile)
    longest = longest_in(starts, server, profile, phase)
    if phase is not None and longest is not None and in_phase > max(longest * OVER, longest + SLACK):
        return Outlook(overdue=(Overdue(server, phase, in_phase, longest),))
    return Outlook(to_go=remaining(starts, server, profile, phase, in_phase))


def together(outlooks: Iterable[Outlook]) -> Outlook:
    """Several starts at once: the longest of what remains, known only where it is of each and none is overdue."""
    seen = tuple(outlooks)
    overdue = tuple(one for each in seen for one in each.overdue)
    known = [each.to_go for each in seen if each.to_go is not None]
    to_go = max(known, default=None) if len(known) == len(seen) else None
    return Outlook(to_go or None, overdue, next((each.first_with for each in seen if each.first_with), None))


def remaining(
    starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None, in_phase: timedelta
) -> timedelta | None:
    """The median of what remained at this point of past starts of this server with this profile.

    Falls back to other servers' starts with the profile. None without a past start that got ready, and while
    kernels are compiled where none was ever compiled before.
    """
    past = _past(starts, server, profile, phase)
    if not past:
        return None
    return timedelta(seconds=statistics.median(_rest(one, phase, in_phase) for one in past))


def longest_in(starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None) -> timedelta | None:
    """The longest that a good start has been in a phase; None where none of them has been there."""
    if phase is None:
        return None
    spans = [one.phases[phase.value] for one in _past(starts, server, profile, phase) if phase.value in one.phases]
    return max(spans, default=None)


def _past(starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None) -> list[StartRecord]:
    """The good starts to compare with, the newest few."""
    good = [one for one in starts if one.is_ready and one.profile == profile]
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
