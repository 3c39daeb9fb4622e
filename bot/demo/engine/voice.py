"""Writes the simulated server's log, stamped as SGLang stamps it: local time, no zone, straight to stderr."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def to_stderr(text: str) -> None:
    """Write at once; a log that has nowhere to go is no reason to die."""
    data = text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return


class Voice:
    """Stamped lines, and bars that are written as they are."""

    def __init__(self, write: Callable[[str], None] = to_stderr) -> None:
        self._write = write

    def say(self, text: str) -> None:
        """One record, which may go on over several lines."""
        self._write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")

    def bar(self, text: str) -> None:
        """A piece of a progress bar."""
        self._write(text)
