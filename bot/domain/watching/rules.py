"""The rules for one server: each a pure function of what was seen of it lately, with evidence as its answer, or None.

Beside each rule stands what proves its end: a fault is over when the opposite was seen, not when nothing is seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bot.domain.gpu_faults import BEFORE as FAULT_BEFORE
from bot.domain.watching.causes import Cause, Finding, Value
from bot.domain.watching.limits import Limits
from bot.domain.watching.looks import Look
from bot.domain.watching.pace import low_since
from bot.domain.watching.usual import LUMPS_LAG

HEAVY = 1.8
"""So many times the usual prompts to a request are another kind of traffic, and its pace says nothing yet."""

_PROMPTS_OVER = 60.0
_NEARLY_ALL = 0.9


def down(look: Look, _limits: Limits) -> Finding | None:
    """No process was seen twice, or the server could not be read several times in a row."""
    track = look.track
    needed = 2 if track.is_dead else look.misses_needed
    if track.misses < needed:
        return None
    evidence: dict[str, Value] = {"lost_reads": track.misses, "is_seen_dead": track.is_dead}
    evidence["for_seconds"] = look.now - track.first_miss
    if track.why:
        evidence["why"] = track.why
    evidence |= _fault(look, track.first_miss)
    return _finding(Cause.DOWN, look, track.first_miss, evidence)


def is_up(look: Look, limits: Limits) -> bool:
    """It is read again and makes tokens, or idles and is read for a while."""
    track = look.track
    if not _is_read(look, 2):
        return False
    if track.last is not None and track.last.running:
        return track.still_seconds == 0 and bool(track.steps) and track.steps[-1].tokens > 0
    return track.reads >= limits.proof


def hung(look: Look, limits: Limits) -> Finding | None:
    """Requests run, no token comes, for longer than it ever takes between two tokens."""
    track = look.track
    if track.misses or track.is_starting or track.last is None or not track.still_seconds:
        return None
    least = limits.hung_after if track.still_demand else limits.hung_after_quiet
    if track.still_seconds < max(least.total_seconds(), 1.9 * look.step):
        return None
    if look.usual.is_lumpy and look.now - track.ramped_at < LUMPS_LAG:
        return None
    seconds, missed = _usual_stills(look)
    if track.still_seconds < 2 * seconds and (track.still_expected < 2 * missed or not missed):
        return None
    evidence: dict[str, Value] = {
        "for_seconds": track.still_seconds,
        "running": track.last.running,
        "queued": track.last.queued,
        "usual_rate": track.still_expected / track.still_seconds,
        **_fault(look, track.moved_at),
    }
    return _finding(Cause.HUNG, look, track.moved_at, evidence)


def _fault(look: Look, since: float) -> dict[str, Value]:
    """What the kernel's log names as a reason: a fault of its GPUs that came shortly before the trouble, or in it."""
    fault = look.track.fault
    if fault is None or since - fault.at > FAULT_BEFORE.total_seconds():
        return {}
    return {"xid": fault.code, "xid_gpu": fault.gpu, "xid_before_seconds": since - fault.at}


def _usual_stills(look: Look) -> tuple[float, float]:
    """The second longest of the last stand-stills that ended well: seconds, and tokens that were missed in it."""
    stills = look.track.stills
    if len(stills) < 2:
        return 0.0, 0.0
    return sorted(seconds for seconds, _ in stills)[-2], sorted(missed for _, missed in stills)[-2]


def is_moving(look: Look, limits: Limits) -> bool:
    """Tokens come again, or another process has taken its place and idles."""
    track = look.track
    if not _is_read(look, 2) or track.still_seconds:
        return False
    if track.steps and track.steps[-1].tokens > 0:
        return True
    return track.reads >= limits.proof and look.now - track.birth < 600 and not (track.last and track.last.running)


def starved(look: Look, limits: Limits) -> Finding | None:
    """Requests wait although fewer run than this server has seats, and it is neither memory nor short answers."""
    seats = seats_of(look)
    waiting = _waiting(look, limits)
    if seats is None or waiting is None or not look.usual.is_known:
        return None
    most, share = waiting
    if most >= limits.starved_share * seats or look.heaviness(_PROMPTS_OVER) > HEAVY:
        return None
    last = look.track.last
    if last is None or (last.kv_usage is not None and last.kv_usage > _NEARLY_ALL):
        return None
    evidence: dict[str, Value] = {
        "running": last.running,
        "queued": last.queued,
        "usual_seats": seats,
        "max_running": last.max_running,
        "kv_usage": last.kv_usage,
        "mamba_usage": last.mamba_usage,
        "waiting_share": share,
    }
    return _finding(Cause.STARVED, look, look.now - limits.starved_for.total_seconds(), evidence)


def _waiting(look: Look, limits: Limits) -> tuple[float, float] | None:
    """The most that ran while others waited, and how often they did, over the first window that shows it."""
    window = limits.starved_for.total_seconds()
    for length, share in ((window, 1.0), (2 * window, 0.6), (4 * window, 0.5)):
        steps = [step for step in look.track.steps if step.end - step.span >= look.now - length - 1]
        queued = [step for step in steps if step.queued]
        covered = sum(step.span for step in steps)
        if len(queued) < 3 or covered < 0.8 * length or len(queued) < share * len(steps) or not steps[-1].queued:
            continue
        return max(step.high for step in queued), len(queued) / len(steps)
    return None


def seats_of(look: Look) -> float | None:
    """How many requests this server usually runs when others wait; until that was seen, what it says itself."""
    if look.usual.seats is not None:
        return look.usual.seats
    last = look.track.last
    return float(last.max_running) if last is not None and last.max_running else None


def is_fed(look: Look, limits: Limits) -> bool:
    """Nobody waits any more while some run, or those that wait do so because all seats are taken."""
    seats = seats_of(look)
    if not _is_read(look, limits.proof) or seats is None:
        return False
    steps = [step for step in look.track.steps if step.end > look.now - limits.starved_for.total_seconds()]
    if len(steps) < 2:
        return False
    if all(not step.queued for step in steps):
        return any(step.high for step in steps)
    return all(not step.queued or step.high >= limits.starved_share * seats for step in steps)


def slow_server(look: Look, limits: Limits) -> Finding | None:
    """Fewer tokens than so many running requests usually give, and the others do better."""
    if look.track.misses or look.track.is_starting or look.heaviness(_PROMPTS_OVER) > HEAVY:
        return None
    if is_fast(look, limits):
        return None
    for (_, share), pace, bound, others in zip(limits.windows, look.paces, look.bounds, look.others, strict=True):
        if pace is None or pace.value >= bound:
            continue
        if others is not None and pace.value - others >= _apart(bound, share, limits):
            continue
        started = low_since(look.track.steps, (1 + share) / 2)
        evidence = pace_evidence(pace.rate, pace.usual, pace.running, pace.seconds)
        evidence["others_fine"] = look.fine
        last = look.track.last
        if last is not None:
            evidence |= {"clock_limits": last.clock_limits, "temperature_c": last.temperature_c}
            evidence["queued"] = last.queued
        return _finding(Cause.SLOW_SERVER, look, look.now - pace.seconds if started is None else started, evidence)
    return None


def _apart(bound: float, share: float, limits: Limits) -> float:
    """How far below the others; further, where noise asks more of the pace itself."""
    return math.log(limits.apart) + 0.7 * (bound - math.log(share))


def pace_evidence(rate: float, usual: float, running: float, seconds: float) -> dict[str, Value]:
    """The numbers that a slowness is told with."""
    share = rate / usual if usual else None
    return {"rate": rate, "usual_rate": usual, "share": share, "running": running, "for_seconds": seconds}


def is_fast(look: Look, limits: Limits) -> bool:
    """With requests running, its pace over the shortest window is the usual one again."""
    pace, bound = look.paces[0] if look.paces else None, look.bounds[0] if look.bounds else 0.0
    if pace is None or not _is_read(look, limits.proof):
        return False
    return pace.value > min(math.log(limits.recovered), bound / 2)


def crash_loop(look: Look, limits: Limits) -> Finding | None:
    """It came up anew several times within a while, and nobody planned it."""
    after = look.now - limits.crashes_within.total_seconds()
    restarts = [at for at in look.track.restarts if at >= after]
    if len(restarts) < limits.crashes:
        return None
    evidence: dict[str, Value] = {"restarts": len(restarts), "within_seconds": look.now - restarts[0]}
    evidence |= _fault(look, restarts[0])
    return _finding(Cause.CRASH_LOOP, look, restarts[0], evidence)


def has_stayed_up(look: Look, limits: Limits) -> bool:
    """The same process was read for half as long as a loop is looked for in."""
    return _is_read(look, limits.proof) and look.now - look.track.birth > limits.crashes_within.total_seconds() / 2


def error_rate(look: Look, limits: Limits) -> Finding | None:
    """A part of the requests of the last minutes ended in errors."""
    share, errors, requests, since = _errors(look)
    if errors < limits.errors_at_least or share < limits.error_share:
        return None
    evidence: dict[str, Value] = {"errors": errors, "requests": requests, "share": share}
    return _finding(Cause.ERROR_RATE, look, since, evidence)


def _errors(look: Look) -> tuple[float, float, float, float]:
    kept = look.track.errors
    if len(kept) < 2:
        return 0.0, 0.0, 0.0, look.now
    errors = max(0.0, kept[-1].errors - kept[0].errors)
    requests = max(errors, kept[-1].requests - kept[0].requests)
    return (errors / requests if requests else 0.0), errors, requests, kept[0].at


def is_answering(look: Look, limits: Limits) -> bool:
    """Requests were answered, and hardly one of them with an error."""
    share, _, requests, _ = _errors(look)
    return _is_read(look, limits.proof) and requests > 0 and share < limits.error_share / 2


def clock_limited(look: Look, limits: Limits) -> Finding | None:
    """The driver holds its GPUs' clocks down for heat or a brake on power."""
    since, last = look.track.limited_since, look.track.last
    if since is None or last is None or look.now - since < limits.clock_limited_for.total_seconds():
        return None
    evidence: dict[str, Value] = {"clock_limits": last.clock_limits, "temperature_c": last.temperature_c}
    return _finding(Cause.CLOCK_LIMITED, look, since, evidence)


def is_unlimited(look: Look, limits: Limits) -> bool:
    """It is read, and nothing holds its clocks."""
    return _is_read(look, limits.proof) and look.track.limited_since is None


def memory_leak(look: Look, limits: Limits) -> Finding | None:
    """Its share of the host's memory has grown steadily for an hour and will reach the limit soon."""
    kept = look.track.memory
    if len(kept) < 50 or kept[-1].used < limits.memory_share * kept[-1].limit:
        return None
    slope, fit = _line([row.at - kept[0].at for row in kept], [row.used for row in kept])
    if slope <= 0 or fit < _NEARLY_ALL:
        return None
    left = (kept[-1].limit - kept[-1].used) / slope
    if left > limits.memory_full_within.total_seconds():
        return None
    evidence: dict[str, Value] = {"bytes_an_hour": slope * 3600, "used_bytes": kept[-1].used}
    evidence |= {"limit_bytes": kept[-1].limit, "full_in_seconds": left}
    return _finding(Cause.MEMORY_LEAK, look, kept[0].at, evidence)


def is_lean(look: Look, limits: Limits) -> bool:
    """Memory is read, and grows no more or was given back."""
    return _is_read(look, limits.proof) and bool(look.track.memory) and memory_leak(look, limits) is None


def _line(xs: list[float], ys: list[float]) -> tuple[float, float]:
    """The slope of a straight line, and the part of the scatter that it explains."""
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    wide, high = sum((a - x) ** 2 for a in xs), sum((b - y) ** 2 for b in ys)
    if not wide or not high:
        return 0.0, 0.0
    return across / wide, across * across / (wide * high)


def _is_read(look: Look, times: int) -> bool:
    return look.track.reads >= times and not look.track.is_starting


def _finding(cause: Cause, look: Look, since: float, evidence: Mapping[str, Value]) -> Finding:
    return Finding(cause, (look.name,), look.since(since), evidence)


RULES = {
    Cause.CRASH_LOOP: crash_loop,
    Cause.DOWN: down,
    Cause.HUNG: hung,
    Cause.STARVED: starved,
    Cause.SLOW_SERVER: slow_server,
    Cause.ERROR_RATE: error_rate,
    Cause.CLOCK_LIMITED: clock_limited,
    Cause.MEMORY_LEAK: memory_leak,
}
"""What is asked of each server, the gravest first."""

PROOFS = {
    Cause.CRASH_LOOP: has_stayed_up,
    Cause.DOWN: is_up,
    Cause.HUNG: is_moving,
    Cause.STARVED: is_fed,
    Cause.SLOW_SERVER: is_fast,
    Cause.ERROR_RATE: is_answering,
    Cause.CLOCK_LIMITED: is_unlimited,
    Cause.MEMORY_LEAK: is_lean,
    Cause.FOREIGN: is_up,
}
"""What proves that each is over."""
