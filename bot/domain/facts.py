"""What was observed, each with its time. A fact that nobody saw is None, never a default that looks like one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from bot.domain.diagnosis import Diagnosis
from bot.domain.flags import Flags
from bot.domain.kernel_caches import CacheSeen, KernelCache
from bot.domain.routing import Routed


class Outcome(Enum):
    """How an HTTP request ended."""

    PENDING = "pending"
    ANSWERED = "answered"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, or why there is none. ``body`` is cut at a limit that the reader was given."""

    outcome: Outcome
    at: datetime
    status: int | None = None
    body: bytes = b""
    took: timedelta = timedelta()
    why: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it was answered with a 2xx."""
        return self.outcome is Outcome.ANSWERED and self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a host. Pid and start time together name it for good; a pid alone may be another's by now.

    ``started`` is what the kernel says (ticks since boot), so it never drifts; ``age`` is for people.
    """

    pid: int
    started: int
    argv: tuple[str, ...] = ()
    user: str = ""
    age: timedelta = timedelta()
    parent: int = 0
    directory: str = ""

    @property
    def identity(self) -> tuple[int, int]:
        """Pid and start time."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class GpuUse:
    """A process that holds memory on a GPU; None where the driver does not say how much.

    ``server`` is the configured server whose process tree it belongs to, None when it is nobody's we know.
    """

    pid: int
    name: str
    memory_mib: int | None
    server: str | None = None
    age: timedelta | None = None
    started: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver shows it. ``clock_limits`` are the reasons that slow it, idle and power cap left out."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    clock_limits: tuple[str, ...] = ()
    uses: tuple[GpuUse, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What the kernel's log says of a GPU: the newest line of its kind, and how many like it there were.

    ``code`` is NVIDIA's Xid, None in a line of AMD's driver. ``pci`` is the address as the line has it; ``gpu`` is
    None where it is not known which GPU has that address. ``words`` are the driver's own.
    """

    at: datetime
    pci: str
    code: int | None = None
    words: str = ""
    gpu: int | None = None
    pid: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine says of its work. Usages are fractions of 1; rates are decoded tokens a second.

    ``counts_at_end`` is true where tokens are counted only when a request ends: then standing still says little.
    """

    running: int | None = None
    queued: int | None = None
    max_running: int | None = None
    max_total_tokens: int | None = None
    tokens_total: float | None = None
    prompt_tokens_total: float | None = None
    requests_total: float | None = None
    tokens_per_second: float | None = None
    kv_usage: float | None = None
    swa_usage: float | None = None
    mamba_usage: float | None = None
    accept_length: float | None = None
    cuda_graph: bool | None = None
    retracted: int | None = None
    stamp: float | None = None
    counts_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """What a running server says of its configuration."""

    version: str | None = None
    flags: Flags | None = None
    model: str | None = None
    max_running: int | None = None
    max_total_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Movement:
    """How tokens moved between two looks: since when they stand still (None: they moved), and their rate."""

    still_since: datetime | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was seen of one server in one look.

    ``process`` is the one that is provably this server; ``port_owner`` is whoever listens on its port.
    ``is_pending`` means that its host has not answered yet; ``unreachable`` says which hop failed and how.
    ``exit_status`` is that of the last process that our launcher started there, when it has ended.
    ``profile`` is the profile whose flags the process runs, "custom" where none fits.
    ``session`` is the tmux window that somebody started it in; ``is_adopted``: the bot has been told to take it over.
    ``orphans`` are workers that outlived the process which our launcher started: they may hold GPU memory.
    ``routed`` is how it stands with each of its routers that has answered by now.
    Where ``sees_processes`` is False, nobody could look at processes: that none was seen says nothing then.
    ``read_at`` is when somebody else (a Prometheus) read the numbers for us; None: they were read in this look.
    ``faults`` are those of its GPUs, the newest first; None where nobody looked or could read the kernel's log.
    ``caches`` are those of its engine's kernels; None where nobody looked, or could.
    """

    server: str
    at: datetime
    is_pending: bool = False
    unreachable: str | None = None
    process: Process | None = None
    port_owner: Process | None = None
    health: Answer | None = None
    instant: Answer | None = None
    load: Load = field(default_factory=Load)
    running: Running = field(default_factory=Running)
    movement: Movement = field(default_factory=Movement)
    diagnosis: Diagnosis | None = None
    gpus: tuple[Gpu, ...] = ()
    exit_status: int | None = None
    profile: str | None = None
    log_tail: tuple[str, ...] = ()
    sees_processes: bool = True
    session: str | None = None
    is_adopted: bool = False
    orphans: tuple[Process, ...] = ()
    routed: tuple[Routed, ...] = ()
    read_at: datetime | None = None
    faults: tuple[GpuFault, ...] | None = None
    caches: Mapping[KernelCache, CacheSeen] | None = None


class JobState(Enum):
    """What a job is doing."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What was seen of a job. ``rate`` is tokens a second as the job itself counts them."""

    job: str
    at: datetime
    state: JobState = JobState.UNKNOWN
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    eta: timedelta | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that one look has shown so far; a later one of the same look shows more.

    ``is_settled``: the instant facts of every host are in, or it is known that they will not come.
    ``is_complete``: nothing more will come.
    """

    at: datetime
    servers: Mapping[str, ServerFacts] = field(default_factory=dict)
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    is_settled: bool = True
    is_complete: bool = True
