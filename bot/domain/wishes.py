"""What people want to be told of: until when it is waited for, and whether it is so now.

A server that a live operation works on is up only once that operation has launched it: before, it is the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from bot.domain.facts import JobState, ServerFacts, Sight
from bot.domain.fleet import Fleet
from bot.domain.operation import Operation, State, Where
from bot.domain.phrases import exact, names, span
from bot.domain.readiness import Readiness, judge

KEPT = timedelta(hours=24)
"""So long a wish is waited for."""
MOST = 10
"""So many wishes a person may have at once."""


class Until(Enum):
    """What is waited for."""

    UP = "up"
    DOWN = "down"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be so: of servers, of a job, or of an operation. ``title`` is how the operation is called."""

    until: Until
    servers: tuple[str, ...] = ()
    job: str | None = None
    operation: str | None = None
    title: str = ""

    def words(self, everyone: Sequence[str]) -> str:
        """As a clause: "gpu3 is up", "one of gpu2, gpu3 is down", "job datagen is done"."""
        if self.job is not None:
            return f"job {self.job} is done"
        if self.operation is not None:
            return f"{self.title} ({self.operation}) is over"
        who = names(self.servers, everyone)
        if len(self.servers) == 1:
            return f"{who} is {self.until.value}"
        return f"{who} are up" if self.until is Until.UP else f"one of {who} is down"


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants to be told where. ``user`` is the chat's own id of the person, ``number`` the store's."""

    user: str
    where: Where
    goal: Goal
    asked_at: datetime
    expires_at: datetime
    number: int = 0


def mine(wishes: Iterable[Wish], fleet: Fleet, user: str) -> tuple[Wish, ...]:
    """The wishes of a person, by whatever id they have wished."""
    person = fleet.person(user)
    return tuple(one for one in wishes if one.user == user or (person is not None and fleet.person(one.user) is person))


def come_true(goal: Goal, sight: Sight, operations: Sequence[Operation], everyone: Sequence[str]) -> str | None:
    """That it is so, in words; None while it is not, or nobody can see it.

    ``operations`` are those at work and those that ended lately; one that is not among them is over.
    """
    if goal.operation is not None:
        return _over(goal, operations)
    if goal.job is not None:
        return _done(goal.job, sight)
    seen = {name: sight.servers[name] for name in goal.servers if name in sight.servers}
    if goal.until is Until.DOWN:
        return _down(seen, sight.at)
    ready = [name for name in seen if _is_up(seen[name], operations, sight.at)]
    return goal.words(everyone) if len(ready) == len(goal.servers) > 0 else None


def _is_up(facts: ServerFacts, operations: Iterable[Operation], now: datetime) -> bool:
    is_old = any(
        op.is_live and facts.server in op.plan.servers and facts.server not in op.launched for op in operations
    )
    return not is_old and judge(facts, now).readiness is Readiness.READY


def _down(seen: dict[str, ServerFacts], now: datetime) -> str | None:
    for name, facts in seen.items():
        verdict = judge(facts, now)
        if not verdict.readiness.is_alive:
            return f"{name} is {verdict.readiness.value}" + (f": {verdict.reason}" if verdict.reason else "")
    return None


def _done(job: str, sight: Sight) -> str | None:
    facts = sight.jobs.get(job)
    if facts is None or facts.state is not JobState.DONE:
        return None
    return f"job {job} is done" + (f": {exact(facts.done)}" if facts.done is not None else "")


def _over(goal: Goal, operations: Iterable[Operation]) -> str | None:
    op = next((one for one in operations if one.id == goal.operation), None)
    if op is None:
        return goal.words(())
    if op.is_live:
        return None
    took = f" after {span(op.ended_at - op.started_at)}" if op.ended_at is not None else ""
    ended = {State.DONE: "done", State.FAILED: "failed", State.CANCELLED: "cancelled"}[op.state]
    return f"{goal.title} ({goal.operation}): {ended}{took}"
