"""Scenario 8: the job."""

from __future__ import annotations

from inline_snapshot import snapshot

from bot.domain.facts import JobState
from tests.tester import Bot, talk


def test_job_tells_its_state_and_progress() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("job") == "job datagen: stopped at 61,204 of 193,000, can resume"
        bot.fleet.job_state = JobState.RUNNING
        assert await bot.answer("job") == "job datagen: running at 61,204 of 193,000 · 3.9k tok/s"

    talk(scenario)


def test_job_stop_waits_for_its_end_and_says_what_it_saved() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("job stop", within=10)
        assert bot.last.text == snapshot("Stop job datagen: job stopped, 61,204 saved")
        assert bot.fleet.job_stops == 1
        assert await bot.answer("job stop") == "job datagen does not run: nothing to stop."

    talk(scenario)


def test_job_start_starts_it_once() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("job start", within=10)
        assert bot.last.text == snapshot("Start job datagen: job datagen started")
        assert bot.fleet.job_starts == [None]
        assert await bot.answer("job start") == "job datagen runs already: nothing to start."

    talk(scenario)


def test_a_job_that_does_not_end_stops_the_restart_before_any_server_dies() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.jobs.never_stops = True
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(200)
        assert bot.last.text == snapshot("""\
🔴 Restart 8 servers · no_buffer: failed after 2 m 1 s
job datagen did not end within 2 m of being asked
no server was touched\
""")
        assert bot.fleet.signalled == []

    talk(scenario)


def test_a_viewer_may_look_at_the_job_and_not_stop_it() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.job_state = JobState.RUNNING
        assert (await bot.answer("job", user="U3")).startswith("job datagen: running")
        assert await bot.answer("job stop", user="U3") == snapshot("you may look but not stop the job; ask ana or bo")
        assert bot.fleet.job_stops == 0

    talk(scenario)
