"""Reads logs for `upbot diagnose`: files, pipes and compressed ones, to their end or as they grow, in bounded memory.

Whatever a log's size, what is kept is the reader's own state, half a MiB of the log's end, and the few lines around
the one that decides. They are looked for as soon as the reader names it, so nothing is read twice and a pipe will do.
"""

from __future__ import annotations

import json
import os
import re
import select
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import Protocol

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.engine import LogReader
from bot.domain.errors import UserError
from bot.domain.limiting import Limit
from bot.domain.reading import as_object, five_lines, held_back, news, shown
from bot.engines._reading.detect import AnyReader
from bot.engines._reading.redact import redact
from bot.ports import Clock

STDIN = "-"
CHUNK = 1 << 20
"""Bytes read in one go."""
TAIL = 512 * 1024
"""Bytes of the log's end in which the decisive line is looked for."""
BEFORE, AFTER, LAST = 8, 4, 6
"""Lines shown around the decisive line, and of a log without one."""
POLL = timedelta(milliseconds=500)
LASTS = timedelta(seconds=30)
"""What holds a server back is told when it has done so for this long, and as long when it is over."""
TURN = 16
"""Chunks read of one growing log before the next one has its turn."""

_GZIP = b"\x1f\x8b"
_BREAKS = re.compile(r"[\r\n]+")


class Reading:
    """One log as it is read: the diagnosis so far, and the piece that matters."""

    def __init__(self, name: str, reader: LogReader | None = None) -> None:
        self.name = name
        self.reader = reader if reader is not None else AnyReader()
        self.held: Limit | None = None
        """What has held the server back for a while, where the log is followed."""
        self._tail = b""
        self._quoted: str | None = None
        self._piece: tuple[str, ...] = ()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        for begin in range(0, len(data), CHUNK):
            self.reader.feed(data[begin : begin + CHUNK])
            seen = self._tail + data[begin : begin + CHUNK]
            line = self.diagnosis().decisive_line
            if line is not None and line != self._quoted:
                self._piece = _around(seen, line)
            self._quoted = line
            self._tail = seen[-TAIL:]

    def diagnosis(self) -> Diagnosis:
        """What the log says up to here."""
        return self.reader.diagnosis()

    def piece(self) -> tuple[str, ...]:
        """The lines that matter, fit for a terminal: around the decisive one, which is marked, else the last few."""
        if self._quoted is None:
            return tuple(f"  {one}" for one in _lines(self._tail)[-LAST:])
        return _around(self._tail, self._quoted) or self._piece or (f"> {shown(self._quoted)}",)


def _lines(data: bytes) -> list[str]:
    """The last lines, redacted and made fit to be shown."""
    pieces = _BREAKS.split(data[-64 * 1024 :].decode("utf-8", "replace"))
    return [shown(redact(piece)) for piece in pieces if piece.strip()]


def _around(data: bytes, line: str) -> tuple[str, ...]:
    """The lines around the last one that holds this text; () when none does."""
    pieces = [piece for piece in _BREAKS.split(data.decode("utf-8", "replace")) if piece.strip()]
    for index in range(len(pieces) - 1, -1, -1):
        if line in pieces[index] or line in redact(pieces[index]):
            first = max(0, index - BEFORE)
            chosen = enumerate(pieces[first : index + AFTER + 1], first)
            return tuple(f"{'>' if number == index else ' '} {shown(redact(piece))}" for number, piece in chosen)
    return ()


# To the end


def read(name: str) -> Reading:
    """Read a whole log; UserError when it can't be opened."""
    reading = Reading(name)
    for data in chunks(name):
        reading.feed(data)
    return reading


def chunks(name: str) -> Iterator[bytes]:
    """A log's bytes, decompressed where it is compressed; one that breaks off in the middle ends there."""
    with _opened(name) as file:
        yield from inflated(iter(lambda: _some(file, name), b""), name)


def _opened(name: str) -> FileIO:
    try:
        if name == STDIN:
            return FileIO(0, closefd=False)
        return FileIO(name)
    except (OSError, ValueError) as exc:
        raise UserError(f"can't read {shown(name)}: {_why(exc)}") from exc


def _some(file: FileIO, name: str) -> bytes:
    try:
        return file.read(CHUNK) or b""
    except OSError as exc:
        raise UserError(f"can't read {shown(name)}: {_why(exc)}") from exc


def _why(exc: OSError | ValueError) -> str:
    return exc.strerror.lower() if isinstance(exc, OSError) and exc.strerror else str(exc)


def inflated(data: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same bytes, or what was compressed in them by gzip; UserError when not a byte of that can be had."""
    head = b""
    for piece in data:
        head += piece
        if len(head) >= len(_GZIP):
            break
    if not head.startswith(_GZIP):
        if head:
            yield head
        yield from data
        return
    is_empty = True
    try:
        for plain in _gunzipped(head, data):
            is_empty = False
            yield plain
    except zlib.error as exc:
        if is_empty:
            raise UserError(f"can't read {shown(name)}: broken gzip data") from exc


def _gunzipped(head: bytes, data: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress piece by piece, several members one after the other, a MiB at most at a time."""
    inflater = zlib.decompressobj(wbits=31)
    for piece in _chained(head, data):
        rest = piece
        while rest:
            if inflater.eof:
                if not rest.startswith(_GZIP[:1]):
                    return  # padding behind the last member
                inflater = zlib.decompressobj(wbits=31)
            plain = inflater.decompress(rest, CHUNK)
            if plain:
                yield plain
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail


def _chained(head: bytes, data: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from data


# As it grows


class Source(Protocol):
    """A log that grows. ``read`` never waits; it gives b"" when there is nothing new."""

    name: str

    @property
    def is_over(self) -> bool: ...
    def read(self) -> bytes: ...


class GrowingFile:
    """A file by its name, through rotation (another file of that name) and truncation; it need not exist yet."""

    is_over = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._file: FileIO | None = None
        self._is_cut = False

    def read(self) -> bytes:
        """The next bytes; a log that begins anew begins a new line."""
        if self._file is None and not self._open():
            return b""
        assert self._file is not None  # noqa: S101 - just opened; for the type checker
        data = _some(self._file, self.name)
        if not data and self._begins_anew():
            data = b"\n" if self._is_cut else b""
            data += self.read()
        if data:
            self._is_cut = not data.endswith(b"\n")
        return data

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        if Path(self.name).is_dir():
            raise UserError(f"can't read {shown(self.name)}: is a directory")
        try:
            self._file = FileIO(self.name)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as exc:
            raise UserError(f"can't read {shown(self.name)}: {_why(exc)}") from exc
        return True

    def _begins_anew(self) -> bool:
        """Whether another file bears the name by now (it is opened then), or this one was cut (it is read anew)."""
        assert self._file is not None  # noqa: S101 - as above
        here = os.fstat(self._file.fileno())
        if here.st_size < self._file.tell():
            self._file.seek(0)
            return True
        try:
            there = Path(self.name).stat()
        except OSError:
            return False  # moved away, and its successor is not there yet
        if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
            return False
        if here.st_size > self._file.tell():
            return False  # its last words came in between: they are read first
        self.close()
        return self._open()


class Pipe:
    """Standard input, or another pipe, as it comes."""

    is_over = False

    def __init__(self, descriptor: int = 0, name: str = STDIN) -> None:
        self.name = name
        self._descriptor = descriptor

    def read(self) -> bytes:
        """What has come."""
        if self.is_over or not select.select([self._descriptor], [], [], 0)[0]:
            return b""
        data = os.read(self._descriptor, CHUNK)
        self.is_over = not data
        return data

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)


class Follower:
    """Follows logs as they grow and tells when what they say changes."""

    def __init__(self, sources: Sequence[Source], clock: Clock, tell: Callable[[Reading], None]) -> None:
        self.readings = [Reading(source.name) for source in sources]
        self._sources = sources
        self._clock = clock
        self._tell = tell
        self._told: list[object] = [None] * len(sources)
        self._limits = [_Settled() for _ in sources]

    async def run(self) -> None:
        """Follow until all are over; a file never is."""
        while True:
            moved = [self._turn(number) for number in range(len(self._sources))]
            if all(source.is_over for source in self._sources):
                return
            if not any(moved):
                await self._clock.sleep(POLL)

    def _turn(self, number: int) -> bool:
        source, reading = self._sources[number], self.readings[number]
        is_moved = False
        for _ in range(TURN):
            data = source.read()
            if not data:
                break
            is_moved = True
            reading.feed(data)
        if not is_moved:
            return False
        found = reading.diagnosis()
        reading.held = self._limits[number].take(held_back(found), self._clock.now())
        state = (*_state(found), reading.held)
        if state != self._told[number]:
            self._told[number] = state
            self._tell(reading)
        return True


def _state(found: Diagnosis) -> tuple[object, ...]:
    """What is worth telling anew; numbers alone are not."""
    return found.engine, found.phase, found.progress_percent, found.step, found.cause, found.decisive_line


class _Settled:
    """What holds a server back, once it is not just a moment's affair."""

    def __init__(self) -> None:
        self._limit: Limit | None = None
        self._last: Limit | None = None
        self._since: datetime | None = None

    def take(self, limit: Limit | None, now: datetime) -> Limit | None:
        """Go on to what is so now; what has been so for a while."""
        if limit is not self._last or self._since is None:
            self._last, self._since = limit, now
        if now - self._since >= LASTS:
            self._limit = limit
        return self._limit


class Archive:
    """A compressed log, which does not grow: all of it, and then it is over."""

    is_over = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._chunks = chunks(name)

    def read(self) -> bytes:
        """The next piece of it."""
        data = next(self._chunks, b"")
        self.is_over = not data
        return data


def source_of(name: str) -> Source:
    """How a log of that name is followed; UserError when it can't be read."""
    path = Path(name)
    if name == STDIN:
        return Pipe()
    if path.exists() and not path.is_file() and not path.is_dir():
        return Pipe(os.open(name, os.O_RDONLY), name)
    if path.is_file() and _is_compressed(name):
        return Archive(name)
    return GrowingFile(name)


def _is_compressed(name: str) -> bool:
    with _opened(name) as file:
        return file.read(len(_GZIP)) == _GZIP


# Telling


class Teller:
    """Writes what was read: five lines and a piece of log for people, an object a line for programs."""

    def __init__(self, out: Callable[[str], None], *, is_json: bool, is_one: bool) -> None:
        self._out = out
        self._is_json = is_json
        self._is_one = is_one
        self._crashed: set[str] = set()
        self._last: dict[str, str] = {}

    def whole(self, reading: Reading) -> None:
        """All that is known of a log; not twice where nothing is new."""
        text = self._object(reading) if self._is_json else self._lines(reading)
        if self._last.get(reading.name) != text:
            self._last[reading.name] = text
            self._out(text)

    def _object(self, reading: Reading) -> str:
        told = as_object(reading.diagnosis())
        return json.dumps(told if self._is_one else {"file": reading.name, **told})

    def _lines(self, reading: Reading) -> str:
        name = [] if self._is_one else [f"== {shown(reading.name)}"]
        piece = reading.piece()
        return "\n".join([*name, *five_lines(reading.diagnosis()), *(["", *piece] if piece else []), ""])

    def changed(self, reading: Reading) -> None:
        """What a growing log says now: all of it at an end, else a line."""
        found = reading.diagnosis()
        is_end = found.is_crashed or found.phase in (Phase.READY, Phase.STOPPED)
        if reading.name in self._crashed and not found.is_crashed and not self._is_json:
            self._out("it goes on after all")
        if found.is_crashed:
            self._crashed.add(reading.name)
        else:
            self._crashed.discard(reading.name)
        if self._is_json or is_end:
            self.whole(reading)
        else:
            line = news(found, is_held=reading.held is not None)
            self._out(line if self._is_one else f"{shown(reading.name)}  {line}")
