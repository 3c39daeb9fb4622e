"""Starts detached processes that outlive their parent, and ends exactly those again."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.demo.machine import Entry, process_started


def package_root() -> str:
    """The folder from which ``bot`` is imported."""
    return str(Path(__file__).resolve().parents[2])


def spawn(arguments: Sequence[str], env: Mapping[str, str], log: Path | None = None) -> int:
    """Start this Python with arguments, in a session of its own, its output appended to a log; the pid.

    Not ``subprocess``: its objects complain when they are dropped while their process lives on, as ours do.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    out = str(log) if log is not None else os.devnull
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        {**os.environ, "PYTHONPATH": package_root(), **env},
        file_actions=actions,
        setsid=True,
    )


def end(entry: Entry, number: signal.Signals) -> None:
    """Signal a process if it is still the one that was written down."""
    if process_started(entry.pid) == entry.started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(entry.pid, number)


def reap(pid: int) -> None:
    """Let a dead child of ours go; one that lives, or is not ours, stays."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
