"""The watcher over a pretend fleet: what stands in the channel while servers die, hang and slow down."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.errors import FleetError, StoreError
from bot.domain.facts import JobState
from bot.domain.message import Picture
from tests.tester import Bot, first_night, talk


async def at_work(bot: Bot, minutes: float = 20) -> None:
    """The fleet serves a job, and the watcher has seen enough of it to know what is usual."""
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.RUNNING
    for running in (32, 28, 36, 32):
        bot.fleet.running = running
        await bot.watch(minutes / 4)
    assert bot.posts() == []


def heads(bot: Bot) -> list[str]:
    """The first lines of what stands in the channel."""
    return [post.text.splitlines()[0] for post in bot.posts()]


def test_a_server_that_dies_is_told_within_twenty_seconds_and_its_end_when_it_works_again() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.die("gpu3")
        await bot.watch(0.35)
        (head,) = bot.posts()
        assert head.text == snapshot("""\
🔴 gpu3 is down for 5 s
no process there
[Ack] [Silence 1 h] [Why] [Restart gpu3…]\
""")
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(3)
        assert heads(bot) == snapshot(["🟢 gpu3 is back: 641 tok/s after 40 s down"])
        assert [post.text for post in bot.posts(head.ref.id)] == snapshot(
            [
                """\
tok/s a server, 21 m
[picture: gpu3 over 21 m: 641 tok/s at first, 214 at the end, between 214 and 665, 634 is usual now]\
""",
                "recovered after 40 s",
            ]
        )

    talk(scenario)


def test_a_hung_server_is_told() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu5"].stands_still_since = bot.clock.now()
        await bot.watch(1)
        assert [post.text for post in bot.posts()] == snapshot(
            [
                """\
🔴 gpu5 is hung for 40 s
32 requests run and no token came for 40 s
[Ack] [Silence 1 h] [Why] [Restart gpu5…]\
"""
            ]
        )

    talk(scenario)


def test_a_slow_server_is_told_with_its_numbers_and_its_picture_follows_within_a_second() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu3"].speed = 0.6
        await bot.watch(2)
        (head,) = bot.posts()
        assert head.text == snapshot("""\
🔴 gpu3 is slow for 1 m 55 s
385 tok/s where 634 is usual at 32 running · 7 others fine
[Ack] [Silence 1 h] [Why] [Restart gpu3…]\
""")
        (note,) = bot.posts(head.ref.id)
        (picture,) = (block for block in note.message.blocks if isinstance(block, Picture))
        assert note.at - head.at < 1
        assert (picture.png, picture.alt) == snapshot(
            (
                b"\x89PNG pretended",
                "gpu3 over 21 m: 641 tok/s at first, 385 at the end, between 385 and 665, 634 is usual now",
            )
        )
        assert ">gpu3<" in bot.painter.drawings[0]
        assert ">gpu3 is slow<" in bot.painter.drawings[0]

    talk(scenario)


def test_why_says_first_that_the_server_is_slow_against_its_own_past() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu3"].speed = 0.6
        await bot.watch(2)
        assert (await bot.answer("why gpu3")).splitlines()[0] == snapshot(
            "gpu3: slow for 2 m 5 s, 385 tok/s where 634 is usual at 32 running"
        )

    talk(scenario)


def test_an_alert_whose_picture_can_not_be_drawn_is_told_all_the_same() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.painter.fails = FleetError("no picture")
        bot.fleet.die("gpu3")
        await bot.watch(1)
        (head,) = bot.posts()
        assert head.text.startswith("🔴 gpu3 is down")
        assert bot.posts(head.ref.id) == []

    talk(scenario)


def test_a_planned_restart_raises_no_alert() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.say("restart gpu3 no_buffer")
        await bot.advance(1)
        bot.press("Restart gpu3")
        await bot.watch(8)
        assert bot.fleet.started
        assert [post.text for post in bot.posts() if "🔴" in post.text] == []
        assert bot.watcher.book.alerts == ()

    talk(scenario)


def test_a_server_that_was_stopped_on_purpose_raises_no_alert_until_it_was_started_and_dies() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.say("stop gpu3")
        await bot.advance(1)
        bot.press("Stop gpu3")
        await bot.watch(12)
        assert bot.watcher.book.alerts == ()
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(5)
        bot.fleet.die("gpu3")
        await bot.watch(1)
        assert [one.servers for one in bot.watcher.book.alerts] == [("gpu3",)]

    talk(scenario)


def test_ack_and_silence_by_buttons_change_the_head_and_end_the_noise() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.die("gpu3")
        await bot.watch(0.5)
        (head,) = bot.posts()
        bot.press("Ack")
        await bot.advance(1)
        assert head.text == snapshot("""\
🔴 gpu3 is down for 30 s
no process there
[Silence 1 h] [Why] [Restart gpu3…]
seen by ana\
""")
        bot.press("Silence 1 h", user="U2", post=head)
        await bot.advance(1)
        assert head.text == snapshot("""\
🔴 gpu3 is down for 31 s
no process there
[Ack] [Why] [Restart gpu3…]
silenced\
""")
        assert [post.text for post in bot.posts(head.ref.id)] == snapshot(
            [
                """\
tok/s a server, 21 m
[picture: gpu3 over 21 m: 641 tok/s at first, 214 at the end, between 214 and 665, 634 is usual now]\
""",
                "seen by ana",
                "silenced",
            ]
        )

    talk(scenario)


def test_a_restart_of_the_bot_keeps_the_alerts_message_and_what_was_learned() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.die("gpu3")
        await bot.watch(1)
        (head,) = bot.posts()
        await bot.die()
        again = bot.restarted()
        await again.watch(3)
        assert again.posts() == [head]
        assert head.text.splitlines()[0] == snapshot("🔴 gpu3 is down for 3 m")
        again.fleet.run("gpu3", age=timedelta(minutes=2))
        again.fleet.servers["gpu6"].speed = 0.6
        await again.watch(3)
        assert heads(again) == snapshot(
            ["🟢 gpu3 is back: 641 tok/s after 4 m 15 s down", "🔴 gpu6 is slow for 2 m 55 s"]
        )
        await again.tasks.close()

    talk(scenario)


def test_a_fleet_that_nobody_can_see_is_blindness_and_no_alert() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        for server in bot.fleet.servers.values():
            server.unreachable = "ssh root@h200-3 timed out after 3 s"
        await bot.watch(5)
        seen_at = bot.watcher.seen_at
        for server in bot.fleet.servers.values():
            server.unreachable = None
        await bot.watch(2)
        assert [post.text for post in bot.posts()] == snapshot(
            ["🟡 blind since 1 m: ssh root@h200-3 timed out after 3 s", "🟢 I see again, after 5 m"]
        )
        assert seen_at is not None
        assert bot.watcher.seen_at is not None
        assert bot.watcher.seen_at - seen_at > timedelta(minutes=4)

    talk(scenario)


def test_a_full_disk_does_not_stop_the_watching() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)

        def full(*_: object) -> None:
            raise StoreError("the disk is full")

        bot.samples.add = full  # type: ignore[method-assign]
        bot.samples.ended = full  # type: ignore[method-assign]
        bot.watcher._keep.put = full  # type: ignore[method-assign]
        bot.fleet.die("gpu3")
        await bot.watch(1)
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(3)
        assert [one.partition(" ")[0] for one in heads(bot)] == ["🟢"]

    talk(scenario)


def test_a_chart_is_asked_for_and_stands_in_the_answers_thread() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        told = await bot.answer("chart gpu3 30m", within=0.2)
        assert told == snapshot("gpu3: 641 tok/s now, 640 on average, 32 running · the last 30 m")
        await bot.advance(1)
        (note,) = bot.posts(bot.posts()[0].ref.id)
        assert note.text == snapshot("""\
tok/s a server, 20 m
[picture: gpu3 over 20 m: 641 tok/s at first, 641 at the end, between 614 and 665, 634 is usual now]\
""")

    talk(scenario)


def test_a_chart_of_nothing_is_said_in_words_and_one_without_a_painter_says_why() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("chart 6h") == snapshot("nothing was recorded · the last 6 h")
        await bot.watch(2)
        bot.painter.fails = FleetError("resvg-py is not installed (pip install upbot[charts])")
        assert await bot.answer("chart gpu1") == snapshot("""\
gpu1: 0 tok/s now, 0 on average, 0 running · the last 2 h
---
No picture: resvg-py is not installed (pip install upbot[charts])\
""")

    talk(scenario)


def test_a_report_tells_tokens_downtime_alerts_and_the_job() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.die("gpu3")
        await bot.watch(6)
        bot.fleet.run("gpu3", age=timedelta(minutes=2))
        await bot.watch(10)
        assert await bot.answer("report 1h") == snapshot("""\
10.8M tokens in the 35 m 55 s watched of the last 1 h · 5k tok/s on average, 100 % of 5k
not up: gpu3 down 6 m · the other 7 always were
1 alert: gpu3 is down, 6 m 15 s
job datagen: running at 64,660 of 193,000 · 3.9k tok/s\
""")
        assert await bot.answer("report gpu0") == snapshot("""\
1.4M tokens in the 35 m 55 s watched of the last 24 h · 641 tok/s on average
gpu0 was always up
no alerts\
""")

    talk(scenario, first_night(target=5_000.0))
