"""A canary, flags typed along, a kill of something foreign, and going back by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.facts import JobState, Process
from bot.domain.fleet import Fallback
from tests.scenarios.test_restart import OOM
from tests.tester import Bot, first_night, talk


def test_a_canary_is_compared_with_its_peers_and_one_may_roll_on_or_back() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.running = 64
        await bot.answer("restart no_buffer")
        bot.press("Canary on gpu7")
        await bot.advance(1)
        assert bot.last.text.startswith(
            "Canary: restart gpu7 with profile no_buffer, beside its 7 peers for 5 m?\n1 healthy"
        )
        bot.press("Canary on gpu7", post=bot.last)
        await bot.advance(420)
        assert [name for name, _ in bot.fleet.started] == ["gpu7"]
        head = next(post for post in bot.posts() if "notes each" in post.text or "· done" in post.text)
        told = bot.posts(head.ref.id)[-1]
        assert told.text == snapshot("""\
gpu7 with no_buffer · 72 seats (the others 37) · 760 tok/s (the others 670) · 64 running (the others 37) · 11.9 tok/s a request (the others 18.1)
[Roll to the other 7] [Roll back]\
""")
        bot.press("Roll to the other 7", post=told)
        await bot.advance(1)
        assert bot.last.text.startswith("Restart 7 servers (gpu0-gpu6) with profile no_buffer?")

    talk(scenario)


def test_flags_typed_along_are_shown_used_and_no_profiles_record() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        told = await bot.answer("restart gpu3 mem-fraction-static=0.88")
        assert told.splitlines()[0] == "Restart gpu3 mem-fraction-static=0.88?"
        assert "mem-fraction-static  0.85 → 0.88" in told
        bot.press("Restart gpu3")
        await bot.advance(120)
        ((_, argv),) = bot.fleet.started
        assert argv[argv.index("--mem-fraction-static") + 1] == "0.88"
        assert argv[argv.index("--mamba-scheduler-strategy") + 1] == "extra_buffer"
        assert [one.profile for one in bot.starts.recent(5)] == ["custom"]

    talk(scenario)


def test_only_flags_of_the_list_may_be_typed_along() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for text in (
            "restart gpu3 model-path=/etc",
            "restart gpu3 mem-fraction-static=$(id)",
            "restart gpu3 --host=0.0.0.0",
        ):
            assert "Nothing was done." in await bot.answer(text), text
        assert bot.desk.open_in("C1") == ()

    talk(scenario)


def test_a_foreign_process_is_killed_after_its_own_press_and_nothing_else() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.advance(10)
        bot.fleet.servers["gpu3"].foreign = Process(991, 5, ("python3", "-m", "http.server"), age=timedelta(hours=2))
        await bot.answer("start gpu3")
        bot.press("Kill 991…")
        await bot.advance(1)
        assert bot.last.text == snapshot("""\
Kill pid 991 on ct200?
port 30003 is held, 2 h old: python3 -m http.server
it is no server of this fleet
[Kill 991] [Cancel]
asked by ana · an operator's press, or yes 4283 · 5 m left\
""")
        assert bot.fleet.signalled == []
        bot.press("Kill 991")
        await bot.advance(5)
        assert bot.fleet.signalled == [("gpu3", 991, "TERM")]
        assert bot.posts()[-1].text == snapshot("Kill pid 991 on ct200: pid 991 is gone")
        assert "that pid is in no server's way" in await bot.answer("kill 1")
        assert bot.fleet.signalled == [("gpu3", 991, "TERM")]

    talk(scenario)


def test_a_profile_that_goes_back_by_itself_does_so_once() -> None:
    fleet = first_night()
    profiles = tuple(replace(one, fallback=Fallback.AUTO) for one in fleet.profiles)

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(10)
        bot.fleet.servers["gpu3"].fails_next = OOM
        await bot.advance(300)
        assert any(
            post.text == "Going back to extra_buffer on gpu3, as the profile no_buffer says." for post in bot.posts()
        )
        assert [name for name, _ in bot.fleet.started] == ["gpu3", "gpu3"]
        assert bot.fleet._profile(bot.fleet.servers["gpu3"]) == "extra_buffer"
        assert bot.posts()[-1].text.startswith("🟢 1/1 up with extra_buffer")

    talk(scenario, replace(fleet, profiles=profiles))


def test_a_comparison_that_was_due_while_the_bot_was_away_is_made_up_for() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(120)
        await bot.die()
        again = bot.restarted()
        await again.advance(330)
        assert "tok/s, was" in again.last.text
        await again.tasks.close()

    talk(scenario)
