"""What names and references in a fleet file must be."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bot.settings.document import Document, Path_, nearest
from bot.settings.words import FlagChoice, shown

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_RESERVED = frozenset({"all", "fleet", "everything", "custom"})


def is_name(word: str) -> bool:
    """Whether a word may name something: it can be typed in a chat and has no meaning of its own."""
    return _NAME.fullmatch(word) is not None and word.lower() not in _RESERVED


def checked(document: Document, path: Path_, name: str) -> str:
    """The name, or ConfigError where it is none."""
    if name.lower() in _RESERVED:
        raise document.error(path, f"{name} has a meaning of its own; take another name")
    if not is_name(name):
        raise document.error(path, "is no name: it begins with a letter; letters, digits and . _ - follow (at most 64)")
    return name


def referred(document: Document, path: Path_, name: str, known: Iterable[str], what: str) -> str:
    """The name of something that there is, or ConfigError with the nearest."""
    names = list(known)
    if name not in names:
        raise document.error(path, f"there is no {what} {shown(name)}{nearest(name, names)}")
    return name


def without_port(document: Document, path: Path_, flags: FlagChoice) -> FlagChoice:
    """The flags, or ConfigError where they set the port: that is the server's own."""
    if flags.on.get("port") is not None:
        raise document.error(path, "--port is set from the server's own key `port`")
    return flags
