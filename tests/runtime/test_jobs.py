from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.errors import HopError, StepFailed
from bot.domain.facts import JobFacts, JobState
from bot.domain.fleet import Host, Job, Progress
from bot.launchers.process import LAUNCHER
from bot.ports import Completed, JobHands
from bot.runtime.jobs import FleetJobs, as_server, command_of
from bot.transports._local import Local
from tests import hosts
from tests.hosts import lives, until
from tests.jumping import START

CLIENT = """
import json, os, signal, sys, time
asked = 0
def told(number, frame):
    global asked
    asked += 1
    open('asked', 'a').write('asked\\n')
signal.signal(signal.SIGINT, told)
json.dump([sys.argv[1:], os.getcwd(), os.environ.get('SECRET')], open('seen.new', 'w'))
os.rename('seen.new', 'seen')
while not os.path.exists('end') and not (asked and not os.path.exists('slow')): time.sleep(.01)
sys.exit(int(open('end').read() or 0) if os.path.exists('end') else 0)
"""


class StillClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def now(self):
        return self.time

    async def sleep(self, span: timedelta) -> None:
        self.time += span


class OneHost:
    """Hosts of which there is one: this machine, or whatever it was given."""

    def __init__(self, transport=None) -> None:
        self.given = transport or Local()

    def transport(self, host: Host):
        return self.given


class Desk:
    """A job's surroundings: its directory, its hands, its clock, and a tmux of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "job dir $(id)'"
        self.place.mkdir()
        (self.place / "client.py").write_text(CLIENT)
        self.clock = StillClock()
        self.socket = f"upbot-test-{os.getpid()}-{folder.name[-12:]}"
        self.tmux = ("tmux", "-L", self.socket, "-f", "/dev/null")
        self.host = Host("h", state_dir=str(folder / "state $x;"))
        self.hands: JobHands = self.hands_through(Local())

    def hands_through(self, transport) -> FleetJobs:
        return FleetJobs(OneHost(transport), {"h": self.host}.__getitem__, LAUNCHER, self.clock, self.tmux)

    def job(self, *arguments: str, **changes: object) -> Job:
        values: dict[str, object] = {
            "command": (sys.executable, "-S", "client.py", *arguments),
            "directory": str(self.place),
        }
        return Job(**{"name": "data gen", "host": "h", **values, **changes})  # type: ignore[arg-type]

    def seen(self) -> list[object]:
        found = json.loads(hosts.read(self.place / "seen") or "[]")
        assert isinstance(found, list)
        return found

    def asked(self) -> int:
        return hosts.read(self.place / "asked").count("asked")

    def put(self, name: str, text: str = "") -> None:
        """Write a file at one stroke: the client reads it as soon as it is there."""
        (self.place / "put.new").write_text(text)
        (self.place / "put.new").rename(self.place / name)

    def run_tmux(self, *argv: str) -> str:
        return subprocess.run([*self.tmux, *argv], check=True, capture_output=True, text=True).stdout.strip()

    async def until(self, job: Job, state: JobState, within: float = 15) -> JobFacts:
        deadline = asyncio.get_running_loop().time() + within
        while (facts := await self.hands.look(job)).state is not state:
            assert asyncio.get_running_loop().time() < deadline, facts
            await asyncio.sleep(0.02)
        return facts

    def close(self) -> None:
        (self.place / "end").touch()
        for found in self.folder.rglob("start.json"):
            record = json.loads(found.read_text())
            kernel = hosts.stat(record["pid"])
            if kernel is not None and int(kernel[19]) == record["started"]:
                hosts.end(record["pid"], group=True)
        if shutil.which("tmux"):
            subprocess.run([*self.tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.close()


def pid_of(desk: Desk) -> int:
    found = json.loads(next(desk.folder.rglob("start.json")).read_text())["pid"]
    assert isinstance(found, int)
    return found


# A plain process


def test_a_plain_job_is_started_looked_at_stopped_and_started_again(desk):
    job = desk.job("a b", "$(id)", "x;", env=(("SECRET", "s3cr3t '\n"),), log=str(desk.folder / "job.log"))

    async def scenario() -> list[JobState]:
        states = [(await desk.hands.look(job)).state]
        await desk.hands.start(job, 64)
        states.append((await desk.hands.look(job)).state)
        await until(desk.seen)
        first = pid_of(desk)
        await desk.hands.start(job, 64)
        assert pid_of(desk) == first
        await desk.hands.stop(job)
        states.append((await desk.until(job, JobState.STOPPED)).state)
        await desk.hands.stop(job)
        assert not lives(first)
        await desk.hands.start(job, None)
        states.append((await desk.until(job, JobState.RUNNING)).state)
        return states

    assert asyncio.run(scenario()) == [JobState.STOPPED, JobState.RUNNING, JobState.STOPPED, JobState.RUNNING]
    assert desk.seen() == [["a b", "$(id)", "x;"], str(desk.place), "s3cr3t '\n"]
    assert desk.asked() == 1


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_a_plain_job_is_looked_at_and_stopped_through_any_shell(desk, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    hands = desk.hands_through(hosts.with_shell(shell, desk.folder))
    job = desk.job(progress=Progress("p"), pid_file="job.pid")
    desk.put("p", '{"done": 1, "total": 2}')

    async def scenario() -> list[JobFacts]:
        await hands.start(job, None)
        await until(desk.seen)
        desk.put("job.pid", f"{pid_of(desk)}\n")
        looks = [await hands.look(job)]
        await hands.stop(job)
        await until(lambda: list(desk.folder.rglob("exit")))
        looks.append(await hands.look(job))
        return looks

    assert asyncio.run(scenario()) == [
        JobFacts("data gen", START, JobState.RUNNING, 1, 2),
        JobFacts("data gen", START, JobState.STOPPED, 1, 2),
    ]
    assert desk.asked() == 1


def test_a_job_that_is_saving_its_work_is_not_interrupted_again_before_its_stop_limit(desk):
    job = desk.job()
    desk.put("slow")

    async def scenario() -> None:
        await desk.hands.start(job, None)
        await until(desk.seen)
        for _ in range(3):
            await desk.hands.stop(job)
        await until(lambda: desk.asked() == 1)
        await asyncio.sleep(0.1)
        assert desk.asked() == 1
        desk.clock.time += job.stop_limit
        await desk.hands.stop(job)
        await until(lambda: desk.asked() == 2)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "state", "why"), [("0", JobState.DONE, ""), ("3", JobState.STOPPED, "exit status 3")]
)
def test_a_job_that_ended_by_itself_is_done_or_says_how_it_ended(desk, status, state, why):
    job = desk.job()

    async def scenario() -> JobFacts:
        await desk.hands.start(job, None)
        await until(desk.seen)
        desk.put("end", status)
        return await desk.until(job, state)

    facts = asyncio.run(scenario())
    assert (facts.state, facts.why) == (state, why)


def test_a_job_with_everything_done_is_done_and_one_in_the_middle_is_stopped(desk):
    job = desk.job(progress=Progress("progress.json"))
    looks = []

    async def scenario() -> None:
        for text in ('{"done": 193000, "total": 193000}', '{"done": 61204, "total": 193000}', "rubbish"):
            desk.put("progress.json", text)
            looks.append(await desk.hands.look(job))
        (desk.place / "progress.json").unlink()
        looks.append(await desk.hands.look(job))

    asyncio.run(scenario())
    assert looks == [
        JobFacts("data gen", START, JobState.DONE, 193000, 193000),
        JobFacts("data gen", START, JobState.STOPPED, 61204, 193000),
        JobFacts("data gen", START, JobState.STOPPED, why="the progress file does not say how far it is"),
        JobFacts("data gen", START, JobState.STOPPED, why="there is no progress file"),
    ]


def test_the_eta_comes_from_what_was_done_between_looks(desk):
    job = desk.job(progress=Progress("p", "done", "total", "rate"))

    async def scenario() -> list[JobFacts]:
        desk.put("p", '{"done": 1000, "total": 2000, "rate": 3900}')
        await desk.hands.start(job, None)
        looks = [await desk.hands.look(job)]
        desk.clock.time += timedelta(seconds=60)
        desk.put("p", '{"done": 1100, "total": 2000, "rate": 3900}')
        looks.append(await desk.hands.look(job))
        return looks

    first, second = asyncio.run(scenario())
    assert first == JobFacts("data gen", START, JobState.RUNNING, 1000, 2000, 3900.0)
    assert second == JobFacts(
        "data gen", START + timedelta(minutes=1), JobState.RUNNING, 1100, 2000, 3900.0, timedelta(minutes=9)
    )


def test_of_a_huge_progress_file_only_the_end_is_read(desk):
    job = desk.job(progress=Progress("p", r"(\d+) done", ""))
    desk.put("p", "1 done\n" * 500_000 + "7 done\n")
    sizes = []

    class Counting(Local):
        async def run(self, argv, *, stdin=b"", timeout):
            done = await super().run(argv, stdin=stdin, timeout=timeout)
            sizes.append(len(done.stdout))
            return done

    facts = asyncio.run(desk.hands_through(Counting()).look(job))
    assert facts.done == 7
    assert sizes[0] < 70_000


def test_a_progress_file_that_is_a_pipe_does_not_hold_the_look(desk):
    os.mkfifo(desk.place / "p")
    facts = asyncio.run(desk.hands.look(desk.job(progress=Progress("p"))))
    assert facts.why == "there is no progress file"


def test_a_job_that_somebody_started_by_hand_is_known_by_its_pid_file_and_command_line(desk):
    job = desk.job("--concurrency", "64", pid_file="job.pid", concurrency_flag="--concurrency")
    child = hosts.spawn([sys.executable, "-S", "client.py", "--concurrency", "128"], cwd=desk.place)

    async def scenario() -> None:
        await until(desk.seen)
        desk.put("job.pid", f"{child.pid}\n")
        assert (await desk.hands.look(job)).state is JobState.RUNNING
        await desk.hands.start(job, 64)
        assert not list(desk.folder.rglob("start.json"))
        await desk.hands.stop(job)
        await until(lambda: child.poll() is not None)
        assert (await desk.hands.look(job)).state is JobState.STOPPED

    try:
        asyncio.run(scenario())
    finally:
        hosts.end(child.pid)
        child.wait(10)


@pytest.mark.parametrize(
    "content", ["{}", "", "0", "1", "self", "../../etc/passwd", "-1", "99999999999999999999", "\0", "4 4"]
)
def test_a_pid_file_with_another_process_or_nonsense_is_no_job(desk, content):
    stranger = hosts.spawn(["sleep", "60"])
    desk.put("job.pid", content.replace("{}", str(stranger.pid)))
    job = desk.job(pid_file="job.pid")
    try:
        assert asyncio.run(desk.hands.look(job)).state is JobState.STOPPED
        asyncio.run(desk.hands.stop(job))
        assert stranger.poll() is None
    finally:
        hosts.end(stranger.pid)
        stranger.wait(10)


def test_a_host_that_can_not_be_reached_is_unknown_and_nothing_is_started(desk):
    class Away(Local):
        async def run(self, argv, *, stdin=b"", timeout):
            raise HopError("container 200", "is stopped")

    hands = desk.hands_through(Away())
    assert asyncio.run(hands.look(desk.job())) == JobFacts("data gen", START, why="container 200 is stopped")
    for act in (hands.stop(desk.job()), hands.start(desk.job(), None)):
        with pytest.raises(HopError, match="container 200 is stopped"):
            asyncio.run(act)


def test_a_job_on_a_host_that_is_configured_no_more_is_told(desk):
    facts = asyncio.run(desk.hands.look(desk.job(host="other")))
    assert (facts.state, facts.why) == (JobState.UNKNOWN, "job data gen: there is no host other any more")


@pytest.mark.parametrize(
    ("command", "flag", "concurrency", "argv"),
    [
        (("a", "--c", "64", "x"), "--c", 128, ("a", "x", "--c", "128")),
        (("a", "--c=64", "x"), "--c", 128, ("a", "x", "--c", "128")),
        (("a", "x"), "--c", 128, ("a", "x", "--c", "128")),
        (("a", "--c", "64"), "--c", None, ("a", "--c", "64")),
        (("a", "--c", "64"), None, 128, ("a", "--c", "64")),
        (("a", "--c", "--c"), "--c", 1, ("a", "--c", "1")),
    ],
)
def test_a_concurrency_takes_the_place_of_the_commands_own(command, flag, concurrency, argv):
    assert command_of(Job("j", "h", command, concurrency_flag=flag), concurrency) == argv


class Scripted(Local):
    """A host that answers every look alike."""

    def __init__(self, output: bytes) -> None:
        super().__init__()
        self.output = output

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        return Completed(0, self.output)


LINES = st.lists(
    st.sampled_from(
        [
            b"process 1 S 1 1 5 a\x1eb\x1e",
            b"pane %1,0,,1",
            b"pane %1,1,7,1",
            b"record 1 5",
            b"pid 1",
            b"exit 7\x1f",
            b"asked x 1 5",
            b"ended 1 3",
            b"ended x",
            b"trouble x",
            b"",
            b"process 1 S",
            b"pane",
            b"progress ",
        ]
    )
    | st.binary(max_size=40)
)


@given(LINES)
def test_whatever_a_host_says_is_a_look(lines):
    job = Job("j", "h", ("a",), session="s", progress=Progress("p"))
    hands = FleetJobs(OneHost(Scripted(b"\n".join(lines))), {"h": Host("h")}.__getitem__, LAUNCHER, StillClock())
    assert isinstance(asyncio.run(hands.look(job)).state, JobState)


# In tmux


@pytest.mark.tmux
def test_a_job_in_tmux_is_started_looked_at_stopped_and_started_again_in_its_dead_pane(desk):
    job = desk.job(
        "a b", "$(touch pwned)", "x;", ";", "#{pane_id}", "'\"", session="data.gen", env=(("SECRET", "s3cr3t;"),)
    )

    async def scenario() -> None:
        assert (await desk.hands.look(job)).state is JobState.STOPPED
        await desk.hands.start(job, 64)
        await desk.until(job, JobState.RUNNING)
        await until(desk.seen)
        await desk.hands.start(job, 64)
        await desk.hands.stop(job)
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)
        assert desk.asked() == 1
        (desk.place / "seen").unlink()
        await desk.hands.start(job, None)
        assert (await desk.until(job, JobState.RUNNING)).why == ""
        await until(desk.seen)

    asyncio.run(scenario())
    assert desk.seen() == [["a b", "$(touch pwned)", "x;", ";", "#{pane_id}", "'\""], str(desk.place), "s3cr3t;"]
    assert desk.run_tmux("list-panes", "-s", "-t", "=data_gen").count("\n") == 0
    assert not list(desk.folder.rglob("pwned"))
    assert not list(desk.folder.rglob("order"))


@pytest.mark.tmux
def test_a_one_word_command_is_not_read_by_a_shell(desk):
    script = desk.place / "run $(touch pwned);"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S client.py\n")
    script.chmod(0o755)
    job = desk.job(command=(str(script),), session="one")

    async def scenario() -> None:
        await desk.hands.start(job, None)
        await until(desk.seen)

    asyncio.run(scenario())
    assert not list(desk.folder.rglob("pwned"))


@pytest.mark.tmux
@pytest.mark.parametrize(
    ("status", "state", "why"), [("0", JobState.DONE, ""), ("3", JobState.STOPPED, "exit status 3")]
)
def test_the_end_of_a_job_in_tmux_is_read_from_its_dead_pane(desk, status, state, why):
    job = desk.job(session="datagen")

    async def scenario() -> JobFacts:
        await desk.hands.start(job, None)
        await until(desk.seen)
        desk.put("end", status)
        return await desk.until(job, state)

    facts = asyncio.run(scenario())
    assert (facts.state, facts.why) == (state, why)


@pytest.mark.tmux
def test_a_job_that_a_person_typed_into_a_shell_of_the_session_is_followed_stopped_and_resumed_beside_it(desk):
    """The shell is the person's: it stays, and the job comes back in a window of its own."""
    job = desk.job(session="datagen")

    async def scenario() -> None:
        desk.run_tmux("new-session", "-d", "-s", "datagen", "-c", str(desk.place), "sh", "-i")
        assert (await desk.hands.look(job)).state is JobState.STOPPED
        desk.run_tmux("send-keys", "-t", "=datagen:", f"'{sys.executable}' -S client.py", "Enter")
        assert (await desk.until(job, JobState.RUNNING)).why == ""
        await until(desk.seen)
        await desk.hands.start(job, None)
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)
        assert desk.asked() == 1
        (desk.place / "seen").unlink()
        await desk.hands.start(job, None)
        await until(desk.seen)
        assert len(desk.run_tmux("list-windows", "-t", "=datagen").splitlines()) == 2
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)

    asyncio.run(scenario())


@pytest.mark.tmux
def test_a_job_whose_session_was_killed_is_stopped_and_not_done_as_the_run_before_it(desk):
    job = desk.job(session="datagen")

    async def scenario() -> JobFacts:
        await desk.hands.start(job, None)
        await until(desk.seen)
        desk.put("end", "0")
        await desk.until(job, JobState.DONE)
        (desk.place / "end").unlink()
        (desk.place / "seen").unlink()
        await desk.hands.start(job, None)
        await until(desk.seen)
        desk.run_tmux("kill-session", "-t", "=datagen")
        return await desk.until(job, JobState.STOPPED)

    assert asyncio.run(scenario()).why == ""


@pytest.mark.tmux
def test_keys_reach_the_job_when_somebody_has_scrolled(desk):
    job = desk.job(session="datagen")

    async def scenario() -> None:
        await desk.hands.start(job, None)
        await until(desk.seen)
        desk.run_tmux("copy-mode", "-t", "=datagen:")
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)

    asyncio.run(scenario())


@pytest.mark.tmux
def test_something_else_in_the_jobs_session_counts_as_running_and_is_named(desk):
    job = desk.job(session="datagen")

    async def scenario() -> JobFacts:
        desk.run_tmux("new-session", "-d", "-s", "datagen", "sleep", "60")
        return await desk.hands.look(job)

    facts = asyncio.run(scenario())
    assert (facts.state, facts.why) == (JobState.RUNNING, "its session runs sleep 60")


@pytest.mark.tmux
def test_a_session_whose_name_begins_alike_is_another(desk):
    job = desk.job(session="data")

    async def scenario() -> JobState:
        desk.run_tmux("new-session", "-d", "-s", "data-2", "sleep", "60")
        await desk.hands.stop(job)
        return (await desk.hands.look(job)).state

    assert asyncio.run(scenario()) is JobState.STOPPED


@pytest.mark.tmux
def test_stop_keys_go_one_after_the_other(desk):
    """``cat`` shows what it gets; the last key ends it."""
    job = desk.job(command=("sh", "-c", "cat >typed"), session="datagen", stop_keys=("a;", "-l", ";", "Enter", "C-d"))

    async def scenario() -> None:
        await desk.hands.start(job, None)
        await desk.until(job, JobState.RUNNING)
        await until((desk.place / "typed").exists)
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)

    asyncio.run(scenario())
    assert hosts.read(desk.place / "typed") == "a;-l;\n"


@pytest.mark.tmux
def test_a_start_in_tmux_that_can_not_be_says_why(desk):
    with pytest.raises(StepFailed, match=r"^job data gen can't be started: the working directory can't be entered: "):
        asyncio.run(desk.hands.start(desk.job(session="s", directory="/no/such"), None))


@pytest.mark.tmux
def test_a_command_that_is_not_there_is_seen_as_its_exit_status(desk):
    job = desk.job(command=("no-such-thing", "x"), session="s")

    async def scenario() -> JobFacts:
        await desk.hands.start(job, None)
        await until(lambda: desk.run_tmux("list-panes", "-t", "=s:", "-F", "#{pane_dead}") == "1")
        return await desk.hands.look(job)

    facts = asyncio.run(scenario())
    assert (facts.state, facts.why) == (JobState.STOPPED, "exit status 127")


def test_a_dead_pane_without_a_status_says_that_nobody_knows_how_it_ended():
    job = Job("j", "h", ("a",), session="s")
    dead = Scripted(b"look\npane %1,1,,77\n")
    facts = asyncio.run(FleetJobs(OneHost(dead), {"h": Host("h")}.__getitem__, LAUNCHER, StillClock()).look(job))
    assert (facts.state, facts.why) == (JobState.STOPPED, "it ended, and nobody saw how")


def test_without_tmux_a_session_is_unknown_and_acts_say_why(desk):
    hands = FleetJobs(OneHost(), {"h": desk.host}.__getitem__, LAUNCHER, desk.clock, ("no-such-tmux",))
    job = desk.job(session="datagen")
    facts = asyncio.run(hands.look(job))
    assert (facts.state, facts.why) == (JobState.UNKNOWN, "tmux is not installed there")
    for act in (hands.stop(job), hands.start(job, None)):
        with pytest.raises(StepFailed, match="tmux is not installed there"):
            asyncio.run(act)


@pytest.mark.parametrize("session", ["", "#(touch pwned)", "-d", "%1", "$0", "a\nb", "ü", "=x"])
def test_a_session_that_tmux_would_read_as_something_else_is_refused(desk, session):
    facts = asyncio.run(desk.hands.look(desk.job(session=session)))
    assert facts.state is JobState.UNKNOWN
    assert "can't be a tmux session's name" in facts.why


@pytest.mark.parametrize("name", ["x", "../x", "a/b\0", "$(id)", "a\nb"])
def test_a_jobs_folder_stays_in_the_state_directory(desk, name):
    async def scenario() -> None:
        await desk.hands.start(desk.job(name=name), None)

    asyncio.run(scenario())
    (folder,) = (desk.folder / "state $x;").iterdir()
    assert folder.name == "job-" + name.replace("/", "_").replace("\0", "_")


def test_sigint_is_what_a_plain_job_gets(desk):
    """A shell's background child would ignore it; ours must not."""
    job = desk.job(command=(sys.executable, "-S", "-c", "import time; open('seen','w').write('[1]'); time.sleep(60)"))

    async def scenario() -> int:
        await desk.hands.start(job, None)
        await until(desk.seen)
        await desk.hands.stop(job)
        await desk.until(job, JobState.STOPPED)
        await until(lambda: list(desk.folder.rglob("exit")))
        return (await LAUNCHER.launched(Local(), as_server(job), desk.host.state_dir)).exit_status or 0

    assert asyncio.run(scenario()) in (1, 128 + signal.SIGINT)
