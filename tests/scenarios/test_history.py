"""What was done, what has changed since then, and how two profiles compare: the bot's memory, asked in two words."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState
from bot.domain.records import StartRecord
from tests.jumping import START
from tests.tester import Bot, first_night, talk

OOM = Diagnosis("sglang", "0.5.13", Phase.CRASHED, is_crashed=True, cause="cuda_oom", remedy="Lower the fraction.")


def test_history_tells_words_presses_and_ends() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("history") == "Nothing was done in the last 24 h."
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3", user="U2")
        await bot.advance(100)
        await bot.answer("restart gpu4", user="U3")
        assert await bot.answer("history") == snapshot("""\
4 entries in the last 24 h
2026-11-30 03:00 UTC  ana: restart gpu3 no_buffer – asked 4283
2026-11-30 03:00 UTC  bo pressed 4283, Restart gpu3 · no_buffer – accepted
2026-11-30 03:01 UTC  op-1 Restart gpu3 · no_buffer – done
2026-11-30 03:01 UTC  vic: restart gpu4 – refused: you may look but not restart; ask ana or bo\
""")
        assert await bot.answer("history gpu4") == snapshot("""\
1 entry with gpu4 in the last 24 h
2026-11-30 03:01 UTC  vic: restart gpu4 – refused: you may look but not restart; ask ana or bo\
""")
        assert await bot.answer("history 10s") == snapshot("""\
1 entry in the last 10s
2026-11-30 03:01 UTC  vic: restart gpu4 – refused: you may look but not restart; ask ana or bo\
""")
        assert await bot.answer("history gpu5 2d") == snapshot("Nothing was done with gpu5 in the last 2d.")

    talk(scenario)


def test_history_forgets_nothing_when_the_bot_is_killed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        await bot.answer("no")
        told = await bot.answer("history")
        await bot.die()
        again = bot.restarted()
        assert await again.answer("history") == told
        await again.tasks.close()

    talk(scenario)


def test_a_long_history_shows_its_newest() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for _ in range(15):
            await bot.answer("restart gpu3 no_buffer", within=2)
            await bot.answer("no", within=2)
        told = (await bot.answer("history")).splitlines()
        assert (told[0], told[-1], len(told)) == snapshot(
            ("30 entries in the last 24 h", "the newest 20 of them · upbot audit has all", 22)
        )

    talk(scenario)


def test_talk_that_begins_like_these_commands_is_left_alone() -> None:
    async def scenario(bot: Bot) -> None:
        for talk_ in (
            "since you asked, it is fine",
            "history is written by the winners",
            "compare that with what we had before",
        ):
            assert await bot.answer(talk_) == ""

    talk(scenario)


def test_since_tells_what_has_changed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("status", within=5)
        await bot.advance(700)
        bot.fleet.die("gpu3", OOM, 1)
        bot.fleet.job_done = 64_000
        await bot.answer("status", within=5)
        await bot.advance(120)
        await bot.answer("start gpu3", within=100)
        bot.fleet.job_done = 65_000
        assert await bot.answer("since 03:05", within=4) == snapshot("""\
Since 03:05 UTC · 10 m 30 s ago
🟢 gpu3  ready → crashed 2026-11-30 03:11 UTC → starting 2026-11-30 03:13 UTC → ready 2026-11-30 03:15 UTC
🟢 gpu0-gpu2, gpu4-gpu7  ready then and now
2026-11-30 03:13 UTC  ana: start gpu3 – started
2026-11-30 03:15 UTC  op-1 Start gpu3 – done
job datagen: 61,204 → 65,000 (+3,796)\
""")
        assert await bot.answer("since 03:14", within=4) == snapshot("""\
Since 03:14 UTC · 1 m 34 s ago
🟢 gpu3  starting → ready 2026-11-30 03:15 UTC
🟢 gpu0-gpu2, gpu4-gpu7  ready then and now
2026-11-30 03:15 UTC  op-1 Start gpu3 – done
job datagen: 64,000 → 65,000 (+1,000)\
""")
        assert await bot.answer("since 1h gpu3-5", within=4) == snapshot("""\
Since 02:15 UTC · 1 h ago
🟢 gpu3  ready → crashed 2026-11-30 03:11 UTC → starting 2026-11-30 03:13 UTC → ready 2026-11-30 03:15 UTC
🟢 gpu4, gpu5  ready, looked at for the first time since
2026-11-30 03:13 UTC  ana: start gpu3 – started
2026-11-30 03:15 UTC  op-1 Start gpu3 – done\
""")

    talk(scenario)


def test_since_with_nothing_new_says_so() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("up?", within=5)
        await bot.advance(3600)
        bot.fleet.run("gpu6", age=timedelta(minutes=5))
        assert await bot.answer("since 30m", within=4) == snapshot("""\
Since 03:30 UTC · 30 m ago
🟢 gpu0-gpu5, gpu7  ready then and now
🟢 gpu6  ready then and now, but started anew in between
job datagen: still at 61,204
nothing was done through me\
""")
        assert await bot.answer("since 03:30", within=4) == snapshot("""\
Since 03:30 UTC · 30 m 9 s ago
🟢 gpu0-gpu5, gpu7  ready then and now
🟢 gpu6  ready then and now, but started anew in between
job datagen: still at 61,204
nothing was done through me\
""")

    talk(scenario)


def test_since_without_a_time_asks_for_one() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("since", within=4) == snapshot("Since when? since 03:12 (UTC), since 2h.")

    talk(scenario)


def test_a_restart_shows_as_one_way_of_all_eight() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("status", within=5)
        await bot.advance(60)
        await bot.answer("restart no_buffer", within=2)
        bot.press("Restart 8 servers")
        await bot.advance(200)
        assert await bot.answer("since 1h", within=4) == snapshot("""\
Since 02:04 UTC · 1 h ago
🟢 all 8  ready → down 2026-11-30 03:01 UTC → starting 2026-11-30 03:01 UTC → ready 2026-11-30 03:02 UTC
2026-11-30 03:01 UTC  ana: restart no_buffer – asked 4283
2026-11-30 03:01 UTC  ana pressed 4283, Restart 8 servers · no_buffer – accepted
2026-11-30 03:02 UTC  op-1 Restart 8 servers · no_buffer – done
job datagen: still at 61,204, first seen 2026-11-30 03:00 UTC\
""")

    talk(scenario)


def test_looks_that_see_less_make_no_changes_of_their_own() -> None:
    """Without the log a crash is only "no process", and a hang looks ready: every second look would be a change."""

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3", OOM, 1)
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.servers["gpu5"].stands_still_since = START - timedelta(minutes=1)
        for _ in range(3):
            await bot.answer("status", within=5)
            await bot.answer("profiles", within=5)
        kept, _ = bot.changes.since(START - timedelta(hours=1))
        assert {(one.server, one.readiness.value) for one in kept if one.server in ("gpu3", "gpu5")} == {
            ("gpu3", "crashed"),
            ("gpu5", "hung"),
        }
        assert len(kept) == 8

    talk(scenario)


def test_compare_puts_the_records_of_two_profiles_beside_each_other() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("compare") == snapshot("""\
extra_buffer and no_buffer, as they did here
here | extra_buffer | no_buffer
starts | none by me | none by me
price | – | no overlap scheduling
runs on | 8 servers | 0 servers
medians of the starts that I made · speed as measured a while after a restart
no speed measured yet with extra_buffer and no_buffer\
""")
        bot.starts.add(StartRecord("gpu0", "extra_buffer", START, timedelta(seconds=80), is_ready=True, max_running=37))
        bot.starts.add(StartRecord("gpu1", "no_buffer", START, timedelta(seconds=9), is_ready=False, cause="cuda_oom"))
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(450)
        assert await bot.answer("compare no_buffer extra_buffer") == snapshot("""\
no_buffer and extra_buffer, as they did here
here | no_buffer | extra_buffer
starts | 9 | 1
failed | 1 (cuda_oom) | 0
start-up | 1 m 16 s | 1 m 20 s
seats | 72 | 37
tokens of cache | 392k | –
tok/s a server | 641 | 641
tok/s a request | 20 | 20
price | no overlap scheduling | –
runs on | 8 servers | 0 servers
medians of the starts that I made · speed as measured a while after a restart\
""")
        assert await bot.answer("compare extra_buffer") == await bot.answer("compare extra_buffer with no_buffer")

    talk(scenario)


def test_compare_says_which_profiles_there_are() -> None:
    async def scenario(bot: Bot) -> None:
        assert await bot.answer("compare mamba_buffer") == snapshot(
            "I know no profile mamba_buffer; there are: extra_buffer, no_buffer."
        )
        assert await bot.answer("compare no_buffer no_buffer") == snapshot("Which two? compare no_buffer extra_buffer.")

    talk(scenario)


def test_compare_with_a_single_profile_says_so() -> None:
    async def scenario(bot: Bot) -> None:
        assert (await bot.answer("compare")).startswith("Which two?")

    fleet = first_night()
    talk(scenario, replace(fleet, profiles=fleet.profiles[:1]))
