"""What watching costs: CPU of one core and memory for a fleet that is read each five seconds.

python tests/benchmarks/bench_watching.py [servers] [hours]
"""

from __future__ import annotations

import random
import resource
import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bot.domain.watching.samples import Reading, Sample
from bot.domain.watching.watch import Watch

STEP = 5


class Load:
    """Servers at changing loads, with queues now and then and everything told that an engine can tell."""

    def __init__(self, servers: int) -> None:
        self.names = [f"gpu{number}" for number in range(servers)]
        self.dice = random.Random(5)  # noqa: S311 - noise, no secret
        self.tokens = dict.fromkeys(self.names, 0.0)
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def read(self) -> Reading:
        """The next reading."""
        self.at += timedelta(seconds=STEP)
        return Reading(self.at, {name: self._sample(name) for name in self.names}, frozenset(self.names))

    def _sample(self, name: str) -> Sample:
        running = self.dice.randint(28, 37)
        rate = 60 * running / (1 + 0.0643 * (running - 1)) * self.dice.gauss(1, 0.05)
        self.tokens[name] += STEP * rate
        total = self.tokens[name]
        return Sample(
            total,
            total * 1.6,
            running,
            self.dice.randint(0, 4),
            37,
            0.4,
            0.6,
            2.5,
            (),
            60.0,
            4e10,
            2e11,
            total / 300,
            0.0,
        )


def main() -> None:
    """Run and say."""
    servers = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    hours = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    load, watch = Load(servers), Watch()
    spent, count = 0.0, int(hours * 3600 / STEP)
    worst = 0.0
    for _ in range(count):
        reading = load.read()
        began = time.process_time()
        watch.take(reading)
        took = time.process_time() - began
        spent, worst = spent + took, max(worst, took)
    share = spent / (count * STEP)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{servers} servers, {hours:g} h: {share:.2%} of a core, a reading {spent / count * 1000:.1f} ms (longest "
        f"{worst * 1000:.0f} ms), process {peak:.0f} MiB, watcher {_held(servers):.1f} MiB\n"
    )


def _held(servers: int) -> float:
    """MiB that a watcher holds after half an hour."""
    tracemalloc.start()
    load, watch = Load(servers), Watch()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(360):
        watch.take(load.read())
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held / (1 << 20)


if __name__ == "__main__":
    main()
