from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Process
from bot.domain.fleet import Launch, Server
from bot.runtime.probing.recognition import Census, Recognised, record_path, token_of, words_of
from bot.runtime.probing.servers import alternatives
from bot.runtime.probing.wire import Listener, Record, Report, Running
from tests.runtime.probing.stage import FakeEngine, server

ENGINE = FakeEngine()
NOTHING = Record()
GPU0 = server("gpu0", 30000)


def ours(
    pid: int, parent: int = 1, *, started: int | None = None, port: int = 30000, uid: int = 0, **env: str
) -> Running:
    argv = ("python", "fake-engine", "--port", str(port))
    return Running(Process(pid, started or pid, argv, parent=parent), uid, env)


def other(pid: int, parent: int = 1) -> Running:
    return Running(Process(pid, pid, ("nginx",), parent=parent), 33)


def found(
    *processes: Running,
    holder: int | None = None,
    address: str = "0.0.0.0",
    uid: int = 0,
    record: Record = NOTHING,
    who: Server = GPU0,
) -> Recognised:
    listeners = () if holder is None else (Listener(address, 30000, uid, holder or None),)
    report = Report(True, processes, listeners, {record_path("~/s", "gpu0"): record})
    return Census(report, [ENGINE]).recognise(who, ENGINE, "~/s")


def pids(one: Recognised) -> tuple[int | None, int | None]:
    return one.process and one.process.pid, one.port_owner and one.port_owner.pid


@pytest.mark.parametrize(
    ("processes", "holder", "expected"),
    [
        ((), None, (None, None)),
        ((ours(7),), None, (7, None)),
        ((ours(7),), 7, (7, 7)),
        ((ours(7), other(8, parent=7)), 8, (7, 8)),
        ((ours(7), other(8, parent=7), other(9, parent=8)), 9, (7, 9)),
        ((ours(7), other(8)), 8, (7, 8)),
        ((other(8),), 8, (None, 8)),
        ((ours(7), ours(8, parent=7)), 7, (7, 7)),
        ((ours(7), ours(8, parent=7)), None, (7, None)),
        ((ours(7), ours(8)), 7, (7, 7)),
        ((ours(7), ours(8)), None, (8, None)),
        ((ours(7, port=30001),), 7, (None, 7)),
    ],
)
def test_our_process_is_found_by_its_port_and_the_owner_apart_from_it(processes, holder, expected):
    assert pids(found(*processes, holder=holder)) == expected


def test_whose_socket_it_is_is_not_guessed_unless_the_user_is_the_same():
    assert pids(found(ours(7, uid=1000), holder=0, uid=1000)) == (7, 7)
    foreign = found(ours(7, uid=1000), holder=0, uid=1001)
    assert (foreign.process.pid, foreign.port_owner.pid, foreign.port_owner.user) == (7, 0, "1001")
    assert found(holder=0, uid=33).port_owner == Process(0, 0, ("unknown: this login may not see it",), user="33")


@pytest.mark.parametrize(
    ("address", "bound", "is_owner"),
    [
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "10.0.0.5", False),
        ("localhost", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("gpu-box", "10.0.0.5", True),
    ],
)
def test_the_owner_is_who_would_answer_at_the_servers_address(address, bound, is_owner):
    who = server("gpu0", 30000, address=address)
    assert pids(found(ours(7), holder=7, address=bound, who=who)) == (7, 7 if is_owner else None)


def test_the_launchers_record_counts_when_pid_and_start_are_the_same():
    for started, expected in ((8, 8), (9, None)):
        record = Record(json.dumps({"pid": 8, "started": started}), "")
        assert pids(found(other(8), record=record))[0] == expected


@pytest.mark.parametrize(
    ("text", "status"), [("", None), ("0\n", 0), ("137", 137), ("-9", -9), ("x", None), ("9" * 50, None), ("--1", None)]
)
def test_the_exit_status_is_told_only_of_what_has_ended(text, status):
    assert found(record=Record("", text)).exit_status == status
    assert found(ours(7), record=Record("", text)).exit_status is None


@given(st.text(max_size=60), st.text(max_size=12))
def test_any_record_is_read_or_passed_over(start, ended):
    assert found(ours(7), record=Record(start, ended)).process.pid == 7
    assert found(other(7), record=Record(start, ended)).process in (None, other(7).process)


@pytest.mark.parametrize(
    ("text", "gpus"), [("0", (0,)), ("4, 5", (4, 5)), ("GPU-1a2b", None), ("", None), ("all", None)]
)
def test_gpus_are_those_of_the_environment_where_they_are_numbers(text, gpus):
    assert found(ours(7, CUDA_VISIBLE_DEVICES=text)).gpus == gpus


def test_words_name_what_a_command_line_of_these_servers_holds():
    command = ("/opt/venv/bin/python3.12", "-m", "engine.launch_server")
    one = Server("gpu0", "h1", 30000, "sglang", Launch(command))
    assert words_of([one]) == ("sglang", "30000", "engine.launch_server")


def test_the_key_comes_from_the_running_command_line():
    assert token_of(GPU0, None) is None
    assert token_of(GPU0, Process(1, 1, ("x", "--api-key=abc"))) == "abc"


def test_an_older_name_is_asked_only_where_the_newer_is_missing():
    assert alternatives(("/info", "/get_info", "/metrics", "/metrics")) == [("/info", "/get_info"), ("/metrics",)]
    assert alternatives(("/get_load",)) == [("/get_load",)]


@pytest.mark.parametrize(
    ("record", "is_adopted"),
    [
        ('{"pid": 7, "started": 7, "adopted": true}', True),
        ('{"pid": 7, "started": 8, "adopted": true}', False),
        ('{"pid": 8, "started": 8, "adopted": true}', False),
        ('{"pid": 7, "started": 7, "adopted": 1}', False),
        ('{"pid": 7, "started": 7}', False),
        ("", False),
    ],
)
def test_a_process_in_a_window_is_adopted_when_the_record_means_that_very_process(record, is_adopted):
    one = found(replace(ours(7), session="main:2"), record=Record(record))
    assert (one.process.pid, one.session, one.is_adopted) == (7, "main:2", is_adopted)


def test_workers_that_outlived_the_recorded_process_are_named_by_the_topmost_of_each_tree():
    """Not what Python keeps beside them, and not those of which nothing is told."""
    core = Process(8, 2, ("VLLM::EngineCore",), parent=1)
    below = Process(9, 2, ("VLLM::Worker",), parent=8)
    spawned = Process(10, 2, ("python", "-c", "from multiprocessing.spawn import spawn_main"), parent=1)
    tracker = Process(11, 2, ("python", "-c", "from multiprocessing.resource_tracker import main"), parent=1)
    path = record_path("~/s", "gpu0")
    running = tuple(Running(one, 1000) for one in (core, below, spawned, tracker))
    report = Report(True, running, (), {path: Record("", "137")}, {path: (8, 9, 10, 11, 12)})
    seen = Census(report, [ENGINE]).recognise(server("gpu0", 30000), ENGINE, "~/s")
    assert (seen.process, seen.exit_status, seen.orphans) == (None, 137, (core, spawned))


def test_a_foreign_process_is_told_of_without_the_keys_of_its_command_line() -> None:
    argv = ("vllm", "serve", "m", "--api-key", "hunter2hunter2", "--port", "30000", "HF_TOKEN=hf_abcdefgh12345678")
    owner = found(Running(Process(8, 8, argv, parent=1), 33), holder=8).port_owner
    assert owner is not None
    assert " ".join(owner.argv) == "vllm serve m --api-key *** --port 30000 HF_TOKEN=***"
