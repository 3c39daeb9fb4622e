"""Takes what stands around a message off it: colours, collectors' prefixes, time stamps, ranks and levels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

PREFIXES_CAP = 8
"""Constant prefixes ("pod container ") that are learned from one log."""

_PEELS = 12
_STAMP = r"\[(?:\d{4}-)?(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<rank>(?: [A-Z]{1,8}\d+)*)\] ?"
_ISO = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[A-Z]{3,4}\b|[+-]\d\d:?\d\d))?"
_LEVELS = "INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL"
_ANYCASE = f"{_LEVELS}|Info|Warning|Warn|Error|Debug|Critical|info|warning|warn|error|debug|critical"
_SOURCE = r"\((?P<process>[A-Za-z][\w.:-]*)(?: rank=(?P<number>\d+))? pid=\d+(?:, ip=[^)\s]+)?\) ?"
_LEVELLED = rf"(?P<level>{_LEVELS}) (?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?(?P<module>[\w./-]+?):\d+\] ?"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_()][\w]?"
    r"|(?:\^\[|\\x1b|\\u001b|\\033)?\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        _STAMP,
        _SOURCE,
        _LEVELLED,
        # quoted in a mail or an issue
        r"(?:> ?)+(?:- )?(?=[\[\d(A-Z])",
        # uvicorn, and the format of SGLang's own helpers
        rf"(?P<level>{_LEVELS}):\s{{1,9}}(?=\S)",
        rf"(?P<level>{_LEVELS}) [\w./]+\.py:\d+: ",
        # Kubernetes' CRI; docker logs -t and kubectl logs --timestamps are a bare time
        rf"{_ISO} (?:stdout|stderr) [FP] ?",
        # syslog and journald
        (
            rf"(?:<\d+>)?(?:[A-Z][a-z]{{2}} (?=\d{{4}}-))?(?:[A-Z][a-z]{{2}} +\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)?"
            rf"|{_ISO}) [\w.-]+ "
            r"(?P<process>[\w./@:-]{1,80}?)(?:\[\d+\])?: "
        ),
        r"[\w.-]{1,80} [\w./@-]{1,80}\[\d+\]: ",
        r"\[ *\d+\.\d{3,9}\] (?=\S)",
        # moreutils' ts, foreman
        r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)? ",
        r"\d\d:\d\d:\d\d(?:[.,]\d+)? (?=\S)",
        r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}\] ",
        r"[A-Z][a-z]{2} \d{1,2}, \d{4} @ \d\d:\d\d:\d\d[.\d]*\s+",
        # wrappers' own loggers
        (
            rf"\[?{_ISO}\]?(?: - [\w.<>-]+ - (?:{_LEVELS}) - |[ \t]*\| *(?:{_LEVELS}) *\| [\w.:<>-]+ - "
            rf"| \[?(?:{_ANYCASE})\]?:? (?:\(\w+\) |- )?|(?:[ \t]-[ \t])?[ \t]?)"
        ),
        # docker-compose, pm2, kubectl --prefix, torchrun, mpirun, srun --label
        r"(?:\d+\|)?[\w.-]{1,80} +\| ?",
        r"\[pod/[^\]]{1,200}\] ",
        r"\[(?:default|rank)(?P<number>\d+)\]: ?",
        r"\[\d+,\d+\]<std(?:out|err)>:? ?",
        (
            r"\d{1,4}: (?=\[\d|Traceback|INFO|ERROR|WARNING|\(\w|\s"
            r"|(?:\w{1,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b)"
        ),
        # glog, as torch's C++ writes
        r"\[?(?P<glog>[WEIF])\d{3,4} \d\d:\d\d:\d\d[.\d]* (?:\d+ )?[\w./-]+:\d+\] ?",
        # the first SGLang versions
        r"Rank (?P<number>\d+): (?=load)",
        r"\[gpu(?:_id)?=(?P<number>\d+)\] ?",
    )
)
_START = re.compile(
    rf"(?:{_SOURCE.replace('?P<process>', '').replace('?P<number>', '')})?"
    rf"(?:\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]{{1,8}}\d+)*\]"
    rf"|(?:{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d )"
    r"|(?:INFO|ERROR|WARNING): {4,5}(?=\S)"
)
_LITERAL = re.compile(r"[\w./|>@=#:\[\]-]{1,80}(?: [\w./|>@=#:\[\]-]{1,80})?[ |>]*\s")
_TELLING = re.compile(r"Traceback \(most recent call last\):|  File \"")
_GLOG = {"W": "WARNING", "E": "ERROR", "I": "INFO", "F": "ERROR"}
_JSON_FIELDS = ("log", "message", "msg", "text", "MESSAGE", "textPayload", "content", "body", "event")
_INFORMATIVE = frozenset({"INFO", "DEBUG", "WARNING", "WARN"})


@dataclass(frozen=True, slots=True)
class Record:
    """One message. ``line`` is the whole line as it stands in the log; ``text`` keeps its indentation."""

    line: str
    text: str
    rank: str = ""
    level: str = ""
    module: str = ""
    process: str = ""

    @property
    def is_informative(self) -> bool:
        """Whether the engine itself says that this is no error, whatever words stand in it."""
        return self.level in _INFORMATIVE


@dataclass(slots=True)
class Unwrapper:
    """Turns a line into records; learns constant prefixes that no pattern knows from the lines that show them."""

    _learned: list[str] = field(default_factory=list)

    def records(self, raw: bytes) -> list[Record]:
        """The records of one line; several where they were glued together."""
        line = raw.decode("utf-8", "replace")
        bare = _ESCAPES.sub("", line) if "\x1b" in line or "[" in line else line
        found = list(self._split(replace(_EMPTY, line=line), _unjson(bare)))
        return found or [Record(line, "")]

    def _split(self, blank: Record, bare: str) -> Iterator[Record]:
        starts = [match.start() for match in _START.finditer(bare) if match.start()]
        carried = blank
        for begin, end in zip([0, *starts], [*starts, len(bare)], strict=True):
            record = self._peel(carried if not begin else replace(carried, level="", module=""), bare[begin:end])
            if begin == 0 and starts and self._learns(record.text):
                record = replace(record, text="")
            if record.text.strip():
                yield record
                carried = blank
            else:
                carried = record

    def _peel(self, record: Record, text: str) -> Record:
        for _ in range(_PEELS):
            found = self._prefix(text)
            if found is None:
                break
            record, text = _noted(record, found[1]), found[0]
        self._learn_telling(text)
        return replace(record, text=text)

    def _prefix(self, text: str) -> tuple[str, dict[str, str]] | None:
        for literal in self._learned:
            if text.startswith(literal):
                return text[len(literal) :], {}
        stripped = text.lstrip(" \t\ufeff")
        for pattern in _PREFIXES:
            match = pattern.match(stripped)
            if match is not None and match.end():
                return stripped[match.end() :], {k: v for k, v in match.groupdict().items() if v}
        return None

    def _learn_telling(self, text: str) -> None:
        match = _TELLING.search(text)
        if match is not None and match.start():
            self._learns(text[: match.start()])

    def _learns(self, literal: str) -> bool:
        if literal in self._learned:
            return True
        if len(self._learned) >= PREFIXES_CAP or literal[-2:-1] == ":" or not _LITERAL.fullmatch(literal):
            return False
        self._learned.append(literal)
        return True


_EMPTY = Record("", "")


def _noted(record: Record, groups: dict[str, str]) -> Record:
    rank = groups.get("rank", "").strip()
    process = groups.get("process", record.process)
    if not rank and "number" in groups:
        rank = f"TP{groups['number']}"
    if not rank and "process" in groups:
        rank = _worker_rank(process)
    level = groups.get("level") or _GLOG.get(groups.get("glog", ""), record.level)
    return replace(
        record,
        rank=rank or record.rank,
        process=process,
        level=level,
        module=groups.get("module", record.module),
    )


def _worker_rank(process: str) -> str:
    if not process.startswith(("Worker", "VllmWorker")):
        return ""
    return " ".join(re.findall(r"(?:DP|TP|PP|EP)\d+", process))


def _unjson(text: str) -> str:
    """The message of a line that is a JSON object (docker's json-file, JSON loggers); else the line."""
    stripped = text.strip()
    if not (stripped.startswith('{"') and stripped.endswith("}")):
        return text
    try:
        fields = json.loads(stripped)
    except (ValueError, RecursionError):
        return text
    for name in _JSON_FIELDS:
        if isinstance(fields.get(name), str):
            return str(fields[name]).rstrip("\r\n")
    return text
