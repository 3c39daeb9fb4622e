"""An Alertmanager beside the bot: its alerts in the same book, our silences and alerts at its place, and its absence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from inline_snapshot import snapshot

from bot.domain.errors import StoreError
from bot.domain.facts import JobState
from bot.domain.fleet import Fleet
from bot.domain.monitors import PrometheusSource
from bot.domain.watching.exchange import Matcher
from tests.monitoring import PretendAlertmanager, PretendPrometheus, monitored, told
from tests.tester import Bot, talk


def beside(
    scenario: Callable[[Bot, PretendAlertmanager], Awaitable[None]], fleet: Fleet | None = None, **more: Any
) -> None:
    """A conversation with an Alertmanager beside; the fleet is at work and has been watched for a minute."""
    remote = PretendAlertmanager()

    async def whole(bot: Bot) -> None:
        if "metrics" in more:
            more["metrics"].world = bot.fleet
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.watch(1)
        await scenario(bot, remote)

    talk(whole, fleet or monitored(), alertmanager=remote, **more)


def texts(bot: Bot) -> list[str]:
    return [post.text for post in bot.posts()]


def notes(bot: Bot, number: int = 0) -> list[str]:
    """What stands in the thread of a message, pictures left out."""
    return [one.text for one in bot.posts(bot.posts()[number].ref.id) if "[picture:" not in one.text]


def test_an_alert_of_an_alertmanager_is_one_message_that_is_kept_current() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3"))
        assert texts(bot) == snapshot(
            [
                """\
🔴 GpuFanSlow: gpu3 for 40 s
the fan turns at 800 rpm
from Alertmanager · page
[Ack] [Silence 1 h] [Why]\
"""
            ]
        )
        await bot.liaison.notified(told(bot, "gpu3"))
        await bot.watch(1.1)
        await bot.liaison.notified(told(bot, "gpu3", "gpu5", summary="two fans are slow"))
        assert texts(bot) == snapshot(
            [
                """\
🔴 GpuFanSlow: gpu3, gpu5 for 1 m 50 s
two fans are slow
from Alertmanager · page · 2 fire
[Ack] [Silence 1 h] [Why]\
"""
            ]
        )
        await bot.liaison.notified(told(bot, "gpu3", "gpu5", is_firing=False))
        assert texts(bot)[0].startswith("🔴")
        await bot.watch(0.5)
        assert texts(bot) == snapshot(
            [
                """\
🟢 GpuFanSlow: gpu3, gpu5: over after 2 m
before: two fans are slow
from Alertmanager · page\
"""
            ]
        )
        assert notes(bot) == snapshot(["gpu5 too", "recovered after 2 m"])

    beside(scenario)


def test_resolved_is_not_told_as_recovered_while_the_server_does_not_answer() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3"))
        bot.fleet.die("gpu3")
        await bot.liaison.notified(told(bot, "gpu3", is_firing=False))
        await bot.watch(2)
        assert [one.splitlines()[0] for one in texts(bot)] == snapshot(
            ["🔴 GpuFanSlow: gpu3 for 1 m 40 s", "🔴 gpu3 is down for 1 m 5 s"]
        )
        assert notes(bot) == snapshot(["Alertmanager says resolved, but gpu3 does not answer: not recovered"])
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(1)
        assert [one.splitlines()[0] for one in texts(bot)] == snapshot(
            ["🟢 GpuFanSlow: gpu3: over after 2 m 55 s", "🟢 gpu3 is back: 641 tok/s after 2 m 15 s down"]
        )
        assert notes(bot) == snapshot(
            ["Alertmanager says resolved, but gpu3 does not answer: not recovered", "recovered after 2 m 55 s"]
        )

    beside(scenario)


def test_what_our_own_rules_have_told_is_joined_and_not_told_twice() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        bot.fleet.die("gpu3")
        await bot.watch(0.5)
        await bot.liaison.notified(told(bot, "gpu3", name="InstanceDown"))
        await bot.liaison.notified(told(bot, "gpu3", name="Slowish", cause="down"))
        assert [one.splitlines()[0] for one in texts(bot)] == snapshot(["🔴 gpu3 is down for 30 s"])
        await bot.liaison.notified(told(bot, "gpu3", name="InstanceDown", is_firing=False))
        assert notes(bot) == snapshot(
            [
                "Alertmanager and our own look say the same: gpu3 is down",
                "Alertmanager and our own look say the same: gpu3 is down",
                "Alertmanager says resolved, but our own look does not: not recovered",
            ]
        )

    beside(scenario)


def test_what_an_alertmanager_told_first_becomes_our_own_alert_once_our_rules_find_it() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3", name="InstanceDown"))
        bot.fleet.die("gpu3")
        await bot.watch(0.5)
        assert texts(bot) == snapshot(
            [
                """\
🔴 gpu3 is down for 45 s
no process there
[Ack] [Silence 1 h] [Why] [Restart gpu3…]\
"""
            ]
        )
        assert notes(bot) == snapshot(["Alertmanager and our own look say the same: gpu3 is down"])
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(1)
        await bot.liaison.notified(told(bot, "gpu3", name="InstanceDown"))  # it is slower to see the end
        assert [one.splitlines()[0] for one in texts(bot)] == snapshot(
            ["🟢 gpu3 is back: 641 tok/s after 1 m 25 s down"]
        )

    beside(scenario)


def test_what_an_operation_of_ours_causes_is_told_only_if_it_outlasts_it() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        remote.firing = {"print-InferenceServerHung-gpu3"}
        bot.say("restart gpu3 no_buffer")
        await bot.advance(1)
        bot.press("Restart gpu3")
        await bot.watch(0.5)
        before = len(bot.posts())
        await bot.liaison.notified(told(bot, "gpu3", name="InferenceServerDown", cause="down"))
        await bot.liaison.notified(told(bot, "gpu3", name="InferenceServerHung", cause="hung"))
        await bot.watch(2)
        await bot.liaison.notified(told(bot, "gpu3", name="InferenceServerDown", cause="down", is_firing=False))
        assert not [one for one in texts(bot)[before:] if "🔴" in one]
        await bot.watch(4)
        assert [one.splitlines()[0] for one in texts(bot)[before:] if "🔴" in one] == snapshot(
            ["🔴 InferenceServerHung: gpu3 for 6 m 30 s"]
        )

    beside(scenario)


def test_ack_and_silence_by_words_and_buttons_reach_the_alertmanager_with_who_and_why() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3"))
        bot.press("Ack")
        await bot.advance(1)
        bot.say("silence gpu3,gpu4 2h because the fan is being replaced", user="U2")
        await bot.advance(1)
        (order,) = remote.orders.values()
        assert order.matchers == (Matcher("instance", "ct200:30003|ct200:30004", is_regex=True),)
        assert (order.by, order.comment.partition(" [upbot s-")[0]) == ("bo", "the fan is being replaced")
        assert order.until - order.since == timedelta(hours=2)
        assert texts(bot)[0] == snapshot("""\
🔴 GpuFanSlow: gpu3 for 41 s
the fan turns at 800 rpm
from Alertmanager · page
[Ack] [Why]
silenced\
""")
        bot.say("unsilence gpu3")
        await bot.advance(1)
        assert remote.orders == {}
        assert texts(bot)[0] == snapshot("""\
🔴 GpuFanSlow: gpu3 for 42 s
the fan turns at 800 rpm
from Alertmanager · page
[Silence 1 h] [Why]
seen by ana\
""")

    beside(scenario)


def test_an_alert_about_none_of_our_servers_can_be_silenced_by_its_id() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "db1:9100", name="DiskFull", summary="3 % left on /"))
        assert texts(bot) == snapshot(
            [
                """\
🔴 DiskFull: db1:9100 for 40 s
3 % left on /
from Alertmanager · page
[Ack] [Silence 1 h]\
"""
            ]
        )
        bot.press("Silence 1 h")
        await bot.advance(1)
        (order,) = remote.orders.values()
        assert {(one.name, one.value) for one in order.matchers} == {
            ("alertname", "DiskFull"), ("instance", "db1:9100"), ("severity", "page"),
        }  # fmt: skip
        assert await bot.answer("alerts") == snapshot("""\
1 alert
🔴 DiskFull: db1:9100 for 41 s · silenced · alertmanager-1
silent about alertmanager-1 for another 59 m 59 s, by ana\
""")
        assert await bot.answer("unsilence alertmanager-1") == snapshot("""\
no longer silenced
---
No longer silent about alertmanager-1.\
""")
        assert remote.orders == {}
        assert await bot.answer("silence alertmanager-9 1h") == snapshot("there is no alert alertmanager-9")
        await bot.liaison.notified(told(bot, "db1:9100", name="DiskFull", is_firing=False))
        await bot.watch(0.5)
        assert notes(bot)[-1] == snapshot("over after 54 s, says Alertmanager; nothing to check it by")

    beside(scenario)


def test_the_end_of_what_is_no_server_of_ours_is_checked_by_up_in_prometheus() -> None:
    metrics = PretendPrometheus(every=5)
    source = PrometheusSource("http://prom.example:9090", scrape_interval=timedelta(seconds=5))

    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        metrics.up["db1:9100"] = False
        await bot.liaison.notified(told(bot, "db1:9100", name="DiskFull"))
        await bot.liaison.notified(told(bot, "db1:9100", name="DiskFull", is_firing=False))
        await bot.watch(2)
        assert notes(bot) == snapshot(["Alertmanager says resolved, but db1:9100 can't be scraped: not recovered"])
        metrics.fails, metrics.up["db1:9100"] = "Prometheus at prom.example:9090 did not answer within 3 s", True
        await bot.watch(0.5)
        assert len(notes(bot)) == 1
        metrics.fails = None
        await bot.watch(1)
        assert notes(bot)[-1] == snapshot("recovered after 3 m 25 s")

    beside(scenario, replace(monitored(), prometheus=source), metrics=metrics)


def test_silences_said_during_an_outage_are_set_when_it_is_over_and_each_once() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        remote.fails = "Alertmanager at am.example:9093 can't be reached: Connection refused"
        bot.say("silence gpu1 2h")
        await bot.watch(2)
        assert remote.orders == {}
        remote.fails, remote.loses_answers = None, True
        await bot.watch(0.3)
        remote.loses_answers = False
        await bot.watch(1)
        assert len(remote.orders) == 1
        assert texts(bot) == snapshot(
            [
                "Silent about gpu1 for 2 h.",
                "🟡 Alertmanager at am.example:9093 can't be reached: Connection refused, for 1 m: silences are set there when it is back",
                "🟢 Alertmanager is back, after 2 m 5 s: all silences are set there",
            ]
        )
        again = bot.restarted()
        await again.watch(1)
        again.say("unsilence")
        await again.watch(0.5)
        assert remote.orders == {}
        await again.tasks.close()

    beside(scenario)


def test_the_alert_and_its_place_are_kept_over_a_restart() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3"))
        await bot.die()
        again = bot.restarted()
        await again.liaison.notified(told(again, "gpu3", is_firing=False))
        await again.watch(0.5)
        assert [one.splitlines()[0] for one in texts(again)] == snapshot(["🟢 GpuFanSlow: gpu3: over after 55 s"])
        await again.tasks.close()

    beside(scenario)


def test_what_ends_while_it_is_silenced_there_is_never_told_and_ends_here_all_the_same() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        remote.firing = {"print-GpuFanSlow-gpu3"}
        await bot.liaison.notified(told(bot, "gpu3"))
        bot.press("Silence 1 h")
        await bot.watch(5)
        assert "silenced" in texts(bot)[0]
        remote.firing = set()
        await bot.watch(5)
        assert notes(bot) == snapshot(["silenced", "recovered after 8 m 55 s"])

    beside(scenario)


def test_the_watchdogs_absence_is_one_word_and_its_return_another() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        for _minute in range(5):
            await bot.liaison.notified(told(bot, name="Watchdog"))
            await bot.watch(1)
        assert texts(bot) == []
        await bot.watch(30)
        assert texts(bot) == snapshot(
            ["🟡 no Watchdog from Alertmanager for 10 m: its other alerts may not come either"]
        )
        await bot.liaison.notified(told(bot, name="Watchdog"))
        await bot.watch(5)
        assert texts(bot)[1:] == snapshot(["🟢 Watchdog is heard again, after 31 m"])

    beside(scenario, monitored(watchdog="Watchdog"))


def test_our_own_alerts_are_sent_again_before_they_end_there_and_ended_only_on_proof() -> None:
    async def scenario(bot: Bot, remote: PretendAlertmanager) -> None:
        bot.fleet.die("gpu3")
        await bot.watch(4)
        assert len(remote.sent) == 4
        (first,) = remote.sent[0]
        assert first.labels == snapshot(
            {
                "alertname": "UpbotDown",
                "source": "upbot",
                "cause": "down",
                "severity": "critical",
                "server": "gpu3",
                "host": "ct200",
                "instance": "ct200:30003",
            }
        )
        assert first.annotations == snapshot({"summary": "gpu3: down", "numbers": "lost_reads 2, for_seconds 5"})
        (last,) = remote.sent[-1]
        assert last.until - bot.clock.now() > timedelta(minutes=4)
        bot.fleet.servers["gpu3"].unreachable = "ssh root@h200-3 timed out after 3 s"
        await bot.watch(3)
        assert all(one.until > bot.clock.now() for one in remote.sent[-1])
        bot.fleet.servers["gpu3"].unreachable = None
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(1)
        (ended,) = remote.sent[-1]
        assert ended.until <= bot.clock.now()
        count = len(remote.sent)
        await bot.watch(3)
        assert len(remote.sent) == count

    beside(scenario, monitored(sends=True))


def test_what_we_sent_ourselves_is_not_told_when_it_comes_back() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        await bot.liaison.notified(told(bot, "gpu3", name="UpbotDown", source="upbot"))
        await bot.watch(0.5)
        assert texts(bot) == []

    beside(scenario)


def test_foreign_text_is_nothing_but_text_and_short() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        bad = "<!channel> *bold* $(id)\n\n" + "x" * 5_000
        await bot.liaison.notified(told(bot, "gpu3", name=bad, summary=bad))
        (text,) = texts(bot)
        assert len(text) < 700
        assert text.splitlines()[0].startswith("🔴 <!channel> *bold* $(id) xxx")

    beside(scenario)


def test_what_can_not_be_kept_is_not_taken() -> None:
    async def scenario(bot: Bot, _: PretendAlertmanager) -> None:
        keep = bot.watcher._keep.put

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        bot.watcher._keep.put = full  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await bot.liaison.notified(told(bot, "gpu3"))
        assert texts(bot) == []
        bot.watcher._keep.put = keep  # type: ignore[method-assign]
        await bot.liaison.notified(told(bot, "gpu3"))
        assert len(texts(bot)) == 1
        await asyncio.sleep(0)

    beside(scenario)
