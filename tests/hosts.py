"""This machine as a host under test: its processes as the kernel shows them, waits with a deadline, and other shells."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bot.domain.facts import Process
from bot.transports._local import Local


def stat(pid: int) -> list[str] | None:
    """What follows the name in /proc/PID/stat: state, parent, group, session, …; None for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(") ")[2].split()


def lives(pid: int) -> bool:
    """Whether there is such a process that is no corpse."""
    found = stat(pid)
    return found is not None and found[0] not in "ZXx"


def process(pid: int) -> Process:
    """The process as the prober would name it."""
    found = stat(pid)
    assert found is not None
    argv = command_line(pid).decode("utf-8", "surrogateescape").split("\0")[:-1]
    return Process(pid, int(found[19]), tuple(argv), parent=int(found[1]))


def pids() -> list[int]:
    """Every pid there is."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def command_line(pid: int) -> bytes:
    """A process's command line as the kernel shows it; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def read(path: str | Path) -> str:
    """What stands in a file; "" as long as there is none."""
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return ""


def spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that leads a session of its own; the caller ends it."""
    return subprocess.Popen(list(argv), start_new_session=True, **options)


async def until(what: Callable[[], object], within: float = 15) -> None:
    """Wait until it is so; fails when it is not so in time."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, "it did not become so in time"
        await asyncio.sleep(0.01)


def end(pid: int, *, group: bool = False) -> None:
    """End one process for good, and the group that it leads if it leads one."""
    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def with_shell(kind: str, folder: Path) -> Local:
    """This machine with another shell as its ``sh``. ``busybox`` has nothing but busybox's own tools."""
    bin_ = folder / "bin"
    bin_.mkdir()
    environment = {"HOME": str(folder), "PATH": f"{bin_}:{os.environ['PATH']}"}
    program = shutil.which(kind)
    assert program is not None
    if kind == "busybox":
        applets = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
        for applet in applets:
            (bin_ / applet).symlink_to(program)
        environment["PATH"] = str(bin_)
    else:
        (bin_ / "sh").symlink_to(program)
    return Local(environment)
