"""How alerts and silences are named, the same in their own messages and in the answers of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from bot.domain.message import Line, bold, line
from bot.domain.phrases import about, listing, names, span
from bot.domain.watching.alerts import Alert, Book, State
from bot.domain.watching.causes import Cause, Value


def alert_title(one: Alert, everyone: Sequence[str], servers: Sequence[str] | None = None) -> str:
    """What is wrong, in a few words; with all of its servers, or with some of them."""
    who, be, end = _subject(one.servers if servers is None else servers, everyone)
    if one.cause is Cause.FOREIGN:
        return _foreign_title(one, everyone, one.servers if servers is None else servers)
    return {
        Cause.DOWN: f"{who} {be} down",
        Cause.HUNG: f"{who} {be} hung",
        Cause.CRASH_LOOP: f"{who} crash{'es' if end else ''} over and over",
        Cause.STARVED: f"{who} {be} starved",
        Cause.SLOW_FLEET: "the fleet is slow",
        Cause.SLOW_SERVER: f"{who} {be} slow",
        Cause.ERROR_RATE: f"{who} answer{end} with errors",
        Cause.CLOCK_LIMITED: f"{who}: GPU clock limited",
        Cause.MEMORY_LEAK: f"{who}: host memory runs full",
        Cause.JOB_STALLED: f"job {who} stands still",
        Cause.JOB_FINISHED: f"job {who} is done",
        Cause.PROMPT_HEAVY: "long prompts take the tokens",
    }[one.cause]


def _foreign_title(one: Alert, everyone: Sequence[str], servers: Sequence[str]) -> str:
    """An Alertmanager's alert by the name that it has there, and whom it is about: our servers, and what is none."""
    others = one.evidence.get("others")
    who = [names(list(servers), list(everyone))] if servers else []
    who += others if isinstance(others, tuple) else ()
    some = [*who[:_MOST_NAMED], *([f"{len(who) - _MOST_NAMED} more"] if len(who) > _MOST_NAMED else [])]
    name = str(one.evidence.get("name", "an alert"))
    return f"{name}: {listing(some)}" if some else name


def over_title(one: Alert, everyone: Sequence[str]) -> str:
    """What is right again, in a few words."""
    who, be, end = _subject(one.servers, everyone)
    if one.cause is Cause.FOREIGN:
        return f"{alert_title(one, everyone)}: over"
    if one.cause is Cause.JOB_STALLED:
        return f"job {who} {_JOB_ENDS.get(str(one.after.get('end')), 'gets on again')}"
    return {
        Cause.DOWN: f"{who} {be} back",
        Cause.HUNG: f"{who} {be} back" if one.after.get("rate") == 0 else f"{who} generate{end} again",
        Cause.CRASH_LOOP: f"{who} stay{end} up",
        Cause.STARVED: f"{who} {be} fed again",
        Cause.SLOW_FLEET: "the fleet is fast again",
        Cause.SLOW_SERVER: f"{who} {be} fast again",
        Cause.ERROR_RATE: f"{who} answer{end} without errors",
        Cause.CLOCK_LIMITED: f"{who}: GPU clock free again",
        Cause.MEMORY_LEAK: f"{who}: host memory grows no more",
    }.get(one.cause, f"no more: {alert_title(one, everyone)}")


_MOST_NAMED = 4
_JOB_ENDS = {"done": "is done", "stopped": "was stopped"}


def concerned(servers: Sequence[str], everyone: Sequence[str]) -> str:
    """Whom an alert is about."""
    return names(list(servers), list(everyone)) if servers else "the fleet"


def _subject(servers: Sequence[str], everyone: Sequence[str]) -> tuple[str, str, str]:
    """Whom it is about, and how the verbs beside that end."""
    return (concerned(servers, everyone), *(("are", "") if len(servers) > 1 else ("is", "s")))


def alert_lines(alerts: Sequence[Alert], everyone: Sequence[str], now: datetime) -> tuple[Line, ...]:
    """Alerts a line each."""
    lines = []
    for one in alerts:
        state = {State.ACKED: f" · seen by {one.acked_by}", State.SILENCED: " · silenced"}.get(one.state, "")
        lines.append(line("🔴 ", bold(alert_title(one, everyone)), f" for {span(now - one.since)}{state} · {one.id}"))
    return tuple(lines)


def pace_words(evidence: Mapping[str, Value]) -> str:
    """How slow it is: "412 tok/s where 671 is usual at 32 running"."""
    rate, usual, running = (_said(evidence.get(key)) for key in ("rate", "usual_rate", "running"))
    return f"{rate} tok/s where {usual} is usual at {running} running"


def _said(value: Value) -> str:
    return about(value) if isinstance(value, (int, float)) else "?"


def silence_lines(book: Book, now: datetime) -> tuple[Line, ...]:
    """Silences that hold now, a line each."""
    lines = []
    for one in book.silences:
        if now < one.until:
            who = listing(sorted(one.alerts or one.servers)) or "everything"
            why = f": {one.because}" if one.because else ""
            lines.append(line(f"silent about {who} for another {span(one.until - now)}, by {one.by}{why}"))
    return tuple(lines)
