"""Scenario 6: "why", with the figures of the first night and what else may hold a fleet back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import GpuUse, JobState
from tests.tester import Bot, first_night, talk


def all_say(bot: Bot, **load: object) -> None:
    for one in bot.fleet.servers.values():
        one.load_says = load


def test_the_first_night_names_the_cap_and_the_client_and_the_profile() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        all_say(bot, running=32, queued=0, kv_usage=0.21, mamba_usage=0.61, tokens_per_second=671.0)
        assert await bot.answer("why") == snapshot("""\
Concurrency is capped by Mamba state memory, and job datagen does not push more: 32 of at most 37 requests run on each of 8 servers, none wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full), 671 tok/s each.
no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 72. And job datagen would push more: it resumes with a concurrency of 128. Price: no overlap scheduling.
5.4k of 6.25k tok/s are decoded, 3.9k arrive at the job: 27 % is lost between them
[Restart no_buffer…]
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")
        bot.press("Restart no_buffer…")
        await bot.advance(1)
        assert bot.last.text.startswith("Restart 8 servers with profile no_buffer?")
        assert "why: 32 of 37 seats taken, Mamba state holds the cap (61 %), queue empty" in bot.last.text

    talk(scenario)


def test_all_seats_taken_and_a_queue_is_the_cap_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        all_say(bot, running=37, queued=118, tokens_per_second=712.0)
        assert await bot.answer("why gpu3") == snapshot("""\
Concurrency is capped by Mamba state memory: 37 of at most 37 requests run, 118 wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full), 712 tok/s.
no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 72. Price: no overlap scheduling.
[Restart no_buffer…]
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_the_button_means_the_servers_that_it_speaks_of() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("why gpu3")
        bot.press("Restart no_buffer…")
        await bot.advance(1)
        assert bot.last.text.startswith("Restart gpu3 with profile no_buffer?")

    talk(scenario)


def test_seats_that_a_profile_had_here_count_more_than_what_the_file_says() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        all_say(bot, running=37, queued=40)
        told = await bot.answer("why")
        assert "no_buffer would raise the cap to about 62, and further with its memory fraction of 0.90." in told
        bot.fleet.run("gpu0", "no_buffer")
        await bot.answer("restart gpu0 no_buffer --again")
        bot.fleet.servers["gpu0"].load_says = {"max_running": 70}
        bot.press("Restart gpu0")
        await bot.advance(120)
        bot.fleet.run("gpu0", "extra_buffer")
        all_say(bot, running=37, queued=40, max_running=37)
        assert "no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 70." in await bot.answer(
            "why"
        )

    fleet = first_night()
    talk(scenario, replace(fleet, profiles=tuple(replace(one, seats=None) for one in fleet.profiles)))


def test_where_no_profile_helps_the_flag_is_named() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all("no_buffer")
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.running = 72
        all_say(bot, queued=300, mamba_usage=0.99)
        assert await bot.answer("why") == snapshot("""\
Concurrency is capped by Mamba state memory: 72 of at most 72 requests run on each of 8 servers, 2.4k wait in all, KV cache 21 % used, Mamba 99 %, 776 tok/s each.
Raise --mamba-full-memory-ratio, which takes from the KV cache (21 % used), or halve the states by --mamba-ssm-dtype bfloat16.
6.2k of 6.25k tok/s are decoded, 3.9k arrive at the job: 37 % is lost between them
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_a_full_cache_is_named_before_the_seats() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        all_say(bot, running=30, queued=50, kv_usage=0.97, retracted=1440)
        assert await bot.answer("why gpu0") == snapshot("""\
The KV cache is full: 30 of at most 37 requests run, 50 wait, KV cache 97 % used, Mamba 61 %, 4.0 requests a minute put back, 641 tok/s.
--schedule-conservativeness 1.3 stops the churn; more room: a higher --mem-fraction-static, or --kv-cache-dtype fp8_e5m2.
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_missing_demand_is_said_and_who_should_push() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        all_say(bot, running=9, queued=0, mamba_usage=0.17, tokens_per_second=390.0)
        assert await bot.answer("why") == snapshot("""\
Demand is missing, since job datagen does not push more: 9 of at most 37 requests run on each of 8 servers, none wait, KV cache 21 % used, Mamba 17 %, 390 tok/s each.
224 seats are free: raise the concurrency of job datagen.
3.1k of 6.25k tok/s are decoded, the job counts 3.9k
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_nobody_asks_and_the_job_can_be_started() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("why") == snapshot("""\
Nobody asks: 0 of at most 37 requests run on each of 8 servers, none wait, KV cache 21 % used, Mamba 0 %.
[Start job datagen]
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")
        bot.press("Start job datagen")
        await bot.advance(10)
        assert bot.fleet.job_starts

    talk(scenario)


def test_what_does_not_run_is_named_first() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.die("gpu6")
        bot.fleet.run("gpu5", age=timedelta(seconds=20))
        bot.fleet.servers["gpu3"].stands_still_since = bot.clock.now() - timedelta(seconds=40)
        assert await bot.answer("why") == snapshot("""\
🔴 gpu3 is hung: no token for 40 s
🔴 gpu6 is down: no process
🟡 gpu5 is starting: loading weights 56 %
gpu0-gpu2, gpu4, gpu7: Concurrency is capped by Mamba state memory, and job datagen does not push more: 32 of at most 37 requests run on each of 5 servers, none wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full), 641 tok/s each.
no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 72. And job datagen would push more: it resumes with a concurrency of 128. Price: no overlap scheduling.
3.2k of 6.25k tok/s are decoded, the job counts 3.9k
[Restart no_buffer…]
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_while_everything_is_loading_that_is_the_answer() -> None:
    async def scenario(bot: Bot) -> None:
        for number in range(8):
            bot.fleet.run(f"gpu{number}", age=timedelta(seconds=12 + number))
        assert await bot.answer("why") == snapshot("""\
🟡 all 8 are starting: loading weights 30–53 %
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")

    talk(scenario)


def test_an_assertion_in_the_log_of_a_server_that_answers_does_not_make_it_dead() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.servers["gpu3"].crash = Diagnosis(
            "sglang", "0.5.13", Phase.CRASHED, is_crashed=True, cause="scheduler_exception"
        )
        told = await bot.answer("why")
        assert told.startswith("Concurrency is capped by Mamba state memory")
        assert "on each of 8 servers" in told

    talk(scenario)


def test_a_hot_gpu_and_a_foreign_process_are_named() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        hot = bot.fleet.servers["gpu3"]
        hot.gpu_says = {"clock_limits": ("hw_slowdown", "hw_thermal_slowdown"), "temperature_c": 92}
        hot.speed = 0.6
        stranger = GpuUse(991, "python3 train.py", 20 * 1024, None, timedelta(hours=2))
        bot.fleet.servers["gpu5"].gpu_says = {"uses": (stranger,)}
        bot.fleet.servers["gpu6"].load_says = {"cuda_graph": False}
        bot.fleet.servers["gpu7"].load_says = {"accept_length": 1.21}
        bot.fleet.servers["gpu1"].speed = 0.5
        assert await bot.answer("why") == snapshot("""\
gpu3: GPU 3 clock limited: thermal slowdown, 92 °C; 385 tok/s at 32 running
gpu5: GPU 5 is shared with a foreign process: pid 991, 2 h old holds 20 GiB of it, python3 train.py
gpu6: decodes without CUDA graphs: 32 run; a higher --cuda-graph-max-bs would cover them, for some memory
gpu7: speculative decoding does not pay: 1.21 tokens a step; fewer draft tokens, or none, would be faster
gpu1: slower than the others: 321 tok/s at 32 running, where the others make 641
Concurrency is capped by Mamba state memory, and job datagen does not push more: 32 of at most 37 requests run on each of 8 servers, none wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full), 641 tok/s each.
no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 72. And job datagen would push more: it resumes with a concurrency of 128. Price: no overlap scheduling.
4.6k of 6.25k tok/s are decoded, 3.9k arrive at the job: 14 % is lost between them
[Restart no_buffer…]
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")
        assert (await bot.answer("why gpu3")).splitlines()[0] == snapshot(
            "gpu3: GPU 3 clock limited: thermal slowdown, 92 °C; 385 tok/s at 32 running"
        )

    talk(scenario)


def test_a_server_that_tells_no_numbers_is_said_so() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        all_say(bot, running=None, queued=None, tokens_per_second=None)
        assert await bot.answer("why gpu0") == snapshot("""\
What limits it can't be told: it told no numbers.
Start it with --enable-metrics.
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")

    talk(scenario)


def test_between_people_it_stays_silent() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for text in ("why not", "why is it slow?", "why all the noise?", "why gpu hangs?", "why me", "whyever"):
            assert await bot.answer(text) == ""
        assert await bot.answer("Why?") != ""
        assert await bot.answer("why ct200") != ""

    talk(scenario)
