"""An event loop that jumps to its next timer, so that ten minutes take no time.

``run(scenario())`` runs a coroutine on it; ``JumpingClock`` is the Clock that goes with it. Only what the loop
itself schedules is waited for: a thread or a real socket would be jumped over, so threads are refused.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

START = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
_Result = TypeVar("_Result")


class Deadlock(RuntimeError):
    """Everybody waits and nothing will ever happen."""


class _JumpingSelector(selectors.DefaultSelector):
    """Asks the real selector what is ready now; where the loop would wait, it moves the loop's time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Deadlock(f"nothing is ready and nothing is scheduled; waiting: {_waiting()}")
        if not ready and timeout is not None and timeout > 0:
            self.time += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """The loop; its time begins at 0 and passes only by jumps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.time

    def run_in_executor(self, *_: object) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("nothing may run in a thread on the jumping loop: it would jump past it")


class JumpingClock:
    """The Clock of a jumping loop: a fixed instant plus the loop's time."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time())

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(0.0, span.total_seconds()))


def run(scenario: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end on a fresh jumping loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)


def _waiting() -> str:
    tasks = sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks() if not task.done())
    return ", ".join(tasks) or "no task"
