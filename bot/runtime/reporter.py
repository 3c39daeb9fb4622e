"""Tells the report of the last day in the channels that get alerts, once a day at the time that the fleet file sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import structlog

from bot.domain.errors import UpbotError
from bot.domain.facts import JobFacts, Sight
from bot.domain.fleet import Fleet
from bot.domain.message import Message
from bot.domain.reporting import report
from bot.domain.tally import tally
from bot.domain.watching.alerts import Book
from bot.ports import Chat, Clock, Eyes, Place, Samples, Schedule

_log = structlog.get_logger(__name__)

DAY = timedelta(hours=24)


class Reporter:
    """Reports by itself."""

    def __init__(  # noqa: PLR0917 - the machine's parts, given once by the composition root
        self,
        fleet: Callable[[], Fleet],
        eyes: Eyes,
        samples: Samples,
        book: Callable[[], Book],
        chat: Chat,
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._eyes = eyes
        self._samples = samples
        self._book = book
        self._chat = chat
        self._clock = clock

    def plan(self, schedule: Schedule) -> None:
        """Have it done at the time that the fleet file says now; to be called again when that was read anew."""
        schedule.at(self._fleet().limits.report_at, self.tell, name="report")

    async def tell(self) -> None:
        """Report the last day now."""
        fleet = self._fleet()
        sight = Sight(self._clock.now())
        if fleet.jobs:
            async for sight in self._eyes.look((), jobs=fleet.jobs):  # noqa: B007 - the last one counts
                pass
        now = self._clock.now()
        everyone = [server.name for server in fleet.servers]
        jobs = [sight.jobs.get(job.name) or JobFacts(job.name, now) for job in fleet.jobs]
        try:
            alerts = (*self._samples.alerts(now - DAY), *self._book().alerts)
            told = tally(self._samples.since(now - DAY, everyone), alerts, now - DAY, now)
        except UpbotError as error:
            _log.warning("not_reported", error=str(error))
            return
        message = report(told, everyone, fleet.target, jobs, now)
        for channel in fleet.channels:
            if channel.gets_alerts:
                await self._post(Place(next(iter(channel.ids), channel.name)), message)

    async def _post(self, place: Place, message: Message) -> None:
        try:
            await self._chat.post(place, message)
        except UpbotError as error:
            _log.warning("report_not_told", error=str(error))
