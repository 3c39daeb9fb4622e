"""What is decided and not yet done: a plan is frozen data that can be compared, shown, stored and resumed.

Each kind of step is a class here; how it is done, and how one sees that it is done already, stands in
`bot.runtime.steps`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bot.domain.flags import Flags
from bot.domain.leases import Hold
from bot.domain.message import Message


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that a plan ends: pid and start time name it for good."""

    server: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One server to be launched: its flags, secrets hidden, and what they are called.

    The command line is made of it at the moment of the launch, when the secrets are put back. ``typed`` are those
    that were typed along; they stand in ``flags`` too.
    """

    server: str
    flags: Flags
    profile: str = "custom"
    typed: Flags = Flags()

    @property
    def called(self) -> str:
        """What these flags are called in the records: with flags typed along they are no profile's."""
        return "custom" if self.typed.items else self.profile


@dataclass(frozen=True, slots=True)
class StopJob:
    """Ask a job to end and wait until it has."""

    job: str


@dataclass(frozen=True, slots=True)
class TakeOut:
    """Take servers out of their routers and let their requests end, for up to ``limit``."""

    servers: tuple[str, ...]
    routers: tuple[str, ...]
    limit: timedelta


@dataclass(frozen=True, slots=True)
class PutBack:
    """Put servers back into their routers, and wait until these list them as healthy."""

    servers: tuple[str, ...]
    routers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndServers:
    """SIGTERM to exactly these processes, a grace time, SIGKILL to what is left of their trees."""

    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class AwaitFree:
    """Wait until ports and GPU memory of these servers are really free."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartServers:
    """Launch all, follow each until it is ready or gone."""

    orders: tuple[StartOrder, ...]


@dataclass(frozen=True, slots=True)
class Prove:
    """Have each generate a token, read its flags and limits back, and compare with before."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeJob:
    """Start a job again when enough servers are ready."""

    job: str
    concurrency: int | None
    minimum_servers: int


@dataclass(frozen=True, slots=True)
class CompareThroughput:
    """After a while, say what the change has brought."""

    servers: tuple[str, ...]
    after: timedelta


@dataclass(frozen=True, slots=True)
class ComparePeers:
    """After a while, say how one server does beside its peers, and offer to go on or back."""

    server: str
    peers: tuple[str, ...]
    after: timedelta


@dataclass(frozen=True, slots=True)
class EndForeign:
    """End one process that is no server of ours, and nothing else; ``server`` is the one it stands in the way of."""

    server: str
    pid: int
    started: int
    what: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Cancel these operations and leave what they launched, and pass these people's holds on these servers on."""

    operations: tuple[str, ...]
    holds: tuple[str, ...]
    servers: tuple[str, ...]


Step = (
    ComparePeers
    | EndForeign
    | StopJob
    | TakeOut
    | EndServers
    | AwaitFree
    | StartServers
    | Prove
    | PutBack
    | ResumeJob
    | CompareThroughput
    | TakeOver
)


@dataclass(frozen=True, slots=True)
class Before:
    """What a server did before the plan, for the comparison at its end. Rates are decoded tokens a second."""

    server: str
    profile: str | None = None
    max_running: int | None = None
    max_total_tokens: int | None = None
    running: int | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Stake:
    """What a press would be about: a server's process and whether it lives. Counters are not part of it."""

    server: str
    pid: int | None
    started: int | None
    is_alive: bool
    readiness: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, and whether a person must press first.

    ``question`` is what is asked (its buttons are added by who posts it); None means that nothing healthy is at
    stake and it starts at once. ``is_preview`` shows the question's text and acts never. With ``stops_on_failure``
    the first server that fails ends the rest (rolling); without it the others go on. With ``goes_back`` servers that
    fail to start are started with ``back_to`` without being asked for. ``held`` are the people's holds that it touches.
    """

    verb: str
    title: str
    servers: tuple[str, ...]
    steps: tuple[Step, ...]
    profile: str | None = None
    question: Message | None = None
    confirm_label: str = "Confirm"
    stakes: tuple[Stake, ...] = ()
    before: tuple[Before, ...] = ()
    back_to: str | None = None
    stops_on_failure: bool = False
    is_preview: bool = False
    has_alternative: tuple[str, str] | None = None
    goes_back: bool = False
    held: tuple[Hold, ...] = ()

    @property
    def needs_confirmation(self) -> bool:
        """Whether something healthy, or something we can't see, would die."""
        return self.question is not None

    @property
    def act(self) -> str:
        """What it does, as it is said of somebody who may not: "restart", "stop the job"."""
        kind, _, verb = self.verb.partition(" ")
        return f"{verb} the {kind}" if verb else kind

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that it stops or starts."""
        return frozenset(step.job for step in self.steps if isinstance(step, (StopJob, ResumeJob)))

    @property
    def touched(self) -> frozenset[str]:
        """The servers and jobs that it acts on."""
        return self.jobs.union(self.servers)


def grown_harm(asked: Plan, now: Plan) -> str | None:
    """Why a press for ``asked`` must not start ``now``, or None when the harm has not grown.

    Void are another target, job, profile or process, another holder, and something dead that lives now; a server that
    died since is less harm, and counters do not count.
    """
    if strangers := [hold for hold in now.held if hold.by not in {known.by for known in asked.held}]:
        return f"{strangers[0].by} holds {strangers[0].what} now"
    if now.profile != asked.profile:
        return f"the profile is now {now.profile}"
    if more := [name for name in now.servers if name not in asked.servers]:
        return f"{', '.join(more)} would be touched too"
    if jobs := sorted(now.jobs - asked.jobs):
        return f"job {', '.join(jobs)} would be stopped too"
    before = {stake.server: stake for stake in asked.stakes}
    for stake in now.stakes:
        old = before.get(stake.server)
        if stake.is_alive and (old is None or not old.is_alive):
            return f"{stake.server} is {stake.readiness} now"
        if old is None or not stake.is_alive:
            continue
        if (old.pid, old.started) != (stake.pid, stake.started):
            return f"{stake.server} runs another process now (pid {stake.pid})"
        if stake.readiness == "ready" != old.readiness:
            return f"{stake.server} is ready now, it was {old.readiness}"
    return None
