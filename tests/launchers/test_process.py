from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import plugins
from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.domain.fleet import Launch, Server
from bot.launchers.process import LAUNCHER, read_record, redacted
from bot.ports import Completed, Launched, Launcher
from bot.transports._local import Local
from tests import hosts
from tests.hosts import lives, until

HOSTILE = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$(id)",
    "`id`",
    "$HOME",
    "*",
    "\\",
    "\\n",
    "a\nb\n",
    "-n",
    "--",
    "%s%%",
    ";",
    "&",
    "ü€\udcff",
    "!",
    "a=b",
    "\t",
    "\x01",
    "\\0101",
    "\\c",
]
SHELLS = ["dash", "bash", "busybox"]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory; whatever was recorded as started there is ended afterwards, by pid and start time."""
    folder = tmp_path / "state $(touch pwned) 'x\""
    yield folder
    for record in folder.glob("*/start.json"):
        found = json.loads(record.read_text())
        kernel = hosts.stat(found["pid"])
        if kernel is not None and int(kernel[19]) == found["started"]:
            hosts.end(found["pid"], group=True)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts by itself, with their groups."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        hosts.end(one.pid, group=os.getpgid(one.pid) == one.pid if lives(one.pid) else False)
        one.wait(10)


def server(tmp_path: Path, name: str = "gpu0", **changes: object) -> Server:
    values: dict[str, object] = {"log": str(tmp_path / "logs" / "server.log"), "launch": Launch(command=("sleep",))}
    return Server(**{"name": name, "host": "h", "port": 1, "engine": "sglang", **values, **changes})  # type: ignore[arg-type]


def record(state: Path, name: str = "gpu0") -> dict[str, object]:
    found = json.loads((state / name / "start.json").read_text())
    assert isinstance(found, dict)
    return found


async def start(
    one: Server, argv: Sequence[str], state: Path, *, env: dict[str, str] | None = None, host: Local | None = None
) -> Process:
    await LAUNCHER.start(host or Local(), one, argv, env or {}, str(state))
    return hosts.process(int(str(record(state, one.name)["pid"])))


async def exit_of(one: Server, state: Path) -> int | None:
    await until((state / one.name / "exit").exists)
    return (await LAUNCHER.launched(Local(), one, str(state))).exit_status


def test_the_loader_finds_it():
    found: Launcher = plugins.load("bot.launchers", "LAUNCHER")["process"]
    assert found is LAUNCHER


@pytest.mark.parametrize("shell", SHELLS)
def test_argv_environment_directory_and_log_arrive_as_they_were(tmp_path, state, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    out = tmp_path / "out.json"
    place = tmp_path / "dir $(id)\n'"
    place.mkdir()
    tell = (
        "import json,os,signal,sys; print('out',flush=True); print('err',file=sys.stderr);"
        "json.dump([sys.argv[2:],os.getcwd(),os.environ['SECRET'],os.environ['IFS'],sys.stdin.read(),os.getpid()==os.getsid(0)==os.getpgrp(),"
        "signal.getsignal(signal.SIGINT)!=signal.SIG_IGN,signal.getsignal(signal.SIGQUIT)!=signal.SIG_IGN,os.umask(0)],open(sys.argv[1],'w'))"
    )
    argv = [sys.executable, "-S", "-c", tell, str(out), *HOSTILE]
    one = server(
        tmp_path, "gpu 0 $(id) '\n\"", launch=Launch((), directory=str(place)), log=str(tmp_path / "l o'g" / "$x.log")
    )
    env = {"SECRET": "s3cr3t ''\"$(id)\n\n", "IFS": ":", "PATH": "/nowhere"}
    umask = os.umask(0o022)
    os.umask(umask)

    async def scenario() -> int | None:
        await LAUNCHER.start(hosts.with_shell(shell, tmp_path), one, argv, env, str(state))
        return await exit_of(one, state)

    assert asyncio.run(scenario()) == 0
    words, cwd, secret, ifs, stdin, leads, has_int, has_quit, mask = json.loads(out.read_text())
    assert words == HOSTILE
    assert (cwd, secret, ifs, stdin) == (str(place), env["SECRET"], ":", "")
    assert (leads, has_int, has_quit, mask) == (True, True, True, umask)
    assert Path(one.log).read_text() == "out\nerr\n"
    assert (state / one.name).stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.rglob("pwned"))
    assert read_record((state / one.name / "start.json").read_text())[1] == argv


def test_the_record_names_the_process_by_pid_and_start_time_and_hides_secrets(tmp_path, state):
    one = server(tmp_path)
    argv = ["sleep", "60"]

    async def scenario() -> Launched:
        running = await start(one, argv, state)
        assert record(state) == {
            "pid": running.pid,
            "started": running.started,
            "keeper": running.parent,
            "at": record(state)["at"],
            "argv": argv,
        }
        return await LAUNCHER.launched(Local(), one, str(state))

    assert asyncio.run(scenario()) == Launched(int(str(record(state)["pid"])), None)
    at = datetime.fromisoformat(str(record(state)["at"]))
    assert at.utcoffset() == timedelta()


def test_neither_arguments_nor_environment_stand_on_any_other_command_line(tmp_path, state):
    one = server(tmp_path)
    found: list[int] = []
    mark = str(10**12 + secrets.randbelow(10**12))

    async def scenario() -> None:
        running = await start(one, ["sleep", mark], state, env={"TOKEN": "very-secret-token"})
        for pid in hosts.pids():
            line = hosts.command_line(pid)
            if mark.encode() in line or b"very-secret-token" in line:
                found.append(pid)
        assert found == [running.pid]

    asyncio.run(scenario())


def test_nothing_on_record_is_nothing_launched(tmp_path, state):
    assert asyncio.run(LAUNCHER.launched(Local(), server(tmp_path), str(state))) == Launched()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pid": true}', '{"pid": -4}', "\x00\xff"])
def test_a_damaged_record_says_nothing_and_stops_no_start(tmp_path, state, damage):
    one = server(tmp_path)
    (state / "gpu0").mkdir(parents=True)
    (state / "gpu0" / "start.json").write_text(damage)
    (state / "gpu0" / "exit").write_text("not a number")

    async def scenario() -> None:
        assert await LAUNCHER.launched(Local(), one, str(state)) == Launched()
        assert lives((await start(one, ["sleep", "60"], state)).pid)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_the_exit_status_is_recorded(tmp_path, state, script, status):
    one = server(tmp_path)

    async def scenario() -> int | None:
        await LAUNCHER.start(Local(), one, ["sh", "-c", script], {}, str(state))
        return await exit_of(one, state)

    assert asyncio.run(scenario()) == status


def test_a_second_start_with_the_same_argv_starts_no_second_process(tmp_path, state):
    one = server(tmp_path)

    async def scenario() -> None:
        first = await start(one, ["sleep", "60"], state)
        second = await start(one, ["sleep", "60"], state)
        assert first.identity == second.identity

    asyncio.run(scenario())


def test_a_second_start_with_other_arguments_is_refused(tmp_path, state):
    one = server(tmp_path)

    async def scenario() -> None:
        first = await start(one, ["sleep", "60"], state)
        with pytest.raises(StepFailed) as failed:
            await LAUNCHER.start(Local(), one, ["sleep", "61"], {}, str(state))
        assert (
            str(failed.value) == f"gpu0 already runs with other arguments, pid {first.pid}; it has to be stopped first"
        )
        assert lives(first.pid)

    asyncio.run(scenario())


def test_of_ten_starts_at_once_one_process_comes(tmp_path, state):
    one = server(tmp_path)
    mark = tmp_path / "marks"
    mark.mkdir()
    argv = ["sh", "-c", f'touch "{mark}/$$"; exec sleep 60']

    async def scenario() -> None:
        await asyncio.gather(*(LAUNCHER.start(Local(), one, argv, {}, str(state)) for _ in range(10)))
        await until(lambda: list(mark.iterdir()))

    asyncio.run(scenario())
    assert [entry.name for entry in mark.iterdir()] == [str(record(state)["pid"])]


def test_a_start_after_the_end_forgets_the_old_exit_status(tmp_path, state):
    one = server(tmp_path)

    async def scenario() -> Launched:
        await LAUNCHER.start(Local(), one, ["sh", "-c", "exit 3"], {}, str(state))
        assert await exit_of(one, state) == 3
        await start(one, ["sleep", "60"], state)
        return await LAUNCHER.launched(Local(), one, str(state))

    assert asyncio.run(scenario()).exit_status is None


def test_a_recorded_pid_that_is_another_process_by_now_does_not_stop_a_start(tmp_path, state, children):
    children.append(hosts.spawn(["sleep", "60"]))
    stranger = hosts.process(children[0].pid)
    (state / "gpu0").mkdir(parents=True)
    old = f'{{"pid": {stranger.pid}, "started": {stranger.started - 5}, "keeper": 1, "at": "x", "argv": ["sleep", "60"]}}\n'
    (state / "gpu0" / "start.json").write_text(old)
    started = asyncio.run(start(server(tmp_path), ["sleep", "60"], state))
    assert started.pid != stranger.pid
    assert lives(stranger.pid)


def test_it_outlives_a_starter_that_is_killed_at_once_and_its_exit_status_is_still_recorded(tmp_path, state):
    """The starting shell is killed as soon as the record is there, the whole session of it."""
    one = server(tmp_path)
    argv = ["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 9"]
    starter = (
        "import asyncio,sys; sys.path.insert(0, sys.argv[1])\n"
        "from bot.launchers.process import LAUNCHER; from bot.transports._local import Local\n"
        "from bot.domain.fleet import Launch, Server\n"
        "one = Server('gpu0','h',1,'sglang',Launch((), directory=sys.argv[3]), log=sys.argv[4])\n"
        "asyncio.run(LAUNCHER.start(Local(), one, sys.argv[5:], {}, sys.argv[2]))\n"
    )
    root = str(Path(__file__).parents[2])

    async def scenario() -> int | None:
        child = hosts.spawn([sys.executable, "-c", starter, root, str(state), str(tmp_path), one.log, *argv])
        await until((state / "gpu0" / "start.json").exists)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)
        assert lives(int(str(record(state)["pid"])))
        (tmp_path / "go").touch()
        return await exit_of(one, state)

    assert asyncio.run(scenario()) == 9


def test_logs_are_rotated_by_renaming_and_five_old_ones_are_kept(tmp_path, state):
    one = server(tmp_path)
    log = Path(one.log)

    async def scenario() -> None:
        for number in range(8):
            (state / "gpu0" / "exit").unlink(missing_ok=True)
            await LAUNCHER.start(Local(), one, ["echo", str(number)], {}, str(state))
            await exit_of(one, state)

    asyncio.run(scenario())
    assert {entry.name: entry.read_text().strip() for entry in log.parent.iterdir()} == {
        "server.log": "7",
        "server.log.1": "6",
        "server.log.2": "5",
        "server.log.3": "4",
        "server.log.4": "3",
        "server.log.5": "2",
    }


def test_a_log_that_does_not_rotate_is_appended_to(tmp_path, state):
    one = server(tmp_path, log_rotates=False)

    async def scenario() -> None:
        for word in ("one", "two"):
            (state / "gpu0" / "exit").unlink(missing_ok=True)
            await LAUNCHER.start(Local(), one, ["echo", word], {}, str(state))
            await exit_of(one, state)

    asyncio.run(scenario())
    assert [entry.name for entry in Path(one.log).parent.iterdir()] == ["server.log"]
    assert Path(one.log).read_text() == "one\ntwo\n"


def test_a_leading_tilde_is_the_logins_home_in_state_directory_directory_and_log(tmp_path):
    home = tmp_path / "home of $me"
    (home / "work").mkdir(parents=True)
    one = server(tmp_path, log="~/logs/gpu0.log", launch=Launch((), directory="~/work"))
    host = Local({"HOME": str(home), "PATH": os.environ["PATH"]})

    async def scenario() -> None:
        await LAUNCHER.start(host, one, ["pwd"], {}, "~/.state")
        await until((home / ".state" / "gpu0" / "exit").exists)
        assert (await LAUNCHER.launched(host, one, "~/.state")).exit_status == 0

    asyncio.run(scenario())
    assert (home / "logs" / "gpu0.log").read_text() == f"{home / 'work'}\n"


def test_a_server_without_a_log_gets_one_beside_its_record(tmp_path, state):
    one = server(tmp_path, log="")

    async def scenario() -> None:
        await LAUNCHER.start(Local(), one, ["echo", "hello"], {}, str(state))
        await exit_of(one, state)

    asyncio.run(scenario())
    assert (state / "gpu0" / "log").read_text() == "hello\n"


def refusal(one: Server, argv: Sequence[str], state: Path, env: dict[str, str] | None = None) -> str:
    with pytest.raises(StepFailed) as failed:
        asyncio.run(LAUNCHER.start(Local(), one, argv, env or {}, str(state)))
    assert not list(state.glob("*/start.json"))
    return str(failed.value)


def test_what_can_not_be_started_says_why(tmp_path, state):
    one = server(tmp_path)
    assert refusal(one, [], state) == "gpu0 can't be started: there is no command"
    assert refusal(one, ["no-such-thing", "--x"], state) == "gpu0 can't be started: there is no command no-such-thing"
    plain = tmp_path / "plain"
    plain.touch(0o644)
    assert refusal(one, [str(plain)], state) == f"gpu0 can't be started: {plain} is no program"
    assert refusal(one, ["sleep", "a\0b"], state) == "a NUL character can't be passed to a process"
    assert (
        refusal(one, ["sleep", "\ud800"], state) == "a value holds half a character, which can't be passed to a process"
    )
    assert refusal(one, ["sleep", "1"], state, {"A B": "x"}) == "'A B' can't be the name of an environment variable"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b"])
def test_a_name_that_leads_out_of_the_state_directory_is_refused(tmp_path, state, name):
    assert "can't be the name of a folder" in refusal(server(tmp_path, name), ["sleep", "1"], state)


def test_a_missing_working_directory_is_told(tmp_path, state):
    one = server(tmp_path, launch=Launch((), directory=str(tmp_path / "missing")))
    why = refusal(one, ["sleep", "1"], state)
    assert why.startswith("gpu0 can't be started: the working directory can't be entered: ")
    assert "missing" in why


def test_a_log_that_can_not_be_made_is_told(tmp_path, state):
    (tmp_path / "file").touch()
    why = refusal(server(tmp_path, log=str(tmp_path / "file" / "server.log")), ["sleep", "1"], state)
    assert why.startswith("gpu0 can't be started: the log's directory can't be made: ")
    assert "file" in why


def test_a_log_that_is_a_directory_is_told(tmp_path, state):
    why = refusal(server(tmp_path, log=str(tmp_path)), ["sleep", "1"], state)
    assert why.startswith("gpu0 can't be started: the log can't be written: ")


@pytest.mark.root
@pytest.mark.parametrize("full", ["log", "state"])
def test_a_full_disk_is_told_before_anything_is_rotated_or_started(tmp_path, state, full):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        (disk / "state" / "gpu0").mkdir(parents=True)
        (disk / "server.log").write_text("old\n")
        with pytest.raises(OSError, match="No space"):
            (disk / "filler").write_bytes(b"x" * 1_000_000)
        one = server(tmp_path, log=str(disk / "server.log")) if full == "log" else server(tmp_path)
        why = refusal(one, ["sleep", "1"], state if full == "log" else disk / "state")
        assert "No space left on device" in why
        assert why.startswith(
            f"gpu0 can't be started: the {'log' if full == 'log' else 'state directory'} takes nothing: "
        )
        assert sorted(entry.name for entry in disk.iterdir()) == ["filler", "server.log", "state"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_another_start_under_way_is_waited_for_and_then_told(tmp_path, state, children):
    """A holder of the lock that never lets go; the wait is what flock's tries take."""
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed")
    (state / "gpu0").mkdir(parents=True)
    lock = state / "gpu0" / "lock"
    children.append(hosts.spawn(["flock", str(lock), "sleep", "60"]))

    async def scenario() -> None:
        await until(lambda: subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode)

    asyncio.run(scenario())
    assert refusal(server(tmp_path), ["sleep", "1"], state) == "gpu0 can't be started: another start of it is under way"


class Broken:
    """A host whose shell answers as it was told."""

    def __init__(self, answer: Completed) -> None:
        self.answer = answer

    async def run(self, argv, *, stdin=b"", timeout):
        return self.answer

    async def open(self, argv):
        raise NotImplementedError

    async def close(self):
        pass


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Completed(127, b"", b"sh: not found\n"), "sh: not found"),
        (Completed(0, b"", b""), "exit status 0"),
        (Completed(0, b"failed no\x1b[31m room\n"), "no [31m room"),
        (Completed(1, b"failed " + b"x" * 5000), "x" * 300),
    ],
)
def test_a_host_that_answers_nonsense_is_a_failed_step(tmp_path, answer, why):
    one, process = server(tmp_path), Process(5, 5)
    with pytest.raises(StepFailed) as failed:
        asyncio.run(LAUNCHER.start(Broken(answer), one, ["x"], {}, "/s"))
    assert str(failed.value).replace(" ", "") == f"gpu0 can't be started: {why}".replace(" ", "")
    with pytest.raises(StepFailed, match="gpu0, pid 5, can't be ended"):
        asyncio.run(LAUNCHER.end(Broken(answer), one, process, force=False))


def test_end_sends_sigterm_to_exactly_that_process(tmp_path, state, children):
    one = server(tmp_path)
    out = tmp_path / "signals"
    parent = (
        "import os,signal,sys,time\n"
        "pid = os.fork()\n"
        "name = 'child' if pid == 0 else 'parent'\n"
        "def told(number, frame): open(sys.argv[1],'a').write(f'{name} {number}\\n'); pid and os._exit(0)\n"
        "signal.signal(15, told)\n"
        "open(sys.argv[1] + name, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(60)\n"
    )

    async def scenario() -> None:
        running = await start(one, [sys.executable, "-S", "-c", parent, str(out)], state)
        await until(lambda: all(hosts.read(f"{out}{who}") for who in ("child", "parent")))
        await LAUNCHER.end(Local(), one, running, force=False)
        assert await exit_of(one, state) == 0
        child = int(hosts.read(f"{out}child"))
        assert lives(child)
        hosts.end(child)
        await LAUNCHER.end(Local(), one, running, force=False)

    asyncio.run(scenario())
    assert out.read_text() == "parent 15\n"


def test_end_of_a_pid_that_is_another_process_by_now_signals_nobody(tmp_path, children):
    children.append(hosts.spawn(["sleep", "60"]))
    stranger = hosts.process(children[0].pid)
    gone = Process(stranger.pid, stranger.started - 1)
    for force in (False, True):
        asyncio.run(LAUNCHER.end(Local(), server(tmp_path), gone, force=force))
    assert lives(stranger.pid)


@pytest.mark.parametrize("process", [Process(0, 1), Process(-1, 1), Process(4, 0)])
def test_what_is_no_process_is_never_signalled(tmp_path, process):
    with pytest.raises(StepFailed, match="is no process that can be ended"):
        asyncio.run(LAUNCHER.end(Local(), server(tmp_path), process, force=True))


def test_end_of_one_that_is_gone_is_no_error(tmp_path):
    child = hosts.spawn(["sleep", "0"])
    child.wait()
    for force in (False, True):
        asyncio.run(LAUNCHER.end(Local(), server(tmp_path), Process(child.pid, 1), force=force))


def test_end_of_a_corpse_is_no_error_and_signals_nobody(tmp_path, children):
    children.append(hosts.spawn(["sleep", "60"]))
    corpse = hosts.process(children[0].pid)
    os.kill(corpse.pid, signal.SIGKILL)

    async def scenario() -> None:
        await until(lambda: not lives(corpse.pid))
        await LAUNCHER.end(Local(), server(tmp_path), corpse, force=True)

    asyncio.run(scenario())


FAMILY = (
    "import ctypes,os,signal,sys,time\n"
    "signal.signal(15, signal.SIG_IGN)\n"
    "ctypes.CDLL(None).prctl(15, b'x) Z 1\\n1 (y', 0, 0, 0)\n"
    "def tell(name): open(f'{sys.argv[1]}/{name}', 'w').write(str(os.getpid()))\n"
    "if os.fork() == 0:\n"
    "    if os.fork() == 0:\n"
    "        if os.fork() == 0: os.setsid(); tell('own_session')\n"
    "        else: tell('grandchild')\n"
    "    else: tell('child')\n"
    "elif os.fork() == 0:\n"
    "    if os.fork() != 0: os._exit(0)\n"
    "    tell('orphan')\n"
    "else: tell('root')\n"
    "while True: time.sleep(60)\n"
)


@pytest.mark.parametrize("shell", SHELLS)
def test_force_ends_the_whole_tree_that_ignores_sigterm_and_nobody_else(tmp_path, state, children, shell):
    """Children, a grandchild, one in a session of its own, an orphan of its group; names made to confuse."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    one = server(tmp_path)
    family = tmp_path / "family"
    family.mkdir()
    command = [sys.executable, "-S", "-c", FAMILY]
    others = tmp_path / "others"
    others.mkdir()
    names = ("root", "child", "grandchild", "own_session", "orphan")
    host = hosts.with_shell(shell, tmp_path)

    def complete(folder: Path) -> bool:
        return all(hosts.read(folder / name) for name in names)

    async def scenario() -> None:
        children.append(hosts.spawn([*command, str(others)]))
        running = await start(one, [*command, str(family)], state)
        await until(lambda: complete(family) and complete(others))
        pids = [int((family / name).read_text()) for name in names]
        strangers = [int((others / name).read_text()) for name in names]
        await LAUNCHER.end(host, one, running, force=False)
        assert all(lives(pid) for pid in pids)
        await LAUNCHER.end(host, one, running, force=True)
        await until(lambda: not any(lives(pid) for pid in pids))
        assert await exit_of(one, state) == 137
        assert all(lives(pid) for pid in strangers)
        assert lives(running.pid) is False
        await LAUNCHER.end(host, one, hosts.process(strangers[0]), force=True)
        await until(lambda: not any(lives(pid) for pid in strangers))

    asyncio.run(scenario())


def test_a_server_that_somebody_started_in_a_pipeline_of_theirs_dies_alone(tmp_path, children):
    """It leads no group: only its descendants are its own, the rest of the group is not."""
    out = tmp_path / "pids"
    script = f"sleep 60 & sh -c 'sleep 60 & echo $$ $! >{out}; wait' & wait"
    children.append(hosts.spawn(["sh", "-c", script]))

    async def scenario() -> None:
        await until(lambda: "\n" in hosts.read(out))
        pid, child = map(int, out.read_text().split())
        await LAUNCHER.end(Local(), server(tmp_path), hosts.process(pid), force=True)
        await until(lambda: not lives(pid) and not lives(child))
        siblings = [one for one in hosts.pids() if lives(one) and (hosts.stat(one) or "000")[2] == str(children[0].pid)]
        assert len(siblings) == 2

    asyncio.run(scenario())


def test_one_that_forks_all_the_time_is_ended_whole(tmp_path, state):
    one = server(tmp_path)
    restless = "import os,time\nwhile True:\n  p = os.fork()\n  if p == 0: time.sleep(60)\n  time.sleep(.002)"

    async def scenario() -> None:
        running = await start(one, [sys.executable, "-S", "-c", restless], state)

        def members() -> int:
            stats = [hosts.stat(pid) for pid in hosts.pids()]
            return sum(1 for one_stat in stats if one_stat and one_stat[3] == str(running.pid) and one_stat[0] != "Z")

        await until(lambda: members() > 5)
        await LAUNCHER.end(Local(), one, running, force=True)
        await until(lambda: members() == 0)

    asyncio.run(scenario())


@pytest.mark.root
def test_a_process_of_another_user_that_may_not_be_signalled_is_told(tmp_path, children):
    nobody = shutil.which("setpriv")
    if nobody is None:
        pytest.skip("setpriv is not installed")
    children.append(hosts.spawn(["sleep", "60"]))
    target = hosts.process(children[0].pid)

    class AsNobody(Local):
        async def run(self, argv, *, stdin=b"", timeout):
            return await super().run(
                [nobody, "--reuid", "65534", "--clear-groups", *argv], stdin=stdin, timeout=timeout
            )

    for force in (False, True):
        with pytest.raises(StepFailed, match="this login may not signal"):
            asyncio.run(LAUNCHER.end(AsNobody(), server(tmp_path), target, force=force))
    assert lives(target.pid)


def test_secrets_are_taken_out_of_the_words():
    words = [
        "env",
        "HF_TOKEN=hf_abcdefghijk",
        "python",
        "--api-key",
        "k1",
        "--admin-api-key=k2",
        "--max-total-tokens",
        "100",
    ]
    words += [
        "--tokenizer-path",
        "p",
        "--url",
        "http://me:pw@h/x",
        "--ssl-keyfile",
        "f",
        "sk-0123456789abc",
        "--api-key",
        "--port",
        "1",
    ]
    assert redacted(words) == [
        "env", "HF_TOKEN=***", "python", "--api-key", "***", "--admin-api-key=***", "--max-total-tokens", "100",
        "--tokenizer-path", "p", "--url", "http://***@h/x", "--ssl-keyfile", "f", "***", "--api-key", "--port", "1",
    ]  # fmt: skip


@given(st.lists(st.text()))
def test_redaction_keeps_the_number_of_words(words):
    assert len(redacted(words)) == len(words)


@given(
    st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps) | st.just("[" * 100_000)
)
def test_any_text_is_a_record_or_none(text):
    pid, argv = read_record(text)
    assert pid is None or pid > 0
    assert argv is None or isinstance(argv, list)
