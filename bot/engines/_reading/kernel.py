"""Reads what the kernel's log says of GPUs: NVIDIA's Xid lines, and timeouts and resets of AMD's driver.

NVIDIA: ``NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.`` (docs.nvidia.com,
"XID Errors"; drivers before R470 leave ``PCI:`` and the process out). AMD: ``amdgpu 0000:03:00.0: amdgpu: ring
comp_1.1.0 timeout, signaled seq=7, emitted seq=9``, ``… GPU reset begin!``, ``… GPU reset(2) succeeded!`` (kernel
logs in ROCm/legacy-rocm-build #6127, ublue-os/bazzite #4464). Times come as dmesg, ``dmesg -T`` and ``--time-format
iso`` print them, and as the journal does (short-unix, short-iso).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WORDS = ("NVRM: Xid", "GPU reset", "timeout, signaled seq")
"""A line without one of these is of no interest."""
MOST = 64
_LONGEST = 160

_BUS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?" + _BUS + r"[^)\s]*\): (\d{1,4})\b,?\s*(.*)")
_PROCESS = re.compile(r"pid='?(\d{1,10})'?,?\s*")
_UNKNOWN = re.compile(r"pid='?<unknown>'?,?\s*|name='?[^,]*'?,\s*|[Cc]h(?:annel)?(?: ID)? [0-9a-fA-Fx]+,?\s*")
_AMD = re.compile(
    r"amdgpu " + _BUS + r"\.\d: (?:amdgpu: )?"
    r"(ring \S{1,40} timeout|GPU reset begin|GPU reset\(\d+\) (?:succeeded|failed)|GPU reset succeeded)"
)
_SINCE_BOOT = re.compile(r"(?:<\d+>)?\[\s*(\d{1,12}\.\d{1,9})\]")
_EPOCH = re.compile(r"(\d{9,11}\.\d{1,9}) ")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)?(?= )",
)
_PEOPLE = re.compile(r"\[\w{3} (\w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The host's clocks at the moment of reading: seconds since boot and since 1970, and its local time's offset."""

    up: float
    epoch: float
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelWord:
    """One line about a GPU: how long ago, its PCI address, NVIDIA's number (None: AMD), the process, and the rest."""

    age: timedelta
    pci: str
    code: int | None = None
    pid: int | None = None
    words: str = ""
    times: int = 1


def read(lines: Iterable[str], clocks: Clocks) -> tuple[KernelWord, ...]:
    """What the lines say, the newest first; of each GPU and kind the newest, with how many like it there are.

    A line whose time can't be read is left out, since nothing could be said to have come of it.
    """
    found: dict[tuple[str, int | None, str], KernelWord] = {}
    for line in lines:
        word = _word(line[:2000], clocks)
        if word is None:
            continue
        key = (word.pci, word.code, word.words if word.code is None else "")
        before = found.get(key)
        newest = word if before is None or word.age <= before.age else before
        times = 1 if before is None else before.times + 1
        found[key] = KernelWord(newest.age, newest.pci, newest.code, newest.pid, newest.words, times)
    return tuple(sorted(found.values(), key=lambda one: one.age)[:MOST])


def bus(text: str) -> str:
    """A PCI address in one form, whoever writes it: "00000000:3B:00.0" is "0000:3b:00"; "" for what is none."""
    parts = text.strip().lower().removeprefix("pci:").partition(".")[0].split(":")
    return f"{parts[0].lstrip('0'):0>4}:{parts[1]}:{parts[2]}" if len(parts) == 3 else ""


def _word(line: str, clocks: Clocks) -> KernelWord | None:
    xid, amd = _XID.search(line), _AMD.search(line)
    if xid is None and amd is None:
        return None
    age = _age(line, clocks)
    if age is None:
        return None
    if amd is not None:
        return KernelWord(age, bus(amd[1]), words=amd[2])
    assert xid is not None  # noqa: S101 - one of the two was found; this is for the type checker
    process = _PROCESS.search(xid[3])
    words = _UNKNOWN.sub("", _PROCESS.sub("", xid[3])).strip(" ,.")
    return KernelWord(age, bus(xid[1]), int(xid[2]), int(process[1]) if process is not None else None, words[:_LONGEST])


def _age(line: str, clocks: Clocks) -> timedelta | None:
    """How long ago a line was written; one of the future is of now."""
    seconds: float | None = None
    if (found := _SINCE_BOOT.match(line)) is not None:
        seconds = clocks.up - float(found[1])
    elif (found := _EPOCH.match(line)) is not None:
        seconds = clocks.epoch - float(found[1])
    elif (at := _instant(line, clocks)) is not None:
        seconds = clocks.epoch - at
    if seconds is None or not -86_400 < seconds < 1e9:
        return None
    return timedelta(seconds=max(0.0, seconds))


def _instant(line: str, clocks: Clocks) -> float | None:
    """Seconds since 1970 of a time as people read it; local where it names no zone."""
    iso, people = _ISO.match(line), _PEOPLE.match(line)
    try:
        if iso is not None:
            at = datetime.fromisoformat(iso[1] + _zone(iso[2]))
        elif people is not None:
            at = datetime.strptime(people[1], "%b %d %H:%M:%S %Y")  # noqa: DTZ007 - the zone is added below
        else:
            return None
        if at.tzinfo is not None:
            return at.timestamp()
        return at.replace(tzinfo=UTC).timestamp() - clocks.offset
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> str:
    if not text or text == "Z":
        return "+00:00" if text else ""
    return text if ":" in text else f"{text[:3]}:{text[3:]}"
