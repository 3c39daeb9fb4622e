"""How alerts are told: cause, evidence in numbers, since when, what changed last, and the commands that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from bot.domain.alerting import alert_title
from bot.domain.message import Block, Button, Buttons, Line, Lines, Message, Says, Small, bold, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import about, count, exact, names, percent, span
from bot.domain.watching.alerts import Alert, Change, Did, State
from bot.domain.watching.causes import Cause, Value

_CLOCKS: Mapping[str, str] = {
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "thermal slowdown",
    "hw_thermal_slowdown": "thermal slowdown",
    "hw_power_brake_slowdown": "power brake",
}


def alert(one: Alert, everyone: Sequence[str], now: datetime, last_change: Operation | None) -> Message:
    """The head message of an alert, as it stands now."""
    who = names(list(one.servers), list(everyone)) if one.servers else "the fleet"
    words = _WORDS[one.cause](one.evidence)
    lasted = span((one.resolved_at or now) - one.since)
    if one.state is State.RESOLVED:
        head = line("🟢 ", bold(f"{alert_title(one.cause, who)}: over"), f" after {lasted}")
        return Message(head, (Lines(tuple(words)),) if words else ())
    head = line("🔴 ", bold(alert_title(one.cause, who)), f" for {lasted}")
    blocks: list[Block] = [Lines(tuple(words))] if words else []
    small: list[str] = []
    if one.state is State.ACKED and one.acked_by is not None:
        small.append(f"seen by {one.acked_by}")
    if one.state is State.SILENCED:
        small.append("silenced")
    if last_change is not None:
        ago = span(now - last_change.started_at)
        small.append(f"last change: {last_change.plan.title}, {ago} ago, by {last_change.by}")
    blocks.append(Buttons(tuple(_buttons(one))))
    if small:
        blocks.append(Small((line(" · ".join(small)),)))
    return Message(head, tuple(blocks))


def _buttons(one: Alert) -> list[Button]:
    targets = " ".join(one.servers)
    buttons = [] if one.state is State.ACKED else [Button("Ack", Says(f"ack {one.id}"))]
    if one.cause is Cause.JOB_STALLED:
        return [*buttons, Button("Job", Says("job"))]
    if one.state is not State.SILENCED and targets:
        buttons.append(Button("Silence 1 h", Says(f"silence {targets} 1h")))
    buttons.append(Button("Why", Says(f"why {targets}".strip())))
    if len(one.servers) == 1:
        buttons.append(Button(f"Restart {targets}…", Says(f"restart {targets}")))
    return buttons


def told(change: Change, everyone: Sequence[str], now: datetime) -> Message:
    """The short note in an alert's thread."""
    one = change.alert
    who = names(list(change.servers), list(everyone)) if change.servers else "the fleet"
    lasted = span(now - one.since)
    words = {
        Did.FIRING: f"{alert_title(one.cause, who)}",
        Did.JOINED: f"{who} too",
        Did.RESOLVED: f"recovered after {lasted}",
        Did.RETURNED: f"it is back, {lasted} after it began",
        Did.ACKED: f"seen by {one.acked_by}",
        Did.SILENCED: "silenced",
        Did.UNSILENCED: "no longer silenced",
        Did.NOTE: alert_title(one.cause, who),
    }[change.did]
    return says(words)


def note(one: Alert, everyone: Sequence[str]) -> Message:
    """Something that asks nobody to act."""
    who = names(list(one.servers), list(everyone)) if one.servers else "the fleet"
    words = _WORDS[one.cause](one.evidence)
    return Message(line("⚪ ", bold(alert_title(one.cause, who))), (Lines(tuple(words)),) if words else ())


def blind(since: timedelta, why: str) -> Message:
    """Said when the watcher itself can't look."""
    return says("🟡 ", bold(f"blind since {span(since)}"), f": {why}")


def sees_again(after: timedelta) -> Message:
    """Said when it can look again."""
    return says("🟢 ", bold("I see again"), f", after {span(after)}")


# The evidence


def _number(evidence: Mapping[str, Value], key: str) -> float | None:
    value = evidence.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _said(evidence: Mapping[str, Value], key: str, how: Callable[[float], str] = about) -> str:
    value = _number(evidence, key)
    return "?" if value is None else how(value)


def _pace(evidence: Mapping[str, Value]) -> list[Line]:
    rate, usual, running = (_said(evidence, key) for key in ("rate", "usual_rate", "running"))
    lines = [line(f"{rate} tok/s where {usual} is usual at {running} running")]
    fine = _number(evidence, "others_fine")
    if fine:
        lines[0] = line(lines[0], f" · {count(int(fine), 'other')} fine")
    return [*lines, *_clocks(evidence)]


def _clocks(evidence: Mapping[str, Value]) -> list[Line]:
    reasons = evidence.get("clock_limits")
    if not isinstance(reasons, tuple) or not reasons:
        return []
    words = ", ".join(dict.fromkeys(_CLOCKS.get(one, one.replace("_", " ")) for one in reasons))
    heat = _number(evidence, "temperature_c")
    return [line(f"GPU clock limited: {words}" + (f", {heat:.0f} °C" if heat is not None else ""))]


def _down(evidence: Mapping[str, Value]) -> list[Line]:
    if evidence.get("is_seen_dead"):
        return [line("no process runs there")]
    return [line(f"{_said(evidence, 'lost_reads')} looks in a row without an answer")]


def _hung(evidence: Mapping[str, Value]) -> list[Line]:
    running = _said(evidence, "running")
    return [line(f"{running} requests run and no token came for {_said(evidence, 'for_seconds', _seconds)}")]


def _starved(evidence: Mapping[str, Value]) -> list[Line]:
    running, queued, seats = (_said(evidence, key) for key in ("running", "queued", "usual_seats"))
    parts = [f"{queued} wait while {running} run, where {seats} usually do"]
    for key, word in (("kv_usage", "KV cache"), ("mamba_usage", "Mamba")):
        if (value := _number(evidence, key)) is not None:
            parts.append(f"{word} {percent(value)}")
    return [line(" · ".join(parts))]


def _seconds(value: float) -> str:
    return span(timedelta(seconds=value))


def _bytes(value: float) -> str:
    return f"{value / 2**30:.0f} GiB"


def _leak(evidence: Mapping[str, Value]) -> list[Line]:
    used, limit = (_said(evidence, key, _bytes) for key in ("used_bytes", "limit_bytes"))
    full = _said(evidence, "full_in_seconds", _seconds)
    return [line(f"{used} of {limit}, {_said(evidence, 'bytes_an_hour', _bytes)} more each hour: full in {full}")]


def _job(evidence: Mapping[str, Value]) -> list[Line]:
    done, total = _number(evidence, "done"), _number(evidence, "total")
    if done is None:
        return []
    of = f" of {exact(int(total))}" if total is not None else ""
    return [line(f"at {exact(int(done))}{of}")]


_WORDS: Mapping[Cause, Callable[[Mapping[str, Value]], list[Line]]] = {
    Cause.DOWN: _down,
    Cause.HUNG: _hung,
    Cause.CRASH_LOOP: lambda e: [
        line(f"{_said(e, 'restarts')} times within {_said(e, 'within_seconds', _seconds)}"),
    ],
    Cause.STARVED: _starved,
    Cause.SLOW_FLEET: _pace,
    Cause.SLOW_SERVER: _pace,
    Cause.ERROR_RATE: lambda e: [
        line(f"{_said(e, 'errors')} of {_said(e, 'requests')} requests ({_said(e, 'share', percent)})"),
    ],
    Cause.CLOCK_LIMITED: _clocks,
    Cause.MEMORY_LEAK: _leak,
    Cause.JOB_STALLED: _job,
    Cause.JOB_FINISHED: _job,
    Cause.PROMPT_HEAVY: lambda e: [
        line(f"prompts are {_said(e, 'times_the_usual_prompts')} times the usual; {_said(e, 'share', percent)} of the"),
        line("usual tokens come. Nothing is wrong with the servers."),
    ],
}
