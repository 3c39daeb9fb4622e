"""Reads the small languages of a fleet file: spans, commands, flags, name templates and sums with ``n``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import time, timedelta
from typing import Any
from urllib.parse import urlsplit

from bot.domain.flags import Flags
from bot.settings.document import Plain, nearest

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)\s*", re.IGNORECASE)
_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_LONGEST_SPAN = timedelta(days=366)
_TEMPLATE = re.compile(r"(?P<before>[^{}]*)\{(?P<first>\d{1,6})\.\.(?P<last>\d{1,6})\}(?P<after>[^{}]*)")
_SUM = re.compile(
    r"(?:(?P<base>\d{1,9})\+)?(?:(?P<times>\d{1,6})\*)?(?P<n>n)(?:\+(?P<more>\d{1,9}))?|(?P<alone>\d{1,9})"
)
_RANGE = re.compile(r"(\d{1,4})\s*(?:-|\.\.)\s*(\d{1,4})")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?:\s*UTC)?", re.IGNORECASE | re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_LISTEN = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):)?(?P<port>\d{1,5})", re.ASCII)
_PLACE = re.compile(r"\{([A-Za-z_]+)\}")
MOST_SERVERS = 4_096


class Wrong(ValueError):
    """A value that can't be read; the text completes "<key>: …", and ``keys`` lead on to the place inside it."""

    def __init__(self, why: str, *keys: str) -> None:
        super().__init__(why)
        self.keys = keys


def span(value: Any) -> timedelta:
    """A span of time: "5 min", "90 s", "1 h 30 m", "900 ms"; Wrong where there is no unit."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip() if isinstance(value, str) else ""
    place, seconds = 0, 0.0
    while place < len(text):
        match = _SPAN.match(text, place)
        factor = _UNITS.get(match[2].lower()) if match is not None else None
        if match is None or factor is None:
            raise Wrong(f"must be a span with its unit, such as 5 min or 90 s, not {shown(value)}")
        seconds += float(match[1]) * factor
        place = match.end()
    if not text or timedelta(seconds=seconds) > _LONGEST_SPAN:
        raise Wrong(f"must be a span of up to a year, such as 5 min or 90 s, not {shown(value)}")
    return timedelta(seconds=seconds)


def time_of_day(value: Any) -> time | None:
    """A time of day: "8:00", "23:30", "8:00 UTC"; Wrong where it is none."""
    if value is None or isinstance(value, time):
        return value
    match = _TIME_OF_DAY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise Wrong(f"must be a time of day in UTC, such as 8:00, not {shown(value)}")
    return time(int(match[1]), int(match[2]))


def shown(value: Any) -> str:
    """A wrong value as an error quotes it; of what is no text only the kind."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(str(value)[:60]) if len(value) <= 60 else f"{str(value)[:60]!r}…"
    return (
        "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, (list, tuple)) else repr(value)[:60]
    )


def words(value: Any) -> tuple[str, ...]:
    """One word or a list of words."""
    found = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(one, str) for one in found):
        raise Wrong(f"must be a word or a list of words, not {shown(value)}")
    return tuple(str(one) for one in found)


def command(value: Any) -> tuple[str, ...]:
    """A command as a list of words, or as one line quoted as in a shell (nothing is expanded)."""
    if isinstance(value, str):
        try:
            found = tuple(shlex.split(value))
        except ValueError as exc:
            raise Wrong("has a quote that is not closed") from exc
    else:
        found = words(value)
    if not found or not found[0]:
        raise Wrong("must name a program")
    if any("\0" in word for word in found):
        raise Wrong("must not hold a NUL")
    return found


def environment(value: Any) -> dict[str, str]:
    """Environment variables: a mapping of names to texts."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Wrong(f"must be a mapping of variables, not {shown(value)}")
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise Wrong("is no name of a variable", str(name))
        if not isinstance(text, str) or "\0" in text:
            raise Wrong(f"must be a text, not {shown(text)}", str(name))
    return {str(name): str(text) for name, text in value.items()}


def variable(value: Any) -> str:
    """The name of an environment variable; what is none is not quoted, since it may be the secret itself."""
    if isinstance(value, str) and (value == "" or re.fullmatch(r"[A-Z_][A-Z0-9_]*", value)):
        return value
    raise Wrong("must be the name of a variable in the bot's environment, such as FRONT_KEY, never the key itself")


@dataclass(frozen=True, slots=True)
class Member:
    """A router's name, and the URL by which it knows a server, "" for the usual one."""

    router: str
    url: str = ""


def members(value: Any) -> tuple[Member, ...]:
    """Routers: a name, a mapping of names to URLs, or a list of these."""
    found: list[Member] = []
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(one, Mapping):
            found += [Member(str(name), _url(str(name), url)) for name, url in one.items()]
        elif isinstance(one, str):
            found.append(Member(str(one)))
        else:
            raise Wrong(f"must be a router's name, or name: url, not {shown(one)}")
    return tuple(found)


def _url(name: str, value: Any) -> str:
    if isinstance(value, str) and re.match(r"(https?|grpc)://[^/\s]", value):
        return str(value)
    raise Wrong(f"must be a URL such as http://10.0.0.5:{{port}}, not {shown(value)}", name)


def url(value: Any) -> str:
    """The address of a service, without a slash at its end; secrets are no part of it."""
    text = str(value).strip() if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise Wrong(f"must be an address such as http://127.0.0.1:9090, not {shown(value)}") from None
    if parts.username is not None or parts.password is not None:
        raise Wrong("holds a user or a password; these belong in the environment (docs/prometheus.md)")
    is_plain = not parts.query and not parts.fragment and not any(one.isspace() for one in text)
    if parts.scheme not in ("http", "https") or not is_whole or not is_plain:
        raise Wrong(f"must be an address such as http://127.0.0.1:9090, not {shown(value)}")
    return text.rstrip("/")


def label_name(value: Any) -> str | None:
    """The name of a Prometheus label."""
    if value is None:
        return None
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise Wrong(f"must be the name of a label, not {shown(value)}")
    return str(value)


def labels(value: Any) -> dict[str, str]:
    """Labels and their values."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Wrong(f"must be a mapping of labels, not {shown(value)}")
    for name, text in value.items():
        if not _LABEL.fullmatch(str(name)):
            raise Wrong("is no name of a label", str(name))
        if not isinstance(text, str):
            raise Wrong(f"must be a text, not {shown(text)}", str(name))
    return {str(name): str(text) for name, text in value.items()}


def listen(value: Any) -> tuple[str, int] | None:
    """Where to listen: "127.0.0.1:9099", or a port alone on loopback; false is nowhere."""
    if value is None or (isinstance(value, Plain) and value == "false"):
        return None
    match = _LISTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65_535:
        raise Wrong(f"must be an address and a port, such as 127.0.0.1:9099, not {shown(value)}")
    return (match["host"] or "127.0.0.1").strip("[]"), int(match["port"])


@dataclass(frozen=True, slots=True)
class FlagChoice:
    """Flags that a person wrote, and the names of those that are switched off where they would be inherited."""

    on: Flags = Flags()
    off: tuple[str, ...] = ()

    def over(self, inherited: Flags) -> Flags:
        """The inherited flags with this choice on top."""
        return inherited.merged(self.on, without=self.off)


def flags(value: Any) -> FlagChoice:
    """Flags as a mapping (``true`` is a bare switch, ``false`` takes one away), or as a command line."""
    if value is None:
        return FlagChoice()
    if not isinstance(value, Mapping):
        line = command(value)
        if not line[0].startswith("--"):
            raise Wrong(f"must begin with a flag (--name), not {shown(line[0])}")
        return FlagChoice(Flags.parse(line))
    on: dict[str, tuple[str, ...]] = {}
    off: list[str] = []
    for written, one in value.items():
        try:
            name = flag_name(written)
            values = _values(one)
        except Wrong as exc:
            raise Wrong(str(exc), str(written)) from exc
        if name in on or name in off:
            raise Wrong(f"--{name} stands twice", str(written))
        if isinstance(one, Plain) and one == "false":
            off.append(name)
        else:
            on[name] = values
    return FlagChoice(Flags(tuple(on.items())), tuple(off))


def _values(value: Any) -> tuple[str, ...]:
    if value is None or (isinstance(value, Plain) and value == "true"):
        return ()
    if isinstance(value, Mapping):
        raise Wrong("must be a value or a list of values; write JSON in quotes")
    return words(value)


def flag_name(name: str) -> str:
    """A flag's name without its dashes, underscores as dashes."""
    found = str(name).removeprefix("--").replace("_", "-")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", found):
        raise Wrong(f"{shown(name)} is no name of a flag")
    return found


@dataclass(frozen=True, slots=True)
class LauncherChoice:
    """A launcher's name, and what stands beside it: nothing, one bare value, or a mapping."""

    name: str
    given: Any = None

    def __str__(self) -> str:
        return self.name


def launcher(value: Any) -> LauncherChoice:
    """A launcher as its name alone, or as a mapping of its name to its settings."""
    if isinstance(value, str):
        return LauncherChoice(str(value))
    if isinstance(value, Mapping) and len(value) == 1:
        name, given = next(iter(value.items()))
        return LauncherChoice(str(name), given)
    raise Wrong(f"must be a launcher's name, or its name with its settings, not {shown(value)}")


def cut(line: tuple[str, ...]) -> tuple[tuple[str, ...], Flags]:
    """A launch line cut into the command and the flags behind it.

    Flags of a wrapper (``numactl --membind=0 python -m …``) stay in the command: what counts is what stands
    behind ``-m module`` or ``serve``.
    """
    entry = max((place for place, word in enumerate(line[:-1]) if word == "-m"), default=-1) + 1
    serve = max((place for place, word in enumerate(line) if word == "serve"), default=0)
    start = max(entry, serve)
    for place in range(start, len(line)):
        if line[place].startswith("--") and len(line[place]) > 2:
            return line[:place], Flags.parse(line[place:])
    return line, Flags()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A name that a template gave, and its number; None where the name is no template."""

    name: str
    n: int | None = None


def names(template: str) -> Iterator[Numbered]:
    """The names of a template such as ``gpu{0..7}``; a name without braces stands for itself."""
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        if "{" in template or "}" in template:
            raise Wrong("is no name; a template looks like gpu{0..7}")
        yield Numbered(template)
        return
    first, last = int(match["first"]), int(match["last"])
    if not 0 <= last - first < MOST_SERVERS:
        raise Wrong(f"counts from {first} to {last}; a template counts up, to at most {MOST_SERVERS} names")
    width = len(match["first"]) if match["first"].startswith("0") else 0
    for number in range(first, last + 1):
        yield Numbered(f"{match['before']}{number:0{width}}{match['after']}", number)


def total(text: str, n: int | None) -> int:
    """A number, or a sum with the template's number: "30000+n", "2*n+1", "n"."""
    match = _SUM.fullmatch(re.sub(r"\s", "", text))
    if match is None:
        raise Wrong(f"must be a number or a sum such as 30000+n, not {shown(text)}")
    if match["alone"] is not None:
        return int(match["alone"])
    if n is None:
        raise Wrong("n stands only where the server's name is a template such as gpu{0..7}")
    return int(match["base"] or 0) + int(match["times"] or 1) * n + int(match["more"] or 0)


def numbers(given: tuple[str, ...], n: int | None) -> tuple[int, ...]:
    """GPU numbers: each a number, a sum with ``n`` or a range such as 0-7."""
    found: list[int] = []
    for text in (part for one in given for part in one.split(",")):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            found.append(total(text, n))
        elif int(match[1]) <= int(match[2]):
            found.extend(range(int(match[1]), int(match[2]) + 1))
        else:
            raise Wrong(f"{shown(text)} counts down")
    return tuple(found)


def filled(text: str, places: Mapping[str, str], *, strict: bool = False) -> str:
    """A text with ``{name}``, ``{n}``, ``{port}`` and ``{host}`` filled in; other braces stay, or are refused."""

    def fill(match: re.Match[str]) -> str:
        if match[1] in places:
            return places[match[1]]
        if strict:
            raise Wrong(f"there is no {match[0]}{nearest(match[1], places)}")
        return match[0]

    return _PLACE.sub(fill, text)
