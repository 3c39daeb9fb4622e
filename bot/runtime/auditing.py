"""`upbot audit`: the entries as lines or as JSON, and whether the chain holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from bot.domain.audit import AuditEntry, sentence
from bot.domain.errors import ConfigError
from bot.domain.moments import moment


def since(text: str | None, now: datetime) -> datetime | None:
    """The instant that ``--since`` means; ConfigError when it is none."""
    if text is None:
        return None
    found = moment(text, now)
    if found is None:
        why = f"takes a span (24h, 7d), a time of day in UTC (03:12) or a date, not {text[:40]!r}"
        raise ConfigError(why, key="--since")
    return found


def lines(entries: Iterable[tuple[int, AuditEntry]], *, is_json: bool) -> Iterator[str]:
    """A line an entry, the oldest first."""
    for number, entry in entries:
        yield json.dumps(as_object(number, entry)) if is_json else as_line(number, entry)


def as_line(number: int, entry: AuditEntry) -> str:
    """An entry for eyes: "12  2026-11-30 03:12:05 UTC  C1  ana: restart no_buffer – asked 7F3A"."""
    at = entry.at.astimezone(UTC)
    told = "".join(character if character.isprintable() else " " for character in sentence(entry))
    return f"{number:>5}  {at:%Y-%m-%d %H:%M:%S} UTC  {entry.channel or '-'}  {told}"


def as_object(number: int, entry: AuditEntry) -> dict[str, Any]:
    """An entry for programs."""
    plain = asdict(entry)
    told = {"at": entry.at.astimezone(UTC).isoformat(), "act": entry.act.value, "result": entry.result.value}
    return {"number": number, **plain, **told}
