"""Follows one server's log: which bytes to ask for next, and what its reader makes of them.

A reader is begun anew where its log is: another file, a truncated one, or the log of another process. A file
that was last written before the process began tells of somebody else, so nothing of it is read.
"""

from __future__ import annotations

from datetime import timedelta

from bot.domain.diagnosis import Diagnosis
from bot.domain.engine import Engine, LogReader
from bot.domain.facts import Process
from bot.engines._reading.redact import redact
from bot.runtime.probing.wire import Chunk, Follow, Tailed

SLACK = timedelta(seconds=2)
"""How far a file's time and a process' start may be apart and still be the same instant."""
LONGEST_LINE = 2000
BYTES_A_LINE = 400
MOST_TAIL = 256 * 1024


class LogFollower:
    """Where we are in a server's log."""

    def __init__(self, engine: Engine, path: str) -> None:
        self.path = path
        self._engine = engine
        self._reader: LogReader = engine.reader()
        self._offset: int | None = None
        self._inode = 0
        self._seam = ""
        self._identity: tuple[int, int] | None = None
        self._is_known = False

    def question(self) -> Follow:
        """What to ask for next."""
        return Follow(self.path, self._offset, self._inode, self._seam)

    def take(self, chunk: Chunk, process: Process | None) -> bool:
        """Read what came; whether there is more to ask for.

        A chunk that does not go on where we are was asked for by a look that another one overtook.
        """
        self._meet(process)
        if chunk.why:
            self._forget()
            return False
        if chunk.is_reset:
            self._reader = self._engine.reader()
        elif chunk.inode != self._inode or chunk.start != self._offset:
            return False
        self._offset, self._inode, self._seam = chunk.end, chunk.inode, chunk.seam
        if process is None or chunk.quiet <= process.age + SLACK:
            self._reader.feed(chunk.data)
            self._is_known = True
        return chunk.has_more

    def diagnosis(self) -> Diagnosis | None:
        """What the log says; None where there is none of this process."""
        return self._reader.diagnosis() if self._is_known else None

    def _meet(self, process: Process | None) -> None:
        # A process that is gone leaves its log: it says why. Only a new one begins a new story.
        if process is None or process.identity == self._identity:
            return
        if self._identity is not None:
            self._reader = self._engine.reader()
            self._is_known = False
        self._identity = process.identity

    def _forget(self) -> None:
        self._reader = self._engine.reader()
        self._offset, self._inode, self._seam, self._is_known = None, 0, "", False


def tail_size(lines: int) -> int:
    """How many bytes to bring for that many lines."""
    return min(max(lines * BYTES_A_LINE, 4096), MOST_TAIL)


def tail_lines(tailed: Tailed, lines: int) -> tuple[str, ...]:
    """The last lines as a terminal would have left them, without their secrets: they are shown to a channel.

    Of a bar that was drawn over it is the last state.
    """
    found = tailed.data.decode("utf-8", "replace").split("\n")
    if tailed.is_cut:
        found = found[1:] or found
    if found and not found[-1]:
        found.pop()
    kept = [_last_state(line)[: 4 * LONGEST_LINE] for line in found[-lines:]] if lines > 0 else []
    return tuple(redact(line)[:LONGEST_LINE] for line in kept)


def _last_state(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]
