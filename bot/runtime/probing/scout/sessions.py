"""Tells in whose tmux window a process runs, for people who start servers by hand."""

import os
import pwd
import subprocess
import time
from typing import Any

from bot.runtime.probing.scout.gpus import end_group
from bot.runtime.probing.scout.processes import environment, stat_of

NAMES = ["TMUX", "TMUX_PANE"]
FORMAT = "#{pane_id} #{session_name}:#{window_index}"
PATIENCE = 1.0
KEPT = 10.0
KEPT_SILENT = 60.0
LONGEST = 80
DEEPEST = 16

TOLD: "dict[tuple[str, int], tuple[float, dict[str, str]]]" = {}


def add_sessions(rows: "list[list[Any]]") -> None:
    """Add to each described process the session that it runs in; None where it runs in none."""
    for row in rows:
        row.append(session_of(row[0], row[8]))


def session_of(pid: int, uid: int) -> "str | None":
    """``main:2`` for a process below a tmux server; its pane (``%5``) where the server does not say.

    The environment alone is no proof: what a server was started from has handed it on, and may be gone.
    """
    found = environment("/proc/%d/" % pid, NAMES)  # noqa: UP031 - as in its neighbours
    socket, _comma, rest = found.get("TMUX", "").partition(",")
    server, pane = rest.partition(",")[0], found.get("TMUX_PANE", "")
    if not (server.isdigit() and pane and is_below(pid, int(server))):
        return None
    return panes(socket, uid).get(pane, pane)[:LONGEST]


def is_below(pid: int, server: int) -> bool:
    """Whether a process has that one above it."""
    for _step in range(DEEPEST):
        if pid == server:
            return True
        if pid <= 1:
            return False
        try:
            pid = stat_of(pid)[1]
        except (OSError, ValueError, IndexError):
            return False
    return False


def panes(socket: str, uid: int) -> "dict[str, str]":
    """The windows of a tmux server by pane; asked every ten seconds at most, one that is silent every minute."""
    now = time.monotonic()
    until, names = TOLD.get((socket, uid), (0.0, {}))
    if now >= until:
        lines = listed([*asking(uid), "tmux", "-S", socket, "list-panes", "-a", "-F", FORMAT]).splitlines()
        names = {pane: name for pane, _blank, name in (line.partition(" ") for line in lines) if name}
        TOLD[socket, uid] = (now + (KEPT if names else KEPT_SILENT), names)
    return names


def listed(argv: "list[str]") -> str:
    """What tmux prints, "" where it does not answer in time.

    A client hands its own pipe to the server: one that hangs would hold it open, so its end is not waited for.
    """
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
    except (OSError, ValueError):
        return ""
    try:
        return process.communicate(timeout=PATIENCE)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        end_group(process)
        process.wait()
        return ""
    finally:
        if process.stdout:
            process.stdout.close()


def asking(uid: int) -> "list[str]":
    """The words that ask as that user, and with nothing of ours.

    A tmux server may tell its client what to run, so another user's is never asked with our own rights.
    """
    clean = ["env", "-i", "PATH=" + os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL=C.UTF-8"]
    if uid == os.geteuid():
        return clean
    try:
        group = str(pwd.getpwuid(uid).pw_gid)
    except KeyError:
        group = str(uid)
    return [*clean, "setpriv", "--reuid", str(uid), "--regid", group, "--clear-groups"]
