"""What holds for every log, also for one that nobody has seen."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.domain.diagnosis import Diagnosis
from bot.domain.engine import LogReader
from bot.engines._reading.detect import AnyReader
from bot.engines._reading.lines import LINE_CAP, SLICE
from bot.engines._reading.reader import Reader
from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

READERS: tuple[type[LogReader], ...] = (SglangReader, VllmReader, AnyReader)
EXCERPTS = [
    json.loads(path.read_text())["excerpt"].encode()
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
]
PIECES = sorted({line for excerpt in EXCERPTS for line in excerpt.splitlines(keepends=True)})
every_reader = pytest.mark.parametrize("kind", READERS)
thorough = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

soup = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=60)), max_size=30).map(b"".join)


def read(kind: type[LogReader], *pieces: bytes) -> Diagnosis:
    reader = kind()
    for piece in pieces:
        reader.feed(piece)
    return reader.diagnosis()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(at)]


@every_reader
@thorough
@given(data=soup)
def test_no_log_is_refused(kind, data):
    diagnosis = read(kind, data)
    assert diagnosis.remedy or not diagnosis.is_crashed
    assert not (diagnosis.is_crashed and diagnosis.is_ready)
    assert diagnosis.progress_percent is None or 0 <= diagnosis.progress_percent <= 100


@every_reader
@thorough
@given(data=st.one_of(soup, st.sampled_from(EXCERPTS)), places=st.lists(st.integers(0, 10**6), max_size=8))
def test_where_the_bytes_are_cut_changes_nothing(kind, data, places):
    assert read(kind, *cut(data, places)) == read(kind, data)


@every_reader
@pytest.mark.parametrize("data", [b"".join(EXCERPTS), b"".join(reversed(EXCERPTS))], ids=["all", "all reversed"])
def test_byte_by_byte_is_as_good_as_in_one_go(kind, data):
    assert read(kind, *(data[i : i + 1] for i in range(len(data)))) == read(kind, data)


@every_reader
@thorough
@given(data=soup, place=st.integers(0, 10**6))
def test_asking_changes_nothing(kind, data, place):
    first, second = cut(data, [place])
    asked, silent = kind(), kind()
    asked.feed(first)
    assert asked.diagnosis() == asked.diagnosis()
    asked.feed(second)
    silent.feed(data)
    assert asked.diagnosis() == silent.diagnosis()


@thorough
@given(data=soup)
def test_the_decisive_line_stands_in_the_log(data):
    line = read(SglangReader, data).decisive_line
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    assert line is None or "***" in line or line in text


def held(kind: type[LogReader], piece: bytes, times: int) -> int:
    """The most bytes held at once while so much streams by."""
    reader = kind()
    reader.feed(piece)
    tracemalloc.start()
    try:
        for _ in range(times):
            reader.feed(piece)
        reader.diagnosis()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_reader
def test_a_line_of_50_mb_is_held_only_to_its_cap(kind):
    assert held(kind, b"x" * SLICE, 200) < 8 * SLICE


@every_reader
@pytest.mark.parametrize(
    "piece",
    [
        b"\r" * 10_000,
        b"\x1b[2K\r 12%|##  | 3/25 [00:01<00:09]\r" * 600,
        b"Traceback (most recent call last):\n" * 500,
        b"ValueError: x\n" * 500,
        b"[2026-05-01 10:00:00] --flag-%d is deprecated\n" * 400,
    ],
    ids=["carriage returns", "bars", "open tracebacks", "errors", "warnings"],
)
def test_memory_is_bounded_however_much_comes(kind, piece):
    held(kind, piece, 1)
    assert held(kind, piece, 3) < 12_000_000


class ThoroughSglang(SglangReader):
    """Passes nothing over."""

    @classmethod
    def _telling(cls, line: bytes) -> bool:
        return not cls._is_traffic(line) or super()._telling(line)


class ThoroughVllm(VllmReader):
    """Passes nothing over."""

    @classmethod
    def _telling(cls, line: bytes) -> bool:
        return not cls._is_traffic(line) or super()._telling(line)


@pytest.mark.parametrize(("kind", "thorough_kind"), [(SglangReader, ThoroughSglang), (VllmReader, ThoroughVllm)])
def test_what_is_passed_over_would_have_said_nothing(kind, thorough_kind):
    for excerpt in EXCERPTS:
        assert read(kind, excerpt) == read(thorough_kind, excerpt)


class Counting(SglangReader):
    """Counts the lines that it looks at, which is what costs."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0

    def _look(self, line: bytes) -> None:
        self.looked += 1
        super()._look(line)


def test_each_line_is_looked_at_once_at_most():
    reader = Counting()
    lines = [b"Traceback (most recent call last):", b"ValueError: x", b"", b"error"] * 500
    reader.feed(b"\n".join(lines) + b"\n")
    assert reader.looked == 1500
    assert reader.diagnosis().lines == 2000


def test_a_million_carriage_returns_are_a_million_lines_and_none_is_looked_at():
    reader = Counting()
    reader.feed(b"\r" * 1_000_000)
    assert (reader.looked, reader.diagnosis().lines) == (0, 1_000_000)


def test_traffic_is_not_looked_at_line_by_line():
    reader = Counting()
    line = b"[2026-05-01 10:00:00] Decode batch, #running-req: 7, #token: 9, token usage: 0.10, #queue-req: 0\n"
    reader.feed(line * 5000)
    assert reader.looked == 0
    assert reader.diagnosis().numbers == {"running_req": 7, "queue_req": 0, "token_usage": 0.1}


def test_a_number_that_only_an_earlier_line_of_a_run_holds_is_kept():
    with_it = b"[2026-05-01 10:00:00] Decode batch, #running-req: 7, #token: 9, token usage: 0.10, accept len: 2.50, \n"
    without = b"[2026-05-01 10:00:01] Decode batch, #running-req: 8, #token: 9, token usage: 0.11, \n"
    numbers = read(SglangReader, with_it + without * 50).numbers
    assert numbers == {"running_req": 8, "token_usage": 0.11, "accept_len": 2.5}


def test_a_reader_is_one_of_the_domain():
    reader: LogReader = SglangReader()
    assert isinstance(reader, Reader)
    assert LINE_CAP < SLICE
