"""Files and environment become domain values; every mistake is answered with its file, line and key.

fleet = load_fleet(path, transports=kinds, engines=("sglang",), launchers=("process",))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from bot.domain.fleet import Fleet
from bot.ports import TransportKind
from bot.settings.document import parse, read
from bot.settings.environment import Environment, MonitorKeys, Tokens
from bot.settings.fleet import Known, build

__all__ = ["Environment", "MonitorKeys", "Tokens", "load_fleet", "parse_fleet"]


def load_fleet(
    path: Path, *, transports: Mapping[str, TransportKind], engines: Collection[str], launchers: Collection[str]
) -> Fleet:
    """The fleet that a file describes; ConfigError for the first thing that is wrong in it."""
    return build(read(path), Known(transports, engines, launchers))


def parse_fleet(
    data: bytes,
    file: str,
    *,
    transports: Mapping[str, TransportKind],
    engines: Collection[str],
    launchers: Collection[str],
) -> Fleet:
    """The same of bytes that were read elsewhere; ``file`` is what they are called in errors."""
    return build(parse(data, file), Known(transports, engines, launchers))
