"""What state a server is in, from five signals, since a single one lies.

The process lives and owns the port; health answers; tokens move while requests run; the port is ours; no
crash stands in the log since the last start. Unreachable is not down: we do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from http import HTTPStatus

from bot.domain.diagnosis import Phase
from bot.domain.facts import Answer, Outcome, ServerFacts
from bot.domain.phrases import span

HANG_AFTER = timedelta(seconds=20)
"""SGLang itself calls its scheduler stuck after 20 s without output (SGLANG_HEALTH_CHECK_TIMEOUT)."""


class Readiness(Enum):
    """The one word for a server's state."""

    READY = "ready"
    STARTING = "starting"
    HUNG = "hung"
    DOWN = "down"
    CRASHED = "crashed"
    UNREACHABLE = "unreachable"
    DRAINING = "draining"
    UNKNOWN = "no answer yet"

    @property
    def is_alive(self) -> bool:
        """Whether something may be lost by ending it; what we do not know counts as alive."""
        return self not in (Readiness.DOWN, Readiness.CRASHED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A readiness and, in a few words, why."""

    readiness: Readiness
    reason: str = ""


def judge(facts: ServerFacts, now: datetime) -> Verdict:
    """Say what state a server is in; ``now`` is the time of the question, not of the facts."""
    if facts.unreachable is not None:
        return Verdict(Readiness.UNREACHABLE, facts.unreachable)
    if facts.is_pending:
        return Verdict(Readiness.UNKNOWN)
    if facts.process is None:
        return _without_process(facts)
    return _with_process(facts, now)


def _without_process(facts: ServerFacts) -> Verdict:
    owner = facts.port_owner
    if owner is not None:
        return Verdict(
            Readiness.DOWN, f"port answers, but the process is not ours (pid {owner.pid}, {_command(owner.argv)})"
        )
    diagnosis = facts.diagnosis
    if diagnosis is not None and diagnosis.is_crashed:
        return Verdict(Readiness.CRASHED, diagnosis.cause or "crashed")
    if facts.exit_status not in (None, 0):
        return Verdict(Readiness.CRASHED, f"exit status {facts.exit_status}")
    return Verdict(Readiness.DOWN, "no process")


def _with_process(facts: ServerFacts, now: datetime) -> Verdict:
    process, owner, diagnosis = facts.process, facts.port_owner, facts.diagnosis
    assert process is not None  # noqa: S101 - the caller has looked; this is for the type checker
    if owner is not None and process.pid not in (owner.pid, owner.parent):
        return Verdict(Readiness.STARTING, f"port taken by another process (pid {owner.pid}, {_command(owner.argv)})")
    answer = facts.health if facts.health and facts.health.outcome is not Outcome.PENDING else facts.instant
    if owner is None or answer is None or answer.outcome is Outcome.REFUSED:
        if diagnosis is not None and diagnosis.is_crashed:
            return Verdict(Readiness.STARTING, f"{diagnosis.cause or 'a crash'} in the log, process still alive")
        is_telling = diagnosis is not None and diagnosis.is_starting
        return Verdict(
            Readiness.STARTING, diagnosis.doing if diagnosis and is_telling else f"process alive {span(process.age)}"
        )
    if _stands_still(facts, now):
        since = facts.movement.still_since
        return Verdict(Readiness.HUNG, f"no token for {span(now - since)}" if since else "no token")
    return Verdict(Readiness.READY) if answer.is_ok else _not_ok(facts, answer)


def _not_ok(facts: ServerFacts, answer: Answer) -> Verdict:
    diagnosis = facts.diagnosis
    if answer.outcome is Outcome.TIMED_OUT:
        return Verdict(Readiness.HUNG, f"no answer for {span(answer.took)}")
    if diagnosis is not None and diagnosis.phase is Phase.STOPPED:
        return Verdict(Readiness.DRAINING, "asked to end, finishing its requests")
    if diagnosis is not None and diagnosis.is_starting:
        return Verdict(Readiness.STARTING, diagnosis.doing)
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE and not facts.load.running:
        return Verdict(Readiness.STARTING, "warming up")
    return Verdict(Readiness.HUNG, f"HTTP {answer.status}" if answer.status else answer.why or "no answer")


def _stands_still(facts: ServerFacts, now: datetime) -> bool:
    since = facts.movement.still_since
    return bool(since and facts.load.running and now - since >= HANG_AFTER)


def _command(argv: tuple[str, ...]) -> str:
    words = " ".join(argv[:3])
    return words if len(words) <= 40 else f"{words[:39]}…"
