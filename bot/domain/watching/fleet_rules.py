"""The rules for the fleet as a whole and for jobs: slow together, prompt-heavy traffic, a job's end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from datetime import datetime, timedelta

from bot.domain.watching.causes import Cause, Finding, Value
from bot.domain.watching.limits import Limits
from bot.domain.watching.looks import FleetLook
from bot.domain.watching.rules import HEAVY, pace_evidence
from bot.domain.watching.samples import JobSample

_SLOWED = 0.85
_RECENT = timedelta(seconds=60)


def slow_fleet(fleet: FleetLook, limits: Limits) -> Finding | None:
    """Half of the servers or more make less than is usual, at once: one cause, and none of theirs."""
    looks = fleet.looks.values()
    if not looks or statistics.median(look.heaviness(_RECENT.total_seconds()) for look in looks) > HEAVY:
        return None
    if is_fleet_fast(fleet, limits):
        return None
    for pace, bound in zip(fleet.medians, fleet.bounds, strict=True):
        if pace is None or pace.value >= bound:
            continue
        names = tuple(sorted(fleet.looks))
        rows = [look.paces[0] for look in looks if look.paces and look.paces[0] is not None]
        rate, usual = sum(row.rate for row in rows), sum(row.usual for row in rows)
        evidence = pace_evidence(rate, usual, sum(row.running for row in rows), pace.seconds)
        evidence["servers"] = len(names)
        return Finding(Cause.SLOW_FLEET, names, fleet.at - timedelta(seconds=pace.seconds), evidence)
    return None


def is_fleet_fast(fleet: FleetLook, limits: Limits) -> bool:
    """The middle one of the servers that work has its usual pace again."""
    pace = fleet.medians[0] if fleet.medians else None
    return pace is not None and pace.value > min(math.log(limits.recovered), fleet.bounds[0] / 2)


def prompt_heavy(fleet: FleetLook) -> Finding | None:
    """Prompts take so much of the servers' time that fewer tokens come: a real drop with an innocent cause."""
    looks = [look for look in fleet.looks.values() if look.usual.is_known]
    times = statistics.median(look.heaviness(_RECENT.total_seconds()) for look in looks) if looks else 0.0
    if times < HEAVY:
        return None
    steps = [
        (look, step) for look in looks for step in look.track.steps if step.end > fleet.now - _RECENT.total_seconds()
    ]
    usual = sum(look.usual.with_usual_prompts(step) for look, step in steps)
    if not usual or sum(step.tokens for _, step in steps) > _SLOWED * usual:
        return None
    evidence: dict[str, Value] = {"times_the_usual_prompts": times, "servers": len(looks)}
    evidence["share"] = sum(step.tokens for _, step in steps) / usual
    return Finding(Cause.PROMPT_HEAVY, tuple(sorted(fleet.looks)), fleet.at - _RECENT, evidence)


class JobTrack:
    """One job's recent past: when it last got on, and whether its end was told."""

    __slots__ = ("done", "is_told", "last", "longest_rest", "moved_at")

    def __init__(self, now: float) -> None:
        self.done: int | None = None
        self.last: JobSample | None = None
        self.moved_at = now
        self.longest_rest = 0.0
        self.is_told = False

    def take(self, sample: JobSample, now: float) -> None:
        """Go on to a reading."""
        before, self.last = self.last, sample
        if sample.done != self.done or not sample.is_running or before is None or not before.is_running:
            rested = now - self.moved_at
            if sample.done != self.done and before is not None and before.is_running:
                self.longest_rest = max(rested, 0.9 * self.longest_rest)
            self.moved_at = now
        self.done = sample.done
        if before is None and not sample.is_running:
            self.is_told = True
        if sample.is_running and not _is_done(sample):
            self.is_told = False


def job_stalled(name: str, job: JobTrack, now: float, at: datetime, limits: Limits) -> Finding | None:
    """A job runs and has got nothing done for longer than it ever takes."""
    sample = job.last
    if sample is None or not sample.is_running or sample.done is None or _is_done(sample):
        return None
    rested = now - job.moved_at
    if rested < max(limits.job_stalled_for.total_seconds(), 3 * job.longest_rest):
        return None
    evidence: dict[str, Value] = {"done": sample.done, "total": sample.total, "for_seconds": rested}
    return Finding(Cause.JOB_STALLED, (name,), at - timedelta(seconds=rested), evidence)


def job_end(job: JobTrack, now: float) -> Mapping[str, Value] | None:
    """It got on within the last minute, or it was seen to be done or stopped: which of these."""
    sample = job.last
    if sample is None:
        return None
    if _is_done(sample):
        return {"end": "done"}
    if not sample.is_running:
        return {"end": "stopped"}
    return {"end": "moving"} if now - job.moved_at < 60 else None


def job_finished(name: str, job: JobTrack, at: datetime) -> Finding | None:
    """A job came to its end; told once."""
    sample = job.last
    if sample is None or not _is_done(sample) or job.is_told:
        return None
    return Finding(Cause.JOB_FINISHED, (name,), at, {"done": sample.done, "total": sample.total})


def _is_done(sample: JobSample) -> bool:
    return sample.is_done or (sample.total is not None and sample.done is not None and sample.done >= sample.total)
