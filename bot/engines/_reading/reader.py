"""The frame of an engine's log reader: skims the lines that say nothing new, and looks at the others.

A log in service is a hundred lines of traffic to one that matters, so lines go one of three ways. Traffic lines
are counted in runs, and only the last one's numbers are read (with the few that it lacks from those before).
Lines without a telling word are passed over. All others are unwrapped into records and looked at one by one,
and so are all lines of an open traceback. The way is chosen by the line alone, so the same bytes give the same
diagnosis however they are cut.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from bot.domain.diagnosis import Diagnosis, Phase
from bot.engines._reading.failures import Failures
from bot.engines._reading.lines import SLICE, Cutter
from bot.engines._reading.phases import Phases
from bot.engines._reading.records import Record, Unwrapper
from bot.engines._reading.redact import redact
from bot.engines._reading.verdict import Verdict

WARNINGS_CAP = 20
QUOTE_CAP = 4000
"""Characters of a decisive line that are handed out."""

_ECHO = re.compile(rb"(?:Receive|Finish): obj=|Received request \S+: |GenerateReqInput\(|Generated response ")
"""What a client sent or got; it may hold anything, also what looks like a log."""

_BAR = re.compile(r"(\d{1,3})%(?:\|[^|]*\|| Completed \|)\s*(\d+)/(\d+)")
"""tqdm's percent and count."""


def any_of(words: Sequence[bytes]) -> Callable[[bytes], re.Match[bytes] | None]:
    """A search for any of these words.

    The alternation shares beginnings (a trie), which is several times as fast as a flat one, and that one is as
    asking for each word. Words that begin with a rare letter make it faster still.
    """
    return re.compile(_shared(sorted(set(words)))).search


def _shared(words: Sequence[bytes]) -> bytes:
    if b"" in words:
        return b""
    heads = {word[:1]: [other[1:] for other in words if other[:1] == word[:1]] for word in words}
    branches = [re.escape(head) + _shared(tails) for head, tails in heads.items()]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"


class Reader(ABC):
    """Reads one engine's log; a LogReader. Subclasses know the engine's words."""

    engine: str
    words: tuple[bytes, ...]

    def __init__(self, failures: Failures) -> None:
        self._cutter = Cutter()
        self._unwrapper = Unwrapper()
        self._failures = failures
        self._lines = 0
        self._version: str | None = None
        self._start_anew()

    def _start_anew(self) -> None:
        """Forget the run before: the same log goes on with another start."""
        self._phases = Phases()
        self._verdict = Verdict()
        self._numbers: dict[str, float] = {}
        self._warnings: dict[str, str] = {}
        self._degraded: tuple[str, str] | None = None
        self._seats_asked: int | None = None
        self._is_warming_up = False
        self._failures.start_anew()

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        for begin in range(0, len(data), SLICE):
            self._read(self._cutter.cut(data[begin : begin + SLICE]))

    def diagnosis(self) -> Diagnosis:
        """What the log says up to here, the line that has not ended yet included."""
        rest = self._cutter.rest
        if not rest:
            return self._diagnose()
        ahead = copy.deepcopy(self)
        ahead.feed(b"\n")
        return ahead.diagnosis()

    def _read(self, lines: Sequence[bytes]) -> None:
        done = 0
        if self._failures.is_open:
            done = self._look_on(lines, 0)
        telling = self._telling
        for index in [i for i, line in enumerate(lines) if telling(line)]:
            if index < done:
                continue
            self._skim(lines[done:index])
            done = self._look_on(lines, index)
        self._skim(lines[done:])

    def _look_on(self, lines: Sequence[bytes], index: int) -> int:
        """Look at a line, and at those that follow while a traceback is open; the index after the last."""
        while index < len(lines):
            line = lines[index]
            index += 1
            self._lines += 1
            if self._is_traffic(line) and not self._telling(line):
                self._traffic([line])
            elif line:
                self._look(line)
            if not self._failures.is_open:
                break
        return index

    def _skim(self, lines: Sequence[bytes]) -> None:
        self._lines += len(lines)
        is_traffic = self._is_traffic
        traffic = [line for line in lines if is_traffic(line)]
        if traffic:
            self._traffic(traffic)

    def _look(self, line: bytes) -> None:
        if _ECHO.search(line):
            return
        for record in self._unwrapper.records(line):
            is_frame = self._failures.is_open and record.text[:1].isspace()
            if not is_frame and self._event(record):
                continue
            if record.process in {"kernel", "systemd"}:
                self._failures.machine(record, self._verdict, self._phases)
            else:
                self._failures.look(record, self._lines, self._verdict, self._phases)

    def _diagnose(self) -> Diagnosis:
        is_up = self._phases.is_up
        crash = self._verdict.crash(is_up=is_up)
        stop = self._verdict.stopped(is_up=is_up)
        if crash is None and stop is None and not is_up:
            crash = self._failures.unfinished
        phase, cause, line, remedy = self._phases.phase, None, None, None
        if crash is not None:
            phase, cause, line, remedy = Phase.CRASHED, crash.cause, crash.line, crash.remedy
        elif stop is not None:
            phase, cause, line = Phase.STOPPED, stop.cause, stop.line
        elif is_up and self._degraded is not None:
            line, remedy = self._degraded
        is_starting = phase is not None and phase is self._phases.phase and not is_up
        return Diagnosis(
            engine=self.engine,
            version=self._version,
            phase=phase if phase is not None or not self._lines else Phase.SPAWNED,
            is_ready=phase in {Phase.READY, Phase.SERVING},
            is_crashed=crash is not None,
            cause=cause,
            decisive_line=None if line is None else redact(line[:QUOTE_CAP]),
            remedy=remedy,
            progress_percent=self._phases.percent if is_starting else None,
            step=self._phases.step if is_starting else None,
            ranks=dict(self._phases.ranks),
            numbers=dict(self._numbers),
            warnings=tuple(redact(text) for text in self._warnings.values()),
            lines=self._lines,
            seats_asked=self._seats_asked,
            is_warming_up=self._is_warming_up and crash is None and stop is None,
        )

    def _warn(self, key: str, sentence: str) -> None:
        """Note a warning worth telling; a later one of the same key replaces it."""
        if key in self._warnings or len(self._warnings) < WARNINGS_CAP:
            self._warnings[key] = sentence

    def _began(self, phase: Phase, rank: str = "") -> None:
        """A phase of the start began: that is a sign of life as well."""
        self._live()
        self._phases.reach(phase, rank)

    def _live(self, signs: int = 1) -> None:
        """The engine goes on."""
        self._verdict.live(signs)
        self._failures.close()

    def _bar(self, phase: Phase, text: str) -> bool:
        """Read a progress bar of that phase off a line."""
        moves = _BAR.findall(text)
        if not moves:
            return False
        percent, done, total = moves[-1]
        self._live()
        self._phases.bar(phase, int(percent), f"{done}/{total}")
        return True

    def _launch(self) -> None:
        """Its arguments are printed: after an end, or in the middle of service, that is another run."""
        if self._phases.is_past_start or self._verdict.has_ended:
            self._start_anew()
        if self._phases.phase is None:
            self._began(Phase.SPAWNED)

    def _load(self, record: Record) -> None:
        """Weights begin to load; after a start that is another run whose beginning the log does not show."""
        if self._phases.is_past_start and not self._verdict.is_fatal:
            self._start_anew()
        self._began(Phase.LOADING_WEIGHTS, record.rank)
        self._phases.begin_pass()

    def _within_start(self, phase: Phase, record: Record) -> None:
        """A phase that only a start has."""
        if not self._phases.is_past_start:
            self._began(phase, record.rank)

    def _is_ready(self) -> None:
        """It says that it is ready: whatever failed before was no crash, unless a process had ended."""
        self._verdict.survive()
        self._is_warming_up = False
        if self._phases.phase is not Phase.SERVING:
            self._phases.reach(Phase.READY)

    @classmethod
    @abstractmethod
    def _telling(cls, line: bytes) -> bool:
        """Whether the line must be looked at; a plain traffic line need not."""

    @staticmethod
    @abstractmethod
    def _is_traffic(line: bytes) -> bool:
        """Whether it is a line that a server at work writes all the time."""

    @abstractmethod
    def _traffic(self, lines: Sequence[bytes]) -> None:
        """Read the numbers of a run of traffic lines."""

    @abstractmethod
    def _event(self, record: Record) -> bool:
        """Follow the engine's own lines; False for those that it does not know."""
