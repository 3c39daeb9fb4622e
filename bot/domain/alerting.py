"""How alerts and silences are named, the same in their own messages and in the answers of commands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bot.domain.message import Line, bold, line
from bot.domain.phrases import listing, names, span
from bot.domain.watching.alerts import Alert, Book, State
from bot.domain.watching.causes import Cause


def alert_title(cause: Cause, who: str) -> str:
    """What is wrong, in a few words."""
    plural = " " in who or "-" in who or who.startswith("all")
    be = "are" if plural else "is"
    return {
        Cause.DOWN: f"{who} {be} down",
        Cause.HUNG: f"{who} {be} hung",
        Cause.CRASH_LOOP: f"{who} crash{'' if plural else 'es'} over and over",
        Cause.STARVED: f"{who} {be} starved",
        Cause.SLOW_FLEET: "the fleet is slow",
        Cause.SLOW_SERVER: f"{who} {be} slow",
        Cause.ERROR_RATE: f"{who} answer{'' if plural else 's'} with errors",
        Cause.CLOCK_LIMITED: f"{who}: GPU clock limited",
        Cause.MEMORY_LEAK: f"{who}: host memory runs full",
        Cause.JOB_STALLED: f"job {who} stands still",
        Cause.JOB_FINISHED: f"job {who} is done",
        Cause.PROMPT_HEAVY: "long prompts take the tokens",
    }[cause]


def alert_lines(alerts: Sequence[Alert], everyone: Sequence[str], now: datetime) -> tuple[Line, ...]:
    """Alerts a line each."""
    lines = []
    for one in alerts:
        who = names(list(one.servers), list(everyone)) if one.servers else "the fleet"
        state = {State.ACKED: f" · seen by {one.acked_by}", State.SILENCED: " · silenced"}.get(one.state, "")
        lines.append(line("🔴 ", bold(alert_title(one.cause, who)), f" for {span(now - one.since)}{state} · {one.id}"))
    return tuple(lines)


def silence_lines(book: Book, now: datetime) -> tuple[Line, ...]:
    """Silences that hold now, a line each."""
    lines = []
    for one in book.silences:
        if now < one.until:
            who = listing(sorted(one.servers)) if one.servers else "everything"
            why = f": {one.because}" if one.because else ""
            lines.append(line(f"silent about {who} for another {span(one.until - now)}, by {one.by}{why}"))
    return tuple(lines)
