"""What the fuzzer found worth keeping is read without a fault, and the same however it is cut."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from bot.engines._reading.detect import AnyReader
from bot.engines._reading.redact import redact
from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

CORPUS = [
    base64.b64decode(one)
    for one in json.loads(gzip.decompress((Path(__file__).parent / "corpus.json.gz").read_bytes()))
]
READERS = (SglangReader, VllmReader, AnyReader)


def test_every_input_is_read_the_same_however_it_is_cut() -> None:
    assert len(CORPUS) > 300
    for data in CORPUS:
        text, kind = data[2:], READERS[data[0] % 3]
        cut = data[1] * len(text) // 256
        whole, pieces = kind(), kind()
        whole.feed(text)
        pieces.feed(text[:cut])
        pieces.feed(text[cut:])
        assert whole.diagnosis() == pieces.diagnosis(), data


def test_redacting_twice_is_redacting_once() -> None:
    for data in CORPUS:
        words = data.decode("utf-8", "replace")
        assert redact(redact(words)) == redact(words)
