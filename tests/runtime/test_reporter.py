"""The report that nobody asks for: at its time, in the channels that get alerts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, time, timedelta

from inline_snapshot import snapshot

from bot.domain.fleet import Channel, Limits
from bot.runtime.reporter import Reporter
from bot.runtime.schedule import SystemSchedule
from bot.runtime.witness import Witness
from tests.tester import Bot, first_night, talk


class PretendSchedule:
    """Remembers what is to be done when."""

    def __init__(self) -> None:
        self.daily: dict[str, tuple[time | None, Callable[[], Awaitable[None]]]] = {}

    def every(self, span: timedelta, work: Callable[[], Awaitable[None]], *, name: str) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...

    def at(self, time_of_day: time | None, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self.daily[name] = (time_of_day, work)


def test_the_report_comes_at_its_time_where_alerts_are() -> None:
    fleet = first_night(
        limits=Limits(report_at=time(8, 0)),
        channels=(Channel("fleet", ("C1",), ("ct200",)), Channel("quiet", ("C2",), gets_alerts=False)),
    )

    async def scenario(bot: Bot) -> None:
        schedule = PretendSchedule()
        eyes = Witness(bot.fleet, bot.changes, bot.clock)
        reporter = Reporter(
            lambda: bot.fleet_value, eyes, bot.samples, lambda: bot.watcher.book, bot.switchboard, bot.clock
        )
        reporter.plan(schedule)
        at, work = schedule.daily["report"]
        assert at == time(8, 0)
        await work()
        assert [(post.ref.channel, post.text) for post in bot.chat.posts] == snapshot(
            [
                (
                    "C1",
                    """\
Nothing was recorded in the last 24 h.
job datagen: stopped at 61,204 of 193,000, can resume\
""",
                )
            ]
        )
        bot.fleet_value = replace(bot.fleet_value, limits=Limits())
        reporter.plan(schedule)
        assert schedule.daily["report"][0] is None

    talk(scenario, fleet)


def test_a_time_of_day_is_planned_once_in_utc_and_taken_back() -> None:
    async def work() -> None: ...

    schedule = SystemSchedule()
    schedule.at(time(8, 30), work, name="report")
    schedule.at(time(9, 15), work, name="report")
    schedule.at(None, work, name="nothing")
    job = schedule._scheduler.get_job("report")
    assert len(schedule._scheduler.get_jobs()) == 1
    assert job.trigger.timezone is UTC
    assert str(job.trigger) == "cron[hour='9', minute='15']"
    schedule.at(None, work, name="report")
    assert schedule._scheduler.get_jobs() == []
