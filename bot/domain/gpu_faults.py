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
    APPLICATION = 2
    """A kernel or an address of the program was wrong; the GPU is well."""
    GPU = 3
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
    43: Meaning("stopped by a fault of the program", _RESTART, Gravity.ECHO),
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
_AMD_TIMEOUT = Meaning("", f"{_RESTART}; again and again: reset the GPU or reboot the host", Gravity.GPU)

BEFORE = timedelta(minutes=5)
"""How long before a server's trouble began a fault may have come and still be its reason."""
REMEMBERED = timedelta(hours=24)
TELLING = timedelta(hours=1)
"""How long a fault is told of a server that is well all the same."""


def meaning(fault: GpuFault) -> Meaning:
    """What it says; of a number that no table has, only the number and the driver's words are known."""
    if fault.code is None:
        return _AMD_TIMEOUT
    return XIDS.get(fault.code, _UNKNOWN)


def named(fault: GpuFault) -> str:
    """Which, where and what: "Xid 79 on GPU 3: fallen off the bus"."""
    where = f"GPU {fault.gpu}" if fault.gpu is not None else f"the GPU at {fault.pci}"
    what = meaning(fault).words or fault.words
    if fault.code is None:
        return f"{where}: {what}"
    return f"Xid {fault.code} on {where}" + (f": {what}" if what else "")


def said(fault: GpuFault, now: datetime) -> str:
    """A fault with its age and its remedy, as a line for people."""
    often = f", {fault.times} times" if fault.times > 1 else ""
    return f"{named(fault)}, {span(now - fault.at)} ago{often}; {meaning(fault).remedy}"


def reason(faults: Sequence[GpuFault] | None, since: datetime, now: datetime) -> GpuFault | None:
    """The fault that explains a trouble which began at ``since``: the gravest, and of these the one nearest to it.

    What came long before, or says nothing by itself, explains nothing; the echo of an end only where nothing else does.
    """
    near = [one for one in faults or () if since - BEFORE <= one.at <= now and meaning(one).gravity > Gravity.NOTE]
    return max(near, key=lambda one: (meaning(one).gravity, -abs((one.at - since).total_seconds())), default=None)


def telling(facts: ServerFacts, now: datetime) -> tuple[GpuFault, ...]:
    """Those worth telling of a server, the gravest first: the last hour's, and a broken GPU's of its process' lifetime.

    Echoes are left out where a graver one stands beside them, and where the process lives: they were another's.
    """
    lives = facts.process is not None
    born = now - (min(facts.process.age, REMEMBERED) if facts.process is not None else TELLING)
    found = [
        one
        for one in facts.faults or ()
        if one.at >= now - TELLING or (one.at >= born and meaning(one).gravity is Gravity.GPU)
    ]
    grave = any(meaning(one).gravity > Gravity.ECHO for one in found)
    shown = [one for one in found if not (meaning(one).gravity is Gravity.ECHO and (grave or lives))]
    return tuple(sorted(shown, key=lambda one: (-meaning(one).gravity, now - one.at)))
