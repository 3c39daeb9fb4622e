"""The pretend nvidia-smi."""

import os

import pytest

from bot.demo.machine import Control, Entry, GpuTrouble, Machine, process_started
from bot.demo.nvidia_smi import answer

UUID = "GPU-0f969851-02f8-5c2e-8bcb-f0bf8a6c09df"


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    made.register(Entry(os.getpid(), process_started(os.getpid()) or 0, "engine", 30_001, (1,), 125_105, running=37))
    return made


def _ask(machine, *argv):
    return answer(argv, machine, 2)


def test_gpus_are_listed_with_what_they_hold(machine):
    fields = "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw,clocks.sm"
    assert _ask(machine, f"--query-gpu={fields}", "--format=csv,noheader,nounits") == (
        0,
        "0, NVIDIA H200, 0, 143771, 0, 41, 127.30, 1980\n1, NVIDIA H200, 125114, 143771, 100, 68, 635.49, 1740\n",
    )


def test_units_and_titles_are_there_unless_one_does_without(machine):
    assert _ask(machine, "--query-gpu=index,memory.used,clocks.sm", "--format=csv", "-i", "1") == (
        0,
        "index, memory.used [MiB], clocks.current.sm [MHz]\n1, 125114 MiB, 1740 MHz\n",
    )


def test_processes_are_listed_by_gpu(machine):
    assert _ask(
        machine, "--query-compute-apps=pid,gpu_uuid,used_memory,process_name", "--format=csv,noheader,nounits"
    ) == (0, f"{os.getpid()}, {UUID}, 125105, python3\n")


def test_a_hot_gpu_says_so_under_the_old_name_too(machine):
    machine.set_trouble(1, GpuTrouble(is_hot=True))
    fields = (
        "clocks_event_reasons.active,clocks_event_reasons.hw_thermal_slowdown,"
        "clocks_throttle_reasons.hw_power_brake_slowdown,temperature.gpu"
    )
    assert _ask(machine, f"--query-gpu={fields}", "--format=csv,noheader") == (
        0,
        "0x0000000000000001, Not Active, Not Active, 41\n0x0000000000000048, Active, Not Active, 92\n",
    )


def test_a_stuck_kernel_is_busy_and_draws_little(machine):
    machine.set_control(30_001, Control(is_hung=True))
    assert _ask(machine, "--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits", "--id=1") == (
        0,
        "100, 172.40\n",
    )


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        (["--query-gpu=index,nonsense"], 2, 'Field "nonsense" is not a valid field to query.\n\n'),
        (["--frobnicate"], 1, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."),
        (["--query-gpu"], 1, "argument --query-gpu: expected one argument"),
    ],
)
def test_what_it_does_not_know_fails(machine, argv, status, text):
    got, said = _ask(machine, *argv)
    assert (got, said[: len(text)]) == (status, text)


def test_the_plain_table_shows_gpus_and_processes(machine):
    status, text = _ask(machine)
    assert status == 0
    assert "125114MiB / 143771MiB" in text
    assert f"{os.getpid()}   C   python3" in text
    assert len({len(line) for line in text.splitlines()[1:]}) == 1
