"""Reads a YAML file into plain values that remember the line where they stand.

Built on PyYAML's nodes rather than on its constructor: a number keeps the digits that were typed (a flag of 0.90
stays 0.90), a key that stands twice is refused instead of winning silently, and nothing in a file can make more
values than it has bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bot.domain.errors import ConfigError

LARGEST_FILE = 128 * 1024
_MOST_VALUES = 50_000
_DEEPEST = 20
_TOKEN = re.compile(r"xox[a-z]-|xapp-\d")
_UNTEXT = re.compile(r"[\x00\ud800-\udfff]")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

Key = str | int
Path_ = tuple[Key, ...]


class Plain(str):
    """A scalar that was typed without quotes, so that ``true`` may mean yes rather than the word."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values, and the line of each by its path."""

    file: str
    values: Any
    lines: Mapping[Path_, int] = field(default_factory=dict)

    def line(self, path: Path_) -> int:
        """The line of a value, or of the nearest thing around it."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return line
        return 1

    def error(self, path: Path_, why: str) -> ConfigError:
        """What is wrong at a place, with its file, line and key."""
        return ConfigError(why, file=self.file, line=self.line(path), key=dotted(path))


def dotted(path: Iterable[Key]) -> str:
    """A path as a person says it: "hosts.ct200.reach[0].pct"."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a wrong word: the nearest right one, or else all there are."""
    words = sorted(set(known))
    if not words:
        return ""
    folded = {one.lower(): one for one in reversed(words)}
    close = difflib.get_close_matches(word.lower()[:100], list(folded), n=1, cutoff=0.6)
    if close:
        return f"; the nearest is {folded[close[0]]}"
    shown = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    return f"; there is {shown}" if len(words) == 1 else f"; there are {shown}"


def read(path: Path) -> Document:
    """Read a file; ConfigError names the line of whatever is wrong."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigError(f"can't be read: {reason}", file=name) from exc
    return parse(data, name)


def parse(data: bytes, file: str) -> Document:
    """Read the bytes of a file; ``file`` is what it is called in errors."""
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"is larger than {LARGEST_FILE // 1024} KiB; that is no fleet file", file=file)
    node = _compose(_decoded(data, file), file)
    if node is None:
        raise ConfigError("is empty", file=file)
    reading = _Reading(file)
    return Document(file, reading.value(node, ()), reading.lines)


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"byte 0x{data[exc.start]:02x} is not UTF-8", file=file, line=line) from exc


def _compose(text: str, file: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1 if isinstance(exc.position, int) else None
        raise ConfigError("holds a character that YAML does not allow", file=file, line=line) from exc
    except yaml.MarkedYAMLError as exc:
        raise ConfigError(_said(exc), file=file, line=_line(exc)) from exc
    except yaml.YAMLError as exc:
        raise ConfigError("is no YAML", file=file) from exc
    except RecursionError as exc:
        raise ConfigError(f"nests deeper than {_DEEPEST} levels", file=file) from exc
    except (ValueError, IndexError, AttributeError) as exc:
        raise ConfigError("is no YAML that can be read", file=file) from exc  # PyYAML's own slips on odd escapes


def _line(exc: yaml.MarkedYAMLError) -> int | None:
    mark = exc.problem_mark or exc.context_mark
    return None if mark is None else mark.line + 1


def _said(exc: yaml.MarkedYAMLError) -> str:
    problem = exc.problem or "is no YAML"
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    if "single document" in (exc.context or "") or "single document" in problem:
        return "holds more than one document (---)"
    return " ".join(part for part in (exc.context, problem) if part)


class _Reading:
    """Turns nodes into values and notes their lines, within bounds."""

    def __init__(self, file: str) -> None:
        self.lines: dict[Path_, int] = {}
        self._file = file
        self._count = 0

    def value(self, node: yaml.Node, path: Path_) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > _MOST_VALUES:
            raise self._wrong("its aliases unfold to more values than a fleet file has", line, ())
        if len(path) > _DEEPEST:
            raise self._wrong(f"nests deeper than {_DEEPEST} levels", line, ())
        if not node.tag.startswith("tag:yaml.org,2002:"):
            raise self._wrong(f"YAML tags ({node.tag[:40]}) are not read here", line, path)
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(one, (*path, place)) for place, one in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong("is no value", line, path)
        return self._scalar(node, path, line)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            is_word = isinstance(key_node, yaml.ScalarNode) and key_node.value and not _UNTEXT.search(key_node.value)
            if not is_word:
                raise self._wrong("a key must be a word", line, path)
            key = str(key_node.value)
            if key == "<<":
                raise self._wrong(
                    "merge keys (<<) are not read here; use `defaults`, a template or a profile", line, path
                )
            if key in result:
                first = self.lines[(*path, key)]
                raise self._wrong(f"stands twice, first in line {first}", line, (*path, key))
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path_, line: int) -> str | None:
        text = str(node.value)
        if _UNTEXT.search(text):
            raise self._wrong("holds a NUL or half a character, which no program takes", line, path)
        if _TOKEN.search(text):
            raise self._wrong("holds a Slack token; tokens belong in the environment (SLACK_BOT_TOKEN)", line, path)
        if node.style:
            return text
        return None if text in _NULLS else Plain(text)

    def _wrong(self, why: str, line: int, path: Path_) -> ConfigError:
        return ConfigError(why, file=self._file, line=line, key=dotted(path))
