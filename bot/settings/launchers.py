"""Reads what stands beside a launcher's name in a fleet file, by the launcher's own model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bot.settings.blame import blamed
from bot.settings.document import Document, Path_
from bot.settings.models import LAUNCHERS
from bot.settings.words import LauncherChoice, Wrong, filled, shown


def launcher_settings(
    document: Document, path: Path_, choice: LauncherChoice, places: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """A launcher's settings as texts, lists as JSON, with what is known of the server filled in."""
    name, given = choice.name, choice.given
    path = (*path, name) if (*path, name) in document.lines else path
    if name not in LAUNCHERS:
        if given:
            raise document.error(path, f"the launcher {name} has no settings")
        return ()
    model, shorthand = LAUNCHERS[name]
    if isinstance(given, str):
        given = {shorthand: given}
    elif not (given is None or isinstance(given, Mapping)):
        raise document.error(path, f"must be a value or a mapping, not {shown(given)}")
    try:
        made = model.model_validate(dict(given or {}))
    except ValidationError as exc:
        raise blamed(exc, document, path, model) from exc
    dumped = made.model_dump(exclude_unset=True)
    return tuple((key, _filled(document, (*path, key), value, places)) for key, value in dumped.items())


def _filled(document: Document, path: Path_, value: Any, places: Mapping[str, str]) -> str:
    """A text must know every place that it names; docker's own words may hold braces of their own."""
    path = path if path in document.lines else path[:-1]
    if isinstance(value, tuple):
        return json.dumps([filled(one, places) for one in value])
    try:
        return filled(str(value), places, strict=True)
    except Wrong as exc:
        raise document.error(path, str(exc)) from exc
