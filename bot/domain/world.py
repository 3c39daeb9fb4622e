"""What a handler may know when it decides: the fleet, who asks and where, what was seen, and what goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from bot.domain.audit import AuditEntry
from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.engine import Engine
from bot.domain.facts import JobFacts, ServerFacts, Sight
from bot.domain.fleet import Fleet, Role, Server
from bot.domain.leases import Claim, Hold, claims_of
from bot.domain.operation import Operation, Question, in_the_way
from bot.domain.readiness import Verdict, judge
from bot.domain.records import StartRecord
from bot.domain.saying import Card
from bot.domain.tally import Tally
from bot.domain.watching.alerts import Book
from bot.domain.wishes import Wish


@dataclass(frozen=True, slots=True)
class Installed:
    """What the environment on a server's host has: the engine's version and every flag that it knows."""

    version: str
    flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Past:
    """What is kept of the past, the oldest first: entries of the audit, what looks have shown, marks of jobs.

    Of changes and marks the last before the asked instant comes first, for each server and job.
    """

    entries: tuple[AuditEntry, ...] = ()
    changes: tuple[ReadinessChange, ...] = ()
    marks: tuple[JobMark, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """Everything for one decision. ``installed`` and ``starts`` are by server; ``starts`` has the newest last.

    ``role`` is what the asker is in this channel over the whole fleet; ``wishes`` are the asker's own.
    ``past`` is there for a command that declares ``needs_history``, ``tally`` for one that declares ``needs_samples``
    where something is watched. ``holds`` are those of people that have not ended.
    """

    fleet: Fleet
    now: datetime
    asker: str
    role: Role
    channel: str
    sight: Sight
    thread: str | None = None
    targets: tuple[Server, ...] = ()
    operations: tuple[Operation, ...] = ()
    questions: tuple[Question, ...] = ()
    commands: tuple[Card, ...] = ()
    engines: Mapping[str, Engine] = field(default_factory=dict)
    installed: Mapping[str, Installed | str] = field(default_factory=dict)
    starts: tuple[StartRecord, ...] = ()
    past: Past = field(default_factory=Past)
    book: Book = field(default_factory=Book)
    tally: Tally | None = None
    wishes: tuple[Wish, ...] = ()
    holds: tuple[Hold, ...] = ()

    def facts(self, server: str) -> ServerFacts:
        """What was seen of a server; pending where nothing was."""
        seen = self.sight.servers.get(server)
        return seen if seen is not None else ServerFacts(server, self.sight.at, is_pending=True)

    def verdict(self, server: str) -> Verdict:
        """The state of a server."""
        return judge(self.facts(server), self.now)

    def job(self, name: str) -> JobFacts | None:
        """What was seen of a job."""
        return self.sight.jobs.get(name)

    def busy(self, servers: tuple[str, ...]) -> tuple[Operation, Claim] | None:
        """The live operation that holds any of these servers, their ports or their GPUs, and what both want."""
        return in_the_way(claims_of(self.fleet, servers), self.operations)
