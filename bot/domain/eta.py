"""How long a start still takes, by what past starts took; silent without history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import timedelta

from bot.domain.diagnosis import STARTING, Phase
from bot.domain.records import StartRecord

LONGEST_HISTORY = 10


def remaining(
    starts: Sequence[StartRecord], server: str, profile: str, phase: Phase | None, in_phase: timedelta
) -> timedelta | None:
    """The median of what remained at this point of past starts of this server with this profile.

    Falls back to other servers' starts with the profile. ``in_phase`` is how long it has been in ``phase``.
    None without a past start that got ready.
    """
    good = [one for one in starts if one.is_ready and one.profile == profile]
    mine = [one for one in good if one.server == server] or good
    if not mine:
        return None
    return timedelta(seconds=statistics.median(_rest(one, phase, in_phase) for one in mine[-LONGEST_HISTORY:]))


def _rest(start: StartRecord, phase: Phase | None, in_phase: timedelta) -> float:
    if phase is None or not start.phases:
        return max(0.0, (start.took - in_phase).total_seconds())
    place = STARTING.index(phase) if phase in STARTING else 0
    later = {one.value for one in STARTING[place + 1 :]}
    rest = sum((span.total_seconds() for name, span in start.phases.items() if name in later), 0.0)
    here = start.phases.get(phase.value, timedelta()).total_seconds()
    return rest + max(0.0, here - in_phase.total_seconds())
