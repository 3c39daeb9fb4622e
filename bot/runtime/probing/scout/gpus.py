"""Asks the command that stands for nvidia-smi, within a time limit."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import Any

from bot.runtime.probing.scout.files import read_file, reason
from bot.runtime.probing.scout.processes import TICKS, stat_of, with_ancestors

OUTPUT_LIMIT = 1 << 18
MOST_OWNERS = 256

RUNNING: "list[subprocess.Popen[bytes]]" = []


def ask_gpus(key: int, item: "dict[str, Any]") -> "list[Any]":
    """Ask the GPU query for its cards (the first list of fields that it knows), then for its processes."""
    until = time.monotonic() + item["limit"]
    why, cards, number = "", "", 0
    for number, arguments in enumerate(item["cards"]):  # noqa: B007 - told below
        cards, why = output_of([*item["argv"], *arguments], until)
        if not why or time.monotonic() >= until:
            break
    if why:
        return ["gpus", key, 0, "", "", why, []]
    uses, problem = output_of([*item["argv"], *item["uses"]], until)
    return ["gpus", key, number, cards, uses, problem, owners_of(uses)]


def owners_of(uses: str) -> "list[Any]":
    """``[pid, age, [pid, parent, …], started]`` of each process that holds GPU memory, as far as it can be seen."""
    found: list[Any] = []
    for line in uses.splitlines()[:MOST_OWNERS]:
        word = line.partition(",")[0].strip()
        if word.isdigit():
            age, started = since(int(word))
            found.append([int(word), age, with_ancestors(int(word)), started])
    return found


def since(pid: int) -> "tuple[float | None, int | None]":
    """How many seconds a process is old, and its start in ticks since boot; None when it can't be seen."""
    try:
        started = stat_of(pid)[2]
        return round(float(read_file("/proc/uptime").split()[0]) - float(started) / TICKS, 2), started
    except (OSError, ValueError, IndexError):
        return None, None


def output_of(argv: "list[str]", until: float) -> "tuple[str, str]":
    """What a command prints, and why that can't be used ("" where it can); ended when its time is over."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return "", reason(error)
    RUNNING.append(process)
    timer = threading.Timer(max(0.05, until - time.monotonic()), end_group, (process,))
    timer.daemon = True
    timer.start()
    try:
        data = process.stdout.read(OUTPUT_LIMIT) if process.stdout else b""
        if len(data) == OUTPUT_LIMIT:
            end_group(process)
        status = process.wait()
    finally:
        timer.cancel()
        with contextlib.suppress(ValueError):
            RUNNING.remove(process)
    text = data.decode("utf-8", "replace")
    if time.monotonic() >= until:
        return "", "no answer in time"
    return (text, "") if status == 0 else ("", (text.strip() or "exit status %d" % status)[:200])  # noqa: UP031 - cheapest here


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a command that we started, with what it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
