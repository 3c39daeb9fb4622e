"""The tmux window that a server runs in, as a scout on this machine tells it."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.runtime.probing.scout import sessions
from bot.runtime.probing.wire import Processes, Request, Watch
from tests import hosts
from tests.runtime.probing.stage import lined

pytestmark = pytest.mark.tmux
SERVER = "import sys,os,time; open(sys.argv[1],'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of the test's own, with a session of two windows."""
    words = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    subprocess.run([*words, "new-session", "-d", "-s", "ana's work", "-n", "first"], check=True)
    subprocess.run([*words, "new-window", "-d", "-t", "ana's work:7"], check=True)
    yield words
    subprocess.run([*words, "kill-server"], check=True)


def told(word: str) -> list[tuple[int, str | None]]:
    """Pid and session of every process whose command line holds that word."""

    async def scene() -> list[tuple[int, str | None]]:
        async with lined() as line:
            items: list[object] = []
            await line.ask(Request(watch=Watch((), (word,))), items.append)
        reports = [one.report for one in items if isinstance(one, Processes) and one.report is not None]
        return [(row.process.pid, row.session) for row in reports[-1].processes]

    return asyncio.run(scene())


def started(tmux: list[str], command: str, file: Path) -> int:
    subprocess.run([*tmux, "send-keys", "-t", "ana's work:7", "-l", command], check=True)
    subprocess.run([*tmux, "send-keys", "-t", "ana's work:7", "Enter"], check=True)
    asyncio.run(hosts.until(lambda: hosts.read(file)))
    return int(hosts.read(file))


def test_a_server_in_a_window_is_told_with_its_window(tmux, tmp_path):
    file = tmp_path / "pid-in-window"
    pid = started(tmux, f"exec 3>&1; '{sys.executable}' -S -c \"{SERVER}\" '{file}'", file)
    assert (pid, "ana's work:7") in told(file.name)


def test_what_has_left_its_window_runs_in_none(tmux, tmp_path):
    file = tmp_path / "pid-that-left"
    pid = started(tmux, f"setsid setsid '{sys.executable}' -S -c \"{SERVER}\" '{file}' &", file)
    try:
        asyncio.run(hosts.until(lambda: int((hosts.stat(pid) or ["", "0"])[1]) in {1, *reapers()}))
        assert b"TMUX=" in Path(f"/proc/{pid}/environ").read_bytes()
        assert (pid, None) in told(file.name)
    finally:
        hosts.end(pid)


def reapers() -> set[int]:
    """Processes that take orphans in: everything above this one."""
    found, pid = set(), os.getppid()
    while pid > 1:
        found.add(pid)
        pid = int((hosts.stat(pid) or ["", "0"])[1])
    return found


def test_where_tmux_does_not_say_the_pane_is_told(tmux, tmp_path):
    file = tmp_path / "pid-in-a-silent-tmux"
    pid = started(tmux, f"'{sys.executable}' -S -c \"{SERVER}\" '{file}'", file)
    server = int(subprocess.run([*tmux, "display", "-p", "#{pid}"], check=True, capture_output=True, text=True).stdout)
    os.kill(server, signal.SIGSTOP)
    try:
        ((_pid, session),) = [one for one in told(file.name) if one[0] == pid]
        assert session is not None
        assert session.startswith("%")
    finally:
        os.kill(server, signal.SIGCONT)


@pytest.mark.root
def test_somebody_elses_window_is_told_too():
    user = pwd.getpwnam("nobody")
    # Not below pytest's own folder: nobody else may enter that one.
    folder = Path(tempfile.mkdtemp(prefix="upbot-ana-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    as_ana = ["setpriv", "--reuid", "nobody", "--regid", str(user.pw_gid), "--clear-groups"]
    words = [*as_ana, "tmux", "-S", str(folder / "socket"), "-f", "/dev/null"]
    environment = {"PATH": os.environ["PATH"], "SHELL": "/bin/sh"}
    try:
        subprocess.run([*words, "new-session", "-d", "-s", "night", "exec sleep 611.4242"], check=True, env=environment)
        listed = subprocess.run([*words, "list-panes", "-F", "#{pane_pid}"], check=True, capture_output=True, text=True)
        pid = int(listed.stdout)
        asyncio.run(hosts.until(lambda: hosts.command_line(pid).startswith(b"sleep")))
        assert (pid, "night:0") in told("611.4242")
    finally:
        subprocess.run([*words, "kill-server"], check=False)
        shutil.rmtree(folder)


def test_anothers_tmux_is_never_asked_with_our_own_rights_or_variables():
    own, other = sessions.asking(os.geteuid()), sessions.asking(os.geteuid() + 4242)
    assert own[:2] == other[:2] == ["env", "-i"]
    assert "setpriv" not in own
    user = str(os.geteuid() + 4242)
    assert other[-6:] == ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
