"""``python -m bot.demo.nvidia_smi --query-gpu=… --format=csv,noheader,nounits``: nvidia-smi of the simulated machine.

It answers the CSV queries for GPUs and for processes, and a plain table without arguments. How many GPUs there are
stands in ``UPBOT_SIM_GPUS`` (8).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.demo.machine import GPU_NAME, GPU_TOTAL_MIB, Entry, Machine, bus_of

DRIVER = "580.159.04"
_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as it is now."""

    index: int
    holders: tuple[Entry, ...]
    is_hot: bool
    is_stuck: bool

    @property
    def uuid(self) -> str:
        """A name that stays the same."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'simulated gpu {self.index}')}"

    @property
    def used_mib(self) -> int:
        """Memory in use; the driver keeps a little for itself."""
        return min(GPU_TOTAL_MIB, sum(one.mib for one in self.holders) + (9 if self.holders else 0))

    @property
    def is_busy(self) -> bool:
        """Whether something runs on it."""
        return any(one.running for one in self.holders)

    @property
    def reasons(self) -> int:
        """Why its clock is not higher, as bits."""
        if self.is_hot:
            return _REASONS["hw_slowdown"] | _REASONS["hw_thermal_slowdown"]
        return _REASONS["sw_power_cap"] if self.is_busy and not self.is_stuck else 0 if self.holders else 1

    @property
    def celsius(self) -> int:
        """Its temperature."""
        return 92 if self.is_hot else 67 + self.index % 3 if self.is_busy and not self.is_stuck else 41 + self.index % 4

    @property
    def watts(self) -> float:
        """Its power draw. A kernel that waits for ever draws little, however busy the GPU calls itself."""
        base = 352.18 if self.is_hot else 171.4 if self.is_stuck else 634.49 if self.is_busy else 127.3
        return base + self.index

    @property
    def megahertz(self) -> int:
        """Its clock."""
        return 1005 if self.is_hot else 1740 if self.is_busy else 1980


_GPU_FIELDS: dict[str, tuple[str, str, Callable[[Card], object]]] = {
    "index": ("index", "", lambda card: card.index),
    "uuid": ("uuid", "", lambda card: card.uuid),
    "name": ("name", "", lambda _: GPU_NAME),
    "driver_version": ("driver_version", "", lambda _: DRIVER),
    "memory.used": ("memory.used [MiB]", "MiB", lambda card: card.used_mib),
    "memory.free": ("memory.free [MiB]", "MiB", lambda card: GPU_TOTAL_MIB - card.used_mib),
    "memory.total": ("memory.total [MiB]", "MiB", lambda _: GPU_TOTAL_MIB),
    "utilization.gpu": ("utilization.gpu [%]", "%", lambda card: 100 if card.is_busy else 0),
    "temperature.gpu": ("temperature.gpu", "", lambda card: card.celsius),
    "power.draw": ("power.draw [W]", "W", lambda card: f"{card.watts:.2f}"),
    "power.limit": ("power.limit [W]", "W", lambda _: "700.00"),
    "clocks.sm": ("clocks.current.sm [MHz]", "MHz", lambda card: card.megahertz),
    "clocks.current.sm": ("clocks.current.sm [MHz]", "MHz", lambda card: card.megahertz),
    "pstate": ("pstate", "", lambda _: "P0"),
    "ecc.errors.uncorrected.volatile.total": ("ecc.errors.uncorrected.volatile.total", "", lambda _: 0),
    "pci.bus_id": ("pci.bus_id", "", lambda card: f"0000{bus_of(card.index).upper()}.0"),
    "pcie.link.gen.current": ("pcie.link.gen.current", "", lambda _: 5),
    "clocks_event_reasons.active": ("clocks_event_reasons.active", "", lambda card: f"0x{card.reasons:016X}"),
}
_APP_FIELDS: dict[str, tuple[str, str, Callable[[Card, Entry], object]]] = {
    "pid": ("pid", "", lambda _, entry: entry.pid),
    "gpu_uuid": ("gpu_uuid", "", lambda card, _: card.uuid),
    "gpu_name": ("gpu_name", "", lambda *_: GPU_NAME),
    "used_memory": ("used_gpu_memory [MiB]", "MiB", lambda _, entry: entry.mib),
    "used_gpu_memory": ("used_gpu_memory [MiB]", "MiB", lambda _, entry: entry.mib),
    "process_name": ("process_name", "", lambda *_: "python3"),
    "name": ("process_name", "", lambda *_: "python3"),
}


def cards(machine: Machine, count: int) -> list[Card]:
    """Every GPU of the machine."""
    found = []
    for index in range(count):
        holders = tuple(machine.holders(index))
        stuck = any(machine.control(one.port).is_hung for one in holders)
        found.append(Card(index, holders, machine.trouble(index).is_hot, stuck))
    return found


def answer(argv: Sequence[str], machine: Machine, count: int) -> tuple[int, str]:
    """Exit status and output of one call."""
    parser = argparse.ArgumentParser(prog="nvidia-smi", exit_on_error=False)
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", default="csv")
    parser.add_argument("-i", "--id")
    try:
        asked, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as exc:
        return 1, f"{exc}\n"
    if unknown:
        return 1, f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help. ({unknown[0]})\n"
    shown = [card for card in cards(machine, count) if asked.id in (None, str(card.index), card.uuid)]
    if asked.query_gpu is not None:
        return _csv(asked.query_gpu, asked.format, _gpu_field, [(card,) for card in shown])
    if asked.query_compute_apps is not None:
        rows = [(card, entry) for card in shown for entry in card.holders]
        return _csv(asked.query_compute_apps, asked.format, _APP_FIELDS.get, rows)
    return 0, _table(shown)


def _gpu_field(name: str) -> tuple[str, str, Callable[..., object]] | None:
    name = name.replace("clocks_throttle_reasons.", "clocks_event_reasons.")
    stem, _, reason = name.partition(".")
    if stem == "clocks_event_reasons" and reason in _REASONS:
        bit = _REASONS[reason]
        return name, "", lambda card: "Active" if card.reasons & bit else "Not Active"
    return _GPU_FIELDS.get(name)


def _csv(
    fields: str,
    form: str,
    find: Callable[[str], tuple[str, str, Callable[..., object]] | None],
    rows: Sequence[tuple[object, ...]],
) -> tuple[int, str]:
    chosen = []
    for name in fields.split(","):
        field = find(name.strip())
        if field is None:
            return 2, f'Field "{name.strip()}" is not a valid field to query.\n\n'
        chosen.append(field)
    words = form.split(",")
    head = [] if "noheader" in words else [", ".join(title for title, _, _ in chosen)]
    lines = [", ".join(_cell(unit, of(*row), "nounits" in words) for _, unit, of in chosen) for row in rows]
    return 0, "".join(f"{line}\n" for line in (*head, *lines))


def _cell(unit: str, value: object, is_bare: bool) -> str:
    return f"{value} {unit}" if unit and not is_bare else str(value)


def _table(shown: Sequence[Card]) -> str:
    rule = "+" + "-" * 78 + "+"
    rows = [time.strftime("%a %b %d %H:%M:%S %Y"), rule, f"| NVIDIA-SMI {DRIVER} (simulated)".ljust(79) + "|", rule]
    for card in shown:
        text = (
            f"| {card.index:3d}  {GPU_NAME:<14} {card.celsius:3d}C  P0 {card.watts:6.0f}W / 700W | "
            f"{card.used_mib:>6}MiB / {GPU_TOTAL_MIB}MiB | {100 if card.is_busy else 0:3d}%"
        )
        rows.append(text.ljust(79) + "|")
    rows += [rule, "| Processes:".ljust(79) + "|"]
    for card in shown:
        rows += [
            f"| {card.index:4d} {one.pid:>16}   C   python3 {one.mib:>16}MiB".ljust(79) + "|" for one in card.holders
        ]
    return "\n".join((*rows, rule)) + "\n"


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """One call of the command."""
    count = env.get("UPBOT_SIM_GPUS", "8")
    status, text = answer(argv, Machine.of(env), int(count) if count.isdigit() else 8)
    sys.stdout.write(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
