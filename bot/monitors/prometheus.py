"""Reads a fleet's numbers out of a Prometheus, with a few queries for all servers.

A range selector is asked (`{…}[45s]`), for it alone gives the samples with their own times; a plain query would give
the time of the question. What belongs to a server's last scrape becomes the page of metrics that the server itself
would have given, so that the engine's own reader reads it, and each number has one meaning.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.domain.errors import FleetError
from bot.domain.monitors import PrometheusSource
from bot.monitors._http import Ask, Service
from bot.ports import Scraped

SCRAPES = 3
"""So many scrape intervals back is looked; a target whose last scrape is older is not scraped any more."""
_AT_ONCE = 200
_TOGETHER = 4
_LARGEST = 32 * 1024 * 1024
_MOST_SERIES = 200_000
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_YEAR_3000 = 32_503_680_000
_TARGET = ("job", "instance")


class Prometheus:
    """Implements `bot.ports.Metrics`; ``auth`` is a bearer token or "user:password"."""

    def __init__(self, auth: str = "") -> None:
        self._service = Service("Prometheus", auth)

    async def scraped(
        self, source: PrometheusSource, values: Sequence[str], names: frozenset[str]
    ) -> Mapping[str, Scraped]:
        """What it has of the servers with these label values; one that it does not know is not in the answer."""
        gate = asyncio.Semaphore(_TOGETHER)

        async def part(some: Sequence[str]) -> dict[str, Scraped]:
            async with gate:
                series = await self._series(source, selector(source, some, {"up", *names}))
            return pages(series, source.labelling.label, source.scrape_interval)

        parts = [values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE)]
        found: dict[str, Scraped] = {}
        for one in await asyncio.gather(*(part(some) for some in parts)):
            found.update(one)
        return found

    async def _series(self, source: PrometheusSource, query: str) -> list[Series]:
        window = max(1, round(source.scrape_interval.total_seconds() * SCRAPES))
        form = {"query": f"{query}[{window}s]", "timeout": f"{source.timeout.total_seconds():g}s"}
        ask = Ask("POST", f"{source.url}/api/v1/query", source.timeout, form=form, limit=_LARGEST)
        try:
            return series(await self._service.answer(ask))
        except NotAnAnswer as exc:
            raise FleetError(f"Prometheus: {source.url.partition('//')[2]} {exc}") from exc

    async def close(self) -> None:
        """Let go of what is open."""
        await self._service.close()


def selector(source: PrometheusSource, values: Iterable[str], names: Iterable[str]) -> str:
    """The PromQL that selects these metrics of these servers and nothing else."""
    wanted = "|".join(_literal(value) for value in values)
    parts = [f'__name__=~"{"|".join(sorted(names))}"', f"{source.labelling.label}=~{_quoted(wanted)}"]
    parts += [f"{label}={_quoted(value)}" for label, value in source.only.items()]
    return f"{{{','.join(parts)}}}"


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class NotAnAnswer(ValueError):
    """What came is no answer of Prometheus; the text completes "<address> …"."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series with the last sample of it: its own time in seconds, and the value as it was written.

    ``before`` is the time of the sample before it.
    """

    labels: Mapping[str, str]
    at: float
    value: str
    before: float | None = None


def series(body: bytes) -> list[Series]:
    """The series of a range selector's answer; what can't be read of them is passed over."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise NotAnAnswer("answered something that is no JSON") from exc
    data = told.get("data") if isinstance(told, dict) and told.get("status") == "success" else None
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise NotAnAnswer("answered, but not as Prometheus does")
    return list(_read(data["result"][:_MOST_SERIES]))


def _read(rows: Sequence[Any]) -> Iterator[Series]:
    for row in rows:
        if not isinstance(row, dict):
            continue
        labels, values = row.get("metric"), row.get("values")
        if not isinstance(labels, dict) or not isinstance(values, list) or not values:
            continue
        last = values[-1]
        if not isinstance(last, list) or len(last) != 2 or not isinstance(last[1], str):
            continue
        at = _seconds(last[0])
        if at is not None and _is_number(last[1]):
            before = (
                _seconds(values[-2][0]) if len(values) > 1 and isinstance(values[-2], list) and values[-2] else None
            )
            yield Series({key: one for key, one in labels.items() if isinstance(one, str)}, at, last[1], before)


def _seconds(value: Any) -> float | None:
    """An instant in seconds since 1970, before the year 3000; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 < number < _YEAR_3000 else None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return len(word) < 40 and "_" not in word


def pages(found: Sequence[Series], label: str, interval: timedelta) -> dict[str, Scraped]:
    """What was scraped of each server by the value of its label.

    Where several targets bear it (two jobs, or two replicas of Prometheus, scrape the same server), the one that is up
    and was scraped last counts, alone: their sum would count everything twice.
    """
    by_value: dict[str, list[Series]] = {}
    for one in found:
        if (value := one.labels.get(label)) is not None:
            by_value.setdefault(value, []).append(one)
    ups = [one.at for one in found if one.labels.get("__name__") == "up"]
    newest = max(ups or [one.at for one in found], default=0.0)
    scraped = {}
    for value, several in by_value.items():
        best = max((_scraped(rows, interval) for rows in _targets(several)), key=lambda one: (one.is_up, one.at))
        if best.at.timestamp() >= newest - (SCRAPES - 1) * interval.total_seconds():
            scraped[value] = best
    return scraped


def _targets(rows: Sequence[Series]) -> list[list[Series]]:
    """The series of each target: those that have all the labels of its `up`, else those of one job and instance."""
    ups = [row for row in rows if row.labels.get("__name__") == "up"]
    if len(ups) == 1:
        return [list(rows)]
    if not ups:
        targets: dict[tuple[str, ...], list[Series]] = {}
        for row in rows:
            targets.setdefault(tuple(row.labels.get(key, "") for key in _TARGET), []).append(row)
        return list(targets.values())
    return [[up, *(row for row in rows if row not in ups and _is_of(row, up))] for up in ups]


def _is_of(row: Series, up: Series) -> bool:
    return all(row.labels.get(key) == value for key, value in up.labels.items() if key != "__name__")


def _scraped(rows: Sequence[Series], interval: timedelta) -> Scraped:
    ups = [row for row in rows if row.labels.get("__name__") == "up"]
    others = [row for row in rows if row.labels.get("__name__") != "up"]
    if not ups:  # federated or pushed: the metrics are there, and nobody says how their scrape went
        last = max(row.at for row in others)
        page = _page(row for row in others if row.at > last - interval.total_seconds() / 2)
        return Scraped(is_up=True, at=_instant(last), page=page)
    up = max(ups, key=lambda row: row.at)
    every = timedelta(seconds=max(0.0, up.at - up.before)) if up.before is not None else None
    if float(up.value) != 1:
        return Scraped(is_up=False, at=_instant(up.at), every=every)
    page = _page(row for row in others if row.at > up.at - 0.5)
    return Scraped(is_up=True, at=_instant(up.at), page=page, every=every)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _page(rows: Iterable[Series]) -> bytes:
    lines = []
    for row in rows:
        labels = ",".join(f'{key}="{_escaped(one)}"' for key, one in row.labels.items() if key != "__name__")
        lines.append(f"{row.labels.get('__name__', '')}{{{labels}}} {row.value}\n")
    return "".join(lines).encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
