"""What is asked of a scout and what it answers, as values, and both as lines of JSON.

A scout runs on a foreign machine, so its answers are read as foreign text: whatever does not have the agreed
shape is a ``Garbled``, and nothing else is ever raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bot.domain.facts import Outcome, Process

FIRST_LOOK = 256 * 1024
"""How much of a log's end is read at first, in bytes: minutes of decode lines, or a whole start; a server's state
is what the end says, and its limits come from its endpoints."""
MOST_BEHIND = 4 * 1024 * 1024
"""A log that grew by more than this since the last look, in bytes, is read from its end again."""


class Garbled(ValueError):
    """An answer that no scout gives."""


@dataclass(frozen=True, slots=True)
class Get:
    """An HTTP GET; of several paths the first that is not 404 counts. ``body`` is the most bytes to bring.

    With another ``method`` it changes something: it has one path, ``data`` is its JSON, and it never goes over a
    connection that was kept, which may have died.
    """

    address: str
    port: int
    paths: tuple[str, ...]
    limit: timedelta
    body: int = 0
    token: str | None = field(default=None, repr=False)
    method: str = "GET"
    data: str = field(default="", repr=False)

    def words(self) -> tuple[object, ...]:
        """As it is sent."""
        usual = (self.address, self.port, self.paths, self.limit.total_seconds(), self.body, self.token)
        return usual if self.method == "GET" else (*usual, self.method, self.data)


@dataclass(frozen=True, slots=True)
class Watch:
    """Which processes to tell of: by listening port, by words of the command line, by launchers' records."""

    ports: tuple[int, ...]
    words: tuple[str, ...]
    records: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """A log, to be read on from ``offset`` (None: its end), unless it is another file by now."""

    path: str
    offset: int | None = None
    inode: int = 0
    seam: str = ""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of a log."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder whose files are counted: the first of these whose variables are set; ``env`` goes before the login's."""

    places: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AskGpus:
    """The GPU query: the command, argument lists for its cards of which the first that works counts, and for uses."""

    argv: tuple[str, ...]
    cards: tuple[tuple[str, ...], ...]
    uses: tuple[str, ...]
    limit: timedelta


@dataclass(frozen=True, slots=True)
class AskKernel:
    """The kernel's log: the command that prints it (empty: what the host has for that), and words of telling lines."""

    command: tuple[str, ...]
    words: tuple[str, ...]
    limit: timedelta


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one look asks of one host."""

    gets: tuple[Get, ...] = ()
    watch: Watch | None = None
    follows: tuple[Follow, ...] = ()
    tails: tuple[Tail, ...] = ()
    folders: tuple[Folder, ...] = ()
    gpu: AskGpus | None = None
    kernel: AskKernel | None = None

    def line(self, number: int) -> bytes:
        """As it is sent."""
        watch, gpu, kernel = self.watch, self.gpu, self.kernel
        value = {
            "id": number,
            "gets": [one.words() for one in self.gets],
            "watch": watch and {"ports": watch.ports, "words": watch.words, "records": watch.records, "env": watch.env},
            "follows": [(one.path, one.offset, one.inode, one.seam, FIRST_LOOK, MOST_BEHIND) for one in self.follows],
            "tails": [(one.path, one.size) for one in self.tails],
            "folders": [(one.places, dict(one.env)) for one in self.folders],
            "gpu": gpu and {"argv": gpu.argv, "cards": gpu.cards, "uses": gpu.uses, "limit": gpu.limit.total_seconds()},
            "kernel": kernel
            and {"command": kernel.command, "words": kernel.words, "limit": kernel.limit.total_seconds()},
        }
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Got:
    """How the request's ``key``-th get ended."""

    key: int
    outcome: Outcome
    status: int | None = None
    took: timedelta = timedelta()
    path: str = ""
    body: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens, and its user's number. ``holder`` is None where this login may not see whose it is."""

    address: str
    port: int
    uid: int
    holder: int | None


@dataclass(frozen=True, slots=True)
class Record:
    """What a launcher left on record, as the texts of its two files; "" where there is none."""

    start: str = ""
    exit: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A process with what is needed to recognise it, and the tmux window that it runs in."""

    process: Process
    uid: int
    env: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The watched processes of a host. ``is_readable`` is False where processes can't be seen at all.

    ``left`` are the pids that outlived the process on a launcher's record whose session they are in.
    """

    is_readable: bool
    processes: tuple[Running, ...] = ()
    listeners: tuple[Listener, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)
    left: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Processes:
    """A report, or None for "as told before"; one that is not final may be followed by another."""

    is_final: bool
    report: Report | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The bytes of a log between ``start`` and ``end``.

    ``is_reset``: they do not continue what was read before. ``quiet`` is how long nothing was written.
    """

    key: int
    inode: int = 0
    start: int = 0
    end: int = 0
    is_reset: bool = False
    has_more: bool = False
    quiet: timedelta = timedelta()
    seam: str = ""
    data: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tailed:
    """The end of a log; ``is_cut`` when there is more before it."""

    key: int
    data: bytes
    is_cut: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class KernelLines:
    """The telling lines of a kernel's log, the oldest first, and the host's clocks when they were read.

    ``up`` is seconds since boot, ``epoch`` since 1970, ``offset`` its local time's, east of UTC. ``lines`` is None
    where the log can't be read.
    """

    lines: tuple[str, ...] | None = None
    up: float = 0.0
    epoch: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What lies in a folder: how many files (some thousand are counted at most) and how long nothing was written.

    ``files`` is None where nobody could look.
    """

    key: int
    files: int | None
    quiet: timedelta | None = None
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class GpusSeen:
    """What the GPU query printed, by which list of fields; ``why`` where nothing of it can be used.

    ``owners`` are the processes that hold memory: how old each is, its own pid and those above it, and its start.
    """

    variant: int
    cards: str
    uses: str
    why: str = ""
    owners: Mapping[int, tuple[timedelta | None, tuple[int, ...], int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begun:
    """The scout has read the request."""


@dataclass(frozen=True, slots=True)
class Done:
    """Everything that was asked has been answered."""


Item = Got | Processes | Chunk | Tailed | Counted | GpusSeen | KernelLines | Begun | Done


def read_line(line: bytes) -> list[tuple[int, Item]]:
    """The items of one line, each with its request's number; Garbled when it is anything else."""
    try:
        value = json.loads(line)
        return [(_whole(one[0]), _READERS[one[1]](one)) for one in value]
    except Garbled:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError, AttributeError) as exc:
        raise Garbled(f"{type(exc).__name__} in {line[:60]!r}") from exc


def _got(one: Any) -> Got:
    _number, _kind, key, outcome, status, took, path, body, why = one
    return Got(
        _whole(key),
        Outcome(outcome),
        None if status is None else _whole(status),
        _span(took),
        _text(path),
        _bytes(body),
        _text(why),
    )


def _processes(one: Any) -> Processes:
    _number, _kind, _key, is_final, report = one
    return Processes(bool(is_final), None if report is None else _report(report))


def _report(value: Any) -> Report:
    return Report(
        bool(value["readable"]),
        tuple(_running(row) for row in value["processes"]),
        tuple(_listener(row) for row in value["listeners"]),
        {_text(path): Record(_text(start), _text(end)) for path, (start, end) in value["records"].items()},
        {_text(path): tuple(_whole(pid) for pid in pids) for path, pids in value.get("left", {}).items()},
    )


def _running(row: Any) -> Running:
    pid, started, argv, user, age, parent, directory, env, uid, session = row
    process = Process(
        _whole(pid),
        _whole(started),
        tuple(_text(word) for word in argv),
        _text(user),
        _span(age),
        _whole(parent),
        _text(directory),
    )
    variables = {_text(name): _text(word) for name, word in env.items()}
    return Running(process, _whole(uid), variables, None if session is None else _text(session))


def _listener(row: Any) -> Listener:
    address, port, _inode, uid, pids = row
    return Listener(_text(address), _whole(port), _whole(uid), _whole(pids[0]) if pids else None)


def _chunk(one: Any) -> Chunk:
    _number, _kind, key, value = one
    if "why" in value:
        return Chunk(_whole(key), why=_text(value["why"]))
    return Chunk(
        _whole(key),
        _whole(value["inode"]),
        _whole(value["start"]),
        _whole(value["end"]),
        bool(value["reset"]),
        bool(value["more"]),
        _span(value["quiet"]),
        _text(value["seam"]),
        _bytes(value["data"]),
    )


def _tailed(one: Any) -> Tailed:
    _number, _kind, key, data, is_cut, why = one
    return Tailed(_whole(key), _bytes(data), bool(is_cut), _text(why))


def _gpus(one: Any) -> GpusSeen:
    _number, _kind, _key, variant, cards, uses, why, owners = one
    known = {
        _whole(pid): (
            timedelta(seconds=float(age)) if age is not None else None,
            tuple(map(_whole, above)),
            _whole(started) if started is not None else None,
        )
        for pid, age, above, started in owners
    }
    return GpusSeen(_whole(variant), _text(cards), _text(uses), _text(why), known)


def _kernel(one: Any) -> KernelLines:
    _number, _kind, _key, value = one
    if value is None:
        return KernelLines()
    lines, up, epoch, offset = value
    return KernelLines(tuple(_text(line) for line in lines), _seconds(up), _seconds(epoch), _seconds(offset))


def _counted(one: Any) -> Counted:
    _number, _kind, key, files, quiet, is_there = one
    return Counted(
        _whole(key), None if files is None else _whole(files), None if quiet is None else _span(quiet), bool(is_there)
    )


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Garbled(f"{str(value)[:40]!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Garbled(f"{str(value)[:40]!r} is no text")
    return value


def _bytes(value: Any) -> bytes:
    return _text(value).encode("latin-1")


def _span(value: Any) -> timedelta:
    return timedelta(seconds=_seconds(value))


def _seconds(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise Garbled(f"{str(value)[:40]!r} is no number")
    return float(value)


_READERS: Mapping[str, Callable[[Any], Item]] = {
    "got": _got,
    "processes": _processes,
    "chunk": _chunk,
    "tail": _tailed,
    "counted": _counted,
    "gpus": _gpus,
    "kernel": _kernel,
    "begun": lambda _one: Begun(),
    "done": lambda _one: Done(),
}
