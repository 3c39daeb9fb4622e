"""The watch through a pretend Prometheus: samples of 15 s, targets that are missing, and what is told while it is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from inline_snapshot import snapshot

from bot.domain.facts import JobState
from bot.domain.monitors import PrometheusSource
from bot.domain.needs import Needs
from tests.monitoring import PretendPrometheus
from tests.tester import Bot, first_night, talk

SOURCE = PrometheusSource("http://prom.example:9090")
AWAY = "Prometheus at prom.example:9090 can't be reached: Connection refused"


class Counting:
    """The eyes behind, and how many servers they were asked to look at."""

    def __init__(self, eyes: Any) -> None:
        self.eyes = eyes
        self.looked: list[list[str]] = []

    async def look(self, servers: Any, *, jobs: Any = (), needs: Needs | None = None) -> Any:
        self.looked.append([one.name for one in servers])
        async for sight in self.eyes.look(servers, jobs=jobs, needs=needs):
            yield sight


def through(
    scenario: Callable[[Bot, PretendPrometheus, Counting], Awaitable[None]],
    source: PrometheusSource = SOURCE,
    minutes: float = 40,
) -> None:
    """A conversation with a bot that watches through a Prometheus and has learned what is usual."""
    metrics = PretendPrometheus()

    async def whole(bot: Bot) -> None:
        metrics.world = bot.fleet
        counting = Counting(bot.farsight._eyes)
        bot.farsight._eyes = counting  # type: ignore[assignment]
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        for running in (32, 28, 36, 32):
            bot.fleet.running = running
            await bot.watch(minutes / 4)
        assert bot.posts() == []
        await scenario(bot, metrics, counting)

    talk(whole, first_night(prometheus=source, target=None), metrics=metrics)


def heads(bot: Bot) -> list[str]:
    return [post.text.splitlines()[0] for post in bot.posts()]


def test_a_slow_server_is_told_with_its_numbers_though_samples_are_fifteen_seconds_apart() -> None:
    async def scenario(bot: Bot, _: PretendPrometheus, __: Counting) -> None:
        bot.fleet.servers["gpu3"].speed = 0.6
        await bot.watch(2.5)
        (head,) = bot.posts()
        assert head.text == snapshot("""\
🔴 gpu3 is slow for 1 m 55 s
385 tok/s where 634 is usual at 32 running · 7 others fine
[Ack] [Silence 1 h] [Why] [Restart gpu3…]\
""")

    through(scenario)


def test_the_servers_are_read_by_one_query_a_scrape_and_looked_at_every_five_minutes_only() -> None:
    async def scenario(bot: Bot, metrics: PretendPrometheus, counting: Counting) -> None:
        metrics.asked, counting.looked = 0, []
        await bot.watch(30)
        assert metrics.asked in range(115, 125)
        whole = [names for names in counting.looked if names]
        assert 4 <= len(whole) <= 6
        assert all(len(names) == 8 for names in whole)

    through(scenario)


def test_a_server_that_can_not_be_scraped_is_looked_at_and_told_for_what_it_is() -> None:
    async def scenario(bot: Bot, _: PretendPrometheus, counting: Counting) -> None:
        bot.fleet.die("gpu5")
        counting.looked = []
        await bot.watch(1)
        assert next(names for names in counting.looked if names and len(names) < 8) == ["gpu5"]
        assert [post.text for post in bot.posts()] == snapshot(
            [
                """\
🔴 gpu5 is down for 15 s
no process there
[Ack] [Silence 1 h] [Why] [Restart gpu5…]\
"""
            ]
        )
        bot.fleet.run("gpu5", age=timedelta(seconds=1))
        await bot.watch(3)
        assert heads(bot) == snapshot(["🟢 gpu5 is back: 641 tok/s after 2 m 45 s down"])

    through(scenario)


def test_a_target_that_prometheus_lost_raises_no_alert_and_is_named() -> None:
    async def scenario(bot: Bot, metrics: PretendPrometheus, _: Counting) -> None:
        metrics.unknown = {"gpu2", "gpu6"}
        await bot.watch(3)
        assert [post.text for post in bot.posts()] == snapshot(
            ["🟡 Prometheus has nothing fresh of gpu2 and gpu6: looked at directly, for 1 m"]
        )
        metrics.unknown = set()
        await bot.watch(1)
        assert [post.text for post in bot.posts()][1:] == snapshot(["🟢 Prometheus tells all again, after 3 m"])

    through(scenario, minutes=12)


def test_while_prometheus_is_away_the_servers_are_looked_at_and_that_is_said_once() -> None:
    async def scenario(bot: Bot, metrics: PretendPrometheus, _: Counting) -> None:
        metrics.fails = AWAY
        await bot.watch(3)
        bot.fleet.die("gpu3")
        await bot.watch(1)
        metrics.fails = None
        await bot.watch(1)
        assert heads(bot) == snapshot(
            [
                "🟡 Prometheus at prom.example:9090 can't be reached: Connection refused: all servers are looked at directly, for 1 m",
                "🔴 gpu3 is down for 1 m 15 s",
                "🟢 Prometheus tells all again, after 4 m",
            ]
        )

    through(scenario, minutes=12)


def test_a_watch_that_may_not_look_itself_says_that_it_is_blind() -> None:
    async def scenario(bot: Bot, metrics: PretendPrometheus, counting: Counting) -> None:
        metrics.fails, counting.looked = AWAY, []
        bot.fleet.die("gpu3")
        await bot.watch(3)
        assert [names for names in counting.looked if names] == []
        metrics.fails = None
        await bot.watch(1)
        assert heads(bot) == snapshot(
            [
                "🟡 blind since 1 m: Prometheus at prom.example:9090 can't be reached: Connection refused",
                "🟢 I see again, after 3 m",
                "🔴 gpu3 is down for 15 s",
            ]
        )

    through(scenario, replace(SOURCE, falls_back=False), minutes=12)


def test_commands_look_at_the_servers_themselves() -> None:
    async def scenario(bot: Bot, metrics: PretendPrometheus, _: Counting) -> None:
        asked = metrics.asked
        bot.fleet.die("gpu3")
        assert "7/8" in (await bot.answer("up?")).splitlines()[0]
        assert metrics.asked == asked

    through(scenario, minutes=1)
