"""What can be wrong, and what a rule has found: a cause with its evidence in numbers, no sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

Value = float | int | str | bool | tuple[str, ...] | None
"""One number, word or list of names of a finding's evidence."""

FLEET = ""
"""The place of a finding that is about the whole fleet."""


class Cause(Enum):
    """Why an alert fires; the last two are notes, which ask nobody to act. Foreign: an Alertmanager says so."""

    DOWN = "down"
    HUNG = "hung"
    CRASH_LOOP = "crash_loop"
    STARVED = "starved"
    SLOW_FLEET = "slow_fleet"
    SLOW_SERVER = "slow_server"
    ERROR_RATE = "error_rate"
    CLOCK_LIMITED = "gpu_clock_limited"
    MEMORY_LEAK = "memory_leak"
    JOB_STALLED = "job_stalled"
    FOREIGN = "alertmanager"
    JOB_FINISHED = "job_finished"
    PROMPT_HEAVY = "prompt_heavy"

    @property
    def is_note(self) -> bool:
        """Whether it is only told."""
        return self in (Cause.JOB_FINISHED, Cause.PROMPT_HEAVY)


HIDES: Mapping[Cause, frozenset[Cause]] = {
    Cause.DOWN: frozenset({Cause.HUNG, Cause.STARVED, Cause.SLOW_SERVER, Cause.CLOCK_LIMITED}),
    Cause.CRASH_LOOP: frozenset({Cause.DOWN, Cause.HUNG, Cause.STARVED, Cause.SLOW_SERVER}),
    Cause.HUNG: frozenset({Cause.STARVED, Cause.SLOW_SERVER}),
    Cause.STARVED: frozenset({Cause.SLOW_SERVER}),
    Cause.SLOW_SERVER: frozenset({Cause.CLOCK_LIMITED}),
}
"""Which causes on the same server are only consequences of one, and so no alerts of their own."""

PLANNED: frozenset[Cause] = frozenset(
    {Cause.DOWN, Cause.HUNG, Cause.CRASH_LOOP, Cause.STARVED, Cause.SLOW_SERVER, Cause.JOB_STALLED}
)
"""What an operation causes on the servers (or jobs) that it works on; everything else is told all the same."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's answer: the cause, on which servers (or which job), since when, and the numbers that say so.

    Rates are tokens a second, usages fractions of 1, spans of time seconds (they are evidence, not settings).
    """

    cause: Cause
    servers: tuple[str, ...]
    since: datetime
    evidence: Mapping[str, Value] = field(default_factory=dict)
