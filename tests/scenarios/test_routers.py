"""Servers behind a router: taken out before they die, put back when they are proven, never left out without a word."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from inline_snapshot import snapshot

from bot.domain.errors import StepFailed, StoreError
from bot.domain.facts import JobState
from bot.domain.fleet import Fleet
from bot.runtime.doctor import look_at_routers
from tests.fate import Fate, FatedBot, FatedChat
from tests.jumping import run
from tests.pretend import PretendRouter
from tests.scenarios.test_restart import OOM
from tests.tester import Bot, behind_a_router, first_night, talk

GONE = StepFailed("router front refuses the connection")
DENIED = StepFailed("router front refuses: HTTP 500")
SETTINGS = json.dumps({"cost": 2.5, "labels": {"zone": "a"}, "priority": 70})


def few(number: int = 3) -> Fleet:
    whole = first_night()
    return behind_a_router(replace(whole, servers=whole.servers[:number]))


def routed(scenario: Callable[[Bot, PretendRouter], Awaitable[None]], number: int = 3) -> None:
    """A scenario over servers that run, are listed and get eight requests each."""

    async def whole(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.routers.list_all(SETTINGS)
        bot.fleet.visitors = 8
        await scenario(bot, bot.fleet.routers.all["front"])

    talk(whole, few(number))


def everything(bot: Bot) -> str:
    return "\n".join(post.text for post in bot.chat.posts)


def test_a_restart_says_what_it_does_with_the_router_and_does_it() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        assert "router front: taken out first, requests may end for up to 2 m" in await bot.answer("restart no_buffer")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(5)
        head = next(post for post in bot.posts() if "notes each" in post.text)
        assert head.text == snapshot("""\
Restart gpu0, gpu1 and gpu2 · no_buffer · 0:03 · 0/3 up
● draining: 21 requests left   ○ stop 3 servers   ○ memory and ports free   ○ start   ○ prove   ○ back into router front   ○ compare throughput
🟡 all 3   draining
[Cancel]
by ana, 3 s ago · notes each 30 s in the thread\
""")
        await bot.advance(150)
        assert bot.fleet.lost_visits == 0
        assert front.asked == snapshot(
            [
                ("remove", "http://127.0.0.1:30000"),
                ("remove", "http://127.0.0.1:30001"),
                ("remove", "http://127.0.0.1:30002"),
                ("add", "http://127.0.0.1:30000"),
                ("add", "http://127.0.0.1:30001"),
                ("add", "http://127.0.0.1:30002"),
            ]
        )
        assert {one.settings for one in front.workers.values()} == {SETTINGS}
        assert bot.posts()[-1].text == snapshot("""\
🟢 3/3 up with no_buffer after 1 m 33 s
max_running_requests 37 → 72 · max_total_num_tokens 381k → 392k · running flags read back: as asked · all 3 back in router front
throughput in 5 m, in the thread\
""")

    routed(scenario)


def test_a_rolling_restart_has_one_out_at_a_time_and_loses_no_request() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart --rolling no_buffer")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(400)
        assert [name for name, _ in bot.fleet.started] == ["gpu0", "gpu1", "gpu2"]
        assert bot.fleet.routers.most_out == 1
        assert bot.fleet.lost_visits == 0
        assert len(front.workers) == 3
        assert bot.posts()[-1].text == snapshot("""\
🟢 3/3 up with no_buffer after 4 m 37 s
max_running_requests 37 → 72 · max_total_num_tokens 381k → 392k · running flags read back: as asked · all 3 back in router front
throughput in 5 m, in the thread\
""")

    routed(scenario)


def test_requests_that_do_not_end_are_waited_for_up_to_the_limit_and_counted() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.visits_take = 1e9
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(118)
        assert bot.fleet.signalled == []
        await bot.advance(130)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu0"]
        assert "drained, 8 requests left running after 2 m" in everything(bot)
        assert len(front.workers) == 3

    routed(scenario)


def test_an_entry_that_drains_for_a_while_is_shown_as_draining_and_put_back_after_it_is_gone() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.drains_for = 40.0
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(3)
        assert "🟡 30000 gpu0  draining  taken out of its router" in await bot.answer("up?", within=3)
        await bot.advance(200)
        assert [what for what, _ in front.asked] == ["remove", "add"]
        assert len(front.workers) == 3

    routed(scenario)


@pytest.mark.parametrize("wrong", [GONE, DENIED])
def test_a_stop_goes_on_without_a_router_that_can_not_be_asked_and_says_so(wrong: StepFailed) -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("stop gpu0")
        front.fails = wrong
        bot.press("Stop gpu0")
        await bot.advance(40)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu0"]
        assert f"{wrong}: going on without it; requests on gpu0 may be lost" in everything(bot)

    routed(scenario)


def test_a_router_that_accepts_and_never_removes_is_not_waited_for_without_end() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.queue = 1e9
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(40)
        assert bot.fleet.signalled == []
        await bot.advance(240)
        told = "router front does not remove gpu0: going on without it; requests on gpu0 may be lost"
        assert told in everything(bot)
        assert [name for name, _ in bot.fleet.started] == ["gpu0"]
        assert bot.posts()[-1].text.startswith("🟢 1/1 up")
        assert len(front.workers) == 3

    routed(scenario)


def test_a_rolling_restart_does_not_go_on_without_its_router() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.refuses = DENIED
        await bot.answer("restart --rolling no_buffer")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(60)
        assert bot.fleet.signalled == []
        assert len(front.workers) == 3
        assert bot.posts()[-1].text == snapshot("""\
🔴 Restart gpu0, gpu1 and gpu2 · no_buffer, one after the other: failed after 16 s
router front refuses: HTTP 500: gpu0 was not taken out, and is left as it is
no server was touched\
""")

    routed(scenario)


def test_a_question_says_that_a_router_can_not_be_asked() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.fails = GONE
        assert "router front refuses the connection: requests may be lost" in await bot.answer("restart gpu0")

    routed(scenario)


def test_servers_are_put_back_when_the_router_is_back() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(60)
        front.fails = GONE
        await bot.advance(90)
        assert bot.executor.live() != ()
        front.fails = None
        await bot.advance(20)
        assert bot.executor.live() == ()
        assert bot.fleet.routers.is_sent_to(bot.fleet_value.servers[0])

    routed(scenario)


def test_who_stays_out_is_told_with_a_way_back_that_works() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart gpu0,gpu1")
        bot.press("Restart gpu0 and gpu1")
        await bot.advance(60)
        front.refuses = DENIED
        await bot.advance(400)
        told = bot.posts()[-1]
        assert told.text == snapshot("""\
🔴 2/2 up after 6 m 32 s
max_running_requests 37 → 37 · max_total_num_tokens 381k → 381k · running flags read back: as asked
🔴 gpu0, gpu1   out of router front: router front refuses: HTTP 500
[Put back into its router]
throughput in 5 m, in the thread\
""")
        assert "not in router front: gpu0, gpu1" in await bot.answer("up?", within=3)
        front.refuses = None
        bot.press("Put back into its router", post=told)
        await bot.advance(10)
        assert bot.posts()[-1].text == snapshot("""\
🟢 2/2 up after 1 s
gpu0, gpu1 back in router front\
""")
        assert {one.settings for one in front.workers.values()} == {SETTINGS}
        assert len(front.workers) == 3

    routed(scenario)


def test_a_router_that_never_takes_it_for_healthy_is_told() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.never_healthy = True
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(500)
        assert "out of router front: router front takes it for unhealthy" in bot.posts()[-1].text
        assert "router front takes it for unhealthy: gpu0" in await bot.answer("status", within=4)

    routed(scenario)


def test_a_cancel_while_requests_end_puts_it_back_and_nothing_has_died() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.visits_take = 60
        await bot.answer("stop gpu0,gpu1")
        bot.press("Stop gpu0 and gpu1")
        await bot.advance(5)
        assert len(front.workers) == 1
        await bot.answer("no")
        await bot.advance(30)
        assert bot.fleet.signalled == []
        assert len(front.workers) == 3
        assert bot.posts()[-1].text == snapshot("""\
Stopped before any server was touched. gpu0, gpu1 back in router front.
2 of 2 servers are healthy: up 6 h, 16 requests running.\
""")

    routed(scenario)


def test_a_cancel_right_after_the_removal_was_queued_is_not_fooled_by_the_old_entry() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.queue = 4.0
        await bot.answer("stop gpu0")
        bot.press("Stop gpu0")
        await bot.advance(1.5)
        await bot.answer("cancel")
        await bot.advance(60)
        assert bot.fleet.signalled == []
        assert len(front.workers) == 3
        assert [what for what, _ in front.asked] == ["remove", "add"]

    routed(scenario)


def test_a_cancel_in_a_rolling_restart_puts_the_one_that_was_started_back() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart --rolling no_buffer")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(40)
        await bot.answer("cancel")
        await bot.advance(200)
        assert [name for name, _ in bot.fleet.started] == ["gpu0"]
        assert len(front.workers) == 3
        assert bot.posts()[-1].text == snapshot("""\
Restart gpu0, gpu1 and gpu2 · no_buffer, one after the other: cancelled by ana
done: out of router front, drained · 1/1 stopped · memory and ports free · 1/1 started · 1/1 proved
running: all 3
gpu0 back in router front\
""")

    routed(scenario)


def test_one_that_fails_stays_out_and_the_rest_is_not_touched() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart --rolling no_buffer")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(20)
        bot.fleet.servers["gpu0"].fails_next = OOM
        await bot.advance(200)
        assert {name for name, _, _ in bot.fleet.signalled} == {"gpu0"}
        assert len(front.workers) == 2
        assert bot.posts()[-1].text == snapshot("""\
🔴 Restart gpu0, gpu1 and gpu2 · no_buffer, one after the other: failed after 38 s
no server came up
done before: out of router front, drained · 1/1 stopped · memory and ports free
🔴 gpu0   out of GPU memory
[Back to extra_buffer]
🔴 gpu0   out of router front
[Start and put back]\
""")

    routed(scenario)


def test_what_was_stopped_is_out_and_started_again_it_is_back_as_it_was() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("stop gpu0")
        bot.press("Stop gpu0")
        await bot.advance(60)
        assert bot.posts()[-1].text == snapshot("""\
⚪ 1/1 stopped after 15 s
out of router front; start gpu0 puts it back\
""")
        await bot.answer("start gpu0")
        await bot.advance(120)
        assert bot.posts()[-1].text == snapshot("""\
🟢 1/1 up after 1 m 17 s
max_running_requests 37 · max_total_num_tokens 381k · running flags read back: as asked · gpu0 back in router front\
""")
        assert {one.settings for one in front.workers.values()} == {SETTINGS}

    routed(scenario)


def test_settings_that_a_router_refuses_are_left_away_and_that_is_said() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.refuses_settings = True
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(150)
        assert len(front.workers) == 3
        assert "gpu0: router front refused what it was registered with; added without" in everything(bot)

    routed(scenario)


def test_others_entries_are_left_alone_and_a_server_is_put_back_with_its_own_key() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.lists("http://10.0.0.9:30000")
        front.lists("http://127.0.0.1:40000")
        one = bot.fleet.servers["gpu0"]
        one.argv = (*one.argv, "--api-key", "sk-worker")
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(150)
        assert {url for _, url in front.asked} == {"http://127.0.0.1:30000"}
        assert len(front.workers) == 5
        assert "sk-worker" not in everything(bot)

    routed(scenario)


def test_a_slow_router_is_asked_once() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.queue, front.takes = 8.0, 2.0
        await bot.answer("restart gpu0", within=4)
        bot.press("Restart gpu0")
        await bot.advance(250)
        assert [what for what, _ in front.asked] == ["remove", "add"]
        assert len(front.workers) == 3
        assert bot.fleet.lost_visits == 0

    routed(scenario)


def test_a_server_that_hangs_is_not_waited_for() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.visits_take = 1e9
        bot.fleet.servers["gpu0"].stands_still_since = bot.clock.now() - timedelta(minutes=5)
        await bot.answer("restart gpu0")
        bot.press("Restart gpu0")
        await bot.advance(10)
        assert [name for name, _, _ in bot.fleet.signalled] == ["gpu0"]

    routed(scenario)


def test_a_second_restart_behind_the_same_router_waits_while_one_rolls() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        await bot.answer("restart --rolling gpu0 gpu1 no_buffer")
        bot.press("Restart gpu0 and gpu1")
        await bot.advance(10)
        await bot.answer("restart gpu2 no_buffer")
        bot.press("Restart gpu2")
        await bot.advance(2)
        assert bot.last.text.startswith("Busy: restart by ana")
        await bot.advance(400)
        assert bot.fleet.routers.most_out == 1
        bot.fleet.die("gpu2")
        await bot.advance(10)
        await bot.answer("restart gpu2 no_buffer")
        await bot.advance(150)
        assert len(front.workers) == 3

    routed(scenario)


@pytest.mark.parametrize(
    "moment", [0.2, 0.8, 1.0, 1.4, 2.0, 6.0, 8.0, 9.0, 11.0, 15.0, 60.0, 88.0, 92.0, 94.0, 95.0, 96.0]
)
def test_killed_at_any_moment_it_is_taken_out_once_and_not_left_out(moment: float) -> None:
    async def scenario() -> None:
        bot = Bot(few(2))
        bot.fleet.run_all()
        bot.fleet.routers.list_all(SETTINGS)
        bot.fleet.visitors, bot.fleet.job_state = 8, JobState.STOPPED
        front = bot.fleet.routers.all["front"]
        await bot.answer("restart no_buffer")
        bot.press("Restart gpu0 and gpu1")
        await bot.advance(moment)
        await bot.die()
        bot = bot.restarted()
        await bot.advance(600)
        assert bot.executor.live() == ()
        assert sorted(name for name, _ in bot.fleet.started) in ([], ["gpu0", "gpu1"])
        assert sorted(front.asked) in (
            [],
            sorted((what, f"http://127.0.0.1:3000{n}") for what in ("remove", "add") for n in (0, 1)),
        )
        assert len(front.workers) == 2
        assert {one.settings for one in front.workers.values()} == {SETTINGS}
        assert bot.fleet.lost_visits == 0
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())


def test_what_can_not_be_written_down_is_not_taken_out() -> None:
    """A full disk: what the router knew of it would be lost with a kill -9."""

    async def scenario() -> None:
        fate = Fate(wrong=lambda: StoreError("the disk is full"), lasts=10_000)
        bot = FatedBot(few(2), fate, chat=FatedChat(Fate()))
        bot.fleet.run_all()
        bot.fleet.routers.list_all(SETTINGS)
        bot.fleet.visitors = 8
        front = bot.fleet.routers.all["front"]
        front.takes = 3.0
        await bot.answer("stop gpu0", within=5)
        bot.press("Stop gpu0")
        await bot.advance(2)
        fate.at, fate.is_armed = fate.count + 1, True
        await bot.advance(60)
        assert front.asked == []
        assert bot.fleet.signalled == []
        assert "the disk is full" in everything(bot)
        fate.rise()
        await bot.advance(20)
        assert bot.operations.live() == ()
        await bot.tasks.close()

    run(scenario())


def test_a_look_names_who_is_down_while_the_router_sends_to_it_and_who_was_taken_out() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.die("gpu2")
        bot.fleet.visits_take = 60
        assert "🟡 router front still sends to it: gpu2" in await bot.answer("up?", within=3)
        await bot.answer("stop gpu0")
        bot.press("Stop gpu0")
        await bot.advance(5)
        assert "🟡 taken out of router front by stop: gpu0" in await bot.answer("status", within=4)
        front.fails = GONE
        assert "🟡 router front refuses the connection: all 3" in await bot.answer("up?", within=3)

    routed(scenario)


def test_a_second_cancel_ends_the_putting_back_and_the_end_says_who_is_out() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.visits_take = 1e9
        await bot.answer("stop gpu0")
        bot.press("Stop gpu0")
        await bot.advance(5)
        front.fails = GONE
        await bot.answer("cancel")
        await bot.advance(5)
        assert bot.executor.live() != ()
        await bot.answer("cancel")
        await bot.advance(5)
        assert bot.executor.live() == ()
        assert bot.fleet.signalled == []
        assert bot.posts()[-1].text == snapshot("""\
Stopped before any server was touched.
The server is healthy: up 6 h, 8 requests running.
🔴 gpu0   out of router front
[Put back into its router]\
""")

    routed(scenario)


def test_a_cancel_while_servers_are_asked_to_end_puts_back_only_who_outlives_it() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        bot.fleet.servers["gpu1"].ignores_sigterm = True
        bot.fleet.visitors = 0
        await bot.answer("stop gpu0,gpu1")
        bot.press("Stop gpu0 and gpu1")
        await bot.advance(4.5)
        assert {name for name, _, _ in bot.fleet.signalled} == {"gpu0", "gpu1"}
        await bot.answer("cancel")
        await bot.advance(60)
        assert [url for what, url in front.asked if what == "add"] == ["http://127.0.0.1:30001"]
        assert bot.posts()[-1].text == snapshot("""\
Stop gpu0 and gpu1: cancelled by ana
done: out of router front, drained · 1/2 stopped, all of them asked to end
running: gpu1
gpu1 back in router front
left as they are: gpu0
🔴 gpu0   out of router front
[Start and put back]\
""")

    routed(scenario)


def test_a_rolling_restart_says_beforehand_that_it_does_not_begin_without_the_router() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.fails = GONE
        told = await bot.answer("restart --rolling no_buffer")
        assert "router front refuses the connection: nothing is restarted until it answers" in told
        front.fails = None
        front.workers.pop("w2")
        told = await bot.answer("restart no_buffer")
        assert "not in router front now, put in at the end: gpu1" in told

    routed(scenario)


def test_the_doctor_says_what_each_router_lists() -> None:
    async def scenario(bot: Bot, front: PretendRouter) -> None:
        front.workers.pop("w2")
        (found,) = await look_at_routers(bot.fleet_value, bot.fleet.routers)
        assert found.line == "ok   router front: lists 2 of its 3 servers"
        front.fails = GONE
        (found,) = await look_at_routers(bot.fleet_value, bot.fleet.routers)
        assert found.line == snapshot("""\
NOT  router front refuses the connection
     → it must answer ct200 at 127.0.0.1:3100\
""")

    routed(scenario)
