"""The simulated machine's directory."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.demo.machine import Control, Entry, GpuTrouble, Machine, process_started, speed_of
from tests.demo.simulation import bench, until

ME = Entry(os.getpid(), process_started(os.getpid()) or 0, "engine", 30_001, (3,), 1_000)


def test_a_process_is_named_by_pid_and_start():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_started(child.pid)
        child.communicate(b"\n")
        assert process_started(child.pid) is None
    assert process_started(os.getpid()) == ME.started


def test_a_process_that_only_waits_to_be_reaped_is_gone():
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})
    try:
        asyncio.run(until(lambda: process_started(pid) is None))
    finally:
        os.waitpid(pid, 0)


def test_the_living_are_found_by_role_and_port(tmp_path):
    machine = Machine(tmp_path)
    machine.register(ME)
    machine.register(replace(ME, pid=1, started=ME.started + 1))
    assert machine.living("engine") == [ME]
    assert machine.living("job") == []
    assert machine.server(30_001) == ME
    assert machine.server(30_002) is None


def test_a_pid_that_is_now_another_process_is_not_the_one_written_down(tmp_path):
    machine = Machine(tmp_path)
    machine.register(replace(ME, started=ME.started - 1))
    assert machine.living() == []


def test_memory_of_the_dead_is_freed_late_and_then_forgotten(tmp_path):
    machine = Machine(tmp_path, speed=10)
    machine.register(dead := replace(ME, started=ME.started - 1))
    assert machine.holders(3) == [dead]
    assert machine.holders(4) == []
    path = tmp_path / "processes" / f"{ME.pid}.json"
    now = path.stat().st_mtime
    os.utime(path, (now - 0.31, now - 0.31))
    assert machine.holders(3) == []
    assert not path.exists()


def test_memory_of_the_living_is_held_however_long_they_are_silent(tmp_path):
    machine = Machine(tmp_path)
    machine.register(ME)
    os.utime(tmp_path / "processes" / f"{ME.pid}.json", (0, 0))
    assert machine.holders(3) == [ME]
    machine.beat(ME.pid)
    assert (tmp_path / "processes" / f"{ME.pid}.json").stat().st_mtime > 0


def test_what_is_broken_is_read_back_and_taken_back(tmp_path):
    machine = Machine(tmp_path)
    assert (machine.control(1), machine.trouble(0), machine.control_mark(1)) == (Control(), GpuTrouble(), 0)
    machine.set_control(1, Control(is_hung=True, slowdown=0.5))
    machine.set_trouble(0, hot := GpuTrouble(is_hot=True, port=1))
    assert (machine.control(1), machine.trouble(0)) == (Control(is_hung=True, slowdown=0.5), hot)
    assert machine.control_mark(1) > 0
    machine.set_control(1, Control())
    machine.mend_gpus(2)
    assert machine.trouble(0) == hot
    machine.mend_gpus(1)
    assert (machine.control(1), machine.trouble(0)) == (Control(), GpuTrouble())


def test_a_failure_is_used_once(tmp_path):
    machine = Machine(tmp_path)
    machine.fail_next(1, "oom")
    assert [machine.take_failure(1), machine.take_failure(1)] == ["oom", None]
    machine.fail_next(1, "oom")
    machine.fail_next(1, None)
    assert machine.take_failure(1) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"pid": "7", "role": "engine"}',
        '{"role": "engine"}',
        '{"pid": 7, "role": "engine", "gpus": 3}',
        '{"pid": 7, "role": "engine", "gpus": ["x"]}',
        '{"pid": 7, "started": -1, "role": "engine"}',
        '{"pid": true, "role": "engine"}',
        '{"pid": 99999999999999999999999999, "role": "engine"}',
        '{"pid": 7, "role": null}',
        "[]",
    ],
)
def test_what_is_no_process_is_passed_over(tmp_path, text):
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "7.json").write_text(text)
    assert Machine(tmp_path).living() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_content_of_a_file_is_forgiven(tmp_path, content):
    machine = Machine(tmp_path)
    for folder, name in (("processes", "7.json"), ("control", "1.json"), ("gpus", "0.json"), ("failures", "1")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(content)
    machine.living()
    machine.holders(0)
    machine.control(1)
    machine.trouble(0)
    machine.take_failure(1)


@pytest.mark.parametrize(("text", "speed"), [("2", 2.0), ("0", 1.0), ("-1", 1.0), ("fast", 1.0), ("", 1.0)])
def test_a_speed_that_is_none_counts_as_one(text, speed):
    assert speed_of({"UPBOT_SIM_SPEED": text}) == speed


def test_without_a_directory_each_user_has_one(tmp_path):
    assert Machine.of({}).root.name == f"upbot-sim-{os.getuid()}"
    assert Machine.of({"UPBOT_SIM_DIR": str(tmp_path), "UPBOT_SIM_SPEED": "3"}).speed == 3


def test_the_journal_holds_each_start_each_signal_and_each_end_but_not_that_of_a_sigkill(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            assert there.machine.journal() == []
            polite, rude = await there.ready(), await there.ready(gpu=1)
            polite.process.terminate()
            await polite.ended()
            rude.process.kill()
            await rude.ended()
            happened = [(one.pid, one.port, one.what) for one in there.machine.journal()]
            return (polite.process.pid, polite.port), (rude.process.pid, rude.port), happened

    polite, rude, happened = asyncio.run(story())
    assert happened == [(*polite, "started"), (*rude, "started"), (*polite, "SIGTERM"), (*polite, "ended")]
