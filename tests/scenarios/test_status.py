"""Scenario 2: "status", and the other commands that only look."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inline_snapshot import snapshot

from bot.domain.facts import JobState
from tests.tester import Bot, first_night, talk


def test_status_says_what_is_alike_once_and_the_rates_below() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.die("gpu6")
        bot.fleet.servers["gpu2"].speed = 0.5
        await bot.advance(10)
        assert await bot.answer("status") == snapshot("""\
7/8 ready · ct200
profile extra_buffer · queue 0 · KV 21 % · Mamba 61 % · GPU 0–117 of 140 GiB
server | running | tok/s
🟢 gpu0 | 32/37 | 641
🟢 gpu1 | 32/37 | 641
🟢 gpu2 | 32/37 | 321
🟢 gpu3 | 32/37 | 641
🟢 gpu4 | 32/37 | 641
🟢 gpu5 | 32/37 | 641
🔴 gpu6 | down | no process
🟢 gpu7 | 32/37 | 641
4.2k of 6.25k tok/s from 7 servers
3.9k arrive at the job
job datagen: running at 61,204 of 193,000 · 3.9k tok/s · nothing else running\
""")

    talk(scenario)


def test_status_without_a_target_means_the_last_one_named() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("up? gpu3", within=3)
        assert (await bot.answer("status")).startswith("1/1 ready · gpu3 · ct200")
        await bot.advance(601)
        assert (await bot.answer("status")).startswith("8/8 ready")
        await bot.answer("up? gpu4", thread="t1", within=3)
        await bot.advance(3000)
        assert (await bot.answer("status", thread="t1")).startswith("1/1 ready")

    talk(scenario)


def test_status_shows_what_goes_on() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart gpu3 no_buffer")
        bot.press("Restart gpu3")
        await bot.advance(30)
        told = await bot.answer("status")
        assert told.splitlines()[-1] == snapshot(
            "job datagen: stopped at 61,204 of 193,000, can resume · Restart gpu3 · no_buffer by ana, 0:30, step 3 of 5 (starting 1)"
        )

    talk(scenario)


def test_logs_show_the_tail_as_plain_text() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("logs") == "Whose logs? logs gpu3 or logs gpu3 100."
        assert await bot.answer("logs gpu3 5") == snapshot("""\
Log of gpu3
gpu3 · /var/log/sglang/gpu3.log
  The server is fired up and ready to roll!\
""")
        assert (await bot.answer("logs")).startswith("Log of gpu3")

    talk(scenario)


def test_profiles_tell_their_flags_and_their_record() -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer("profiles") == snapshot("""\
2 profiles
extra_buffer  runs on 8 servers
--mamba-scheduler-strategy extra_buffer --max-running-requests 64 --mem-fraction-static 0.85
37 seats · never started by me here
no_buffer
--mamba-scheduler-strategy no_buffer --max-running-requests 128 --mem-fraction-static 0.90
72 seats · price: no overlap scheduling · never started by me here\
""")

    talk(scenario)


def test_help_is_made_from_the_commands() -> None:
    async def scenario(bot: Bot) -> None:
        told = await bot.answer("help")
        assert told == snapshot("""\
Two words are enough
ack  you have seen an alert: the newest, or the one of that id
adopt  take over servers that somebody started by hand; they are put on record, nothing is touched
alerts  what fires now, and what is silenced
canary  try a profile on one server, compare it with its peers, then roll on or back
cancel  end the open question or operation; says what was done and what is left
chart  a picture of tokens a second and running requests
compare  two profiles side by side: starts, failures, start-up time, caps, speed
every  how often a running operation reports: every 10s
forget  take back every "tell me when"
help  what one may say here
history  what was done here, by whom, and how it ended
hold  hold servers for a while: what ends, starts or restarts them needs your press or an admin's
holds  what is held now, by people and by operations, and until when
job  the job's state, progress and time to go; stop and start it
kill  end one foreign process that holds a server's port or GPU memory
logs  the last lines of a server's log
profiles  the profiles, their flags and their record here
quiet  a running operation reports only a crash and its end
release  end holds: yours, or as an admin anybody's
reload  read the fleet file again; a wrong one changes nothing
report  tokens made, who was not up, alerts, the job's progress
restart  stop, start and prove servers, with a profile if one is named; asks before anything healthy dies
silence  no alerts about these servers for a while
since  what has changed since then: servers, what was done, the job
start  start what does not run, put back what its router lacks
status  how busy each server is, tok/s against the target, the job, what goes on
steal  take over what an operation or somebody's hold has; asks first, and tells whoever had it
stop  stop servers; alone: cancel what is open
tell  mentions you when servers are up or down, the job is done or the operation over; alone: what you wait for
unsilence  end the silences about these servers, or all
up  whether each server answers, now
whoami  who you are to the bot, what you may here and elsewhere, and by what
why  what limits throughput now, and what would help
targets: a name, port, host, group or range (gpu2-5) · help restart tells more\
""")
        assert await bot.answer("help restart") == snapshot("""\
restart  stop, start and prove servers, with a profile if one is named; asks before anything healthy dies
usage: restart [servers] [profile] [flag=value] [--rolling] [--again]
for example: restart no_buffer  restart gpu3  restart --rolling no_buffer  restart no_buffer?  restart gpu3 mem-fraction-static=0.88  \n\
also: r, reboot
who may: operators\
""")

    talk(scenario)


def test_a_thousand_servers_are_a_few_lines() -> None:
    fleet = first_night()
    one = fleet.servers[0]
    many = tuple(replace(one, name=f"s{n}", port=10_000 + n, gpus=()) for n in range(1024))

    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        for n in (5, 6, 7, 900):
            bot.fleet.die(f"s{n}")
        bot.fleet.run("s11", age=timedelta(seconds=20))
        await bot.answer("up?", within=4)
        assert bot.last.text == snapshot("""\
1019/1024 up · ct200
🟢 1,019 of 1,024 ready
🔴 s5-s7, s900  down  no process
🟡 s11  starting  loading weights 60 %
job datagen: stopped at 61,204 of 193,000, can resume · nothing else running\
""")
        told = await bot.answer("status", within=3)
        assert len(told.splitlines()) < 20

    talk(scenario, replace(fleet, servers=many))
