"""An operation at work, and how it is written down: before it acts where it must be, later where the disk is full."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from bot.domain.diagnosis import Phase
from bot.domain.errors import StoreError
from bot.domain.kernel_caches import CacheState
from bot.domain.message import Message
from bot.domain.operation import Operation
from bot.ports import Clock, Operations
from bot.runtime.tasks import Tasks
from bot.text.operations import Proof, View

_log = structlog.get_logger(__name__)

SAVE_AGAIN = timedelta(seconds=5)
"""So often an operation that could not be written down is tried again."""


@dataclass(slots=True)
class Live:
    """What is known of an operation beyond what is stored."""

    op: Operation
    views: dict[str, View] = field(default_factory=dict)
    proofs: list[Proof] = field(default_factory=list)
    phases: dict[str, tuple[Phase | None, datetime]] = field(default_factory=dict)
    caches: dict[str, CacheState] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    step: asyncio.Task[None] | None = None
    shown: Message | None = None
    cancelled_at: datetime | None = None
    is_left: bool = False
    is_returning: bool = False
    is_all_ready_told: bool = False
    is_end_told: bool = False
    is_saving_later: bool = False
    has_head: asyncio.Event = field(default_factory=asyncio.Event)


class Ledger:
    """Writes operations down as they change."""

    def __init__(self, operations: Operations, clock: Clock, tasks: Tasks) -> None:
        self._store = operations
        self._clock = clock
        self._tasks = tasks

    def change(self, live: Live, op: Operation) -> None:
        """Save first: what can't be written is not begun."""
        self._store.save(op)
        live.op = op

    def note(self, live: Live, op: Operation) -> None:
        """What is only told, or ends something of ours, goes on when it can't be written, and is written later."""
        live.op = op
        try:
            self._store.save(op)
        except StoreError as error:
            _log.warning("operation_not_saved", operation=op.id, error=str(error))
            if not live.is_saving_later:
                live.is_saving_later = True
                self._tasks.spawn(self._save_later(live), name=f"save {op.id} later")

    async def _save_later(self, live: Live) -> None:
        """Until it is written: an end that was told must not be begun again by the next start of the bot."""
        while live.is_saving_later:
            await self._clock.sleep(SAVE_AGAIN)
            with contextlib.suppress(StoreError):
                self._store.save(live.op)
                live.is_saving_later = False
