"""Fuzzes the log readers with coverage as its guide: `python tests/fuzz/fuzz_readers.py CORPUS -max_total_time=1800`.

Needs atheris (`pip install atheris`), which is no dependency of the project. A finding is an exception, a diagnosis
that depends on where the bytes were cut, or one that holds more text than was fed.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["bot.engines", "bot.domain"]):
    from bot.engines._reading.detect import AnyReader
    from bot.engines._reading.kernel import MOST, Clocks
    from bot.engines._reading.kernel import read as read_kernel
    from bot.engines._reading.redact import redact
    from bot.engines.sglang.log import SglangReader
    from bot.engines.vllm.log import VllmReader

MOST_KEPT = 64 * 1024


def one(data: bytes) -> None:
    """One input: its first two bytes say which reader and where it is cut."""
    if len(data) < 3:
        return
    if data[0] >= 240:
        kernel(data[1:])
        return
    kind = (SglangReader, VllmReader, AnyReader)[data[0] % 3]
    text = data[2:]
    cut = data[1] * len(text) // 256
    whole, pieces = kind(), kind()
    whole.feed(text)
    pieces.feed(text[:cut])
    pieces.diagnosis()
    pieces.feed(text[cut:])
    told = whole.diagnosis()
    if told != pieces.diagnosis():
        raise AssertionError(f"the cut at {cut} counts: {told} / {pieces.diagnosis()}")
    if told.decisive_line is not None and len(told.decisive_line) > MOST_KEPT:
        raise AssertionError("a decisive line without end")
    words = text.decode("utf-8", "replace")
    if redact(redact(words)) != redact(words):
        raise AssertionError("redaction is not idempotent")


def kernel(data: bytes) -> None:
    """The kernel's log: as many words as are kept at most, none from the future."""
    words = read_kernel(data.decode("utf-8", "replace").split("\n"), Clocks(5_000.0, 1_800_000_000.0, 3_600))
    if len(words) > MOST:
        raise AssertionError(f"{len(words)} words of the kernel")
    if any(one.age.total_seconds() < 0 for one in words):
        raise AssertionError("a word from the future")


def main() -> None:
    """Run the fuzzer with libFuzzer's own arguments."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
