"""What is held: the claims of operations and of people on servers, GPUs, ports, jobs and processes.

A claim is made from the fleet as it stands when something begins, and is kept with it as a value: a fleet file that is
read anew in between changes nothing about what is held. Nothing here is a lock: an operation's lease is that it lives,
a person's that its time has not come, so nobody who died leaves one behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from bot.domain.fleet import Fleet
from bot.domain.phrases import listing


class Kind(Enum):
    """What a claim is on; of several that are shared the first in this order is named."""

    SERVER = "server"
    JOB = "job"
    PID = "pid"
    GPU = "gpu"
    PORT = "port"
    OPERATION = "operation"
    HOLD = "hold"
    ROUTER = "router"


MOST_NAMED = 4
REASON = 200
"""Characters of a reason that are kept."""
LONGEST = timedelta(days=7)
"""So long ahead a person may hold something."""
UNKNOWN = "somebody"
"""The holder of what can't be read any more."""
_RANK = {kind: place for place, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that one alone may have. ``of`` is the server that it is claimed for; it makes no other claim of it."""

    kind: Kind
    name: str
    host: str = ""
    of: str = field(default="", compare=False)

    @property
    def words(self) -> str:
        """How a person names it: "gpu3", "gpu 3 of ct200", "job datagen"."""
        if self.kind is Kind.SERVER:
            return self.name
        return f"{self.kind.value} {self.name}" + (f" of {self.host}" if self.host else "")


def claims_of(fleet: Fleet, servers: Iterable[str]) -> tuple[Claim, ...]:
    """Servers with their ports and GPUs; of one that the fleet does not know, its name alone."""
    known = {server.name: server for server in fleet.servers}
    found: list[Claim] = []
    for name in servers:
        found.append(Claim(Kind.SERVER, name, of=name))
        if (server := known.get(name)) is not None:
            found.append(Claim(Kind.PORT, str(server.port), server.host, of=name))
            found += [Claim(Kind.GPU, str(gpu), server.host, of=name) for gpu in server.gpus]
    return tuple(found)


def shared(some: Iterable[Claim], others: Iterable[Claim]) -> Claim | None:
    """What both claim, as the first has it; of several the one that a person names first."""
    taken = set(others)
    return min((one for one in some if one in taken), key=lambda one: _RANK[one.kind], default=None)


@dataclass(frozen=True, slots=True)
class Hold:
    """A person's lease on servers, until an instant. ``by`` is a name in the fleet file, ``user`` the chat's own id.

    ``channel`` and ``thread`` are where it was said, and where its end is told.
    """

    id: str
    servers: tuple[str, ...]
    claims: tuple[Claim, ...]
    by: str
    since: datetime
    until: datetime
    reason: str = ""
    user: str = ""
    channel: str = ""
    thread: str | None = None

    @property
    def what(self) -> str:
        """Its servers in a few words, where the fleet's order is not known."""
        few = self.servers[:MOST_NAMED]
        more = len(self.servers) - len(few)
        return f"{', '.join(few)} and {more} more" if more else listing(few)

    def without(self, servers: Collection[str]) -> Hold | None:
        """What is left of it without these servers; None when nothing is."""
        return self.only([name for name in self.servers if name not in servers])

    def only(self, servers: Collection[str]) -> Hold | None:
        """The part of it that is on these servers; None when there is none."""
        kept = tuple(name for name in self.servers if name in servers)
        claims = tuple(one for one in self.claims if one.of in kept)
        return replace(self, servers=kept, claims=claims) if kept else None

    def meets(self, wanted: AbstractSet[Claim]) -> bool:
        """Whether it has one of these claims."""
        return not wanted.isdisjoint(self.claims)

    def shares(self, wanted: AbstractSet[Claim]) -> tuple[str, ...]:
        """Its servers that have one of these claims, or whose port or GPU is one of them."""
        touched = {one.of for one in self.claims if one in wanted}
        return tuple(name for name in self.servers if name in touched)


def unreadable(id_: str, fleet: Fleet, now: datetime) -> Hold:
    """What stands for a hold of which only the id can be read: it may be on anything, and for as long as any may be."""
    servers = tuple(server.name for server in fleet.servers)
    why = f"{id_} can't be read; an admin ends it: release all"
    return Hold(id_, servers, claims_of(fleet, servers), UNKNOWN, now, now + LONGEST, why)


def alive(holds: Iterable[Hold], now: datetime) -> tuple[Hold, ...]:
    """Those whose time has not come."""
    return tuple(hold for hold in holds if now < hold.until)
