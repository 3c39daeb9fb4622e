"""Compares engines' versions: only the first three numbers count, since a post or dev release changes no flag."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def parsed(version: str) -> Version | None:
    """Major, minor and patch of "0.5.12.post1" or "v0.5.23+cu129"; None where there are none."""
    match = _VERSION.search(version[:100])
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def said(version: Version) -> str:
    """As a person writes it."""
    return ".".join(str(part) for part in version)
