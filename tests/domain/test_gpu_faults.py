"""What the kernel's words about a GPU mean, and which of them explain a trouble."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.facts import GpuFault, Process, ServerFacts
from bot.domain.gpu_faults import XIDS, Gravity, apart, beside, meaning, reason, said, telling
from tests.jumping import START


def fault(code: int | None, ago: float, **more) -> GpuFault:
    return GpuFault(START - timedelta(seconds=ago), "0000:3b:00", code, **{"gpu": 3, **more})


def test_the_xids_that_matter_have_a_meaning_and_a_remedy() -> None:
    wanted = (13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 144)
    assert all(meaning(code).words and meaning(code).remedy for code in wanted)
    assert all(len(one.words) <= 60 and len(one.remedy) <= 90 for one in XIDS.values())
    assert [meaning(code).gravity for code in (45, 63, 43, 31, 79)] == [
        Gravity.ECHO,
        Gravity.NOTE,
        Gravity.STOPPED,
        Gravity.APPLICATION,
        Gravity.GPU,
    ]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            fault(79, 120),
            "Xid 79 on GPU 3: fallen off the bus, 2 m ago; reboot the host; again: power, seating, hardware",
        ),
        (
            fault(31, 5, gpu=None, times=4),
            (
                "Xid 31 on the GPU at 0000:3b:00: memory page fault, 5 s ago, 4 times; restart the server; "
                "again and again: another kernel backend"
            ),
        ),
        (
            fault(154, 1, words="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
            (
                "Xid 154 on GPU 3: GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required), 1 s ago; "
                "do as it says"
            ),
        ),
        (fault(777, 1), "Xid 777 on GPU 3, 1 s ago; see NVIDIA's Xid catalog"),
        (
            fault(None, 60, words="ring comp_1.1.0 timeout"),
            (
                "GPU 3: ring comp_1.1.0 timeout, 1 m ago; restart the server; "
                "again and again: reset the GPU or reboot the host"
            ),
        ),
    ],
)
def test_a_fault_is_told_with_its_place_its_age_and_what_to_do(one, words) -> None:
    assert said(one, START) == words


def test_the_gravest_shortly_before_is_the_reason() -> None:
    bus, page, echo, note = fault(79, 100), fault(31, 10), fault(45, 9), fault(63, 9)
    assert reason([page, echo, bus, note], START, START) == bus
    assert reason([page, echo], START, START) == page
    assert reason([fault(31, 200), page], START, START) == page
    # What came long before, says nothing by itself, or is what any end leaves explains nothing.
    assert reason([fault(79, 301)], START, START) is None
    assert reason([echo, note], START, START) is None
    assert reason(None, START, START) is None
    # The driver may be slower than we are.
    late = fault(79, -4)
    assert reason([late], START, START + timedelta(seconds=10)) == late
    assert beside(late, START).startswith("Xid 79 on GPU 3: fallen off the bus, 4 s after; ")


def test_how_far_apart_two_things_were() -> None:
    assert [apart(timedelta(seconds=number)) for number in (120, 1, -1, -30)] == [
        "2 m before",
        "just then",
        "just then",
        "30 s after",
    ]


def test_of_a_server_that_lives_old_faults_are_told_only_where_its_gpu_is_broken() -> None:
    process = Process(1, 1, age=timedelta(hours=6))
    faults = (fault(45, 5), fault(31, 7200), fault(63, 60), fault(64, 7200), fault(79, 8 * 3600))
    facts = ServerFacts("gpu3", START, process=process, faults=faults)
    assert [one.code for one in telling(facts, START)] == [64, 63]
    assert [one.code for one in telling(ServerFacts("gpu3", START, faults=faults), START)] == [63]
    assert telling(ServerFacts("gpu3", START), START) == ()
