"""What a log says: the phase of a start, numbers, and of a crash the cause, the decisive line and the remedy.

The words are those of the field: phases in the order of a start, causes as in `bot/engines`' tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """The last phase that a server's log has reached."""

    SPAWNED = "spawned"
    LOADING_WEIGHTS = "loading_weights"
    ALLOCATING_CACHE = "allocating_cache"
    CAPTURING_GRAPHS = "capturing_graphs"
    JIT_COMPILING = "jit_compiling"
    WARMING_UP = "warming_up"
    READY = "ready"
    SERVING = "serving"
    STOPPED = "stopped"
    CRASHED = "crashed"

    @property
    def words(self) -> str:
        """As a person says it."""
        return self.value.replace("_", " ")


STARTING = (
    Phase.SPAWNED,
    Phase.LOADING_WEIGHTS,
    Phase.ALLOCATING_CACHE,
    Phase.CAPTURING_GRAPHS,
    Phase.JIT_COMPILING,
    Phase.WARMING_UP,
)


_CAUSES = {
    "cuda_oom": "out of GPU memory",
    "memory_fraction_too_low": "memory fraction too low, no room for the cache",
    "memory_fraction_too_high": "memory fraction too high, no room beside the cache",
    "port_in_use": "port in use",
    "nccl": "NCCL failed",
    "argument_conflict": "flags that do not go together",
    "kernel_unsupported": "a kernel that this GPU or build lacks",
    "host_oom_killed": "killed from outside (SIGKILL; perhaps the host's OOM killer)",
    "scheduler_exception": "an exception in the engine",
}


def said_cause(cause: str | None) -> str:
    """A cause as a sentence has it: "out of GPU memory"; "a crash" where none is known."""
    if cause is None:
        return "a crash"
    return _CAUSES.get(cause) or cause.removeprefix("other:").replace("_", " ")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a reader makes of the log so far.

    ``cause`` is one of the known words or ``other:<a few words>``; ``decisive_line`` stands in the log exactly
    so. ``step`` is the bar's own count ("12/23"). ``ranks`` is the phase of each rank where a log shows several.
    ``numbers`` holds the last value of each, under the names of docs/reading-logs.md. ``seats_asked`` is how many
    requests at once its arguments allow, None where they do not say it. ``is_warming_up`` is true from the moment that
    HTTP is up until it says that it is ready, though clients may be served meanwhile.
    """

    engine: str | None = None
    version: str | None = None
    phase: Phase | None = None
    is_ready: bool = False
    is_crashed: bool = False
    cause: str | None = None
    decisive_line: str | None = None
    remedy: str | None = None
    progress_percent: int | None = None
    step: str | None = None
    ranks: Mapping[str, Phase] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    lines: int = 0
    seats_asked: int | None = None
    is_warming_up: bool = False

    @property
    def is_starting(self) -> bool:
        """Whether the log stands in the middle of a start."""
        return self.phase in STARTING

    @property
    def doing(self) -> str:
        """What it is doing, as a person says it: "loading weights 45 %", "capturing graphs 12/23"."""
        if self.phase is None:
            return "no log yet"
        if self.step is not None and self.phase is Phase.CAPTURING_GRAPHS:
            return f"{self.phase.words} {self.step}"
        if self.progress_percent is not None:
            return f"{self.phase.words} {self.progress_percent} %"
        return self.phase.words
