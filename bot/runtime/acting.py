"""What the steps share while they act: who hears of it, how long things may take, and when a server counts as away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from bot.domain.facts import ServerFacts
from bot.domain.kernel_caches import CacheState
from bot.domain.routing import Taken
from bot.text.operations import Proof

_log = structlog.get_logger(__name__)


KILL_LIMIT = timedelta(seconds=20)
"""So long SIGKILL may take to be seen."""
DYING = timedelta(seconds=8)
"""What has crashed takes some seconds to be gone: SGLang waits five for its GPUs to settle."""
AWAY_LIMIT = timedelta(minutes=5)
"""So long a host may stay away before a step gives up on it."""


class Teller(Protocol):
    """Who wants to know while a step is at work."""

    def note(self, text: str) -> None:
        """What the step has to say in a few words; kept with it."""
        ...

    def saw(self, facts: Mapping[str, ServerFacts]) -> None: ...
    def lost(self, server: str, why: str) -> None: ...
    def crashed(self, server: str, why: str, facts: ServerFacts) -> None: ...
    def said(self, text: str) -> None:
        """Something that can't wait, for the thread."""
        ...

    def asked(self, server: str, at: datetime) -> None:
        """A server was asked to end; kept, since its drain may outlast the bot."""
        ...

    def launched(self, server: str) -> None: ...
    def proved(self, proof: Proof) -> None: ...
    def phase_seen(self, server: str, facts: ServerFacts) -> None: ...
    def takes(self, taken: Taken, *, is_sure: bool = True) -> None:
        """What is known of a server and a router has changed; ``is_sure``: StoreError where it can't be written."""
        ...

    def found_caches(self, server: str, state: CacheState) -> None:
        """How a start has found the caches of its kernels."""
        ...


def is_away(facts: ServerFacts | None) -> bool:
    """Whether nobody could look at a server."""
    return facts is None or facts.is_pending or facts.unreachable is not None
