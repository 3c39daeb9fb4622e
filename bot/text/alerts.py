"""How alerts are told: cause, evidence in numbers, since when, what changed last, and the commands that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from bot.domain.alerting import alert_title, concerned, over_title, pace_words
from bot.domain.gpu_faults import apart, named, remedy
from bot.domain.message import Block, Button, Buttons, Line, Lines, Message, Says, Small, bold, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import about, count, exact, percent, span
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
    words = _WORDS[one.cause](one.evidence)
    lasted = span((one.resolved_at or now) - one.since)
    if one.state is State.RESOLVED:
        # What people have read, not the numbers of the recovery that went on already when it was last found.
        words = _WORDS[one.cause]({**(one.first or one.evidence), "is_over": False})
        before = (line("before: ", words[0]), *words[1:]) if words else ()
        return Message(_over(one, everyone, lasted), (Lines(before),) if before else ())
    head = line("🔴 ", bold(alert_title(one, everyone)), f" for {lasted}")
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


def _over(one: Alert, everyone: Sequence[str], lasted: str) -> Line:
    """How it ended, and what is made now."""
    rate = _number(one.after, "rate") if one.cause in _WITH_RATE else None
    now = f": {about(rate)} tok/s" if rate else ""
    is_idle = rate == 0 and one.cause in (Cause.DOWN, Cause.HUNG)
    tail = f"{now} after {lasted}{_WAS.get(one.cause, '')}{', idle' if is_idle else ''}"
    return line("🟢 ", bold(over_title(one, everyone)), tail)


_WITH_RATE = (Cause.DOWN, Cause.HUNG, Cause.STARVED, Cause.SLOW_FLEET, Cause.SLOW_SERVER)

_WAS: Mapping[Cause, str] = {
    Cause.DOWN: " down",
    Cause.HUNG: " hung",
    Cause.CRASH_LOOP: " of crashes",
    Cause.STARVED: " starved",
    Cause.SLOW_FLEET: " slow",
    Cause.SLOW_SERVER: " slow",
    Cause.ERROR_RATE: " of errors",
    Cause.JOB_STALLED: " at a standstill",
}
"""What it was for so long, where its title does not say it."""


def _buttons(one: Alert) -> list[Button]:
    targets = " ".join(one.servers)
    buttons = [] if one.state is State.ACKED else [Button("Ack", Says(f"ack {one.id}"))]
    if one.cause is Cause.JOB_STALLED:
        return [*buttons, Button("Job", Says("job"))]
    if one.state is not State.SILENCED and (targets or one.cause is Cause.FOREIGN):
        buttons.append(Button("Silence 1 h", Says(f"silence {targets or one.id} 1h")))
    if one.cause is Cause.FOREIGN and not targets:
        return buttons
    buttons.append(Button("Why", Says(f"why {targets}".strip())))
    if len(one.servers) == 1 and (one.cause is not Cause.FOREIGN or one.evidence.get("cause")):
        buttons.append(Button(f"Restart {targets}…", Says(f"restart {targets}")))
    return buttons


def told(change: Change, everyone: Sequence[str], now: datetime) -> Message:
    """The short note in an alert's thread."""
    one = change.alert
    lasted = span(now - one.since)
    words = {
        Did.FIRING: alert_title(one, everyone, change.servers),
        Did.JOINED: f"{concerned(change.servers, everyone)} too",
        Did.RESOLVED: _recovered(one, lasted),
        Did.RETURNED: f"{alert_title(one, everyone, change.servers)} again, {lasted} after it began",
        Did.ACKED: f"seen by {one.acked_by}",
        Did.SILENCED: "silenced",
        Did.UNSILENCED: "no longer silenced",
        Did.CONFIRMED: f"Alertmanager and our own look say the same: {alert_title(one, everyone)}",
        Did.DOUBTED: _doubt(change, everyone),
        Did.NOTE: alert_title(one, everyone),
    }[change.did]
    return says(words)


def _recovered(one: Alert, lasted: str) -> str:
    is_seen = one.cause is not Cause.FOREIGN or one.servers or one.evidence.get("is_checked")
    return f"recovered after {lasted}" if is_seen else f"over after {lasted}, says Alertmanager; nothing to check it by"


def _doubt(change: Change, everyone: Sequence[str]) -> str:
    """Why what an Alertmanager calls resolved is not told as recovered."""
    one = change.alert
    claim = "Alertmanager says resolved, but"
    if one.cause is not Cause.FOREIGN:
        return f"{claim} our own look does not: not recovered"
    if change.servers:
        verb = "does" if len(change.servers) == 1 else "do"
        return f"{claim} {concerned(change.servers, everyone)} {verb} not answer: not recovered"
    away = one.evidence.get("away")
    some = ", ".join(away[:4]) if isinstance(away, tuple) else "it"
    return f"{claim} {some} can't be scraped: not recovered"


def note(one: Alert, everyone: Sequence[str]) -> Message:
    """Something that asks nobody to act."""
    words = _WORDS[one.cause](one.evidence)
    return Message(line("⚪ ", bold(alert_title(one, everyone))), (Lines(tuple(words)),) if words else ())


def blind(since: timedelta, why: str) -> Message:
    """Said when the watcher itself can't look."""
    return says("🟡 ", bold(f"blind since {span(since)}"), f": {why}")


def sees_again(after: timedelta) -> Message:
    """Said when it can look again."""
    return says("🟢 ", bold("I see again"), f", after {span(after)}")


def hindrance(since: timedelta, why: str) -> Message:
    """Said when the watcher has to look in another way than it was told to."""
    return says("🟡 ", bold(why), f", for {span(since)}")


def hindrance_over(after: timedelta) -> Message:
    """Said when that is over."""
    return says("🟢 ", bold("Prometheus tells all again"), f", after {span(after)}")


def no_watchdog(name: str, since: timedelta) -> Message:
    """Said when the alert that always fires is not heard any more: then no other would be either."""
    return says(
        "🟡 ", bold(f"no {name} from Alertmanager"), f" for {span(since)}: its other alerts may not come either"
    )


def watchdog_back(name: str, after: timedelta) -> Message:
    """Said when it is heard again."""
    return says("🟢 ", bold(f"{name} is heard again"), f", after {span(after)}")


def out_of_step(since: timedelta, why: str) -> Message:
    """Said when silences and alerts do not reach the Alertmanager."""
    return says("🟡 ", bold(why), f", for {span(since)}: silences are set there when it is back")


def in_step(after: timedelta) -> Message:
    """Said when they do again."""
    return says("🟢 ", bold("Alertmanager is back"), f", after {span(after)}: all silences are set there")


# The evidence


def _number(evidence: Mapping[str, Value], key: str) -> float | None:
    value = evidence.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _said(evidence: Mapping[str, Value], key: str, how: Callable[[float], str] = about) -> str:
    value = _number(evidence, key)
    return "?" if value is None else how(value)


def _pace(evidence: Mapping[str, Value]) -> list[Line]:
    lines = [line(pace_words(evidence))]
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
        why = evidence.get("why")
        return [line(f"no process there: {why}" if why else "no process there"), *_fault(evidence)]
    return [line(f"{_said(evidence, 'lost_reads')} looks in a row without an answer"), *_fault(evidence)]


def _fault(evidence: Mapping[str, Value]) -> list[Line]:
    """What the kernel's log names as the reason."""
    before, gpu, code = (_number(evidence, key) for key in ("xid_before_seconds", "xid_gpu", "xid"))
    if before is None:
        return []
    number, which = (int(one) if one is not None else None for one in (code, gpu))
    told = named(number, f"GPU {which}" if which is not None else "one of its GPUs", "its driver reset it")
    return [line(bold(told), f", {apart(timedelta(seconds=before))}; {remedy(number, which)}")]


def _hung(evidence: Mapping[str, Value]) -> list[Line]:
    running = _said(evidence, "running")
    told = f"{running} requests run and no token came for {_said(evidence, 'for_seconds', _seconds)}"
    return [line(told), *_fault(evidence)]


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


def _foreign(evidence: Mapping[str, Value]) -> list[Line]:
    summary, severity, firing = (evidence.get(key) for key in ("summary", "severity", "firing"))
    lines = [line(str(summary))] if summary else []
    parts = ["from Alertmanager", *([str(severity)] if severity else [])]
    if isinstance(firing, int) and firing > 1:
        parts.append(f"{firing} fire")
    if evidence.get("is_over"):
        parts.append("it says resolved, we do not see that" if evidence.get("is_doubted") else "resolved, it says")
    return [*lines, line(" · ".join(parts))]


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
        *_fault(e),
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
    Cause.FOREIGN: _foreign,
    Cause.JOB_FINISHED: _job,
    Cause.PROMPT_HEAVY: lambda e: [
        line(f"prompts are {_said(e, 'times_the_usual_prompts')} times the usual; {_said(e, 'share', percent)} of the"),
        line("usual tokens come. Nothing is wrong with the servers."),
    ],
}
