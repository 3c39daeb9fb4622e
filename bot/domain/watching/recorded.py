"""Recorded readings, one JSON object a line, in the bench's form or in our own export's, and what rules make of them.

::

    {"time": 5, "servers": {"gpu0": {"tokens_total": 120, "running": 3, "queued": 0, "max_running": 37}}}

``time`` is seconds (of any epoch) or an ISO 8601 instant. A server that could not be read is missing. Fields that are
not known are left alone; a line that is no reading is an error with its file and line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from bot.domain.errors import ConfigError
from bot.domain.watching.alerts import Change, Did
from bot.domain.watching.limits import Limits
from bot.domain.watching.samples import JobSample, Reading, Sample
from bot.domain.watching.watch import Watch

LONGEST_LINE = 4_000_000
"""Characters of one line; thousands of servers fit."""

_NAMES = frozenset(one.name for one in fields(Sample))

_Reader = Callable[[str, Any], Any]


class NotAReading(ValueError):
    """A plain value is no reading; the text says what is wrong with it."""


def read(lines: Iterable[str], *, file: str = "") -> Iterator[Reading]:
    """The readings of recorded lines; ConfigError names file and line. Empty lines are skipped."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _reading(line, file, number)


def _reading(line: str, file: str, number: int) -> Reading:
    if len(line) > LONGEST_LINE:
        raise ConfigError("the line is too long for a reading", file=file, line=number)
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise ConfigError("not a line of JSON", file=file, line=number) from exc
    try:
        return reading_of(plain)
    except NotAReading as exc:
        raise ConfigError(str(exc), file=file, line=number) from exc


def reading_of(plain: Any) -> Reading:
    """A reading from its plain form; NotAReading says what is wrong with it."""
    if not isinstance(plain, dict) or "time" not in plain:
        raise NotAReading('a reading is an object with "time" and "servers"')
    servers, jobs = plain.get("servers", {}), plain.get("jobs", {})
    if not isinstance(servers, dict) or not isinstance(jobs, dict):
        raise NotAReading('"servers" and "jobs" are objects by name')
    expected = plain.get("expected")
    return Reading(
        _instant(plain["time"]),
        {name: _sample(name, one) for name, one in servers.items() if one is not None},
        frozenset(_names(expected, "expected")) if expected is not None else None,
        frozenset(_names(plain.get("planned", ()), "planned")),
        {name: _job(name, one) for name, one in jobs.items() if one is not None},
        frozenset(_names(plain.get("planned_jobs", ()), "planned_jobs")),
    )


def _instant(value: Any) -> datetime:
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError) as exc:
        raise NotAReading(f'"time" is no instant: {str(value)[:40]}') from exc
    raise NotAReading('"time" is seconds or an ISO 8601 instant')


def _names(value: Any, what: str) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise NotAReading(f'"{what}" is a list of names')
    return list(value)


def _sample(name: str, plain: Any) -> Sample:
    if not isinstance(plain, dict):
        raise NotAReading(f"{name[:60]}: a server's sample is an object")
    known: dict[str, Any] = {}
    for key, value in plain.items():
        if key in _NAMES and value is not None:
            reader: _Reader = _READERS.get(key, _number)
            known[key] = reader(f"{name[:60]}: {key}", value)
    return Sample(**known)


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAReading(f"{what} is no number: {str(value)[:40]}")
    try:
        number = float(value)
    except OverflowError as exc:
        raise NotAReading(f"{what} is no number that can be") from exc
    if not math.isfinite(number) or number < 0 or number > 1e18:
        raise NotAReading(f"{what} is no number that can be: {number}")
    return number


def _count(what: str, value: Any) -> int:
    return int(_number(what, value))


def _strings(what: str, value: Any) -> tuple[str, ...]:
    return tuple(_names(value, what))


def _word(_what: str, value: Any) -> str:
    return str(value)[:200]


def _truth(_what: str, value: Any) -> bool:
    return bool(value)


def _process(what: str, value: Any) -> tuple[int, int]:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value):
        return value[0], value[1]
    raise NotAReading(f"{what} is a pid and a start time")


_READERS: Mapping[str, _Reader] = {
    "running": _count,
    "queued": _count,
    "max_running": _count,
    "fault_code": _count,
    "fault_gpu": _count,
    "is_starting": _truth,
    "is_dead": _truth,
    "clock_limits": _strings,
    "process": _process,
    "profile": _word,
    "why": _word,
}
"""How the fields of a sample are read that are no plain numbers."""


def _job(name: str, plain: Any) -> JobSample:
    if not isinstance(plain, dict):
        raise NotAReading(f"{name[:60]}: a job's sample is an object")
    numbers = {
        key: _number(f"{name[:60]}: {key}", plain[key])
        for key in ("done", "total", "rate")
        if plain.get(key) is not None
    }
    counts = {key: int(numbers[key]) for key in ("done", "total") if key in numbers}
    return JobSample(
        bool(plain.get("is_running", True)), bool(plain.get("is_done", False)), rate=numbers.get("rate"), **counts
    )


def plain_of(reading: Reading) -> dict[str, Any]:
    """The plain form of a reading, as ``read`` takes it: what an export writes, one line each."""
    plain: dict[str, Any] = {"time": reading.at.isoformat()}
    plain["servers"] = {name: _filled(sample) for name, sample in reading.servers.items()}
    if reading.expected is not None:
        plain["expected"] = sorted(reading.expected)
    for key, names in (("planned", reading.planned), ("planned_jobs", reading.planned_jobs)):
        if names:
            plain[key] = sorted(names)
    if reading.jobs:
        plain["jobs"] = {name: _filled(job) for name, job in reading.jobs.items()}
    return plain


def _filled(value: Sample | JobSample) -> dict[str, Any]:
    pairs = ((one.name, getattr(value, one.name)) for one in fields(value))
    return {
        name: list(known) if isinstance(known, tuple) else known
        for name, known in pairs
        if known is not None and known != () and (known is not False or name == "is_running")
    }


def changes(lines: Iterable[str], limits: Limits = Limits(), *, file: str = "") -> Iterator[Change]:  # noqa: B008 - frozen
    """What the rules would have told over recorded readings; ConfigError names file and line."""
    watch = Watch(limits)
    for reading in read(lines, file=file):
        yield from watch.take(reading)


def replay(lines: Iterable[str], limits: Limits = Limits(), *, file: str = "") -> Iterator[dict[str, Any]]:  # noqa: B008 - frozen
    """The alerts over recorded readings, as `upbot replay --json` prints them, one object a line.

    An alert is ``firing`` with the servers it began with, once more with those that joined it later, and ``resolved``
    with each of these. Notes are left out. ``evidence`` has the numbers.
    """
    printed: dict[str, list[tuple[str, ...]]] = {}
    for change in changes(lines, limits, file=file):
        alert = change.alert
        if change.did in (Did.FIRING, Did.JOINED, Did.RETURNED):
            printed.setdefault(alert.id, []).append(change.servers)
            yield _printed("firing", change, change.servers)
        elif change.did is Did.RESOLVED:
            for servers in printed.pop(alert.id, [change.servers]):
                yield _printed("resolved", change, servers)


def _printed(event: str, change: Change, servers: tuple[str, ...]) -> dict[str, Any]:
    seconds = change.at.timestamp()
    return {
        "time": int(seconds) if seconds == int(seconds) else seconds,
        "event": event,
        "alert": change.alert.id,
        "cause": change.alert.cause.value,
        "servers": list(servers),
        "since": change.alert.since.isoformat(),
        "evidence": dict(change.alert.evidence),
    }
