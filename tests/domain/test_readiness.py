"""What five signals add up to, row by row: a single one of them lies."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.diagnosis import Diagnosis, Phase, said_cause
from bot.domain.facts import Answer, Load, Movement, Outcome, Process, ServerFacts
from bot.domain.readiness import Readiness, Verdict, judge

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OURS = Process(100, 1, ("python", "-m", "sglang.launch_server"), age=timedelta(seconds=40))
CHILD = Process(101, 2, ("python",), parent=100)
OTHER = Process(7, 3, ("nc", "-l", "30003"))
BUSY = Load(running=12)
STILL = Movement(still_since=NOW - timedelta(seconds=25))
MOVING = Movement(tokens_per_second=671.0)

OK = Answer(Outcome.ANSWERED, NOW, 200)
REFUSED = Answer(Outcome.REFUSED, NOW)
PENDING = Answer(Outcome.PENDING, NOW)
TIMED_OUT = Answer(Outcome.TIMED_OUT, NOW, took=timedelta(seconds=3))
RESET = Answer(Outcome.BROKEN, NOW, why="connection reset")

SPAWNED = Diagnosis(phase=Phase.SPAWNED)
WEIGHTS = Diagnosis(phase=Phase.LOADING_WEIGHTS, progress_percent=45)
GRAPHS = Diagnosis(phase=Phase.CAPTURING_GRAPHS, step="12/23")
WARMING = Diagnosis(phase=Phase.WARMING_UP)
SERVING = Diagnosis(phase=Phase.SERVING, is_ready=True)
STOPPED = Diagnosis(phase=Phase.STOPPED)
CRASHED = Diagnosis(phase=Phase.CRASHED, is_crashed=True, cause="out of GPU memory")


def status(code):
    return Answer(Outcome.ANSWERED, NOW, code)


def verdict(**facts):
    return judge(ServerFacts("gpu3", NOW, **facts), NOW)


def alive(**facts):
    return verdict(process=OURS, **facts)


def listening(**facts):
    return alive(port_owner=OURS, **facts)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"unreachable": "ssh timed out after 3 s"}, Verdict(Readiness.UNREACHABLE, "ssh timed out after 3 s")),
        ({"unreachable": "container 200 is stopped", "process": OURS}, Verdict(Readiness.UNREACHABLE, "container 200 is stopped")),
        ({"is_pending": True}, Verdict(Readiness.UNKNOWN)),
        ({"is_pending": True, "diagnosis": CRASHED}, Verdict(Readiness.UNKNOWN, "out of GPU memory in the log")),
        ({}, Verdict(Readiness.DOWN, "no process")),
        ({"exit_status": 0}, Verdict(Readiness.DOWN, "no process")),
        ({"exit_status": 1}, Verdict(Readiness.CRASHED, "exit status 1")),
        ({"exit_status": 139}, Verdict(Readiness.CRASHED, "killed by SIGSEGV")),
        ({"exit_status": -9}, Verdict(Readiness.CRASHED, "killed by SIGKILL")),
        ({"exit_status": 137}, Verdict(Readiness.CRASHED, "killed by SIGKILL")),
        ({"exit_status": -15}, Verdict(Readiness.DOWN, "stopped")),
        ({"exit_status": 143}, Verdict(Readiness.DOWN, "stopped")),
        ({"exit_status": 137, "diagnosis": STOPPED}, Verdict(Readiness.DOWN, "stopped")),
        ({"diagnosis": CRASHED}, Verdict(Readiness.CRASHED, "out of GPU memory")),
        ({"diagnosis": CRASHED, "exit_status": 143}, Verdict(Readiness.CRASHED, "out of GPU memory")),
        ({"diagnosis": WEIGHTS}, Verdict(Readiness.DOWN, "no process")),
        ({"port_owner": OTHER, "instant": OK}, Verdict(Readiness.DOWN, "port answers, but the process is not ours (pid 7, nc -l 30003)")),
    ],
)  # fmt: skip
def test_without_a_process_it_is_down_or_crashed_but_never_when_we_do_not_know(facts, expected):
    assert verdict(**facts) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Verdict(Readiness.STARTING, "process alive 40 s")),
        ({"instant": REFUSED}, Verdict(Readiness.STARTING, "process alive 40 s")),
        ({"instant": REFUSED, "health": REFUSED, "diagnosis": WEIGHTS}, Verdict(Readiness.STARTING, "loading weights 45 %")),
        ({"instant": REFUSED, "diagnosis": GRAPHS}, Verdict(Readiness.STARTING, "capturing graphs 12/23")),
        ({"instant": PENDING, "diagnosis": SPAWNED}, Verdict(Readiness.STARTING, "spawned")),
        ({"instant": REFUSED, "diagnosis": CRASHED}, Verdict(Readiness.STARTING, "out of GPU memory in the log, process still alive")),
        ({"instant": REFUSED, "diagnosis": STOPPED}, Verdict(Readiness.DRAINING, "asked to end, its port is closed")),
        ({"port_owner": OTHER, "instant": OK, "health": OK, "diagnosis": SERVING},
         Verdict(Readiness.STARTING, "port taken by another process (pid 7, nc -l 30003)")),
        ({"instant": OK, "health": OK, "diagnosis": WEIGHTS}, Verdict(Readiness.STARTING, "loading weights 45 %")),
        ({"instant": OK, "health": OK, "diagnosis": SERVING}, Verdict(Readiness.READY)),
    ],
)  # fmt: skip
def test_a_process_that_does_not_own_its_port_is_starting(facts, expected):
    """The last row: somebody whom we may not see listens, and our own log says that we serve."""
    assert alive(**facts) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"instant": PENDING, "health": PENDING}, Verdict(Readiness.UNKNOWN)),
        ({"health": PENDING}, Verdict(Readiness.UNKNOWN)),
        ({"instant": PENDING, "diagnosis": CRASHED}, Verdict(Readiness.UNKNOWN, "out of GPU memory in the log")),
        ({"instant": OK}, Verdict(Readiness.READY)),
        ({"instant": OK, "health": PENDING}, Verdict(Readiness.READY)),
        ({"instant": OK, "health": OK, "diagnosis": WARMING}, Verdict(Readiness.READY)),
        ({"instant": OK, "health": PENDING, "diagnosis": WARMING}, Verdict(Readiness.STARTING, "warming up")),
        ({"instant": status(503), "health": status(503)}, Verdict(Readiness.STARTING, "warming up")),
        ({"instant": OK, "health": status(503), "diagnosis": WARMING}, Verdict(Readiness.STARTING, "warming up")),
        ({"instant": status(503), "health": PENDING, "diagnosis": SERVING}, Verdict(Readiness.HUNG, "HTTP 503")),
        (
            {"instant": status(503), "health": PENDING, "load": BUSY, "diagnosis": replace(SERVING, is_warming_up=True)},
            Verdict(Readiness.STARTING, "warming up"),
        ),
        ({"instant": OK, "health": status(503), "load": BUSY}, Verdict(Readiness.HUNG, "HTTP 503")),
        ({"instant": OK, "health": status(503), "load": BUSY, "movement": MOVING},
         Verdict(Readiness.READY, "HTTP 503 at the health endpoint, yet tokens move")),
        ({"instant": OK, "health": TIMED_OUT}, Verdict(Readiness.HUNG, "no answer for 3 s")),
        ({"instant": OK, "health": TIMED_OUT, "movement": MOVING},
         Verdict(Readiness.READY, "no answer at the health endpoint, yet tokens move")),
        ({"instant": RESET}, Verdict(Readiness.HUNG, "connection reset")),
        ({"instant": OK, "health": RESET, "movement": MOVING}, Verdict(Readiness.HUNG, "connection reset")),
        ({"instant": status(500)}, Verdict(Readiness.HUNG, "HTTP 500")),
        ({"instant": status(401)}, Verdict(Readiness.READY, "answers HTTP 401")),
        ({"instant": status(404), "health": OK}, Verdict(Readiness.READY)),
        ({"instant": status(404), "diagnosis": WARMING}, Verdict(Readiness.STARTING, "warming up")),
        ({"instant": OK, "health": OK, "load": BUSY, "movement": STILL}, Verdict(Readiness.HUNG, "no token for 25 s")),
        ({"instant": OK, "health": OK, "load": Load(running=0), "movement": STILL}, Verdict(Readiness.READY)),
        ({"instant": OK, "health": OK, "load": BUSY, "movement": Movement(still_since=NOW - timedelta(seconds=0.5))}, Verdict(Readiness.READY)),
        ({"instant": OK, "health": status(503), "diagnosis": STOPPED, "load": BUSY, "movement": MOVING},
         Verdict(Readiness.DRAINING, "asked to end, finishing its requests")),
        ({"instant": OK, "health": PENDING, "diagnosis": STOPPED}, Verdict(Readiness.DRAINING, "asked to end, finishing its requests")),
        ({"instant": OK, "health": OK, "diagnosis": CRASHED}, Verdict(Readiness.READY, "out of GPU memory in the log, yet it answers")),
        ({"instant": OK, "health": TIMED_OUT, "diagnosis": CRASHED}, Verdict(Readiness.HUNG, "out of GPU memory in the log, process still alive")),
    ],
)  # fmt: skip
def test_a_process_that_owns_its_port_is_judged_by_health_tokens_and_log(facts, expected):
    assert listening(**facts) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Verdict(Readiness.UNREACHABLE, "port refused, and its processes can't be seen from here")),
        ({"instant": REFUSED, "diagnosis": CRASHED}, Verdict(Readiness.UNREACHABLE, "port refused, and its processes can't be seen from here")),
        ({"instant": REFUSED, "diagnosis": WEIGHTS}, Verdict(Readiness.STARTING, "loading weights 45 %")),
        ({"instant": PENDING, "health": PENDING}, Verdict(Readiness.UNKNOWN)),
        ({"instant": OK}, Verdict(Readiness.READY)),
        ({"instant": OK, "diagnosis": WARMING}, Verdict(Readiness.STARTING, "warming up")),
        ({"instant": status(401)}, Verdict(Readiness.READY, "answers HTTP 401")),
        ({"instant": OK, "health": status(503), "diagnosis": SERVING}, Verdict(Readiness.HUNG, "HTTP 503")),
        ({"instant": OK, "health": OK, "load": BUSY, "movement": STILL}, Verdict(Readiness.HUNG, "no token for 25 s")),
    ],
)  # fmt: skip
def test_where_processes_cannot_be_seen_a_server_is_never_called_down(facts, expected):
    assert verdict(sees_processes=False, **facts) == expected


def test_a_worker_of_ours_may_own_the_port():
    assert alive(port_owner=CHILD, instant=OK) == Verdict(Readiness.READY)


def test_a_long_command_of_a_stranger_is_cut():
    stranger = Process(7, 3, ("python", "-m", "http.server" * 9))
    assert verdict(port_owner=stranger).reason == (
        "port answers, but the process is not ours (pid 7, python -m http.serverhttp.serverhttp.se…)"
    )


ANSWERS = (None, OK, REFUSED, PENDING, TIMED_OUT, RESET, status(503), status(500), status(401))
DIAGNOSES = (None, SPAWNED, WARMING, SERVING, STOPPED, CRASHED)
EVERYTHING = list(
    itertools.product((None, OURS), (None, OURS, CHILD, OTHER), ANSWERS, ANSWERS, DIAGNOSES, (Load(), BUSY), (Movement(), STILL, MOVING))
)  # fmt: skip


def everything():
    for process, owner, instant, health, diagnosis, load, movement in EVERYTHING:
        yield ServerFacts(
            "gpu3", NOW, process=process, port_owner=owner, instant=instant, health=health, diagnosis=diagnosis, load=load, movement=movement
        )  # fmt: skip


def test_a_living_process_is_never_called_down_or_crashed():
    assert all(judge(facts, NOW).readiness.is_alive for facts in everything() if facts.process is not None)


def test_nothing_is_ready_without_a_process_of_ours_and_an_answer():
    for facts in everything():
        if judge(facts, NOW).readiness is Readiness.READY:
            assert facts.process is not None
            assert facts.port_owner is not OTHER
            told = (facts.instant, facts.health)
            assert any(one is not None and one.outcome is Outcome.ANSWERED for one in told) or facts.movement is MOVING


def test_what_is_unreachable_counts_as_alive():
    assert [one for one in Readiness if not one.is_alive] == [Readiness.DOWN, Readiness.CRASHED]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (None, "a crash"),
        ("cuda_oom", "out of GPU memory"),
        ("model_not_found", "model not found"),
        ("host_oom_killed", "killed from outside (SIGKILL; perhaps the host's OOM killer)"),
        ("other:gpu_occupied by pid 7", "gpu occupied by pid 7"),
    ],
)
def test_a_cause_is_said_as_people_say_it(cause, said):
    assert said_cause(cause) == said
