"""Says in a person's words what pydantic found wrong: the line, the key, and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.domain.errors import ConfigError
from bot.settings.document import Document, Key, Path_, nearest
from bot.settings.words import Wrong, shown

_KINDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be a text",
    "dict": "must be a mapping (key: value)",
    "list": "must be a list",
    "model": "must be a mapping (key: value)",
}
_Says = Callable[[Any, Mapping[str, Any]], str]
_BOUNDS: Mapping[str, _Says] = {
    "greater_than": lambda value, limit: f"must be greater than {limit['gt']:g}, not {shown(value)}",
    "greater_than_equal": lambda value, limit: f"must be at least {limit['ge']:g}, not {shown(value)}",
    "less_than": lambda value, limit: f"must be less than {limit['lt']:g}, not {shown(value)}",
    "less_than_equal": lambda value, limit: f"must be at most {limit['le']:g}, not {shown(value)}",
    "string_too_short": lambda _value, _limit: "must not be empty",
    "too_short": lambda _value, _limit: "must not be empty",
    "finite_number": lambda value, _limit: f"must be a number, not {shown(value)}",
    "string_pattern_mismatch": lambda value, limit: f"{shown(value)} does not fit {limit['pattern']}",
}


def blamed(
    error: ValidationError, document: Document, at: Path_ = (), model: type[BaseModel] | None = None
) -> ConfigError:
    """The first thing that is wrong, by line; ``at`` is where the value stands, ``model`` what it should be."""
    errors = error.errors(include_url=False)
    found = [(_one(one, document, at, model), one["type"] == "missing") for one in errors]
    return min(found, key=lambda one: (one[0].line or 0, one[1]))[0]  # a wrong key says more than the missing one


def _one(one: Mapping[str, Any], document: Document, at: Path_, model: type[BaseModel] | None) -> ConfigError:
    path = (*at, *_known(one["loc"], document, at))
    kind, value, context = one["type"], one.get("input"), one.get("ctx", {})
    if kind == "unknown_key":
        return document.error((*path, context["key"]), context["why"])
    if kind == "extra_forbidden":
        hint = nearest(str(one["loc"][-1]), model.model_fields) if model is not None else ""
        return document.error((*at, *one["loc"]), f"is no key here{hint}")
    if kind == "missing":
        return document.error((*at, *one["loc"]), "is missing")
    wrong = context.get("error")
    inside = wrong.keys if isinstance(wrong, Wrong) else ()
    return document.error((*path, *inside), _why(kind, value, context, one))


def _why(kind: str, value: Any, context: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    if kind == "shape":
        return str(context["why"])
    if kind == "value_error":
        return str(context["error"])
    if kind in ("literal_error", "enum"):
        choices = str(context["expected"]).replace("'", "")
        return f"must be {choices}, not {shown(value)}"
    if kind in _BOUNDS:
        return _BOUNDS[kind](value, context)
    what = _KINDS.get(kind.split("_", 1)[0])
    return f"{what}, not {shown(value)}" if what is not None else str(one["msg"])


def _known(location: Sequence[Key], document: Document, at: Path_) -> Path_:
    """The part of a pydantic location that stands in the file; it may end with names of pydantic's own."""
    path: Path_ = ()
    for key in location:
        longer = (*path, key)
        if (*at, *longer) not in document.lines:
            return path
        path = longer
    return path
