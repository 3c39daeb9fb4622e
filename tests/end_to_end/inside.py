"""Run inside a container: starts a simulated fleet by hand, as somebody would have before the bot came, and leaves it.

python -m tests.end_to_end.inside HOME SPEED COUNT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bot.demo.fleet import SimulatedFleet

SESSION = "datagen"


def fleet(home: Path, speed: float, count: int) -> SimulatedFleet:
    """The fleet as both sides know it: inside it is started, outside its fleet file is written."""
    return SimulatedFleet(home, 30_000, speed, count=count, session=SESSION)


async def main(home: Path, speed: float, count: int) -> None:
    it = fleet(home, speed, count)
    await it.start()
    await it.wait_ready()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
