"""What is kept of looks: when a server's readiness became another, and how far a job was.

A look that did not ask for the log or the health endpoint sees less; what it can't tell apart is no change
(``changed``), or each kind of look would have its own truth and every second one would be a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.facts import JobFacts, JobState, ServerFacts
from bot.domain.needs import Needs
from bot.domain.readiness import Readiness, Verdict

MARK_EACH = timedelta(minutes=5)
"""How often a job's progress is kept while its state stays the same."""

_NEEDS_MORE = (Readiness.HUNG, Readiness.DRAINING, Readiness.CRASHED)


@dataclass(frozen=True, slots=True)
class ReadinessChange:
    """A server was seen in a state that it was not in when it was last seen."""

    server: str
    at: datetime
    readiness: Readiness
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobMark:
    """How far a job was when it was looked at."""

    job: str
    at: datetime
    state: JobState
    done: int | None = None
    total: int | None = None


def changed(last: ReadinessChange | None, verdict: Verdict, facts: ServerFacts, needs: Needs) -> bool:
    """Whether a look shows something new of a server: no news is what it could not have told apart."""
    now = verdict.readiness
    if now is Readiness.UNKNOWN or facts.is_pending:
        return False
    if last is None or last.readiness is now:
        return last is None
    if last.readiness is Readiness.CRASHED and now is Readiness.DOWN:
        return needs.log
    if last.readiness in _NEEDS_MORE and now is Readiness.READY:
        return needs.log and (needs.health or needs.movement or needs.load)
    return True


def is_due(last: JobMark | None, facts: JobFacts) -> bool:
    """Whether a job's progress is worth keeping: its state is another, or a while has passed and it moved."""
    if facts.state is JobState.UNKNOWN:
        return False
    if last is None or last.state is not facts.state:
        return True
    return facts.at - last.at >= MARK_EACH and facts.done != last.done
