"""What a command must know before it can decide; the prober brings just that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """What a look must bring beyond processes, ports and the instant endpoint.

    ``health`` waits for the health endpoint, ``load`` for numbers, ``config`` for flags and limits, ``log`` for
    the log's reading, ``tail`` for that many of its last lines, ``gpu`` for GPU memory and owners. ``movement`` reads
    the numbers a second time, a second later: only that shows whether tokens move. ``caches`` looks whether compiled
    kernels lie there: only where something is about to be started. ``gpu`` reads the kernel log about GPUs, too.
    ``router`` is how each server stands with its routers: one GET a router.
    """

    health: bool = False
    load: bool = False
    config: bool = False
    log: bool = False
    tail: int = 0
    gpu: bool = False
    movement: bool = False
    router: bool = False
    caches: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.health or other.health,
            self.load or other.load,
            self.config or other.config,
            self.log or other.log,
            max(self.tail, other.tail),
            self.gpu or other.gpu,
            self.movement or other.movement,
            self.router or other.router,
            self.caches or other.caches,
        )
