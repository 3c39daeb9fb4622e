"""What state a server is in, from five signals, since a single one lies.

The process lives and owns the port; health answers; tokens move while requests run; the port is ours; no
crash stands in the log since the last start. Unreachable is not down: we do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from http import HTTPStatus

from bot.domain.diagnosis import Phase, said_cause
from bot.domain.facts import Answer, Outcome, Process, ServerFacts
from bot.domain.phrases import count, span
from bot.domain.routing import Standing

HANG_AFTER = timedelta(seconds=2.5)
"""Looks over so long that show requests running and not one token between them; a long prefill takes a second."""
SLOW_HANG_AFTER = timedelta(minutes=2)
"""Where tokens are counted only when a request ends, nothing may move for as long as an answer takes."""

_ASKED_TO_END = (-2, -15, 130, 143)
"""How a process ends that was sent SIGINT or SIGTERM, as Python and as a shell count it."""

_SIGNALS = {3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}

_NO_ANSWER = (Outcome.PENDING, Outcome.BROKEN)
_NOT_ITS_FAULT = (401, 403, 404, 405)


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
        return Verdict(Readiness.UNKNOWN, _crash_in_log(facts))
    if facts.process is None:
        return _without_process(facts) if facts.sees_processes else _by_answers(facts, now)
    return _with_process(facts, now)


def _without_process(facts: ServerFacts) -> Verdict:
    owner, diagnosis = facts.port_owner, facts.diagnosis
    if owner is not None:
        whose = f"pid {owner.pid}, {_command(owner.argv)}" if owner.pid else "this login may not see it"
        return Verdict(Readiness.DOWN, f"port answers, but the process is not ours ({whose})")
    if diagnosis is not None and diagnosis.is_crashed:
        return Verdict(Readiness.CRASHED, said_cause(diagnosis.cause) if diagnosis.cause else "crashed")
    if diagnosis is not None and diagnosis.phase is Phase.STOPPED:
        return Verdict(Readiness.DOWN, "stopped")  # SGLang kills itself at the end of a drain: its status lies
    if facts.exit_status in _ASKED_TO_END:
        return Verdict(Readiness.DOWN, "stopped")
    if facts.exit_status not in (None, 0):
        return Verdict(Readiness.CRASHED, _said_status(facts.exit_status))
    return Verdict(Readiness.DOWN, "no process")


def _said_status(status: int) -> str:
    """How a process ended, by its status as Python counts signals (-9) or a shell does (137)."""
    signal = _SIGNALS.get(-status if status < 0 else status - 128)
    return f"killed by {signal}" if signal is not None else f"exit status {status}"


def _with_process(facts: ServerFacts, now: datetime) -> Verdict:
    process, owner = facts.process, facts.port_owner
    assert process is not None  # noqa: S101 - the caller has looked; this is for the type checker
    if owner is not None and process.pid not in (owner.pid, owner.parent):
        return Verdict(Readiness.STARTING, f"port taken by another process (pid {owner.pid}, {_command(owner.argv)})")
    answer = _latest(facts)
    if answer is None or answer.outcome is Outcome.REFUSED or (owner is None and answer.outcome in _NO_ANSWER):
        return _without_port(facts, process)
    if answer.outcome is Outcome.PENDING:
        return Verdict(Readiness.UNKNOWN, _crash_in_log(facts))
    if owner is None and _is_starting(facts):
        return Verdict(Readiness.STARTING, _doing(facts))  # whoever answers there, our log says that we do not
    if _stands_still(facts):
        return _hung(facts, now)
    return _answering(facts, answer) if _answers(answer) else _not_ok(facts, answer)


def _latest(facts: ServerFacts) -> Answer | None:
    """The answer that says most: that of the health endpoint, until then that of the instant one."""
    health = facts.health
    if health is not None and health.outcome is not Outcome.PENDING:
        return health
    return facts.instant if facts.instant is not None else health


def _without_port(facts: ServerFacts, process: Process) -> Verdict:
    diagnosis = facts.diagnosis
    if diagnosis is not None and diagnosis.is_crashed:
        return Verdict(Readiness.STARTING, f"{said_cause(diagnosis.cause)} in the log, process still alive")
    if diagnosis is not None and diagnosis.phase is Phase.STOPPED:
        return Verdict(Readiness.DRAINING, "asked to end, its port is closed")
    return Verdict(Readiness.STARTING, _doing(facts) if _is_starting(facts) else f"process alive {span(process.age)}")


def _answers(answer: Answer) -> bool:
    """Whether it answers as it should; a missing key or path is the asker's fault, not the server's."""
    return answer.is_ok or (answer.outcome is Outcome.ANSWERED and answer.status in _NOT_ITS_FAULT)


def _answering(facts: ServerFacts, answer: Answer) -> Verdict:
    diagnosis = facts.diagnosis
    if diagnosis is not None and diagnosis.phase is Phase.STOPPED:
        return Verdict(Readiness.DRAINING, "asked to end, finishing its requests")
    if _is_drained_by_routers(facts):
        left = f", {count(facts.load.running, 'request')} left" if facts.load.running else ""
        return Verdict(Readiness.DRAINING, f"taken out of its router{left}")
    if answer is not facts.health and _is_starting(facts):
        return Verdict(Readiness.STARTING, _doing(facts))  # its main process answers while the first request warms up
    if diagnosis is not None and diagnosis.is_crashed:
        return Verdict(Readiness.READY, f"{said_cause(diagnosis.cause)} in the log, yet it answers")
    return Verdict(Readiness.READY, "" if answer.is_ok else f"answers HTTP {answer.status}")


def _is_drained_by_routers(facts: ServerFacts) -> bool:
    """Whether a router is letting its requests end and none sends it new ones."""
    standings = {one.standing for one in facts.routed}
    return Standing.DRAINING in standings and standings <= {Standing.DRAINING, Standing.ABSENT}


def _by_answers(facts: ServerFacts, now: datetime) -> Verdict:
    """Where processes can't be seen, what answers is all there is; and a refused port is not a proof of death."""
    answer = _latest(facts)
    if answer is None or answer.outcome is Outcome.REFUSED:
        if _is_starting(facts):
            return Verdict(Readiness.STARTING, _doing(facts))
        return Verdict(Readiness.UNREACHABLE, "port refused, and its processes can't be seen from here")
    if answer.outcome is Outcome.PENDING:
        return Verdict(Readiness.UNKNOWN)
    if _stands_still(facts):
        return _hung(facts, now)
    return _answering(facts, answer) if _answers(answer) else _not_ok(facts, answer)


def _not_ok(facts: ServerFacts, answer: Answer) -> Verdict:
    diagnosis = facts.diagnosis
    said = f"HTTP {answer.status}" if answer.status else answer.why or "no answer"
    if diagnosis is not None and diagnosis.phase is Phase.STOPPED:
        return Verdict(Readiness.DRAINING, "asked to end, finishing its requests")
    if facts.movement.tokens_per_second and answer.outcome is not Outcome.BROKEN:
        return Verdict(Readiness.READY, f"{said} at {_path(facts, answer)}, yet tokens move")
    if diagnosis is not None and diagnosis.is_crashed:
        return Verdict(Readiness.HUNG, f"{said_cause(diagnosis.cause)} in the log, process still alive")
    if answer.outcome is Outcome.TIMED_OUT:
        return Verdict(Readiness.HUNG, f"no answer for {span(answer.took)}")
    if _is_starting(facts):
        return Verdict(Readiness.STARTING, _doing(facts))
    is_known_ready = diagnosis is not None and diagnosis.is_ready
    is_warming_up = diagnosis is not None and diagnosis.is_warming_up  # clients are served in it already
    may_warm_up = is_warming_up or (not facts.load.running and not is_known_ready)
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE and may_warm_up:
        return Verdict(Readiness.STARTING, "warming up")
    return Verdict(Readiness.HUNG, said)


def _path(facts: ServerFacts, answer: Answer) -> str:
    return "the health endpoint" if answer is facts.health else "the instant endpoint"


def _is_starting(facts: ServerFacts) -> bool:
    return facts.diagnosis is not None and facts.diagnosis.is_starting


def _crash_in_log(facts: ServerFacts) -> str:
    """What is known before it answers: a server that has just crashed accepts and says nothing for some seconds."""
    diagnosis = facts.diagnosis
    return f"{said_cause(diagnosis.cause)} in the log" if diagnosis is not None and diagnosis.is_crashed else ""


def _doing(facts: ServerFacts) -> str:
    return facts.diagnosis.doing if facts.diagnosis is not None else ""


def _stands_still(facts: ServerFacts) -> bool:
    since = facts.movement.still_since
    limit = SLOW_HANG_AFTER if facts.load.counts_at_end else HANG_AFTER
    return bool(since and facts.load.running and facts.at - since >= limit)


def _hung(facts: ServerFacts, now: datetime) -> Verdict:
    since = facts.movement.still_since
    return Verdict(Readiness.HUNG, f"no token for {span(now - since)}" if since else "no token")


def _command(argv: tuple[str, ...]) -> str:
    words = " ".join(argv[:3])
    return words if len(words) <= 40 else f"{words[:39]}…"
