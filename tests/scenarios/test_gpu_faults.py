"""What the kernel's log says of a GPU stands where a server's trouble is told: why, status, a crash, an alert."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import GpuFault, JobState
from tests.tester import Bot, talk


def fault(bot: Bot, code: int | None = 79, gpu: int = 3, *, ago: float = 0, **more) -> GpuFault:
    return GpuFault(bot.clock.now() - timedelta(seconds=ago), "0000:3b:00", code, gpu=gpu, **more)


def test_status_and_why_name_a_gpu_that_is_broken() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        for one in bot.fleet.servers.values():
            one.faults = ()
        quiet = await bot.answer("status")
        bot.fleet.servers["gpu3"].faults = (fault(bot, ago=120),)
        bot.fleet.servers["gpu5"].faults = (fault(bot, 63, 5, ago=60),)
        bot.fleet.die("gpu3")
        told = await bot.answer("status")
        assert [one for one in told.splitlines() if "Xid" in one] == snapshot(
            ["gpu3: Xid 79 on GPU 3: fallen off the bus, 2 m ago; reboot the host; again: power, seating, hardware"]
        )
        assert "Xid" not in quiet
        told = (await bot.answer("why")).splitlines()
        assert [(number, one) for number, one in enumerate(told) if number == 0 or "Xid" in one] == snapshot(
            [
                (0, "🔴 gpu3 is down: no process"),
                (
                    1,
                    "gpu3: Xid 79 on GPU 3: fallen off the bus, 2 m 1 s ago; reboot the host; again: power, seating, hardware",
                ),
                (4, "gpu5: Xid 63 on GPU 5: memory row remapped, 1 m 1 s ago; reset the GPU when convenient"),
            ]
        )
        told = (await bot.answer("why gpu5")).splitlines()
        assert [(number, one) for number, one in enumerate(told) if "Xid" in one] == snapshot(
            [(2, "gpu5: Xid 63 on GPU 5: memory row remapped, 1 m 2 s ago; reset the GPU when convenient")]
        )

    talk(scenario)


def test_where_the_log_can_not_be_read_nothing_is_said() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        assert "Xid" not in await bot.answer("status")
        assert "Xid" not in await bot.answer("why")

    talk(scenario)


def test_a_crash_during_a_start_names_the_error_of_its_gpu() -> None:
    async def scenario(bot: Bot) -> None:
        one = bot.fleet.servers["gpu3"]
        one.fails_next = Diagnosis(
            "sglang",
            "0.5.13",
            Phase.CRASHED,
            is_crashed=True,
            cause="nccl",
            decisive_line="RuntimeError: CUDA error: unspecified launch failure",
            remedy="Look for an Xid in the kernel's log.",
        )
        bot.say("start gpu3 no_buffer")
        await bot.advance(15)
        one.faults = (fault(bot), fault(bot, 45, ago=-1))
        await bot.advance(40)
        (crash,) = [post.text for post in bot.chat.posts if "crashed during its start" in post.text]
        assert crash == snapshot("""\
🔴 gpu3 crashed during its start: NCCL failed
RuntimeError: CUDA error: unspecified launch failure
Xid 79 on GPU 3: fallen off the bus, 8 s before; reboot the host; again: power, seating, hardware
Look for an Xid in the kernel's log.
the last lines of gpu3
  Load weight begin. avail mem=139.00 GB
  RuntimeError: CUDA error: unspecified launch failure\
""")

    talk(scenario)


async def at_work(bot: Bot) -> None:
    """The fleet serves a job, and the watcher has seen enough of it to know what is usual."""
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.RUNNING
    for running in (32, 28, 36, 32):
        bot.fleet.running = running
        await bot.watch(5)
    assert bot.posts() == []


def test_an_alert_that_a_server_is_down_names_the_reason_within_the_first_message() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu3"].faults = (fault(bot, ago=3),)
        bot.fleet.die("gpu3")
        await bot.watch(0.35)
        (head,) = bot.posts()
        assert head.text == snapshot("""\
🔴 gpu3 is down for 5 s
no process there
Xid 79 on GPU 3: fallen off the bus, 3 s before; reboot the host; again: power, seating, hardware
[Ack] [Silence 1 h] [Why] [Restart gpu3…]\
""")
        assert head.edited == 0

    talk(scenario)


def test_a_hung_server_whose_gpu_does_not_answer() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu5"].stands_still_since = bot.clock.now()
        bot.fleet.servers["gpu5"].faults = (fault(bot, 119, 5, ago=-6),)
        await bot.watch(1)
        (head,) = bot.posts()
        assert head.text == snapshot("""\
🔴 gpu5 is hung for 40 s
32 requests run and no token came for 40 s
Xid 119 on GPU 5: GSP firmware does not answer, 11 s after; stop what runs on it and reset the GPU (nvidia-smi -r -i 5); again: reboot the host
[Ack] [Silence 1 h] [Why] [Restart gpu5…]\
""")

    talk(scenario)


def test_an_old_error_and_the_echo_of_an_end_are_no_reasons() -> None:
    async def scenario(bot: Bot) -> None:
        await at_work(bot)
        bot.fleet.servers["gpu3"].faults = (fault(bot, 79, ago=3600), fault(bot, 45))
        bot.fleet.die("gpu3")
        await bot.watch(0.35)
        (head,) = bot.posts()
        assert "Xid" not in head.text

    talk(scenario)


def test_amds_driver_is_quoted_in_its_own_words() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu3"].faults = (fault(bot, None, words="ring comp_1.1.0 timeout", ago=30, times=2),)
        assert [one for one in (await bot.answer("status")).splitlines() if "ring" in one] == snapshot(
            [
                "gpu3: GPU 3: ring comp_1.1.0 timeout, 30 s ago, 2 times; restart the server; again and again: reset the GPU or reboot the host"
            ]
        )

    talk(scenario)
