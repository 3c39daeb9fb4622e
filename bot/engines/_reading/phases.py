"""Follows a start through its phases, rank by rank, with the percent of the bar that runs.

Phases follow each other as the log tells them: a draft model takes a server back to loading weights. Where
several ranks show their own, the server is where its slowest is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.domain.diagnosis import Phase

RANKS_CAP = 4096
"""Ranks remembered; a log with more has other lines taken for ranks."""

_LEVEL = {
    Phase.SPAWNED: 0,
    Phase.LOADING_WEIGHTS: 1,
    Phase.ALLOCATING_CACHE: 2,
    Phase.JIT_COMPILING: 2,
    Phase.CAPTURING_GRAPHS: 3,
    Phase.WARMING_UP: 4,
    Phase.READY: 5,
    Phase.SERVING: 6,
}


@dataclass(slots=True)
class Phases:
    """Where a start stands."""

    phase: Phase | None = None
    percent: int | None = None
    step: str | None = None
    ranks: dict[str, Phase] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        """Whether it has begun to serve."""
        return self.phase in {Phase.READY, Phase.SERVING}

    @property
    def is_past_start(self) -> bool:
        """Whether its engine is built, so that nothing of a start can follow."""
        return self.phase is not None and _LEVEL[self.phase] >= _LEVEL[Phase.WARMING_UP]

    def reach(self, phase: Phase, rank: str = "") -> None:
        """A line says that this phase began (in this rank)."""
        if rank and (rank in self.ranks or len(self.ranks) < RANKS_CAP):
            self.ranks[rank] = phase
            phase = self._slowest(phase)
        elif _LEVEL[phase] >= _LEVEL[Phase.ALLOCATING_CACHE]:
            # the main process speaks for all of its ranks
            self.ranks = {r: p if _LEVEL[p] >= _LEVEL[phase] else phase for r, p in self.ranks.items()}
        if phase is not self.phase:
            self.phase = phase
            self.percent = self.step = None

    def begin_pass(self) -> None:
        """Another pass of the same phase begins; its bar starts from nothing."""
        self.percent = self.step = None

    def bar(self, phase: Phase, percent: int, step: str | None) -> None:
        """A progress bar moved; bars carry no rank, and a late redraw of an old one changes nothing."""
        if self.is_past_start or (phase is Phase.LOADING_WEIGHTS and self._is_loaded()):
            return
        if phase is Phase.CAPTURING_GRAPHS:
            self._all_capture()
        if phase is not self.phase:
            self.phase = self._slowest(phase) if self.ranks else phase
        if phase is self.phase:
            self.percent, self.step = max(0, min(percent, 100)), step

    def _all_capture(self) -> None:
        """All ranks capture together, so they do if one does; unless one is seen to lag behind others."""
        loaded = {rank for rank, phase in self.ranks.items() if _LEVEL[phase] >= _LEVEL[Phase.ALLOCATING_CACHE]}
        for rank in loaded or set(self.ranks):
            self.ranks[rank] = Phase.CAPTURING_GRAPHS

    def _is_loaded(self) -> bool:
        return self.phase is not None and _LEVEL[self.phase] > _LEVEL[Phase.LOADING_WEIGHTS]

    def _slowest(self, latest: Phase) -> Phase:
        least = min(_LEVEL[phase] for phase in self.ranks.values())
        if _LEVEL[latest] <= least:
            return latest
        behind = [phase for phase in self.ranks.values() if _LEVEL[phase] == least]
        return self.phase if self.phase in behind else behind[-1]
