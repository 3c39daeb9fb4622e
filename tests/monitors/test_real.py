"""Debian's own Prometheus and Alertmanager, simulated servers as their targets, and a whole bot between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.demo.faults import Faults
from bot.domain.errors import FleetError
from bot.domain.facts import Answer, JobState, Outcome
from bot.domain.fleet import Fleet
from bot.domain.monitors import AlertmanagerPeer, Labelling, PrometheusSource
from bot.engines.sglang import ENGINE as SGLANG
from bot.monitors.alertmanager import Alertmanager
from bot.monitors.prometheus import Prometheus
from bot.monitors.webhook import Webhook
from bot.runtime.clock import SystemClock
from tests.demo.simulation import bench, free_port, generate, get, until_running
from tests.monitors.real import SCRAPE, Program, monitoring, seen, tool
from tests.tester import Bot, Post, first_night

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(240)]
SECRET = "a-secret-of-the-webhook"
HERE = Labelling("instance", "127.0.0.1:{port}")
EVERY = timedelta(seconds=SCRAPE)


@dataclass
class Scene:
    """What runs: the two programs and the bot."""

    prometheus: Program
    alertmanager: Program
    bot: Bot

    def alert(self, words: str) -> Post | None:
        """The message in the channel whose first line holds these words."""
        return next((post for post in self.bot.posts() if words in post.text.splitlines()[0]), None)

    def notes(self, post: Post) -> list[str]:
        return [note.text for note in self.bot.posts(post.ref.id)]

    async def silences(self) -> list[dict[str, Any]]:
        """What amtool sees."""
        told = await asyncio.to_thread(
            tool, "amtool", "silence", "query", "-o", "json", f"--alertmanager.url={self.alertmanager.url}"
        )
        return json.loads(told)


def fleet_of(ports: Sequence[int], prometheus: Program, alertmanager: Program) -> Fleet:
    night = first_night()
    servers = tuple(replace(night.servers[n], port=port) for n, port in enumerate(ports))
    within = timedelta(seconds=12)
    return replace(
        night,
        servers=servers,
        prometheus=PrometheusSource(prometheus.url, HERE, scrape_interval=EVERY),
        alertmanager=AlertmanagerPeer(alertmanager.url, HERE, watchdog="Watchdog", watchdog_within=within),
    )


@contextlib.asynccontextmanager
async def watching(home: Path, ports: Sequence[int]) -> AsyncIterator[Scene]:
    """A bot that watches through the real programs; what its own eyes see stands in its pretend fleet."""
    hook = free_port()
    async with monitoring(home, ports, webhook=hook, secret=SECRET) as (prometheus, alertmanager):
        source, remote = Prometheus(), Alertmanager()
        bot = Bot(fleet_of(ports, prometheus, alertmanager), clock=SystemClock(), metrics=source, alertmanager=remote)
        bot.fleet.run_all()
        webhook = Webhook(SECRET, bot.liaison)
        await webhook.listen(("127.0.0.1", hook))

        async def rounds() -> None:
            while True:
                await asyncio.gather(bot.watcher.round(), bot.liaison.round(), asyncio.sleep(EVERY.total_seconds()))

        work = asyncio.create_task(rounds())
        try:
            yield Scene(prometheus, alertmanager, bot)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await webhook.close()
            await bot.tasks.close()
            await asyncio.gather(source.close(), remote.close())
        assert not bot.tasks.failures, bot.tasks.failures


@contextlib.asynccontextmanager
async def loaded(ports: Sequence[int], running: int) -> AsyncIterator[None]:
    """So many long requests run on each of these servers."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        asked = [asyncio.create_task(generate(session, port, 9_000)) for port in ports for _ in range(running)]
        try:
            for port in ports:
                await until_running(port, running)
            yield
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


def test_numbers_read_through_prometheus_are_those_of_the_server_itself(tmp_path: Path) -> None:
    asyncio.run(read_through(tmp_path))


async def read_through(tmp_path: Path) -> None:
    async with bench(tmp_path, speed=1.0) as machine:
        server = await machine.ready("--enable-metrics")
        async with monitoring(tmp_path, [server.port]) as (program, _), loaded([server.port], 20):
            Faults(machine.machine).hang(server.port)
            source = Prometheus()
            wanted = PrometheusSource(program.url, HERE, scrape_interval=EVERY)
            value = f"127.0.0.1:{server.port}"
            await seen(lambda: source.scraped(wanted, [value], frozenset()))
            await asyncio.sleep(SCRAPE + 1)  # scraped since it stands still
            found = await source.scraped(wanted, [value, "127.0.0.1:1"], SGLANG.metric_names)
            direct = (await get(server.port, "/metrics"))[1].encode()
            clock = SystemClock()

            def load(page: bytes) -> Any:
                return SGLANG.load({"/metrics": Answer(Outcome.ANSWERED, clock.now(), 200, page)})

            assert list(found) == [value]
            assert load(found[value].page) == load(direct)
            assert load(direct).running == 20
            assert load(direct).tokens_total > 0
            assert timedelta() <= clock.now() - found[value].at < 2 * EVERY

            await server_ends(server)
            down = await seen(lambda: down_by(source, wanted, value))
            assert (down.is_up, down.page) == (False, b"")
            await program.end()
            with pytest.raises(
                FleetError, match=r"^Prometheus at 127\.0\.0\.1:\d+ can't be reached: Connection refused$"
            ):
                await source.scraped(wanted, [value], SGLANG.metric_names)
            await source.close()


async def server_ends(server: Any) -> None:
    server.process.kill()
    await server.process.wait()


async def down_by(source: Prometheus, wanted: PrometheusSource, value: str) -> Any:
    found = (await source.scraped(wanted, [value], SGLANG.metric_names)).get(value)
    return found if found is not None and not found.is_up else None


def test_a_night_with_the_real_ones(tmp_path: Path) -> None:
    asyncio.run(a_night(tmp_path))


async def a_night(tmp_path: Path) -> None:
    async with bench(tmp_path, speed=1.0) as machine:
        servers = await asyncio.gather(*(machine.ready("--enable-metrics", gpu=n) for n in range(3)))
        ports = [one.port for one in servers]
        async with watching(tmp_path, ports) as scene, loaded(ports, 24):
            bot = scene.bot
            bot.fleet.job_state = JobState.RUNNING

            # Slow: real rules, a real Alertmanager, one message in the channel.
            Faults(machine.machine).slow(ports[1], 0.4)
            slow = await seen(lambda: scene.alert("InferenceServerSlow: gpu1"), 60)
            assert slow.text.splitlines()[1].startswith(f"127.0.0.1:{ports[1]} decodes ")
            assert slow.text.splitlines()[2:] == [
                "from Alertmanager · warn",
                "[Ack] [Silence 1 h] [Why] [Restart gpu1…]",
            ]

            # Seen, and silenced from the chat: amtool has it, with who and why.
            bot.press("Ack", post=slow)
            await seen(lambda: "seen by ana" in slow.text)
            bot.say("silence gpu1 1h because the fan is being replaced", user="U2")
            (silence,) = await seen(scene.silences)
            assert (silence["createdBy"], silence["comment"].partition(" [")[0]) == ("bo", "the fan is being replaced")
            assert [(one["name"], one["value"]) for one in silence["matchers"]] == [
                ("instance", f"127.0.0.1:{ports[1]}")
            ]
            assert "silenced" in slow.text
            bot.say("unsilence gpu1")
            await seen(lambda: no_more(scene))
            await seen(lambda: "seen by ana" in slow.text)

            # It dies: Alertmanager calls the slowness resolved, and that is not told as recovered.
            await server_ends(servers[1])
            bot.fleet.die("gpu1")
            await seen(lambda: "not recovered" in scene.notes(slow)[-1], 60)
            assert scene.notes(slow)[-1] == "Alertmanager says resolved, but gpu1 does not answer: not recovered"
            assert slow.text.startswith("🔴 ")
            (down,) = await seen(lambda: [post for post in bot.posts() if "gpu1 is down" in post.text], 30)
            await seen(
                lambda: [note for note in scene.notes(down) if note.startswith("Alertmanager and our own look")], 40
            )
            assert scene.alert("InferenceServerDown") is None

            # Alertmanager is away: its heartbeat is missed, a silence waits, and all is in step when it is back.
            await scene.alertmanager.end()
            missed = await seen(lambda: scene.alert("no Watchdog from Alertmanager"), 40)
            bot.say("silence gpu2 2h because of a test")
            await asyncio.sleep(2 * SCRAPE)
            await scene.alertmanager.start()
            (silence,) = await seen(scene.silences)
            assert silence["comment"].startswith("of a test [upbot s-")
            await seen(lambda: scene.alert("Watchdog is heard again"), 40)
            assert missed.text.startswith("🟡 no Watchdog from Alertmanager for ")


async def no_more(scene: Scene) -> bool:
    return not await scene.silences()
