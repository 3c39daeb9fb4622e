"""Reads engines' JSON without trusting it: a field of the wrong kind is absent, a broken body is empty."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from bot.domain.facts import Answer

_LARGEST = 1e18
_LONGEST_TEXT = 500


def document(answer: Answer | None) -> Mapping[str, Any]:
    """The object in a 2xx answer's body; an empty one when there is no such answer or no object in it."""
    if answer is None or not answer.is_ok:
        return {}
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The objects of a list; () for anything else."""
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def number(value: Any) -> float | None:
    """A finite number that is not negative; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or not 0 <= value <= _LARGEST:
        return None
    return float(value)


def integer(value: Any) -> int | None:
    """A whole number that is not negative."""
    found = number(value)
    return None if found is None else int(found)


def text(value: Any) -> str | None:
    """A short text that is not empty."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def fraction(value: Any) -> float | None:
    """A number from 0 to 1; engines round a little over it."""
    found = number(value)
    return None if found is None or found > 1.5 else min(found, 1.0)
