"""Reads the numbers of SGLang's decode and prefill lines, in every version's layout."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABELS = (
    (b"#running-req: ", "running_req"),
    (b"#queue-req: ", "queue_req"),
    (b"gen throughput (token/s): ", "gen_throughput"),
    (b"input throughput (token/s): ", "input_throughput"),
    (b", token usage: ", "token_usage"),
    (b"full token usage: ", "full_token_usage"),
    (b"swa token usage: ", "swa_token_usage"),
    (b"mamba usage: ", "mamba_usage"),
    (b"mamba num: ", "mamba_num"),
    (b", accept len: ", "accept_len"),
)
_VALUE = re.compile(rb"\d+(?:\.\d+)?")


def last_numbers(lines: Sequence[bytes]) -> dict[str, float]:
    """The last value of each number in a run of lines, under the names of docs/reading-logs.md.

    Only the last line that carries a number is parsed for it.
    """
    found: dict[str, float] = {}
    for label, name in _LABELS:
        for line in reversed(lines):
            at = line.rfind(label)
            if at < 0:
                continue
            value = _VALUE.match(line, at + len(label))
            if value is not None:
                found[name] = float(value[0])
                break
    return found
