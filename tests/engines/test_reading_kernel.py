"""What the kernel's log says of GPUs, in every form in which it is printed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engines._reading.kernel import MOST, Clocks, KernelWord, bus, read

NOW = Clocks(up=1000.0, epoch=1_800_000_000.0, offset=3600.0)
"""Friday 2027-01-15, 08:00 in Greenwich and 09:00 here."""

BUS = "GPU has fallen off the bus"
GOLDEN = {
    "dmesg": (
        "[  880.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        KernelWord(timedelta(seconds=120), "0000:3b:00", 79, 1234, BUS),
    ),
    "dmesg with its level": (
        "<3>[  999.500000] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        KernelWord(timedelta(seconds=0.5), "0000:3b:00", 79, None, BUS),
    ),
    "dmesg -T, local time": (
        (
            "[Fri Jan 15 08:59:50 2027] NVRM: Xid (PCI:0000:db:00): 119, pid=7, name=sglang::schedul, Timeout after 6s of "
            "waiting for RPC response from GPU7 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4)."
        ),
        KernelWord(
            timedelta(seconds=10),
            "0000:db:00",
            119,
            7,
            "Timeout after 6s of waiting for RPC response from GPU7 GSP! Expected function 76 (GSP_RM_CONTROL) "
            "(0x20801702 0x4)",
        ),
    ),
    "dmesg --time-format iso": (
        (
            "2027-01-15T08:59:00,123456+01:00 NVRM: Xid (PCI:0000:3B:00): 94, pid='<unknown>', name=<unknown>, Contained: "
            "SM (0x1). RST: No, D-RST: No"
        ),
        KernelWord(timedelta(seconds=60), "0000:3b:00", 94, None, "Contained: SM (0x1). RST: No, D-RST: No"),
    ),
    "journal, short-unix": (
        (
            "1799999990.250000 h200-3 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=415, name=python3, Ch 00000018, intr "
            "00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000."
        ),
        KernelWord(
            timedelta(seconds=9.75),
            "0000:3b:00",
            31,
            415,
            "intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000",
        ),
    ),
    "journal, short-iso": (
        "2027-01-15T08:00:00+0000 h200-3 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=9, name=x, DBE",
        KernelWord(timedelta(0), "0000:3b:00", 48, 9, "DBE"),
    ),
    "an old driver": (
        "[  269.517039] NVRM: Xid (0000:01:00): 13, Graphics SM Warp Exception",
        KernelWord(timedelta(seconds=730.482961), "0000:01:00", 13, None, "Graphics SM Warp Exception"),
    ),
    "with function and a long domain": (
        "[  999.0] NVRM: Xid (PCI:00010000:3b:00.0): 74, pid=1, name=x, NVLink: fatal error detected on link 6",
        KernelWord(timedelta(seconds=1), "10000:3b:00", 74, 1, "NVLink: fatal error detected on link 6"),
    ),
    "AMD, a ring": (
        "[  965.321000] amdgpu 0000:03:00.0: amdgpu: ring comp_1.1.0 timeout, signaled seq=7, emitted seq=9",
        KernelWord(timedelta(seconds=34.679), "0000:03:00", words="ring comp_1.1.0 timeout"),
    ),
    "AMD, a newer kernel": (
        "[  312.774536] amdgpu 0000:28:00.0: GPU reset begin!. Source:  1",
        KernelWord(timedelta(seconds=687.225464), "0000:28:00", words="GPU reset begin"),
    ),
    "a time of tomorrow is of now": (
        "[ 1500.0] NVRM: Xid (PCI:0000:3b:00): 79, x",
        KernelWord(timedelta(0), "0000:3b:00", 79, None, "x"),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_line_is_read(name) -> None:
    line, word = GOLDEN[name]
    assert read([line], NOW) == (word,)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: Xid (PCI:0000:3b:00): 79, no time at all",
        "[Fri Foo 99 99:59:50 2027] NVRM: Xid (PCI:0000:3b:00): 79, x",
        "[  880.0] nvidia-nvswitch1: SXid (PCI:0000:aa:00.0): 24007, Severity 1 Engine instance 12",
        "[  880.0] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "[  880.0] NVRM: Xid (PCI:0000:3b:00): many, x",
        "[  880.0] amdgpu 0000:03:00.0: amdgpu: Dumping IP State",
    ],
)
def test_other_lines_are_passed_over(line) -> None:
    assert read([line], NOW) == ()


def test_the_newest_of_each_kind_is_told_with_how_many_there_were() -> None:
    lines = [f"[  {at}.0] NVRM: Xid (PCI:0000:{bus_}:00): {code}, x" for at, bus_, code in
             [(100, "3b", 31), (200, "3b", 31), (150, "db", 31), (300, "3b", 43)]]  # fmt: skip
    assert [(one.age.total_seconds(), one.pci, one.code, one.times) for one in read(lines, NOW)] == [
        (700, "0000:3b:00", 43, 1),
        (800, "0000:3b:00", 31, 2),
        (850, "0000:db:00", 31, 1),
    ]


def test_one_address_has_one_form() -> None:
    told = ["00000000:3B:00.0", "0000:3b:00", "PCI:0000:3b:00", " 0000:3b:00.0 "]
    assert {bus(one) for one in told} == {"0000:3b:00"}
    assert [bus(one) for one in ("", "[N/A]", "1:2", "00010000:3b:00.0")] == ["", "", "", "10000:3b:00"]


PIECES = st.sampled_from(
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, ", "amdgpu 0000:03:00.0: ring x timeout", "GPU reset begin", "[  880.0] ",
        "1799999990.25 ", "2027-01-15T08:59:00+01:00 ", "[Fri Jan 15 08:59:50 2027] ", "pid=", "name=", ",", "\0", "\ud800",
        "9" * 30, "pid='<unknown>', ",
    ]
)  # fmt: skip


@given(st.lists(st.lists(PIECES | st.text(max_size=20), max_size=8).map("".join), max_size=80))
def test_whatever_stands_there_is_read_in_bounds_and_never_fails(lines) -> None:
    found = read(lines, NOW)
    assert len(found) <= MOST
    assert all(one.age >= timedelta(0) and len(one.words) <= 160 for one in found)
    assert list(found) == sorted(found, key=lambda one: one.age)


def test_a_huge_line_costs_no_more_than_a_long_one() -> None:
    assert read(["[  880.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=" + "9" * 5_000_000], NOW)[0].code == 79
