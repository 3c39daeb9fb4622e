"""Two profiles side by side, by what they did here: starts, failures, start-up time, caps, speed.

compare no_buffer extra_buffer        compare no_buffer
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.command import Command, Reply
from bot.domain.fleet import Profile
from bot.domain.message import Line, Message, Small, Table, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.phrases import about, count, span
from bot.domain.records import StartRecord
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


@dataclass(frozen=True, slots=True)
class _Record:
    """A profile and its starts here."""

    profile: Profile
    starts: tuple[StartRecord, ...]
    runs_on: int

    @property
    def good(self) -> tuple[StartRecord, ...]:
        return tuple(one for one in self.starts if one.is_ready)


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Put two records beside each other."""
    del now
    running = Counter(world.facts(server.name).profile for server in world.fleet.servers)
    chosen = _chosen(words.rest.split(), world, running)
    if isinstance(chosen, Reply):
        return chosen
    records = [
        _Record(profile, tuple(one for one in world.starts if one.profile == profile.name), running[profile.name])
        for profile in chosen
    ]
    rows = [(name, *(tell(record) for record in records)) for name, tell in _ROWS]
    table = Table(
        ("here", *(record.profile.name for record in records)),
        tuple((line(name), line(one), line(other)) for name, one, other in rows if (one, other) != ("–", "–")),
    )
    head = line(bold(" and ".join(record.profile.name for record in records)), ", as they did here")
    return Reply(Message(head, (table, Small(_small(records)))))


def _chosen(given: Sequence[str], world: World, running: Counter[str | None]) -> tuple[Profile, Profile] | Reply:
    """The two that are meant: with one named, the other is the one that runs on most servers."""
    bare = [word.strip("?!.,") for word in given]
    profiles: list[Profile] = []
    for word in (word for word in bare if word.lower() not in ("", "and", "with", "to", "vs")):
        profile = world.fleet.profile(word)
        if profile is None:
            known = ", ".join(one.name for one in world.fleet.profiles) or "none"
            return Reply(says("I know no profile ", code(word[:40]), f"; there are: {known}."), is_ok=False)
        profiles.append(profile)
    ranked = sorted(world.fleet.profiles, key=lambda one: -running[one.name])
    profiles += [one for one in ranked if one not in profiles][: 2 - len(profiles)]
    if len(profiles) != 2 or profiles[0] == profiles[1]:
        return Reply(says("Which two? ", code("compare no_buffer extra_buffer"), "."), is_ok=False)
    return profiles[0], profiles[1]


def _median(record: _Record, get: Callable[[StartRecord], float | None]) -> str:
    known = [value for one in record.good if (value := get(one)) is not None]
    return about(statistics.median(known)) if known else "–"


def _took(record: _Record) -> str:
    took = [one.took.total_seconds() for one in record.good]
    return span(timedelta(seconds=statistics.median(took))) if took else "–"


def _failed(record: _Record) -> str:
    bad = [one for one in record.starts if not one.is_ready]
    causes = Counter(one.cause for one in bad if one.cause)
    why = f" ({', '.join(cause for cause, _ in causes.most_common(2))})" if causes else ""
    return f"{len(bad)}{why}" if record.starts else "–"


_ROWS: tuple[tuple[str, Callable[[_Record], str]], ...] = (
    ("starts", lambda record: str(len(record.starts)) if record.starts else "none by me"),
    ("failed", _failed),
    ("start-up", _took),
    ("seats", lambda record: _median(record, lambda one: one.max_running)),
    ("tokens of cache", lambda record: _median(record, lambda one: one.max_total_tokens)),
    ("tok/s a server", lambda record: _median(record, lambda one: one.tokens_per_second)),
    ("tok/s a request", lambda record: _median(record, lambda one: one.per_request)),
    ("price", lambda record: record.profile.price or "–"),
    ("runs on", lambda record: count(record.runs_on, "server")),
)


def _small(records: Sequence[_Record]) -> tuple[Line, ...]:
    lines = [line("medians of the starts that I made · speed as measured a while after a restart")]
    silent = [record.profile.name for record in records if not any(one.tokens_per_second for one in record.good)]
    if silent:
        lines.append(line(f"no speed measured yet with {' and '.join(silent)}"))
    return tuple(lines)


COMMAND = Command(
    name="compare",
    summary="two profiles side by side: starts, failures, start-up time, caps, speed",
    usage="compare <profile> [profile]",
    examples=("compare no_buffer extra_buffer", "compare no_buffer"),
    decide=decide,
    grammar=Grammar(rest=3),
    needs=Needs(),
    is_everyday=True,
)
