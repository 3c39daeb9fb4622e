"""Reads what nvidia-smi, or what stands for it, prints about cards, their processes and what slows them.

Fields and their names: NVIDIA's ``nvidia-smi --help-query-gpu``. Drivers before 535 know the reasons that slow
a clock as ``clocks_throttle_reasons``; some stand-ins know neither reasons nor PCI addresses, so that is the third
try. A GPU that fell off the bus makes the query fail for all of them: which index has which PCI address is remembered
from looks before, so that what the kernel says of it can still be told of the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from math import isfinite
from typing import TypeVar

from bot.domain.facts import Gpu, GpuFault, GpuUse
from bot.domain.gpu_faults import REMEMBERED
from bot.engines._reading import kernel
from bot.engines._reading.redact import redact
from bot.runtime.probing.wire import AskGpus, AskKernel, GpusSeen, KernelLines

LIMIT = timedelta(seconds=10)
"""Without persistence mode a driver wakes up first, some seconds a card."""
_BASE = "index,uuid,name,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw"
_REASONS = (",pci.bus_id,clocks_event_reasons.active", ",pci.bus_id,clocks_throttle_reasons.active", "")
_FORMAT = "--format=csv,noheader,nounits"
_CARDS = tuple((f"--query-gpu={_BASE}{reasons}", _FORMAT) for reasons in _REASONS)
_USES = ("--query-compute-apps=pid,gpu_uuid,used_memory,process_name", _FORMAT)
# nvml.h, nvmlClocksEventReason…: idle (0x1), settings (0x2, 0x100) and the power cap (0x4) are no fault.
_SLOWED_BY = (
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
)
_MOST = 1024
_Number = TypeVar("_Number", int, float)


def question(argv: tuple[str, ...], variant: int = 0) -> AskGpus:
    """What to ask with this command; ``variant`` is the first list of fields to try."""
    return AskGpus(argv, (*_CARDS[variant:], *_CARDS[:variant]), _USES, LIMIT)


def kernel_question(command: tuple[str, ...]) -> AskKernel:
    """What to ask of the kernel's log; an empty command means what the host has for that."""
    return AskKernel(command, kernel.WORDS, LIMIT)


def buses(seen: GpusSeen) -> Mapping[str, int]:
    """Which GPU has which PCI address, as far as it was told."""
    found: dict[str, int] = {}
    for cells in _rows(seen.cards):
        index = _number(int, cells[0])
        address = kernel.bus(cells[8]) if len(cells) > 8 else ""
        if index is not None and address:
            found[address] = index
    return found


def faults(told: KernelLines, indices: Mapping[str, int], now: datetime) -> tuple[GpuFault, ...] | None:
    """What the kernel said of GPUs lately, the newest first; None where its log can't be read."""
    if told.lines is None:
        return None
    words = kernel.read(told.lines, kernel.Clocks(told.up, told.epoch, told.offset))
    return tuple(
        GpuFault(now - one.age, one.pci, one.code, redact(one.words), indices.get(one.pci), one.pid, one.times)
        for one in words
        if one.age <= REMEMBERED
    )


def variant_of(asked: int, told: int) -> int:
    """Which list of fields worked, when the question began with ``asked`` and the answer names its ``told``-th."""
    return (asked + told) % len(_CARDS)


def read(seen: GpusSeen, servers: Mapping[int, str] | None = None) -> tuple[Gpu, ...]:
    """The cards with their processes, by index; what can't be read is left out, or None.

    ``servers`` says of a server's main process which server it is; a process below it holds memory for that server.
    """
    cards = {gpu.uuid or str(gpu.index): gpu for gpu in _cards(seen.cards)}
    for uuid, bare in _uses(seen.uses):
        age, above, started = seen.owners.get(bare.pid, (None, (bare.pid,), None))
        owner = next((name for pid in above if (name := (servers or {}).get(pid))), None)
        use = replace(bare, server=owner, age=age, started=started)
        gpu = cards.get(uuid)
        if gpu is not None:
            cards[uuid] = replace(gpu, uses=(*gpu.uses, use))
    return tuple(sorted(cards.values(), key=lambda gpu: gpu.index))


def _cards(text: str) -> Iterator[Gpu]:
    for cells in _rows(text):
        index = _number(int, cells[0])
        if index is None or len(cells) < 8:
            continue
        yield Gpu(
            index,
            cells[1],
            cells[2],
            _number(int, cells[3]),
            _number(int, cells[4]),
            _number(int, cells[5]),
            _number(int, cells[6]),
            _number(float, cells[7]),
            _reasons(next((cell for cell in cells[8:] if cell.startswith("0x")), "")),
        )


def _uses(text: str) -> Iterator[tuple[str, GpuUse]]:
    for cells in _rows(text):
        pid = _number(int, cells[0])
        if pid is not None and len(cells) >= 4:
            # A process' name may hold a comma.
            yield cells[1], GpuUse(pid, redact(", ".join(cells[3:])), _number(int, cells[2]))


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines()[:_MOST]:
        if "," in line:
            yield [cell.strip() for cell in line.split(",")]


def _reasons(text: str) -> tuple[str, ...]:
    try:
        mask = int(text, 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in _SLOWED_BY if mask & bit)


def _number(kind: Callable[[float], _Number], text: str) -> _Number | None:
    """A number, its unit passed over; "[N/A]" and the like are None."""
    try:
        value = float(text.split(maxsplit=1)[0])
        return kind(value) if isfinite(value) else None
    except (ValueError, IndexError):
        return None
