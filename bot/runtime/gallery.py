"""Shows charts in the chat: the words at once, the picture in their thread as soon as it is drawn.

Nobody waits for a picture, and one that can't be drawn costs nothing but itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from bot.domain.alerting import alert_title
from bot.domain.charting import Chart, Kind, Mark, chart, short
from bot.domain.errors import UpbotError
from bot.domain.fleet import Fleet
from bot.domain.message import Message, Picture, bold, line, says
from bot.domain.phrases import span
from bot.domain.svg import drawing
from bot.domain.tally import is_about
from bot.domain.watching.alerts import Alert, Book
from bot.domain.watching.causes import Cause
from bot.ports import Chat, Clock, Operations, Painter, Place, Ref, Samples
from bot.runtime.tasks import Tasks

_log = structlog.get_logger(__name__)

ALERT_SPAN = timedelta(hours=2)
SHORTEST = timedelta(minutes=10)
MOST_MARKS = 12


@dataclass(frozen=True, slots=True)
class Gallery:
    """Implements `Charts`."""

    fleet: Callable[[], Fleet]
    samples: Samples
    operations: Operations
    book: Callable[[], Book]
    painter: Painter
    chat: Chat
    clock: Clock
    tasks: Tasks

    async def show(self, servers: Sequence[str], span: timedelta, place: Place) -> None:
        now = self.clock.now()
        courses = self.samples.since(now - span, servers)
        told = says(bold(short(courses, self._everyone)), f" · {_span(span)}")
        ref = await self.chat.post(place, told)
        if courses:
            self.tasks.spawn(self._hang(servers, span, (), [_thread(ref)], is_asked=True), name="chart")

    def show_alert(self, alert: Alert, refs: Sequence[Ref]) -> None:
        """Put the last two hours into the threads of an alert's messages; returns at once."""
        if alert.cause is Cause.JOB_STALLED or not refs:
            return
        work = self._hang(self._everyone, ALERT_SPAN, alert.servers, [_thread(ref) for ref in refs], is_asked=False)
        self.tasks.spawn(work, name=f"chart of {alert.id}")

    async def _hang(
        self,
        servers: Sequence[str],
        length: timedelta,
        subject: Sequence[str],
        places: Sequence[Place],
        *,
        is_asked: bool,
    ) -> None:
        try:
            drawn = self._chart(servers, length, subject)
            if drawn is None:
                return
            png = await self.painter.png(drawing(drawn))
            picture = Picture(png, f"chart-{drawn.until:%Y%m%d-%H%M}.png", drawn.alt)
            message = Message(line(drawn.title), (picture,))
        except UpbotError as error:
            _log.warning("chart_not_drawn", error=str(error))
            if not is_asked:
                return
            message = says(f"No picture: {error}")
        for place in places:
            try:
                await self.chat.post(place, message)
            except UpbotError as error:
                _log.warning("chart_not_shown", error=str(error))

    def _chart(self, servers: Sequence[str], length: timedelta, subject: Sequence[str]) -> Chart | None:
        now = self.clock.now()
        courses = self.samples.since(now - length, servers)
        if not courses:
            return None
        first = min(points[0].at - points[0].span for points in courses.values())
        known = timedelta(seconds=max(60.0 * math.ceil((now.timestamp() - first) / 60), SHORTEST.total_seconds()))
        if known < length:  # a bot that is new has no two hours to show
            length = known
            courses = self.samples.since(now - length, servers)
        marks = self._marks(frozenset(servers), now - length)
        return chart(courses, self._everyone, now - length, now, subject=subject, marks=marks)

    def _marks(self, servers: frozenset[str], since: datetime) -> list[Mark]:
        """Operations and alerts that had to do with these servers, the newest few."""
        everyone = self._everyone
        marks = [
            Mark(Kind.OPERATION, op.started_at, f"{op.plan.title} ({op.by})")
            for op in self.operations.recent(50)
            if op.started_at >= since and (not op.plan.servers or servers & set(op.plan.servers))
        ]
        alerts = (*self.samples.alerts(since), *(one for one in self.book().alerts if one.is_on))
        marks += [
            Mark(Kind.ALERT, one.since, alert_title(one, everyone), one.resolved_at)
            for one in alerts
            if is_about(one, servers)
        ]
        return sorted(marks, key=lambda mark: mark.at)[-MOST_MARKS:]

    @property
    def _everyone(self) -> list[str]:
        return [server.name for server in self.fleet().servers]


def _span(length: timedelta) -> str:
    return f"the last {span(length)}"


def _thread(ref: Ref) -> Place:
    return Place(ref.channel, ref.thread or ref.id)
