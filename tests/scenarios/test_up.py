"""Scenario 1: "up?"."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState, Process
from tests.tester import Bot, talk


def test_eight_healthy_servers_are_eight_lines_and_each_status_is_folded_in() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("up?") == snapshot("""\
8/8 answering · ct200
🟢 30000 gpu0  answers, health check under way  0 running
🟢 30001 gpu1  answers, health check under way  0 running
🟢 30002 gpu2  answers, health check under way  0 running
🟢 30003 gpu3  answers, health check under way  0 running
🟢 30004 gpu4  answers, health check under way  0 running
🟢 30005 gpu5  answers, health check under way  0 running
🟢 30006 gpu6  answers, health check under way  0 running
🟢 30007 gpu7  answers, health check under way  0 running
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")
        await bot.advance(1.5)
        assert len(bot.posts()) == 1
        assert bot.last.text == snapshot("""\
8/8 answering · ct200
🟢 30000 gpu0  HTTP 200  0 running
🟢 30001 gpu1  HTTP 200  0 running
🟢 30002 gpu2  HTTP 200  0 running
🟢 30003 gpu3  HTTP 200  0 running
🟢 30004 gpu4  HTTP 200  0 running
🟢 30005 gpu5  HTTP 200  0 running
🟢 30006 gpu6  HTTP 200  0 running
🟢 30007 gpu7  HTTP 200  0 running
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")

    talk(scenario)


def test_the_first_answer_is_there_at_once_and_not_at_the_deadline() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.say("up?")
        await bot.advance(0.2)
        assert bot.last.text.startswith("8/8 answering")

    talk(scenario)


def test_while_starting_each_says_what_it_does_and_nobody_is_called_down() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        for name, age in (("gpu1", 1), ("gpu2", 20), ("gpu3", 50), ("gpu4", 72)):
            bot.fleet.run(name, age=timedelta(seconds=age))
        await bot.answer("up?", within=3)
        assert bot.last.text == snapshot("""\
4/8 up · ct200
🟢 30000 gpu0  HTTP 200  32 running
🟡 30001 gpu1  refused  spawned, 2 s
🟡 30002 gpu2  refused  loading weights 60 %, 21 s
🟡 30003 gpu3  refused  capturing graphs 10/23, 51 s
🟡 30004 gpu4  HTTP 503  warming up, 1 m 13 s
🟢 30005 gpu5  HTTP 200  32 running
🟢 30006 gpu6  HTTP 200  32 running
🟢 30007 gpu7  HTTP 200  32 running
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_a_silent_host_is_no_answer_yet_and_then_unreachable_in_the_same_message() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for name in ("gpu6", "gpu7"):
            bot.fleet.servers[name].is_silent = True
        first = await bot.answer("up?", within=0.95)
        assert "6/8 answering" in first
        assert first.count("no answer yet") == 2
        await bot.advance(5)
        assert len(bot.posts()) == 1
        assert "🟡 30006 gpu6  unreachable  ssh ct200 timed out after 3 s" in bot.last.text
        assert "down" not in bot.last.text

    talk(scenario)


def test_tokens_that_stand_still_are_hung_although_health_says_200() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.servers["gpu3"].stands_still_since = bot.clock.now() - timedelta(minutes=4)
        await bot.answer("up? gpu3", within=3)
        assert bot.last.text == snapshot("""\
0/1 answering · ct200
🔴 30003 gpu3  hung  no token for 4 m 1 s  (HTTP 200)
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_a_foreign_process_on_the_port_is_named() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        bot.fleet.servers["gpu3"].foreign = Process(991, 5, ("python3", "-m", "http.server"), "eve")
        await bot.answer("up? 30003", within=3)
        assert "port answers, but the process is not ours (pid 991, python3 -m http.server)" in bot.last.text

    talk(scenario)


def test_a_crash_and_a_plain_end_are_told_apart() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu2", Diagnosis("sglang", "0.5.13", Phase.CRASHED, is_crashed=True, cause="cuda_oom"))
        bot.fleet.die("gpu4")
        await bot.answer("up? gpu2,gpu4", within=3)
        assert "🔴 30002 gpu2  crashed  out of GPU memory" in bot.last.text
        assert "🔴 30004 gpu4  down  no process" in bot.last.text

    talk(scenario)


def test_every_way_to_ask_means_what_it_says() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for text, lines in (
            ("up", 8),
            ("Up?", 8),
            ("up ?", 8),
            ("UP", 8),
            ("up? gpu3", 1),
            ("up? 30003", 1),
            ("up? ct200", 8),
            ("up gpu2-5", 4),
        ):
            told = await bot.answer(text, within=3)
            assert told.count("🟢") == lines, text
        told = await bot.answer("up?", within=3, channel="C9", mentions=True)
        assert told.count("🟢") == 8

    talk(scenario)


def test_talk_between_people_is_met_with_silence() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for text in (
            "what's up?", "is it up? dunno", "up yours", "up for lunch?", "no idea", "stop doing that please",
            "start with the small one", "job well done", "the restart went fine", "help me move on saturday? no",
            "wait for me", "ok", "", "gpu3 is slow today", "cancel my meeting",
        ):  # fmt: skip
            assert await bot.answer(text, within=3) == "", text

    talk(scenario)


def test_another_channel_is_not_listened_to() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("up?", channel="C9", within=3) == ""

    talk(scenario)
