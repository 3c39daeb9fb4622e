"""Processes that hold a server's port or GPU memory and are no server of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.facts import GpuUse, Process, ServerFacts
from bot.domain.fleet import Server
from bot.domain.phrases import span
from bot.domain.world import World

FOREIGN_MIB = 1024
"""A context of some hundred MiB is a driver's own; from 1 GiB on it is somebody's."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """One such process. ``started`` is None where it can't be seen, and then it can't be ended safely."""

    server: str
    host: str
    pid: int
    started: int | None
    what: str
    why: str
    age: timedelta | None = None

    @property
    def age_words(self) -> str:
        """How old it is, ready to be put behind something."""
        return f", {span(self.age)} old" if self.age else ""


def foreigners(world: World, servers: Sequence[Server]) -> tuple[Foreign, ...]:
    """All of them, each once, in the servers' order."""
    found: dict[tuple[str, int], Foreign] = {}
    for server in servers:
        for one in _of(server, world.facts(server.name)):
            found.setdefault((one.host, one.pid), one)
    return tuple(found.values())


def _of(server: Server, facts: ServerFacts) -> Iterable[Foreign]:
    if (owner := foreign_owner(facts)) is not None:
        what = " ".join(owner.argv)[:80] or "unknown"
        why = f"port {server.port} is held"
        yield Foreign(server.name, server.host, owner.pid, owner.started, what, why, owner.age)
    for orphan in facts.orphans:
        what = " ".join(orphan.argv)[:80] or "unknown"
        why = "an earlier start of it is survived"
        yield Foreign(server.name, server.host, orphan.pid, orphan.started, what, why, orphan.age)
    for gpu in facts.gpus:
        for use in gpu.uses:
            if is_foreign(use):
                size = f"{use.memory_mib / 1024:.0f} GiB" if use.memory_mib is not None else "memory"
                why = f"GPU {gpu.index} has {size} held"
                yield Foreign(server.name, server.host, use.pid, use.started, use.name, why, use.age)


def foreign_owner(facts: ServerFacts) -> Process | None:
    """Who holds the port, when it is neither the server nor a child of it."""
    owner, process = facts.port_owner, facts.process
    if owner is None or (process is not None and process.pid in (owner.pid, owner.parent)):
        return None
    return owner


def is_foreign(use: GpuUse) -> bool:
    """Whether memory is held by nobody of the fleet, and so much of it that it is in the way."""
    return use.server is None and (use.memory_mib is None or use.memory_mib >= FOREIGN_MIB)
