"""Weighs what a log brings forward: did it crash, was it stopped, and which line is the root of it.

A log of a crash holds many errors and one cause. Evidence has a weight (how much it says); more weight wins, and
of equal weight the first, since what follows is mostly its echo. An error alone is no crash: an engine
survives many. It counts when the log says that a process ended (``is_fatal``), or when nothing but errors follows
a start; signs of life take it back.
"""

from __future__ import annotations

from dataclasses import dataclass

MARKER = 0.2
"""An ending that names nothing."""
SYMPTOM = 0.8
"""An ending that names how (a signal, an exit code)."""
GENERIC = 1.0
"""An exception of which only the type is known."""
TYPED = 2.0
"""An exception whose type names a cause."""
NAMED = 3.0
"""A message that names a cause."""
PROVEN = 4.0
"""The kernel said so."""

_SIGNS_OF_LIFE = 20
_CONSEQUENCES = frozenset({"nccl", "watchdog_timeout", "other:engine_start_timeout"})
_LETHAL = frozenset(
    {"cuda_oom", "illegal_memory_access", "nccl", "host_oom_killed", "other:cuda_device_assert", "watchdog_timeout"}
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line that speaks for a cause."""

    cause: str
    line: str
    remedy: str
    weight: float = GENERIC

    @property
    def is_lethal(self) -> bool:
        """Whether no engine goes on after it."""
        return self.weight >= NAMED and self.cause in _LETHAL


@dataclass(frozen=True, slots=True)
class Stop:
    """A line that says that the end was asked for; a firm one is not overruled by the errors of an unclean end."""

    cause: str
    line: str
    is_firm: bool = True


@dataclass(slots=True)
class Verdict:
    """What the log of one run has brought forward so far."""

    is_fatal: bool = False
    best: Evidence | None = None
    stop: Stop | None = None
    _life: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the log speaks of an end of any kind, or of an error that nothing has taken back."""
        return self.is_fatal or self.stop is not None or (self.best is not None and self.best.weight >= GENERIC)

    def consider(self, evidence: Evidence, *, fatal: bool = False) -> None:
        """Weigh a line that speaks for a crash; ``fatal`` when a process has ended by it."""
        if self.stop is not None and self.stop.is_firm:
            return
        if self._outweighs(evidence):
            self.best = evidence
            self._life = 0
        self.is_fatal = self.is_fatal or fatal

    def ask_to_stop(self, stop: Stop, *, is_up: bool) -> None:
        """Note that an end was asked for; after a crash it is only the tidying up."""
        if self.is_fatal or (self.best is not None and self.best.weight >= GENERIC and self._counts(is_up=is_up)):
            return
        if self.stop is None or (stop.is_firm and not self.stop.is_firm):
            self.stop = stop

    def interrupt(self, stop: Stop, *, is_up: bool) -> None:
        """Note that a process was interrupted: endings that name nothing were that interrupt's own."""
        if self.best is not None and self.best.weight < GENERIC:
            self.best, self.is_fatal = None, False
        self.ask_to_stop(stop, is_up=is_up)

    def live(self, signs: int = 1) -> None:
        """Signs that the engine goes on: an error that it survived was none."""
        if self.best is None or self.is_fatal:
            return
        self._life += signs
        if not self.best.is_lethal or self._life >= _SIGNS_OF_LIFE:
            self.best = None

    def survive(self) -> None:
        """It stands after all: only the end of a process counts now."""
        if not self.is_fatal:
            self.best = None

    def crash(self, *, is_up: bool) -> Evidence | None:
        """What it crashed of, if it crashed; ``is_up`` when it had begun to serve."""
        if self.stopped(is_up=is_up) is not None or self.best is None:
            return None
        return self.best if self._counts(is_up=is_up) else None

    def stopped(self, *, is_up: bool) -> Stop | None:
        """By what it was stopped, if it was."""
        if self.stop is None or self.stop.is_firm:
            return self.stop
        overruled = self.is_fatal or (self.best is not None and self._counts(is_up=is_up))
        return None if overruled else self.stop

    def _counts(self, *, is_up: bool) -> bool:
        if self.best is None:
            return False
        return self.is_fatal or self.best.is_lethal or (not is_up and self.best.weight >= GENERIC)

    def _outweighs(self, new: Evidence) -> bool:
        old = self.best
        if old is None:
            return True
        if old.weight < GENERIC:
            return new.weight > old.weight
        if new.cause in _CONSEQUENCES:
            return False
        if old.cause == "nccl" and new.weight >= NAMED:
            return True
        if new.weight <= old.weight:
            return False
        return not self.is_fatal or new.weight >= NAMED
