from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.facts import Process
from bot.runtime.probing.logs import LogFollower, tail_lines, tail_size
from bot.runtime.probing.wire import Chunk, Follow, Tailed
from tests.runtime.probing.stage import FakeEngine

HOUR = timedelta(hours=1)
OLD, NEW = Process(7, 100, age=HOUR), Process(8, 200, age=timedelta(minutes=1))


def chunk(start: int, data: bytes, *, inode: int = 5, is_reset: bool = False, quiet: timedelta = timedelta()) -> Chunk:
    return Chunk(0, inode, start, start + len(data), is_reset, quiet=quiet, seam=data[-2:].decode(), data=data)


def test_what_comes_is_read_once_even_when_two_looks_asked_for_it():
    follower = LogFollower(FakeEngine(), "~/log")
    assert follower.question() == Follow("~/log")
    first, second = chunk(0, b"a\n", is_reset=True), chunk(2, b"b\n")
    for one in (first, second, second):
        follower.take(one, OLD)
    assert follower.diagnosis().lines == 2
    assert follower.question() == Follow("~/log", 4, 5, "b\n")


def test_a_log_that_is_older_than_its_process_tells_nothing_of_it():
    follower = LogFollower(FakeEngine(), "log")
    follower.take(chunk(0, b"CRASH\n", is_reset=True, quiet=HOUR), NEW)
    assert follower.diagnosis() is None
    follower.take(chunk(6, b"READY\n"), NEW)
    assert (follower.diagnosis().is_ready, follower.diagnosis().is_crashed, follower.diagnosis().lines) == (
        False,
        False,
        1,
    )


def test_a_dead_process_keeps_its_story_and_a_new_one_begins_its_own():
    follower = LogFollower(FakeEngine(), "log")
    follower.take(chunk(0, b"CRASH\n", is_reset=True), OLD)
    follower.take(chunk(6, b"", quiet=HOUR), None)
    assert follower.diagnosis().is_crashed
    follower.take(chunk(6, b"START\n"), NEW)
    assert (follower.diagnosis().is_crashed, follower.diagnosis().lines) == (False, 1)
    follower.take(chunk(12, b"more\n"), replace(NEW, age=HOUR))
    assert follower.diagnosis().lines == 2


def test_another_file_is_another_story_and_no_file_is_none():
    follower = LogFollower(FakeEngine(), "log")
    follower.take(chunk(0, b"CRASH\n", is_reset=True), OLD)
    follower.take(chunk(0, b"START\n", inode=6, is_reset=True), OLD)
    assert (follower.diagnosis().is_crashed, follower.diagnosis().lines) == (False, 1)
    follower.take(Chunk(0, why="No such file or directory"), OLD)
    assert follower.diagnosis() is None
    assert follower.question() == Follow("log")


@pytest.mark.parametrize(
    ("data", "is_cut", "lines", "expected"),
    [
        (b"", False, 3, ()),
        (b"one\ntwo\n", False, 1, ("two",)),
        (b"one\ntwo", False, 5, ("one", "two")),
        (b"ne\ntwo\n", True, 5, ("two",)),
        (b"a single line that is cut", True, 5, ("a single line that is cut",)),
        (b" 1%\r 50%\r100%\r\nend\r\n", False, 2, ("100%", "end")),
        (b"\xff\xfe\n", False, 1, ("\ufffd\ufffd",)),
        (b"one\n", False, 0, ()),
        (b"x" * 9000, False, 1, ("x" * 2000,)),
    ],
)
def test_a_tail_is_what_a_terminal_would_show(data, is_cut, lines, expected):
    assert tail_lines(Tailed(0, data, is_cut), lines) == expected


def test_a_tail_brings_no_more_than_it_needs():
    assert [tail_size(lines) for lines in (1, 20, 100_000)] == [4096, 8000, 262144]


def test_the_last_lines_are_shown_without_their_secrets():
    data = b"server_args=ServerArgs(api_key='hunter2hunter2', port=30000)\nAuthorization: Bearer abcdef123456\nfine\n"
    assert tail_lines(Tailed(0, data, False), 5) == (
        "server_args=ServerArgs(api_key='***', port=30000)",
        "Authorization: Bearer ***",
        "fine",
    )
