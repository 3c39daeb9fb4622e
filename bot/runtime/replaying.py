"""`upbot replay` and `upbot export`: what the rules would have told over recorded readings, and readings to record.

upbot export --since 24h night.jsonl && upbot replay night.jsonl --set starved_for=60s
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.domain.errors import ConfigError, UserError
from bot.domain.message import Lines, Message, plain_line
from bot.domain.moments import moment
from bot.domain.phrases import count, exact, span
from bot.domain.watching import recorded
from bot.domain.watching.alerts import Change, Did
from bot.domain.watching.limits import Limits
from bot.domain.watching.samples import Reading
from bot.domain.watching.watch import Watch
from bot.text import alerts as text

STDIN = "-"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Times before this are counted from the recording's own beginning, not instants."""


@contextmanager
def opened(name: str) -> Iterator[Iterable[str]]:
    """The lines of a recording, also of a .gz and of stdin (-); ConfigError when it can't be read."""
    if name == STDIN:
        yield sys.stdin
        return
    try:
        opener = gzip.open if name.endswith(".gz") else open
        with opener(name, "rt", encoding="utf-8", errors="replace") as lines:
            yield lines
    except (OSError, EOFError) as error:
        raise ConfigError(f"can't be read: {getattr(error, 'strerror', None) or error}", file=name) from error


# Thresholds that were typed


def limits(settings: Sequence[str]) -> Limits:
    """The usual thresholds with some set anew, "starved_for=60s" each; UserError names what is wrong."""
    found = Limits()
    for setting in settings:
        name, equals, value = setting.partition("=")
        known = {one.name: getattr(found, one.name) for one in dataclasses.fields(Limits) if one.name != "hold"}
        if not equals or name not in known:
            raise UserError(f"--set takes NAME=VALUE, NAME one of {', '.join(known)}; not {setting[:60]!r}")
        try:
            found = dataclasses.replace(found, **{name: _value(name, known[name], value)})
        except ValueError as error:
            raise UserError(f"--set {name}: {error}") from error
    return found


def _value(name: str, before: Any, value: str) -> Any:
    if name == "windows":
        pairs = [one.partition(":") for one in value.split(",")]
        found = tuple((_span(length), float(share)) for length, _, share in pairs)
        if len(found) != len(before) or sorted(found) != list(found):
            raise ValueError(f"takes {len(before)} windows, the shortest first: 60s:0.75,120s:0.79,300s:0.83")
        return found
    if isinstance(before, timedelta):
        return _span(value)
    return int(value) if isinstance(before, int) else float(value)


def _span(value: str) -> timedelta:
    now = _EPOCH
    began = moment(value, now)
    if began is None or ":" in value or "-" in value:
        raise ValueError(f"takes a span such as 60s or 5m, not {value[:40]!r}")
    return now - began


# What the rules tell


@dataclass
class Replay:
    """Runs the rules over a recording and says it line by line."""

    limits: Limits
    file: str = ""
    readings: int = 0
    first: datetime | None = None
    last: datetime | None = None
    names: dict[str, None] = field(default_factory=dict)
    fired: Counter[str] = field(default_factory=Counter)

    def lines(self, source: Iterable[str]) -> Iterator[str]:
        """A line each change, and one that sums up."""
        watch = Watch(self.limits)
        for reading in recorded.read(source, file=self.file):
            self._count(reading)
            for change in watch.take(reading):
                self.fired[change.alert.cause.value] += change.did in (Did.FIRING, Did.RETURNED)
                yield f"{self._when(change.at)}  {self._said(change)}"
        yield self._sum()

    def _count(self, reading: Reading) -> None:
        self.readings += 1
        self.first, self.last = self.first or reading.at, reading.at
        self.names.update(dict.fromkeys(reading.servers))

    def _when(self, at: datetime) -> str:
        if at < _EPOCH:
            day = (at - datetime.fromtimestamp(0, UTC)).days + 1
            return f"day {day} {at:%H:%M:%S}"
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    def _said(self, change: Change) -> str:
        everyone = list(self.names)
        if change.did is Did.NOTE:
            return _flat(text.note(change.alert, everyone))
        if change.did in (Did.FIRING, Did.RESOLVED, Did.RETURNED):
            return _flat(text.alert(change.alert, everyone, change.at, None))
        return f"🔴 {change.alert.id}: {_flat(text.told(change, everyone, change.at))}"

    def _sum(self) -> str:
        if self.first is None or self.last is None:
            return "no readings"
        told = ", ".join(f"{number} {cause}" for cause, number in self.fired.most_common() if number)
        total = sum(self.fired.values())
        return (
            f"{exact(self.readings)} readings, {span(self.last - self.first)} of {count(len(self.names), 'server')}: "
            f"{count(total, 'alert')}{f' ({told})' if told else ''}"
        )


def _flat(message: Message) -> str:
    """The headline and what stands below it in one line; control characters are spaces."""
    lines = [message.headline, *(one for block in message.blocks if isinstance(block, Lines) for one in block.lines)]
    words = " · ".join(plain_line(one) for one in lines)
    return "".join(letter if letter.isprintable() else " " for letter in words)


def as_json(source: Iterable[str], limits_: Limits, file: str) -> Iterator[str]:
    """The same for programs: one object a line, without notes."""
    return (json.dumps(one) for one in recorded.replay(source, limits_, file=file))


# What is recorded


def exported(readings: Iterable[Reading]) -> Iterator[str]:
    """Readings in the form that a replay reads."""
    return (json.dumps(recorded.plain_of(one), separators=(",", ":")) for one in readings)


def write_new(lines: Iterable[str], target: Path) -> int:
    """Write lines into a new file, for its owner's eyes only; how many. ConfigError when it is there or can't be."""
    try:
        number = 0
        with target.open("x", encoding="utf-8") as file:
            target.chmod(0o600)
            for number, line in enumerate(lines, 1):  # noqa: B007 - the last one is how many
                file.write(f"{line}\n")
    except FileExistsError as error:
        raise ConfigError("exists already: an export overwrites nothing", file=str(target)) from error
    except OSError as error:
        raise ConfigError(f"can't be written: {error.strerror or error}", file=str(target)) from error
    return number
