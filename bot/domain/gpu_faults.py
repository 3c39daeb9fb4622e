"""What the kernel's words about a GPU mean, what is to be done, and which of them explain a server's trouble.

Meanings and remedies are those of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with
the Xid Catalog", resolution buckets RESTART_APP, RESET_GPU, RESTART_BM, IGNORE and its notes), in our words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from bot.domain.facts import GpuFault, ServerFacts
from bot.domain.phrases import span


class Gravity(IntEnum):
    """How much a fault explains, in rising order."""

    NOTE = 0
    """It explains no trouble by itself."""
    ECHO = 1
    """What a process' end leaves behind, whatever ended it."""
    STOPPED = 2
    """The driver stopped the program; another line may say why."""
    APPLICATION = 3
    """A kernel or an address of the program was wrong; the GPU is well."""
    GPU = 4
    """The GPU itself: it must be reset, or more."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an Xid says and what to do."""

    words: str
    remedy: str
    gravity: Gravity


_RESTART = "restart the server"
_RESET = "stop what runs on it and reset the GPU (nvidia-smi -r -i N)"
_NVLINK = "reset the GPUs or reboot the host; nvidia-smi nvlink -s shows the link"

XIDS: Mapping[int, Meaning] = {
    8: Meaning("GPU stopped processing", _RESTART, Gravity.APPLICATION),
    13: Meaning("exception in a kernel", f"{_RESTART}; again and again: another kernel backend", Gravity.APPLICATION),
    31: Meaning("memory page fault", f"{_RESTART}; again and again: another kernel backend", Gravity.APPLICATION),
    32: Meaning(
        "corrupted commands over PCIe", f"{_RESTART}; again and again: check the PCIe link", Gravity.APPLICATION
    ),
    43: Meaning("stopped by a fault of the program", _RESTART, Gravity.STOPPED),
    45: Meaning("its process ended and was cleaned up", "look for an Xid before it", Gravity.ECHO),
    46: Meaning("GPU stopped processing", _RESET, Gravity.GPU),
    48: Meaning("uncorrectable (double bit) memory error", _RESET, Gravity.GPU),
    61: Meaning("internal micro-controller stopped", _RESET, Gravity.GPU),
    62: Meaning("internal micro-controller halted", _RESET, Gravity.GPU),
    63: Meaning("memory row remapped", "reset the GPU when convenient", Gravity.NOTE),
    64: Meaning("memory row could not be remapped", f"{_RESET}; it may need replacing", Gravity.GPU),
    69: Meaning("error in a kernel's class", _RESTART, Gravity.APPLICATION),
    74: Meaning("NVLink error", _NVLINK, Gravity.GPU),
    79: Meaning("fallen off the bus", "reboot the host; again: power, seating, hardware", Gravity.GPU),
    92: Meaning("many corrected memory errors", "watch it; it may need replacing", Gravity.NOTE),
    94: Meaning("memory error, contained", f"{_RESTART}; reset the GPU when convenient", Gravity.APPLICATION),
    95: Meaning("memory error, not contained", _RESET, Gravity.GPU),
    109: Meaning("context switch timed out", _RESET, Gravity.GPU),
    110: Meaning("security fault", "power-cycle the host", Gravity.GPU),
    119: Meaning("GSP firmware does not answer", f"{_RESET}; again: reboot the host", Gravity.GPU),
    120: Meaning("error in the GSP firmware", f"{_RESET}; again: reboot the host", Gravity.GPU),
    121: Meaning("corrected errors on the link to the CPU", "reset the GPU when convenient", Gravity.NOTE),
    136: Meaning("link training failed", _RESET, Gravity.GPU),
    137: Meaning("illegal access over NVLink", _RESTART, Gravity.APPLICATION),
    140: Meaning("memory error that could not be recovered", _RESET, Gravity.GPU),
    143: Meaning("GPU could not be initialized", _RESET, Gravity.GPU),
    **{code: Meaning("NVLink error", _NVLINK, Gravity.GPU) for code in range(144, 151)},
    154: Meaning("", "do as it says", Gravity.NOTE),
    155: Meaning("NVLink went down", _NVLINK, Gravity.GPU),
    156: Meaning("memory was retired", "reset the GPU when convenient", Gravity.NOTE),
    157: Meaning("memory could not be retired", "it may need replacing", Gravity.NOTE),
    158: Meaning("GPU timed out for good", _RESET, Gravity.GPU),
    167: Meaning("PCIe timed out for good", "reboot the host", Gravity.GPU),
    171: Meaning("uncorrectable memory error (DRAM)", _RESET, Gravity.GPU),
    172: Meaning("uncorrectable memory error (SRAM)", _RESET, Gravity.GPU),
}
_UNKNOWN = Meaning("", "see NVIDIA's Xid catalog", Gravity.NOTE)
_AMD = Meaning("", f"{_RESTART}; again and again: reset the GPU or reboot the host", Gravity.GPU)

BEFORE = timedelta(minutes=5)
"""How long before a server's trouble began a fault may have come and still be its reason."""
REMEMBERED = timedelta(hours=24)
TELLING = timedelta(hours=1)
"""How long a fault is told of a server that is well all the same."""


def meaning(code: int | None) -> Meaning:
    """What an Xid says, None being AMD's driver; of a number that no table has nothing is known."""
    return _AMD if code is None else XIDS.get(code, _UNKNOWN)


def remedy(code: int | None, gpu: int | None) -> str:
    """What to do, with the number of the GPU where it is known."""
    words = meaning(code).remedy
    return words if gpu is None else words.replace("-i N", f"-i {gpu}")


def named(code: int | None, where: str, words: str = "") -> str:
    """Which, where and what: "Xid 79 on GPU 3: fallen off the bus"; ``words`` are the driver's, for want of better."""
    what = meaning(code).words or words
    head = where if code is None else f"Xid {code} on {where}"
    return f"{head}: {what}" if what else head


def is_grave(fault: GpuFault) -> bool:
    """Whether it is more than a note or an echo."""
    return meaning(fault.code).gravity > Gravity.ECHO


def _of(fault: GpuFault) -> str:
    where = f"GPU {fault.gpu}" if fault.gpu is not None else f"the GPU at {fault.pci}"
    return named(fault.code, where, fault.words)


def said(fault: GpuFault, now: datetime) -> str:
    """A fault with its age and its remedy, as a line for people."""
    often = f", {fault.times} times" if fault.times > 1 else ""
    return f"{_of(fault)}, {span(now - fault.at)} ago{often}; {remedy(fault.code, fault.gpu)}"


def beside(fault: GpuFault, since: datetime) -> str:
    """A fault beside a trouble: "Xid 79 on GPU 3: fallen off the bus, 2 m before; reboot the host"."""
    return f"{_of(fault)}, {apart(since - fault.at)}; {remedy(fault.code, fault.gpu)}"


def apart(before: timedelta) -> str:
    """How long before something else, or after it."""
    if abs(before) < timedelta(seconds=2):
        return "just then"
    return f"{span(before)} before" if before > timedelta() else f"{span(-before)} after"


def reason(faults: Sequence[GpuFault] | None, since: datetime, now: datetime) -> GpuFault | None:
    """The fault that explains a trouble which began at ``since``: the gravest, and of these the one nearest to it.

    What came long before explains nothing, nor does what says nothing by itself or is the echo of any end.
    """
    near = [one for one in faults or () if since - BEFORE <= one.at <= now and is_grave(one)]
    return max(near, key=lambda one: (meaning(one.code).gravity, -abs((one.at - since).total_seconds())), default=None)


def telling(facts: ServerFacts, now: datetime) -> tuple[GpuFault, ...]:
    """Those worth telling of a server, the gravest first: the last hour's, and a broken GPU's of its process' lifetime.

    Echoes are left out: whatever ended a process leaves them.
    """
    born = now - (min(facts.process.age, REMEMBERED) if facts.process is not None else TELLING)
    found = [
        one
        for one in facts.faults or ()
        if (one.at >= now - TELLING and meaning(one.code).gravity is not Gravity.ECHO)
        or (one.at >= born and meaning(one.code).gravity is Gravity.GPU)
    ]
    return tuple(sorted(found, key=lambda one: (-meaning(one.code).gravity, now - one.at)))
