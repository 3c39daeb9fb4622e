"""What limits throughput now: seats, memory, the scheduler or the client; decided on values, with the numbers.

The number of running requests is compared with its cap, never a pool's usage with 1: a Mamba pool is full at 60 %
when a request reserves five slots and holds three. Thresholds follow SGLang's tuning guide where it has one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from bot.domain import mamba
from bot.domain.facts import Load, ServerFacts
from bot.domain.flags import Flags
from bot.domain.fleet import Profile, Server
from bot.domain.guard import rate
from bot.domain.launching import flags_for
from bot.domain.readiness import Readiness
from bot.domain.world import World

NEAR = 0.8
"""From this share of the cap on, the cap is what holds: requests come and go between two looks."""
NEARLY = 0.7
"""From this share on it is so too, where other servers are at the cap."""
FULL = 0.9
"""A cache this full has no room for one more request of usual length."""
THRASH = 1.0
"""Requests put back a minute; up to about one is healthy."""
FEW = 0.1
"""A queue up to this share of what runs is only the next batch on its way."""
WORTH = 1.1
"""A profile is offered when it seats a tenth more."""

SEATS_FLAG = {"vllm": "max-num-seqs"}
MEMORY_FLAG = {"vllm": "gpu-memory-utilization"}


def seats_flag(engine: str) -> str:
    """The flag that caps running requests."""
    return SEATS_FLAG.get(engine, "max-running-requests")


def memory_flag(engine: str) -> str:
    """The flag that gives the caches their memory."""
    return MEMORY_FLAG.get(engine, "mem-fraction-static")


class Limit(Enum):
    """What holds a server; the first four are kinds of a cap on running requests."""

    MAMBA = "mamba"
    ASKED = "asked"
    MEMORY = "memory"
    CAP = "cap"
    KV = "kv"
    WINDOW = "window"
    SCHEDULER = "scheduler"
    DEMAND = "demand"
    IDLE = "idle"
    UNKNOWN = "unknown"

    @property
    def is_cap(self) -> bool:
        """Whether it is the number of seats."""
        return self in (Limit.MAMBA, Limit.ASKED, Limit.MEMORY, Limit.CAP)


@dataclass(frozen=True, slots=True)
class Work:
    """What one server does, and what it was told to do.

    ``most`` is its cap on running requests, ``asked`` what its flags say of it; ``slots`` are the Mamba slots that a
    request reserves, ``pool`` how many there are. ``put_back`` are requests taken back a minute, since its start.
    """

    server: str
    engine: str
    load: Load
    most: int | None = None
    asked: int | None = None
    slots: int | None = None
    pool: float | None = None
    tokens: float | None = None
    put_back: float | None = None
    flags: Flags = Flags()
    version: str | None = None
    profile: str | None = None


def work_of(world: World, server: Server) -> Work:
    """A server's work by what was seen of it."""
    facts = world.facts(server.name)
    flags = _flags(world, server, facts)
    version = facts.running.version or (facts.diagnosis.version if facts.diagnosis is not None else None)
    numbers = facts.diagnosis.numbers if facts.diagnosis is not None else {}
    asked = _whole(flags.value(seats_flag(server.engine)))
    told = numbers.get("max_running_requests")
    return Work(
        server.name,
        server.engine,
        facts.load,
        facts.load.max_running or facts.running.max_running or (int(told) if told else None) or asked,
        asked,
        mamba.reserved(flags, version),
        numbers.get("max_mamba_cache_size"),
        rate(facts),
        _a_minute(facts.load.retracted, facts.process.age if facts.process is not None else None),
        flags,
        version,
        facts.profile,
    )


def _flags(world: World, server: Server, facts: ServerFacts) -> Flags:
    """What it was launched with: by its process, else by what it says of itself, else nothing is known."""
    engine = world.engines.get(server.engine)
    if facts.process is not None and facts.process.argv and engine is not None:
        return engine.flags_of(facts.process.argv)
    return facts.running.flags or Flags()


def _a_minute(count: int | None, age: timedelta | None) -> float | None:
    if count is None or age is None or age < timedelta(minutes=1):
        return None
    return count / (age / timedelta(minutes=1))


def _whole(word: str | None) -> int | None:
    return int(word) if word is not None and word.isascii() and word.isdecimal() and len(word) < 9 else None


def limit_of(work: Work) -> Limit:
    """What holds this server."""
    load, queued = work.load, work.load.queued or 0
    if load.running is None:
        return Limit.UNKNOWN
    if load.running == 0 and queued == 0:
        return Limit.IDLE
    if _is_full(load.kv_usage) or _thrashes(work):
        return Limit.KV
    if _is_full(load.swa_usage):
        return Limit.WINDOW
    if work.most is not None and load.running >= NEAR * work.most and not _starves(work):
        return _cap(work)
    if _is_waiting(work):
        return Limit.SCHEDULER if work.most is not None else Limit.CAP
    return Limit.DEMAND


def _is_full(usage: float | None) -> bool:
    return usage is not None and usage >= FULL


def _thrashes(work: Work) -> bool:
    """Whether requests are put back again and again, and the cache is not nearly empty by now."""
    return (work.put_back or 0.0) > THRASH and (work.load.kv_usage is None or work.load.kv_usage >= FULL / 2)


def _is_waiting(work: Work) -> bool:
    queued, running = work.load.queued or 0, work.load.running or 0
    return queued > max(2, FEW * running)


def _starves(work: Work) -> bool:
    """Whether requests wait although more seats are free than one batch leaves."""
    free = (work.most or 0) - (work.load.running or 0)
    return _is_waiting(work) and free > max(2, FEW * (work.most or 0)) and _cap(work) is not Limit.MAMBA


def _cap(work: Work) -> Limit:
    """Whose number the cap is: the flag's, or what the memory gives."""
    room = states_room(work)
    if work.asked is not None and work.most is not None and work.most >= work.asked:
        return Limit.MAMBA if room is not None and room < WORTH * work.most else Limit.ASKED
    if work.load.mamba_usage is not None or work.pool is not None:
        return Limit.MAMBA
    return Limit.MEMORY if work.asked is not None else Limit.CAP


def states_room(work: Work) -> int | None:
    """The requests that its Mamba pool seats: by the log's word, else by what those that run take of it."""
    if not work.slots:
        return None
    if work.pool:
        return mamba.seats(work.pool, work.slots)
    usage, running = work.load.mamba_usage, work.load.running
    if not usage or not running:
        return None
    return mamba.seats(running * min(mamba.HELD, work.slots) / usage, work.slots)


@dataclass(frozen=True, slots=True)
class Group:
    """Servers that the same thing holds, with their middle values; ``queued`` is the sum of all."""

    limit: Limit
    works: tuple[Work, ...]

    @property
    def first(self) -> Work:
        """The one that stands for what is alike in all."""
        return self.works[0]

    @property
    def servers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(work.server for work in self.works)

    @property
    def queued(self) -> int:
        """Requests that wait, in all."""
        return sum(work.load.queued or 0 for work in self.works)

    @property
    def running(self) -> tuple[int, int]:
        """The least and the most that run on one of them."""
        seen = [work.load.running or 0 for work in self.works]
        return min(seen), max(seen)

    @property
    def is_client_slow(self) -> bool:
        """Whether the seats hold and yet next to nothing waits: the client would not fill more of them."""
        return self.limit.is_cap and not any(_is_waiting(work) for work in self.works)

    def middle(self, get: Callable[[Work], float | None]) -> float | None:
        """The median of a number; None where none of them tells it."""
        return middle([get(work) for work in self.works])

    @property
    def held(self) -> int | None:
        """Mamba slots that a request holds of those that it reserves; None where the pool could be filled up."""
        slots, usage = self.first.slots, self.middle(lambda work: work.load.mamba_usage)
        if slots is None or usage is None or slots <= mamba.HELD:
            return None
        found = mamba.held(slots, usage)
        return found if found < slots else None


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def grouped(works: Sequence[Work]) -> tuple[Group, ...]:
    """Servers by what holds them, the largest group first.

    A few that run a little less than the others, at the same cap and with nothing waiting, are no case of their own.
    """
    found: dict[Limit, list[Work]] = {}
    for work in works:
        found.setdefault(limit_of(work), []).append(work)
    caps = [limit for limit in found if limit.is_cap]
    if caps and Limit.DEMAND in found:
        cap = max(caps, key=lambda limit: len(found[limit]))
        seats = {work.most for work in found[cap]}
        for work in found.pop(Limit.DEMAND):
            found.setdefault(cap if _is_near(work, seats) else Limit.DEMAND, []).append(work)
    ranked = sorted(found, key=lambda limit: -len(found[limit]))
    return tuple(Group(limit, tuple(found[limit])) for limit in ranked)


def _is_near(work: Work, seats: Collection[int | None]) -> bool:
    """Whether it only just misses what its fellows, with as many seats, are held by."""
    return work.most in seats and (work.load.running or 0) >= NEARLY * (work.most or 0)


def groups(world: World, servers: Sequence[Server]) -> tuple[Group, ...]:
    """The ready ones of these servers, by what holds them."""
    ready = [server for server in servers if world.verdict(server.name).readiness is Readiness.READY]
    return grouped([work_of(world, server) for server in ready])


@dataclass(frozen=True, slots=True)
class Gain:
    """A profile that would lift what holds.

    ``by_strategy`` are the seats that its Mamba strategy alone gives in the same pool; ``seats`` those that it is known
    for (by its own past starts, or the fleet file), else what the arithmetic says; ``memory`` its share of GPU memory
    where that is another one. None where it is not known.
    """

    profile: Profile
    seats: int | None = None
    by_strategy: int | None = None
    memory: str | None = None
    is_known: bool = False


def best_gain(world: World, group: Group) -> Gain | None:
    """The configured profile that helps most and is not what runs; None when none is sure to help."""
    found = [gain for profile in world.fleet.profiles if (gain := gain_of(world, group, profile)) is not None]
    return max(found, key=lambda gain: (gain.seats or 0, gain.memory or ""), default=None)


def gain_of(world: World, group: Group, profile: Profile) -> Gain | None:
    """What this profile would lift; None when it would not."""
    work = group.first
    if profile.name in {one.profile for one in group.works}:
        return None
    flags = flags_for(world.fleet.server(work.server), profile)
    memory, known = _other_memory(work, flags), _known_seats(world, group, profile)
    if group.limit in (Limit.KV, Limit.WINDOW):
        is_roomier = memory is not None and _is_more(memory, work) and not _seats_more(work, flags, known)
        return Gain(profile, memory=memory) if is_roomier else None
    if not group.limit.is_cap or not work.most:
        return None
    by_strategy = _by_strategy(group, flags)
    guessed = known or _guessed_seats(work, flags, by_strategy)
    if guessed is None or guessed < WORTH * work.most:
        return None
    return Gain(profile, guessed, by_strategy, memory, is_known=known is not None)


def _other_memory(work: Work, flags: Flags) -> str | None:
    name = memory_flag(work.engine)
    return after if (after := flags.value(name)) is not None and after != work.flags.value(name) else None


def _seats_more(work: Work, flags: Flags, known: int | None) -> bool:
    """Whether a profile lets more requests in at once: into a cache that is full already."""
    if known is not None and work.most:
        return known > WORTH * work.most
    asked, slots = _whole(flags.value(seats_flag(work.engine))), mamba.reserved(flags, work.version)
    is_looser = slots is not None and work.slots is not None and slots < work.slots
    return is_looser or (asked or 0) > (work.asked or work.most or 0)


def _is_more(memory: str, work: Work) -> bool:
    before, after = _share(work.flags.value(memory_flag(work.engine))), _share(memory)
    return before is not None and after is not None and after > before


def _share(word: str | None) -> float | None:
    try:
        return float(word) if word is not None else None
    except ValueError:
        return None


def _by_strategy(group: Group, flags: Flags) -> int | None:
    work = group.first
    after = mamba.reserved(flags, work.version)
    if group.limit is not Limit.MAMBA or not work.slots or not work.most or after in (None, work.slots):
        return None
    return mamba.seats(mamba.pool(work.most, work.slots, work.pool), after)


def _known_seats(world: World, group: Group, profile: Profile) -> int | None:
    """The seats of its last good start here, else those that the fleet file says."""
    past = [one for one in world.starts if one.profile == profile.name and one.is_ready and one.max_running]
    mine = [one for one in past if one.server in group.servers] or past
    return mine[-1].max_running if mine else profile.seats


def _guessed_seats(work: Work, flags: Flags, by_strategy: int | None) -> int | None:
    asked = _whole(flags.value(seats_flag(work.engine)))
    if by_strategy is not None:
        return min(by_strategy, asked or by_strategy)
    if limit_of(work) is not Limit.ASKED or asked is None:
        return None
    room = states_room(work)
    return asked if room is None else min(asked, room)


LOSS = 0.1
"""From a tenth on, what is lost between the servers and the job is worth a word."""


def lost(decoded: float, arrived: float | None) -> float | None:
    """The share of the decoded tokens that does not arrive at the job; None when it is small, or not known."""
    if not arrived or decoded <= 0:
        return None
    share = 1 - arrived / decoded
    return share if share >= LOSS else None
