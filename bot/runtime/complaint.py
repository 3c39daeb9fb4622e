"""Something that is wrong with the watching itself: told once it has lasted a while, and once more when it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from bot.domain.message import Message
from bot.ports import Clock

TOLD_AFTER = timedelta(minutes=1)


class Complaint:
    """One thing that may be wrong; ``begun`` and ``over`` make the words, of how long it has lasted and why."""

    def __init__(
        self,
        say: Callable[[Message], Awaitable[None]],
        clock: Clock,
        begun: Callable[[timedelta, str], Message],
        over: Callable[[timedelta], Message],
    ) -> None:
        self._say = say
        self._clock = clock
        self._begun = begun
        self._over = over
        self._is_told = False
        self.since: datetime | None = None

    async def mind(self, why: str | None) -> None:
        """Go on by one look: why it is wrong, or None when it is not."""
        now, since = self._clock.now(), self.since
        if why is None:
            was_told, self.since, self._is_told = self._is_told, None, False
            if was_told and since is not None:
                await self._say(self._over(now - since))
            return
        self.since = since or now
        if not self._is_told and now - self.since >= TOLD_AFTER:
            self._is_told = True
            await self._say(self._begun(now - self.since, why))
