"""What a watcher reads of the fleet at one instant; what was not told is None, an absent server was not readable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Sample:
    """One server at one instant.

    ``tokens_total`` counts decoded tokens since the process began, ``prompt_tokens_total`` those of prompts; both
    start at 0 again with a new process. Usages are fractions of 1. ``clock_limits`` are the reasons that slow its
    GPUs, idle and power cap left out. ``process`` is pid and start time. ``is_dead`` means that it was seen to have
    no process, ``is_starting`` that it is on its way up; a server that nobody could read has no sample at all.
    ``age`` is how many seconds before the reading the numbers were read, where somebody else read them; None: just now.
    ``why`` says in a few words why it is dead, where that is known.
    ``fault_age`` is how many seconds ago the kernel's log named the gravest fault of its GPUs lately: ``fault_code`` is
    NVIDIA's Xid (None: another driver's), ``fault_gpu`` which GPU.
    """

    tokens_total: float | None = None
    prompt_tokens_total: float | None = None
    running: int | None = None
    queued: int | None = None
    max_running: int | None = None
    kv_usage: float | None = None
    mamba_usage: float | None = None
    accept_length: float | None = None
    clock_limits: tuple[str, ...] = ()
    temperature_c: float | None = None
    memory_bytes: float | None = None
    memory_limit_bytes: float | None = None
    requests_total: float | None = None
    errors_total: float | None = None
    profile: str | None = None
    process: tuple[int, int] | None = None
    is_starting: bool = False
    is_dead: bool = False
    age: float | None = None
    why: str | None = None
    fault_code: int | None = None
    fault_gpu: int | None = None
    fault_age: float | None = None


@dataclass(frozen=True, slots=True)
class JobSample:
    """One job at one instant. ``rate`` is tokens a second as the job itself counts them."""

    is_running: bool
    is_done: bool = False
    done: int | None = None
    total: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The whole fleet at one instant.

    ``expected`` are the servers that should be there; None: whoever was seen before. ``planned`` are those that an
    operation works on right now, or has stopped for good; ``planned_jobs`` likewise. ``at`` comes from a clock that may
    jump.
    """

    at: datetime
    servers: Mapping[str, Sample] = field(default_factory=dict)
    expected: frozenset[str] | None = None
    planned: frozenset[str] = frozenset()
    jobs: Mapping[str, JobSample] = field(default_factory=dict)
    planned_jobs: frozenset[str] = frozenset()
