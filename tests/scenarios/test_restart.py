"""Scenario 3: "restart no_buffer", and what stands in its way."""

from __future__ import annotations

from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState, Process
from tests.tester import Bot, talk

OOM = Diagnosis(
    "sglang",
    "0.5.13",
    Phase.CRASHED,
    is_crashed=True,
    cause="cuda_oom",
    decisive_line="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    remedy="Lower --mem-fraction-static.",
)


def test_the_whole_procedure_is_asked_told_and_proved() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        assert await bot.answer("restart no_buffer") == snapshot("""\
Restart 8 servers with profile no_buffer?
8 healthy · 256 requests running · 5.1k tok/s · up 6 h
mamba-scheduler-strategy  extra_buffer → no_buffer
max-running-requests  64 → 128
mem-fraction-static  0.85 → 0.90
why: 32 of 37 seats taken, Mamba state holds the cap (61 %), queue empty
✓ flags known to sglang 0.5.13   ✓ memory and ports will be free   ✓ job datagen stops gracefully and resumes
expected: 72 seats, now 37 · price: no overlap scheduling · never started by me here
[Restart 8 servers] [Canary on gpu7] [Cancel]
asked by ana · an operator's press, or yes 4283 · 5 m left\
""")
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(0.3)
        question, head = bot.posts()
        assert question.buttons == []
        assert question.text.endswith("by bo")
        assert head.text == snapshot("""\
Restart 8 servers · no_buffer · 0:00
● stop job datagen   ○ stop 8 servers   ○ memory and ports free   ○ start   ○ prove   ○ resume job datagen   ○ compare throughput
[Cancel]
by bo, 0 s ago · notes each 30 s in the thread\
""")
        await bot.advance(450)
        assert "\n".join(f"{post.at - head.at:.0f} {post.text}" for post in bot.posts(head.ref.id)) == snapshot("""\
30 0:30 · 0/8 up · loading weights 51 %
60 1:00 · 0/8 up · capturing graphs 8/23
86 1:26 · 8/8 up · proving it
398 5.1k tok/s, was 5.1k (+0 %) · a request decodes at 20 tok/s, was 20 · KV cache 21 %
[Roll back]\
""")
        assert head.text == snapshot("""\
Restart 8 servers · no_buffer · 1:28 · 8/8 up
✓ job stopped, 61,204 saved   ✓ 8/8 stopped   ✓ memory and ports free   ✓ 8/8 started   ✓ 8/8 proved   ✓ job resumed   ○ compare throughput
🟢 all 8   ready
by bo, 1 m 28 s ago · done\
""")
        assert bot.posts()[-1].text == snapshot("""\
🟢 8/8 up with no_buffer after 1 m 28 s
max_running_requests 37 → 72 · max_total_num_tokens 381k → 392k · running flags read back: as asked · job resumed
throughput in 5 m, in the thread\
""")
        assert {sign for _, _, sign in bot.fleet.signalled} == {"TERM"}
        assert len(bot.fleet.signalled) == 8
        assert (bot.fleet.job_stops, bot.fleet.job_starts) == (1, [128])

    talk(scenario)


def test_nothing_healthy_means_no_question() -> None:
    async def scenario(bot: Bot) -> None:
        told = await bot.answer("restart no_buffer")
        assert told.startswith("Restart 8 servers · no_buffer · 0:0")
        await bot.advance(100)
        assert bot.posts()[-1].text.startswith("🟢 8/8 up with no_buffer after 1 m 1")
        assert bot.fleet.signalled == []

    talk(scenario)


def test_already_so_is_said_and_one_may_insist() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all("no_buffer")
        assert await bot.answer("restart no_buffer") == snapshot("""\
8/8 already run no_buffer and are healthy: nothing to do.
[Restart all the same…]\
""")
        bot.press("Restart all the same…")
        await bot.advance(1)
        assert bot.last.text.startswith("Restart 8 servers with profile no_buffer?")

    talk(scenario)


def test_those_that_run_it_already_are_left_alone() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for name in ("gpu0", "gpu1", "gpu2"):
            bot.fleet.run(name, "no_buffer")
        told = await bot.answer("restart no_buffer")
        assert told.startswith("Restart 5 servers (gpu3-gpu7) with profile no_buffer?")

    talk(scenario)


def test_a_dead_server_among_healthy_ones_needs_no_press_and_touches_no_other() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.die("gpu3")
        await bot.answer("restart gpu3", within=120)
        assert "🟢 1/1 up after" in bot.posts()[-1].text
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]
        assert bot.fleet.signalled == []
        assert bot.fleet.job_stops == 0

    talk(scenario)


def test_bare_restart_acts_on_nothing_and_asks_which() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("restart") == snapshot("""\
Restart which? Nothing was done.
restart gpu0 · restart all
restart extra_buffer for this channel's servers; profiles: extra_buffer or no_buffer\
""")

    talk(scenario)


def test_a_question_mark_shows_the_plan_and_has_nothing_to_press() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        assert await bot.answer("restart no_buffer?", user="U3") == snapshot("""\
Restart 8 servers with profile no_buffer?
8 healthy · 256 requests running · 5.1k tok/s · up 6 h
mamba-scheduler-strategy  extra_buffer → no_buffer
max-running-requests  64 → 128
mem-fraction-static  0.85 → 0.90
why: 32 of 37 seats taken, Mamba state holds the cap (61 %), queue empty
✓ flags known to sglang 0.5.13   ✓ memory and ports will be free   ✓ job datagen stops gracefully and resumes
expected: 72 seats, now 37 · price: no overlap scheduling · never started by me here
steps: stop job datagen → stop 8 servers → memory and ports free → start → prove → resume job datagen → compare throughput
only looked at: nothing was done\
""")
        assert bot.last.buttons == []

    talk(scenario)


def test_a_viewer_hears_alone_that_looking_is_all() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer", user="U3")
        assert bot.last.only_for == "U3"
        assert bot.last.text == snapshot("you may look but not restart; ask ana or bo")
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers", user="U3")
        await bot.advance(1)
        assert bot.last.only_for == "U3"
        assert bot.fleet.signalled == []
        bot.press("Restart 8 servers", user="U1")
        await bot.advance(10)
        assert bot.fleet.signalled

    talk(scenario)


def test_a_flag_that_the_version_does_not_know_is_refused_before_anything_stops() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.version = "0.5.23"
        bot.fleet.known = (bot.fleet.known - {"--mamba-scheduler-strategy"}) | {
            "--mamba-radix-cache-strategy",
            "--disable-overlap-schedule",
        }
        assert await bot.answer("restart no_buffer") == snapshot("""\
Not restarted: profile no_buffer will not start. Nothing was touched.
sglang 0.5.23 has no --mamba-scheduler-strategy; since 0.5.20 it is --mamba-radix-cache-strategy
sglang 0.5.23 starts no_buffer only with --disable-overlap-schedule (since 0.5.14 it no longer switches overlap off by itself)
profile no_buffer should say:
mamba-radix-cache-strategy: no_buffer   instead of mamba-scheduler-strategy
disable-overlap-schedule: true\
""")
        assert bot.fleet.signalled == []

    talk(scenario)


def test_a_taken_port_and_an_orphan_are_named_before_a_start() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.advance(10)
        bot.fleet.servers["gpu3"].foreign = Process(991, 5, ("python3", "-m", "http.server"), age=timedelta(hours=2))
        assert await bot.answer("start gpu3") == snapshot("""\
Not started: something else holds a port or GPU memory. Nothing was touched.
gpu3: port 30003 is held by pid 991, 2 h old: python3 -m http.server
[Kill 991…]\
""")
        assert bot.fleet.started == []

    talk(scenario)


def test_a_start_that_looks_dead_and_lives_is_told_so_and_then_ready_after_all() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        await bot.advance(10)
        bot.say("start gpu3")
        await bot.advance(4)
        bot.fleet.servers["gpu3"].crash = OOM
        await bot.advance(6)
        head = bot.posts()[-1]
        assert "🟡 gpu3   out of GPU memory in the log, still alive" in head.text
        assert not [post for post in bot.posts(head.ref.id) if "lives" in post.text]
        await bot.advance(8)
        bot.fleet.servers["gpu3"].crash = None
        await bot.advance(200)
        told = [post.text for post in bot.posts(head.ref.id) if post.text.startswith("gpu3: ")]
        why = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        assert told == [f"gpu3: out of GPU memory in the log, but its process lives: {why}", "gpu3: ready after all"]
        assert "1/1 up" in bot.posts()[-1].text

    talk(scenario)


def test_a_second_cancel_leaves_alone_what_was_launched() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        bot.fleet.servers["gpu3"].extra_start = 3600
        await bot.advance(10)
        bot.say("start gpu3")
        await bot.advance(10)
        await bot.answer("cancel")
        await bot.advance(60)
        bot.say("cancel")
        await bot.advance(2)
        texts = [post.text for post in bot.posts()]
        assert "Left as it is: Start gpu3. What was launched runs on, and nobody follows it." in texts
        assert any(text.startswith("Start gpu3: cancelled by ana") for text in texts)
        assert bot.fleet.servers["gpu3"].pid is not None
        assert (await bot.answer("stop gpu3")).startswith("Stop gpu3?")

    talk(scenario)


def test_a_crash_is_told_at_once_with_the_way_back_and_the_others_go_on() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(14)
        bot.fleet.servers["gpu3"].fails_next = OOM
        await bot.advance(400)
        head = bot.posts()[1]
        crash = next(post for post in bot.posts(head.ref.id) if "crashed" in post.text)
        assert crash.text == snapshot("""\
🔴 gpu3 crashed during its start: out of GPU memory
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
Lower --mem-fraction-static.
the last lines of gpu3
  Load weight begin. avail mem=139.00 GB
  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[Back to extra_buffer]\
""")
        end = next(post for post in bot.posts() if "7/8 up" in post.text and post is not head)
        assert end.text == snapshot("""\
🔴 7/8 up with no_buffer after 1 m 28 s
max_running_requests 37 → 72 · max_total_num_tokens 381k → 392k · running flags read back: as asked · job resumed
🔴 gpu3   out of GPU memory
[Back to extra_buffer]
throughput in 5 m, in the thread\
""")
        assert bot.fleet.job_starts == [128]
        bot.press("Back to extra_buffer", post=crash)
        await bot.advance(1)
        assert [name for name, _ in bot.fleet.started][-1] == "gpu3"

    talk(scenario)


def test_all_crash_and_the_job_is_not_resumed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(14)
        for one in bot.fleet.servers.values():
            one.fails_next = OOM
        await bot.advance(100)
        end = bot.posts()[-1]
        assert end.text == snapshot("""\
🔴 Restart 8 servers · no_buffer: failed after 33 s
no server came up
done before: job stopped, 61,204 saved · 8/8 stopped · memory and ports free
🔴 all 8   out of GPU memory
[Back to extra_buffer]
job datagen is stopped
[Resume job datagen]\
""")
        assert bot.fleet.job_starts == []

    talk(scenario)


def test_a_server_that_ignores_sigterm_is_said_and_then_killed() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.servers["gpu5"].ignores_sigterm = True
        pid = bot.fleet.servers["gpu5"].pid
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(45)
        head = bot.posts()[1]
        assert f"gpu5 did not end within 30 s: SIGKILL to pid {pid} and its tree" in [
            p.text for p in bot.posts(head.ref.id)
        ]
        assert ("gpu5", pid, "KILL") in bot.fleet.signalled
        assert [sign for name, _, sign in bot.fleet.signalled if name != "gpu5"] == ["TERM"] * 7

    talk(scenario)


def test_rolling_takes_one_after_the_other_and_stops_at_the_first_failure() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        told = await bot.answer("restart --rolling no_buffer gpu0-2")
        assert told.startswith("Restart gpu0, gpu1 and gpu2 with profile no_buffer, one after the other?")
        bot.press("Restart gpu0, gpu1 and gpu2")
        await bot.advance(60)
        assert [name for name, _ in bot.fleet.started] == ["gpu0"]
        await bot.advance(40)
        bot.fleet.servers["gpu1"].fails_next = OOM
        await bot.advance(300)
        assert [name for name, _ in bot.fleet.started] == ["gpu0", "gpu1"]
        assert {name for name, _, _ in bot.fleet.signalled} == {"gpu0", "gpu1"}
        assert bot.fleet.servers["gpu2"].pid is not None
        assert "🔴 gpu1   out of GPU memory" in bot.posts()[-1].text

    talk(scenario)


def test_a_second_restart_hears_that_it_is_busy() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(69)
        assert await bot.answer("restart extra_buffer", user="U2") == snapshot("""\
Busy: restart by ana since 1 m 9 s, step 3 of 5 (starting 8)
[Show] [Cancel that] [Steal…]\
""")

    talk(scenario)


def test_time_to_go_is_said_once_there_is_history() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu0 no_buffer")
        bot.press("Restart gpu0")
        await bot.advance(120)
        await bot.answer("restart gpu0 no_buffer --again")
        assert "a start took 1 m 1" in bot.last.text
        bot.press("Restart gpu0")
        await bot.advance(35)
        head = [post for post in bot.posts() if "Restart gpu0 ·" in post.text][-1]
        assert bot.posts(head.ref.id)[0].text == snapshot("0:30 · 0/1 up · loading weights 65 % · about 52 s to go")

    talk(scenario)


def test_notes_come_as_often_as_one_likes() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        await bot.advance(5)
        head = bot.posts()[1]
        assert await bot.answer("every 10s", thread=head.ref.id) == "Notes each 10 s."
        await bot.advance(30)
        assert len(bot.posts(head.ref.id)) == 4
        assert await bot.answer("quiet", thread=head.ref.id) == "Quiet: only a crash and the end."
        await bot.advance(40)
        assert len(bot.posts(head.ref.id)) == 5

    talk(scenario)


def test_ten_minutes_of_loading_are_twenty_notes() -> None:
    async def scenario(bot: Bot) -> None:
        for one in bot.fleet.servers.values():
            one.extra_start = 560
        bot.say("restart no_buffer")
        await bot.advance(601)
        head = bot.posts()[0]
        assert [round(post.at - head.at) for post in bot.posts(head.ref.id)] == [30 * n for n in range(1, 21)]

    talk(scenario)


def test_a_server_between_its_end_and_its_start_alarms_nobody() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        bot.press("Restart 8 servers")
        seen: set[str] = set()
        for _ in range(120):
            await bot.advance(1)
            seen.update(
                line for post in bot.posts() for line in post.text.splitlines() if line.startswith(("⚪", "🔴"))
            )
        assert seen == {"⚪ all 8   not running"}

    talk(scenario)
