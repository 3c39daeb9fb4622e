"""Reads the journal of a systemd unit as if it were a log that grows: a follower writes, and what it wrote is kept."""

import contextlib
import os
import subprocess
import threading
import time
from typing import Any

from bot.runtime.probing.scout.files import follow as follow_file
from bot.runtime.probing.scout.files import reason
from bot.runtime.probing.scout.files import tail as tail_file
from bot.runtime.probing.scout.gpus import RUNNING, end_group, output_of

KINDS = {"journal:": ("--unit",), "user-journal:": ("--user", "--unit")}
FIRST_LINES = "2000"
PATIENCE = 3.0
KEPT = 4 << 20
CURSOR = "-- cursor: "

SPOOLS: "dict[str, Spool]" = {}


class Spool:
    """The last of a unit's journal. ``number`` stands for an inode: another one is another story."""

    count = 0

    def __init__(self, words: "list[str]") -> None:
        Spool.count += 1
        self.number = Spool.count
        self.lock = threading.Lock()
        self.data = bytearray()
        self.base = 0
        self.wrote = 0.0
        self.is_over = False
        self.begin([*words, "--no-pager", "--quiet"])

    def begin(self, words: "list[str]") -> None:
        """Take what there is, then follow from just behind it; OSError with the reason when that can't be."""
        until = time.monotonic() + PATIENCE
        asked = ["journalctl", *words]
        last, why = output_of([*asked, "--output=short-unix", "--lines=1"], until)
        if why:
            raise OSError(0, why)
        told = take([*asked, "--output=cat", "--lines=" + FIRST_LINES, "--show-cursor"])
        text, cursor = parted(told)
        self.data += text
        word = last.split(" ", 1)[0]
        self.wrote = float(word) if word.replace(".", "", 1).isdigit() else time.time()
        follow_on = ["--after-cursor=" + cursor] if cursor else []
        argv = [*asked, "--output=cat", "--follow", "--lines=all", *follow_on]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        # It ends by itself when nobody reads any more.
        process = subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
        RUNNING.append(process)
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process: "subprocess.Popen[bytes]") -> None:
        """Keep what comes, until the follower ends."""
        number = process.stdout.fileno() if process.stdout else -1
        while True:
            piece = os.read(number, 65536)
            if not piece:
                break
            with self.lock:
                self.data += piece
                self.wrote = time.time()
                if len(self.data) > 2 * KEPT:
                    self.base += len(self.data) - KEPT
                    del self.data[:-KEPT]
        self.is_over = True
        process.wait()
        with contextlib.suppress(ValueError):
            RUNNING.remove(process)

    def read_on(self, item: "list[Any]") -> "dict[str, Any]":
        """As of a file: the next bytes after an offset, or the end anew."""
        _path, offset, inode, _seam, first, most = item
        with self.lock:
            end = self.base + len(self.data)
            is_reset = offset is None or inode != self.number or not self.base <= offset <= end or end - offset > most
            start = max(self.base, end - first) if is_reset else offset
            data = bytes(self.data[start - self.base : start - self.base + first])
            quiet = max(0.0, time.time() - self.wrote)
        if is_reset and start:
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        return {
            "inode": self.number,
            "start": start,
            "end": start + len(data),
            "reset": is_reset,
            "more": start + len(data) < end,
            "quiet": quiet,
            "seam": "",
            "data": data.decode("latin-1"),
        }


def take(argv: "list[str]") -> bytes:
    """What a command prints, as bytes; ended when it takes too long."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
    try:
        return process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        end_group(process)
        raise OSError(0, "no answer in time") from None
    finally:
        process.wait()


def parted(told: bytes) -> "tuple[bytes, str]":
    """The messages, and the cursor that stands behind them ("" where there is none)."""
    text, newline, last = told.rstrip(b"\n").rpartition(b"\n")
    word = last.decode("utf-8", "replace")
    if not word.startswith(CURSOR):
        return told, ""
    return text + newline, word[len(CURSOR) :]


def spool_of(path: str) -> "Spool | None":
    """The journal that a path names, followed from now on; None where it names a file."""
    for kind, words in KINDS.items():
        if path.startswith(kind):
            spool = SPOOLS.get(path)
            if spool is None or spool.is_over:
                spool = SPOOLS[path] = Spool([*words[:-1], words[-1] + "=" + path[len(kind) :]])
            return spool
    return None


def follow(key: int, item: "list[Any]") -> "list[Any]":
    """The next bytes of a log, a file or a journal."""
    try:
        spool = spool_of(item[0])
        return follow_file(key, item) if spool is None else ["chunk", key, spool.read_on(item)]
    except (OSError, ValueError) as error:
        return ["chunk", key, {"why": reason(error)}]


def tail(key: int, item: "list[Any]") -> "list[Any]":
    """The last bytes of a log, a file or a journal."""
    try:
        spool = spool_of(item[0])
        if spool is None:
            return tail_file(key, item)
        with spool.lock:
            data, is_cut = bytes(spool.data[-item[1] :]), len(spool.data) > item[1] or spool.base > 0
        return ["tail", key, data.decode("latin-1"), is_cut, ""]
    except (OSError, ValueError) as error:
        return ["tail", key, "", False, reason(error)]
