"""Reads the way to a host: each hop by the settings model of its transport, whichever transports there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bot.domain.fleet import Hop
from bot.ports import TransportKind
from bot.settings.blame import blamed
from bot.settings.document import Document, Path_, nearest
from bot.settings.words import shown


def hops(document: Document, path: Path_, given: list[Any], kinds: Mapping[str, TransportKind]) -> tuple[Hop, ...]:
    """The hops of a ``reach``; ConfigError names the hop and its key."""
    is_list = (*path, 0) in document.lines
    return tuple(_hop(document, (*path, place) if is_list else path, one, kinds) for place, one in enumerate(given))


def _hop(document: Document, path: Path_, given: Any, kinds: Mapping[str, TransportKind]) -> Hop:
    if isinstance(given, str):
        name, value = str(given), None
    elif isinstance(given, dict) and len(given) == 1:
        name, value = next(iter(given.items()))
        path = (*path, name)
    else:
        raise document.error(path, f"must be one hop, such as ssh: root@h1, not {shown(given)}")
    kind = kinds.get(name)
    if kind is None:
        raise document.error(path, f"there is no transport {shown(name)}{nearest(name, kinds)}")
    return Hop(name, _settings(document, path, value, kind))


def _settings(document: Document, path: Path_, value: Any, kind: TransportKind) -> tuple[tuple[str, str], ...]:
    if isinstance(value, list):
        raise document.error(path, f"must be a value or a mapping, not {shown(value)}")
    is_short = isinstance(value, str)
    given = {kind.shorthand: str(value)} if is_short else _plain(value or {})
    try:
        made = kind.settings.model_validate(given)
    except ValidationError as exc:
        raise _blamed(exc, document, path, kind, is_short=is_short) from exc
    dumped = made.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return tuple((key, _text(one)) for key, one in dumped.items())


def _blamed(
    error: ValidationError, document: Document, path: Path_, kind: TransportKind, *, is_short: bool
) -> Exception:
    """A bare value's mistake is the hop's own: the field that it fills stands nowhere in the file."""
    if not is_short:
        return blamed(error, document, path, kind.settings)
    found = blamed(error, document, path, kind.settings)
    first = error.errors(include_url=False, include_input=False)[0]
    return document.error(path, "is missing" if first["type"] == "missing" else found.why)


def _plain(value: Any) -> Any:
    """The values as plain ones, for models that are strict about their types."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if value is None else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
