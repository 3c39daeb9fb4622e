"""What an engine plug-in must know: launch argv, the paths to ask, and how to read what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.diagnosis import Diagnosis
from bot.domain.facts import Answer, Load, Running
from bot.domain.flags import Flags
from bot.domain.fleet import Server
from bot.domain.kernel_caches import KernelCache


class LogReader(Protocol):
    """Reads a log as it grows. Pure: bytes in, a diagnosis out; memory bounded whatever comes."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        ...

    def diagnosis(self) -> Diagnosis:
        """What the log says up to here; asking changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class FlagProblem:
    """A flag that will not do in the installed version: what is wrong, and the flags that would be right.

    ``corrected`` replaces all of the flags that were checked; None where there is no sure correction.
    """

    flag: str
    why: str
    corrected: Flags | None = None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The smallest request that proves that tokens come out."""

    path: str
    body: bytes


class Engine(Protocol):
    """An inference engine: pure knowledge, no I/O.

    ``health_path`` may generate a token and take its time, so it is asked once at a time and never given up.
    ``instant_paths`` are answered at once, without the scheduler, the most telling first.
    ``load_paths`` and ``config_paths`` are read for numbers; each may be missing in some version.
    ``metric_names`` are the names on its page of metrics (``/metrics``) that are read there.
    """

    @property
    def name(self) -> str: ...
    @property
    def health_path(self) -> str: ...
    @property
    def instant_paths(self) -> tuple[str, ...]: ...
    @property
    def load_paths(self) -> tuple[str, ...]: ...
    @property
    def config_paths(self) -> tuple[str, ...]: ...
    @property
    def metric_names(self) -> frozenset[str]: ...
    @property
    def warm_up(self) -> WarmUp: ...
    @property
    def kernel_caches(self) -> tuple[KernelCache, ...]:
        """Every cache of compiled kernels that some version of it keeps."""
        ...

    def caches_used(self, version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
        """Those that a launch of that version with these flags goes by."""
        ...

    def launch_argv(self, server: Server, flags: Flags) -> tuple[str, ...]:
        """The whole command line that launches this server with these flags (its port among them)."""
        ...

    def port_of(self, argv: Sequence[str]) -> int | None:
        """The port of a process of this engine by its command line; None when it is not this engine's main process."""
        ...

    def flags_of(self, argv: Sequence[str]) -> Flags:
        """The launch flags of such a command line."""
        ...

    def load(self, answers: Mapping[str, Answer]) -> Load:
        """The numbers in the answers of ``load_paths``, by path; what can't be read is None."""
        ...

    def running(self, answers: Mapping[str, Answer]) -> Running:
        """The configuration in the answers of ``config_paths``."""
        ...

    def reader(self) -> LogReader:
        """A fresh log reader."""
        ...

    def version_argv(self, server: Server) -> tuple[str, ...]:
        """A command that prints the installed version and then the flags that it knows, one ``--name`` a line.

        Where the installed parser checks a flag's values, there is a second line ``--name=int``, ``--name=float`` or
        ``--name=a|b``.
        """
        ...

    def check(self, version: str, known: frozenset[str], flags: Flags) -> tuple[FlagProblem, ...]:
        """What would stop these flags from working in that version; ``known`` is empty where it was not asked."""
        ...
