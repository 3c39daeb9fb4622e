"""What stands around a message comes off, and what it tells is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engines._reading.lines import LINE_CAP, SLICE, Cutter
from bot.engines._reading.records import PREFIXES_CAP, Record, Unwrapper


def only(line: str) -> Record:
    (record,) = Unwrapper().records(line.encode())
    assert record.line == line
    return record


def test_a_line_of_a_rank():
    line = "[2026-05-01 10:00:00 DP0 TP1 EP1] Load weight begin."
    assert only(line) == Record(line, "Load weight begin.", rank="DP0 TP1 EP1")


def test_a_line_with_milliseconds():
    assert only("[2026-05-01 10:00:00.123 TP0] x").text == "x"


def test_a_line_of_a_worker():
    line = "(Worker_DP0_TP1_EP1 pid=9) ERROR 05-01 10:00:00 [multiproc_executor.py:699] x"
    expected = Record(
        line, "x", rank="DP0 TP1 EP1", level="ERROR", module="multiproc_executor.py", process="Worker_DP0_TP1_EP1"
    )
    assert only(line) == expected


def test_a_line_of_an_old_worker():
    line = "(VllmWorker rank=1 pid=839) INFO 05-01 10:00:00 [shm_broadcast.py:289] x"
    expected = Record(line, "x", rank="TP1", level="INFO", module="shm_broadcast.py", process="VllmWorker")
    assert only(line) == expected


def test_a_line_of_the_kernel():
    line = "May 01 10:00:00 gpu1 kernel: Out of memory: Killed process 7 (python3)"
    assert only(line) == Record(line, "Out of memory: Killed process 7 (python3)", process="kernel")


def test_a_line_of_torch():
    line = "[rank3]:[W501 10:00:00.000000001 ProcessGroupNCCL.cpp:1496] Warning: x"
    assert only(line) == Record(line, "Warning: x", rank="TP3", level="WARNING")
    assert only(line).is_informative


def test_indentation_is_kept():
    assert only('May 01 10:00:00 gpu1 vllm[8]: (APIServer pid=8)   File "x.py", line 1').text == '  File "x.py", line 1'


def test_records_that_were_glued_are_parted():
    line = " 96%|#| 22/23 [00:13<00:00][2026-05-01 10:00:00 TP0] one[2026-05-01 10:00:01 TP1] two"
    told = [(record.text, record.rank) for record in Unwrapper().records(line.encode())]
    assert told == [(" 96%|#| 22/23 [00:13<00:00]", ""), ("one", "TP0"), ("two", "TP1")]


def test_a_constant_prefix_is_learned_from_the_lines_that_show_it():
    unwrapper = Unwrapper()
    assert unwrapper.records(b"pod-7 box [2026-05-01 10:00:00] one")[0].text == "one"
    assert unwrapper.records(b"pod-7 box ValueError: two")[0].text == "ValueError: two"


def test_words_of_a_sentence_are_no_prefix():
    unwrapper = Unwrapper()
    unwrapper.records(b"Scheduler hit an exception: Traceback (most recent call last):")
    assert unwrapper.records(b"Scheduler hit an exception: x")[0].text == "Scheduler hit an exception: x"


def test_only_so_many_prefixes_are_learned():
    unwrapper = Unwrapper()
    for number in range(PREFIXES_CAP + 1):
        unwrapper.records(f"pod-{number} [2026-05-01 10:00:00] one".encode())
    assert unwrapper.records(b"pod-0 two")[0].text == "two"
    assert unwrapper.records(f"pod-{PREFIXES_CAP} two".encode())[0].text == f"pod-{PREFIXES_CAP} two"


@pytest.mark.parametrize("line", ['{"log": 7}', '{"log"}', "{" + '"a":{' * 500 + "}" * 500, '{"level": "info"}'])
def test_json_that_holds_no_message_stays_as_it_is(line):
    assert only(line).text == line


def test_a_message_within_json_is_taken_out():
    assert only('{"level": "error", "message": "ValueError: x"}').text == "ValueError: x"


@given(st.binary(max_size=300))
def test_any_bytes_are_some_record(raw):
    records = Unwrapper().records(raw)
    assert records
    assert {record.line for record in records} == {raw.decode("utf-8", "replace")}


def test_lines_end_at_returns_and_newlines():
    cutter = Cutter()
    assert cutter.cut(b"one\r\ntwo\rthr") == [b"one", b"", b"two"]
    assert cutter.rest == b"thr"
    assert cutter.cut(b"ee\n") == [b"three"]


def test_a_line_is_kept_up_to_the_cap_however_it_comes():
    cutter = Cutter()
    for _ in range(3):
        assert cutter.cut(b"x" * SLICE) == []
    assert cutter.cut(b"y\nnext\n") == [b"x" * LINE_CAP, b"next"]
    assert Cutter().cut(b"x" * (SLICE - 1) + b"\n") == [b"x" * LINE_CAP]


def test_nul_bytes_of_a_truncated_file_are_dropped():
    assert Cutter().cut(b"\0\0\0one\n") == [b"one"]
