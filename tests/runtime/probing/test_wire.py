from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Outcome, Process
from bot.runtime.probing.wire import (
    Begun,
    Chunk,
    Counted,
    Done,
    Follow,
    Garbled,
    Get,
    Got,
    GpusSeen,
    KernelLines,
    Listener,
    Processes,
    Record,
    Report,
    Request,
    Running,
    Tailed,
    Watch,
    read_line,
)

GOOD = [
    [1, "begun", 0],
    [1, "got", 0, "answered", 200, 0.001, "/ready", "\u00ff", ""],
    [1, "got", 1, "refused", None, 0, "/ready", "", ""],
    [
        2,
        "processes",
        0,
        True,
        {
            "readable": True,
            "processes": [[7, 99, ["a", "b"], "root", 1.5, 1, "/", {"X": "1"}, 0, "main:2"]],
            "listeners": [["::", 80, 5, 0, [7]], ["127.0.0.1", 81, 6, 1000, []]],
            "records": {"~/s": ["{}", "1"]},
        },
    ],
    [2, "processes", 0, False, None],
    [
        3,
        "chunk",
        0,
        {"inode": 1, "start": 2, "end": 4, "reset": True, "more": False, "quiet": 2, "seam": "", "data": "xy"},
    ],
    [3, "chunk", 1, {"why": "gone"}],
    [3, "tail", 0, "x", True, ""],
    [3, "gpus", 0, 1, "a", "b", "", [[7, 1.5, [7, 6], 70], [8, None, [8], None]]],
    [3, "counted", 0, 12, 1.5, True],
    [3, "counted", 1, None, None, False],
    [3, "kernel", 0, [["[ 1.0] x"], 5.5, 1.8e9, 3600]],
    [3, "kernel", 0, None],
    [1, "done", 0],
]


def test_every_kind_of_item_is_read():
    process = Process(7, 99, ("a", "b"), "root", timedelta(seconds=1.5), 1, "/")
    report = Report(
        True,
        (Running(process, 0, {"X": "1"}, "main:2"),),
        (Listener("::", 80, 0, 7), Listener("127.0.0.1", 81, 1000, None)),
        {"~/s": Record("{}", "1")},
    )
    assert read_line(json.dumps(GOOD).encode()) == [
        (1, Begun()),
        (1, Got(0, Outcome.ANSWERED, 200, timedelta(milliseconds=1), "/ready", b"\xff")),
        (1, Got(1, Outcome.REFUSED, path="/ready")),
        (2, Processes(is_final=True, report=report)),
        (2, Processes(is_final=False, report=None)),
        (3, Chunk(0, 1, 2, 4, is_reset=True, quiet=timedelta(seconds=2), data=b"xy")),
        (3, Chunk(1, why="gone")),
        (3, Tailed(0, b"x", is_cut=True)),
        (3, GpusSeen(1, "a", "b", "", {7: (timedelta(seconds=1.5), (7, 6), 70), 8: (None, (8,), None)})),
        (3, Counted(0, 12, timedelta(seconds=1.5), is_there=True)),
        (3, Counted(1, None)),
        (3, KernelLines(("[ 1.0] x",), 5.5, 1.8e9, 3600.0)),
        (3, KernelLines()),
        (1, Done()),
    ]


@given(st.binary(max_size=200))
def test_any_bytes_are_items_or_garbled(line):
    try:
        found = read_line(line)
    except Garbled:
        return
    assert isinstance(found, list)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 8), JSON)
def test_an_item_of_which_a_part_is_something_else_is_read_or_garbled(which, place, other):
    item = list(GOOD[which])
    item[place % len(item)] = other
    try:
        ((number, _item),) = read_line(json.dumps([item]).encode())
    except Garbled:
        return
    assert isinstance(number, int)


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"[1]", b'[[1,"other",0]]', b"[" * 100_000, b'[[true,"done",0]]', b"\xff\xfe"]
)
def test_what_no_scout_says_is_garbled(line):
    with pytest.raises(Garbled):
        read_line(line)


def test_a_request_is_one_line_and_holds_the_key_but_never_shows_it():
    get = Get("127.0.0.1", 1, ("/a",), timedelta(seconds=2), 10, "s3cret")
    line = Request((get,), Watch((1,), ("w\n",)), (Follow("~/log", 5, 6, "\n"),)).line(3)
    assert line.count(b"\n") == 1
    assert json.loads(line)["gets"] == [["127.0.0.1", 1, ["/a"], 2.0, 10, "s3cret"]]
    assert json.loads(line)["id"] == 3
    assert "s3cret" not in repr(get)
