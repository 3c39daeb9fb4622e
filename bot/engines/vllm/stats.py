"""Reads the numbers of vLLM's throughput line, of both engine generations."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STATS = re.compile(
    rb"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s"
    rb"(?:, Running: (\d+) reqs)?(?:, Swapped: \d+ reqs)?(?:, (?:Waiting|Pending): (\d+) reqs)?"
    rb"(?:.{0,200}?KV cache usage: ([\d.]+)%)?"
)
_NAMES = ("prompt_throughput", "gen_throughput", "running_req", "queue_req", "kv_cache_usage_percent")
_ACCEPTED = re.compile(rb"Mean acceptance length: ([\d.]+)")


def last_numbers(lines: Sequence[bytes]) -> dict[str, float]:
    """The last value of each number in a run of lines; most lines are not parsed."""
    found: dict[str, float] = {}
    for line in reversed(lines):
        match = _STATS.search(line)
        if match is not None:
            for name, value in zip(_NAMES, match.groups(), strict=True):
                if value is not None and name not in found:
                    found[name] = _number(value)
            if len(found) == len(_NAMES):
                break
    return found


def accepted(text: str) -> float | None:
    """The mean acceptance length of a speculative decoding line."""
    match = _ACCEPTED.search(text.encode())
    return None if match is None else _number(match[1])


def _number(digits: bytes) -> float:
    try:
        return float(digits)
    except ValueError:
        return 0.0
