from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.fleet import Progress
from bot.runtime.progress import Pace, Reading, read_progress
from tests.jumping import START


def progress(done: str = "done", total: str = "total", rate: str = "") -> Progress:
    return Progress("progress.json", done, total, rate)


@pytest.mark.parametrize(
    ("how", "data", "reading"),
    [
        (progress(), b'{"done": 61204, "total": 193000}', Reading(61204, 193000)),
        (
            progress("stats.done", "stats.total", "stats.speed.now"),
            b'{"stats": {"done": 1, "total": 2, "speed": {"now": 3.5}}}',
            Reading(1, 2, 3.5),
        ),
        (progress("shards.-1.done", "shards.0.of"), b'{"shards": [{"of": 9}, {"done": 4}]}', Reading(4, 9)),
        (progress(), b'{"done": "61,204", "total": "193 000"}', Reading(61204, 193000)),
        (progress(), b'{"done": 1, "total": 9}\n{"done": 2, "total": 9}\n', Reading(2, 9)),
        (progress(), b'e": 1, "total": 9}\n{"done": 2, "total": 9}\n{"done": 3, "to', Reading(2, 9)),
        (progress(), b'{"done": 0}', Reading(0, None)),
        (
            progress(r"(\d+)/\d+", r"\d+/(\d+)", r"([\d.]+) tok/s"),
            b"1/9 5 tok/s\r2/9 6.5 tok/s\rnoise",
            Reading(2, 9, 6.5),
        ),
        (progress(r"(\d+)/\d+", r"\d+/(\d+)"), b"1/9 then 3/9\n", Reading(3, 9)),
        (progress(r"done=([\d,]+)|(\d+) done", ""), b"7 done\n", Reading(7)),
    ],
)
def test_progress_is_read_by_key_path_or_regular_expression(how, data, reading):
    assert read_progress(how, data) == reading


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\xff",
        b"{",
        b"[" * 60_000,
        b'{"done": true, "total": null}',
        b'{"done": -1, "total": NaN}',
        b'{"done": 1e999, "total": Infinity}',
        b'{"done": [], "total": {}}',
        b'{"done": "many", "total": "' + b"9" * 5000 + b'"}',
        b'{"done": ' + b"9" * 4000 + b"}",
    ],
)
def test_what_is_no_progress_says_so(data):
    assert read_progress(progress(), data) == Reading(why="the progress file does not say how far it is")


@pytest.mark.parametrize("how", ["(", "(unclosed", "()", "(?P<x", "a.(b)", "done)"])
def test_a_broken_expression_is_no_more_than_a_path_that_is_not_there(how):
    assert read_progress(progress(how, ""), b'{"done": 1}').done is None


def test_a_pattern_that_backtracks_is_bounded_by_the_length_of_a_line():
    slow = progress(r"(x+)\s*=\s*\d+$", "")
    assert read_progress(slow, (b"x" * 5000 + b"\n") * 12).done is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["done", "total", "a", "0"]), inner),
)


@given(
    st.sampled_from(["done", "a.done", "a.0.done", "0", "", ".", r"(\d+)", r"(\w*)=", r"(?P<n>\S+)/"]),
    st.binary() | JSON.map(json.dumps).map(str.encode) | st.text("0123456789/=,. \r\n").map(str.encode),
)
def test_any_file_gives_whole_numbers_or_nothing(how, data):
    reading = read_progress(Progress("f", how, how, how), data)
    for number in (reading.done, reading.total):
        assert number is None or (isinstance(number, int) and 0 <= number <= 10**15)
    assert reading.rate is None or 0 <= reading.rate <= 10**15


def seen(*counts: tuple[float, int]) -> Pace:
    pace = Pace()
    for seconds, done in counts:
        pace.saw(START + timedelta(seconds=seconds), done)
    return pace


@pytest.mark.parametrize(
    ("counts", "eta"),
    [
        ([(0, 100)], None),
        ([(0, 100), (2, 200)], None),
        ([(0, 100), (10, 200)], timedelta(seconds=80)),
        ([(0, 100), (10, 100)], None),
        ([(0, 900), (10, 100), (20, 200)], timedelta(seconds=80)),
        ([(0, 0), (700, 500), (800, 600)], timedelta(seconds=400)),
        ([(0, 100), (10, 1000)], timedelta()),
        ([(0, 999), (86400, 999), (86500, 999)], None),
    ],
)
def test_the_rest_takes_as_long_as_the_last_minutes_say(counts, eta):
    at, done = counts[-1]
    assert seen(*counts).eta(START + timedelta(seconds=at), done, 1000) == eta


def test_a_pace_that_would_take_a_year_is_not_told():
    assert seen((0, 0), (500, 1)).eta(START + timedelta(seconds=500), 1, 10**9) is None


def test_a_job_that_stood_still_begins_anew():
    pace = seen((0, 0), (100, 100))
    pace.forget()
    assert pace.eta(START + timedelta(seconds=100), 100, 1000) is None


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))))
def test_any_counts_give_a_span_that_is_not_negative_or_none(counts):
    pace = seen(*counts)
    for seconds, done in counts:
        eta = pace.eta(START + timedelta(seconds=seconds), done, 10**6)
        assert eta is None or eta >= timedelta()
