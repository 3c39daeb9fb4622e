from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Gpu, GpuFault, GpuUse
from bot.runtime.probing import gpus
from bot.runtime.probing.wire import GpusSeen, KernelLines
from tests.jumping import START

CARDS = """\
1, GPU-bb, NVIDIA H100 80GB HBM3, 79000, 81559, 100, 88, 634.49, 00000000:DB:00.0, 0x0000000000000048
0, GPU-aa, NVIDIA H100 80GB HBM3, 4, 81559, [N/A], [Not Supported], [N/A], 00000000:3B:00.0, 0x0000000000000004
"""
USES = """\
415, GPU-bb, 78000, /opt/python, with a comma
416, GPU-bb, [Not Available], sglang::scheduler_TP0
417, GPU-gone, 1, lost
No running processes found
"""


def test_cards_come_by_index_with_their_processes_and_the_faults_that_slow_them():
    assert gpus.read(GpusSeen(0, CARDS, USES)) == (
        Gpu(0, "GPU-aa", "NVIDIA H100 80GB HBM3", 4, 81559),
        Gpu(
            1,
            "GPU-bb",
            "NVIDIA H100 80GB HBM3",
            79000,
            81559,
            100,
            88,
            634.49,
            ("hw_slowdown", "hw_thermal_slowdown"),
            (GpuUse(415, "/opt/python, with a comma", 78000), GpuUse(416, "sglang::scheduler_TP0", None)),
        ),
    )


def test_units_that_were_not_asked_for_are_passed_over():
    (gpu,) = gpus.read(GpusSeen(2, "0, GPU-a, H200, 9293 MiB, 143771 MiB, 100 %, 67, 634.41 W", ""))
    assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.utilization_percent, gpu.power_w) == (
        9293,
        143771,
        100,
        634.41,
    )


def test_the_list_of_fields_that_worked_is_asked_first_the_next_time():
    first = gpus.question(("nvidia-smi",))
    assert ["event" in one[0] for one in first.cards] == [True, False, False]
    assert ["throttle" in one[0] for one in first.cards] == [False, True, False]
    found = gpus.variant_of(0, 1)
    assert gpus.question(("nvidia-smi",), found).cards == (*first.cards[1:], first.cards[0])
    assert gpus.variant_of(found, 0) == 1
    assert gpus.variant_of(found, 2) == 0


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_cards_or_nothing(cards, uses):
    assert all(isinstance(one, Gpu) for one in gpus.read(GpusSeen(0, cards, uses)))


@given(st.lists(st.sampled_from(["0", "GPU-a", "nan", "inf", "-1", "1e999", "0x", "[N/A]", ""]), max_size=12))
def test_any_cells_are_cards_or_nothing(cells):
    line = ", ".join(cells)
    assert all(isinstance(one, Gpu) for one in gpus.read(GpusSeen(0, line, line)))


def test_a_process_below_a_server_holds_its_memory_for_that_server():
    owners = {9001: (timedelta(hours=2), (9001, 9000, 1), 5), 7: (None, (7,), None)}
    uses = "9001, GPU-a, 9284, sglang::scheduler\n7, GPU-a, 500, python3"
    (gpu,) = gpus.read(GpusSeen(0, "0, GPU-a, H200, 9293, 143771, 100, 67, 634.41", uses, "", owners), {9000: "gpu0"})
    assert [(use.pid, use.server, use.age, use.started) for use in gpu.uses] == [
        (9001, "gpu0", timedelta(hours=2), 5),
        (7, None, None, None),
    ]


def test_a_process_that_holds_memory_is_named_without_its_keys():
    uses = "417, GPU-bb, 5, python serve.py --api-key hunter2hunter2"
    (use,) = gpus.read(GpusSeen(0, CARDS, uses))[1].uses
    assert use.name == "python serve.py --api-key ***"


def test_what_the_kernel_says_is_told_of_the_gpu_that_has_the_address():
    indices = gpus.buses(GpusSeen(0, CARDS, USES))
    assert indices == {"0000:3b:00": 0, "0000:db:00": 1}
    assert gpus.buses(GpusSeen(2, "0, GPU-a, H200, 9, 100, 50, 60, 70.5, 0x0", "")) == {}
    lines = (
        "[  880.0] NVRM: Xid (PCI:0000:db:00): 79, pid=415, name=python3, GPU has fallen off the bus.",
        "[  940.0] NVRM: Xid (PCI:0000:ff:00): 31, pid=1, name=x, token=hf_abcdefghijklmnopqrstuvwxyz0123456789",
    )
    assert gpus.faults(KernelLines(lines, 1000.0, 1.8e9), indices, START) == (
        GpuFault(START - timedelta(seconds=60), "0000:ff:00", 31, "token=***", None, 1),
        GpuFault(START - timedelta(seconds=120), "0000:db:00", 79, "GPU has fallen off the bus", 1, 415),
    )
    assert gpus.faults(KernelLines(), indices, START) is None
    assert gpus.faults(KernelLines(lines, 200_000.0, 1.8e9), indices, START) == ()
