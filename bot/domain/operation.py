"""A plan being carried out, and a question that waits for a press: both as values with one table of states each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from bot.domain.errors import UserError
from bot.domain.fleet import Fleet
from bot.domain.leases import Claim, Kind, claims_of, shared
from bot.domain.plan import EndForeign, EndServers, Plan, ResumeJob, StartServers, Step, StopJob, TakeOut, TakeOver
from bot.domain.routing import Taken


class State(Enum):
    """Where an operation stands."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


NEXT: Mapping[State, frozenset[State]] = {
    State.RUNNING: frozenset({State.CANCELLING, State.DONE, State.FAILED}),
    State.CANCELLING: frozenset({State.CANCELLED, State.DONE, State.FAILED}),
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class StepState(Enum):
    """Where a step stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step's state, and what it has to say in a few words ("8/8 stopped")."""

    state: StepState = StepState.WAITING
    note: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a chat, as the store keeps it: channel, thread, and the message that is kept current."""

    channel: str
    thread: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A plan being carried out.

    ``touched`` is true from the moment that something may have been signalled or started; before that a word ends
    it and nothing is left behind. ``lost`` says of each server that dropped out why; ``asked`` since when each has
    been asked to end, so that none is asked twice; ``launched`` are those that it has started. ``copies`` are other
    places that want to read along. ``is_end_told`` is false from the beginning until its end has been said, so that a
    bot that was killed in between says it when it is back. ``taken`` are the servers that it took out of their
    routers, also those that are back. ``claims`` are what it holds as long as it is live.
    """

    id: str
    plan: Plan
    by: str
    started_at: datetime
    where: Where
    state: State = State.RUNNING
    progress: tuple[StepProgress, ...] = ()
    touched: bool = False
    lost: tuple[tuple[str, str], ...] = ()
    asked: tuple[tuple[str, datetime], ...] = ()
    launched: tuple[str, ...] = ()
    copies: tuple[Where, ...] = ()
    pace: timedelta | None = timedelta(seconds=30)
    ended_at: datetime | None = None
    outcome: str = ""
    stopper: str | None = None
    is_compared: bool = False
    is_end_told: bool = True
    taken: tuple[Taken, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def held(self) -> tuple[Claim, ...]:
        """What it holds; one that an older version wrote down tells it by its plan alone."""
        return self.claims or claims(self.plan, Fleet())

    @property
    def owner(self) -> str:
        """Who has asked for it, also of what goes back by itself ("ana, going back")."""
        return self.by.partition(", ")[0]

    @property
    def is_live(self) -> bool:
        """Whether it still may do something."""
        return self.state in (State.RUNNING, State.CANCELLING)

    @property
    def current(self) -> int | None:
        """The number of the step that is at work, or of the next one; None when all are behind."""
        for number, step in enumerate(self.progress):
            if step.state in (StepState.RUNNING, StepState.WAITING):
                return number
        return None

    @property
    def survivors(self) -> tuple[str, ...]:
        """The servers that have not dropped out."""
        gone = {name for name, _ in self.lost}
        return tuple(name for name in self.plan.servers if name not in gone)

    @property
    def out(self) -> tuple[Taken, ...]:
        """What is out of its router through this operation."""
        return tuple(one for one in self.taken if not one.is_back)

    @property
    def asked_to_end(self) -> frozenset[str]:
        """The servers whose processes may have been signalled by now."""
        begun = zip(self.plan.steps, self.progress, strict=True)
        ends = [step for step, progress in begun if isinstance(step, EndServers) and progress.note]
        return frozenset(victim.server for step in ends for victim in step.victims)

    def with_taken(self, taken: Taken) -> Operation:
        """The operation with what it knows of a server and a router changed, or added."""
        others = tuple(one for one in self.taken if one.pair != taken.pair)
        return replace(self, taken=(*others, taken))

    def to(self, state: State, *, at: datetime | None = None, outcome: str = "") -> Operation:
        """The operation in another state; ValueError names the state and the wrong step from it."""
        if state not in NEXT[self.state]:
            raise ValueError(f"operation {self.id} is {self.state.value} and can't become {state.value}")
        return replace(self, state=state, ended_at=at, outcome=outcome or self.outcome)

    def with_step(self, number: int, state: StepState, note: str = "") -> Operation:
        """The operation with one step's progress changed; anything that ends or starts a server touches."""
        steps = list(self.progress)
        steps[number] = StepProgress(state, note or steps[number].note)
        touches = state is StepState.RUNNING and isinstance(self.plan.steps[number], (EndServers, StartServers))
        return replace(self, progress=tuple(steps), touched=self.touched or touches)

    def without(self, server: str, why: str) -> Operation:
        """The operation with one server dropped out."""
        if server in dict(self.lost):
            return self
        return replace(self, lost=(*self.lost, (server, why)))


def begin(
    plan: Plan,
    *,
    id: str,  # noqa: A002 - the field's own name
    by: str,
    at: datetime,
    where: Where,
    pace: timedelta | None,
    claims: tuple[Claim, ...] = (),
) -> Operation:
    """A fresh operation with every step waiting."""
    progress = tuple(StepProgress() for _ in plan.steps)
    return Operation(id, plan, by, at, where, progress=progress, pace=pace, is_end_told=False, claims=claims)


def claims(plan: Plan, fleet: Fleet) -> tuple[Claim, ...]:
    """What a plan holds while it is carried out: its servers with their ports and GPUs, and its jobs.

    The end of a foreign process is beside whatever waits for it to be gone, so it claims that process alone; a
    takeover is beside those that it ends, and claims only that nobody else takes them over.
    """
    if takeovers := [step for step in plan.steps if isinstance(step, TakeOver)]:
        ids = [Claim(Kind.OPERATION, one) for step in takeovers for one in step.operations]
        return (*ids, *(Claim(Kind.HOLD, one) for step in takeovers for one in step.holds))
    if ends := [step for step in plan.steps if isinstance(step, EndForeign)]:
        hosts = {server.name: server.host for server in fleet.servers}
        return tuple(Claim(Kind.PID, str(step.pid), hosts.get(step.server, "")) for step in ends)
    jobs = dict.fromkeys(step.job for step in plan.steps if isinstance(step, (StopJob, ResumeJob)))
    return (*claims_of(fleet, plan.servers), *(Claim(Kind.JOB, job) for job in jobs))


def in_the_way(wanted: Iterable[Claim], live: Iterable[Operation]) -> tuple[Operation, Claim] | None:
    """The live operation that holds one of these claims, and the claim; None when all are free."""
    mine = tuple(wanted)
    for op in live:
        if op.is_live and (both := shared(mine, op.held)) is not None:
            return op, both
    return None


def rolls_beside(plan: Plan, live: Iterable[Operation]) -> tuple[Operation, Claim] | None:
    """The live operation that a plan would spoil by a second living server out of one router, or be spoiled by.

    One of the two takes one server at a time out of it; None when there is none.
    """
    for op in live:
        is_rolling = plan.stops_on_failure or op.plan.stops_on_failure
        harms = any(stake.is_alive for stake in plan.stakes) and any(stake.is_alive for stake in op.plan.stakes)
        both = sorted(_routers(plan) & _routers(op.plan))
        if op.is_live and is_rolling and harms and both:
            return op, Claim(Kind.ROUTER, both[0])
    return None


def _routers(plan: Plan) -> set[str]:
    return {router for step in plan.steps if isinstance(step, TakeOut) for router in step.routers}


def left_down(operations: Iterable[Operation], alive_at: Mapping[str, datetime]) -> frozenset[str]:
    """The servers that the last operation on them was to end, and that were not seen alive since; newest last."""
    acted = (one for one in operations if not any(isinstance(step, TakeOver) for step in one.plan.steps))
    last = {name: one for one in acted for name in one.plan.servers}
    return frozenset(
        name
        for name, one in last.items()
        if one.state is State.DONE and _only_ends(one.plan.steps) and not _lived_since(alive_at.get(name), one.ended_at)
    )


def _lived_since(alive_at: datetime | None, ended_at: datetime | None) -> bool:
    return alive_at is not None and ended_at is not None and alive_at > ended_at


def _only_ends(steps: Iterable[Step]) -> bool:
    kinds = {type(step) for step in steps}
    return EndServers in kinds and StartServers not in kinds


class InTheWay(UserError):
    """Another operation works on the same things; it is told to the person as busy."""

    def __init__(self, operation: Operation, claim: Claim) -> None:
        super().__init__(f"busy: {operation.plan.verb} by {operation.by} is under way ({operation.id})")
        self.operation = operation
        self.claim = claim


class Asked(Enum):
    """Where a question stands; everything but OPEN is an end."""

    OPEN = "open"
    PRESSED = "pressed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Question:
    """A plan that waits for a press: stored before it is posted, looked up by its nonce.

    ``text`` are the words that led to it, decided again when it is pressed. ``code`` is what one may type.
    """

    nonce: str
    code: str
    plan: Plan
    text: str
    asker: str
    asked_at: datetime
    expires_at: datetime
    where: Where
    state: Asked = Asked.OPEN
    by: str | None = None
    ended_at: datetime | None = None
    copies: tuple[Where, ...] = field(default=())
