"""Reads on in the kernel's log, and keeps the last of the lines that hold one of the words asked for."""

import contextlib
import errno
import os
import subprocess
import threading
import time
from collections import deque
from typing import Any

from bot.runtime.probing.scout.gpus import RUNNING, end_group

KMSG = "/dev/kmsg"
MOST_LINES = 128
LONGEST = 400
RECORD = 8192
MOST_READ = 200_000
OUTPUT_LIMIT = 32 << 20
AGAIN_AFTER = 600.0
JOURNAL = ("journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-unix")
FIRST_LINES = 20_000
OVERLAP = 5

LOGS: "dict[str, KernelLog]" = {}


class KernelLog:
    """One way to the log. What was read is not read again; where nothing can be read, that is tried anew later."""

    def __init__(self, command: "list[str]", device: str = KMSG) -> None:
        self.command = command
        self.device = device
        self.fd = -1
        self.lines: deque[str] = deque(maxlen=MOST_LINES)
        self.read_at = 0.0
        self.has_journal = False
        self.is_silent = True
        self.closed_until = 0.0

    def read(self, words: "list[bytes]", until: float) -> "list[Any] | None":
        """``[lines, seconds since boot, since 1970, local time's offset]``; None where it can't be read."""
        if time.monotonic() < self.closed_until:
            return None
        begun = time.time()
        if self.command:
            is_read = self.take(self.command, words, until)
        else:
            is_read = self.follow(words) or self.read_journal(words, until) or self.take(["dmesg"], words, until)
        if not is_read:
            self.closed_until = time.monotonic() + AGAIN_AFTER
            return None
        self.read_at = begun
        return [list(self.lines), time.monotonic(), time.time(), time.localtime().tm_gmtoff or 0]

    def follow(self, words: "list[bytes]") -> bool:
        """Read on in the kernel's own device; False where this login may not."""
        try:
            if self.fd < 0:
                self.fd = os.open(self.device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self.drain(words)
        except OSError:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1
            return False
        return True

    def drain(self, words: "list[bytes]") -> None:
        """Take every record that is there."""
        for _record in range(MOST_READ):
            try:
                record = os.read(self.fd, RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                # It was overwritten before we came, or is longer than we read: the next read goes on behind it.
                if error.errno not in (errno.EPIPE, errno.EINVAL):
                    raise
                continue
            if not record:
                return
            if any(word in record for word in words):
                self.keep(record)

    def keep(self, record: bytes) -> None:
        """A record "6,1234,5678901,-;text" as dmesg prints it."""
        head, _semicolon, text = record.partition(b";")
        fields = head.split(b",")
        if len(fields) > 2 and fields[2].isdigit():
            line = plain(text.split(b"\n", 1)[0])
            self.lines.append("[%12.6f] %s" % (int(fields[2]) / 1e6, line))  # noqa: UP031 - cheapest here

    def read_journal(self, words: "list[bytes]", until: float) -> bool:
        """What the journal has copied of it, for those who may read that; after the first time only what is new."""
        since = "--since=@%d" % (self.read_at - OVERLAP) if self.read_at else "--lines=%d" % FIRST_LINES  # noqa: UP031 - as above
        kept = list(self.lines)
        if not self.take([*JOURNAL, since], words, until) or (self.is_silent and not self.has_journal):
            # Who may not read the journal gets an empty one, without an error.
            return False
        self.has_journal = True
        kept += [line for line in self.lines if line not in kept]
        self.lines = deque(kept, maxlen=MOST_LINES)
        return True

    def take(self, argv: "list[str]", words: "list[bytes]", until: float) -> bool:
        """Keep the telling lines that a command prints; False where it fails, or its time is over."""
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            process = subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
        except (OSError, ValueError):
            return False
        RUNNING.append(process)
        timer = threading.Timer(max(0.05, until - time.monotonic()), end_group, (process,))
        timer.daemon = True
        timer.start()
        self.lines.clear()
        try:
            self.sift(process, words)
            status = process.wait()
        finally:
            timer.cancel()
            if process.stdout:
                process.stdout.close()
            with contextlib.suppress(ValueError):
                RUNNING.remove(process)
        return status == 0 and time.monotonic() < until

    def sift(self, process: "subprocess.Popen[bytes]", words: "list[bytes]") -> None:
        """Read what it prints, in bounded memory; one that prints without end is ended."""
        left, self.is_silent = OUTPUT_LIMIT, True
        while process.stdout and left > 0:
            line = process.stdout.readline(RECORD)
            left -= len(line)
            if not line:
                return
            self.is_silent = False
            if any(word in line for word in words):
                self.lines.append(plain(line.rstrip(b"\n")))
        end_group(process)


def plain(data: bytes) -> str:
    """A line as text, cut where nobody reads on."""
    return data[:LONGEST].decode("utf-8", "replace")


def read_kernel(key: int, item: "dict[str, Any]") -> "list[Any]":
    """Read on in the log that a command prints, or in the host's own."""
    until = time.monotonic() + item["limit"]
    name = repr(item["command"])
    if name not in LOGS:
        LOGS[name] = KernelLog(item["command"])
    words = [word.encode("utf-8", "surrogateescape") for word in item["words"]]
    return ["kernel", key, LOGS[name].read(words, until)]
