"""Whether processes have come and gone, seen in /proc and waited for with a deadline."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path


def alive(mark: str, program: str = "") -> list[int]:
    """The processes of this machine, other than this one, of that program, that carry the mark in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes()
            if state != "Z" and words.startswith(program.encode()) and mark.encode() in words:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked
    return found


async def gone(mark: str, within: float = 5) -> bool:
    """Whether no process carries the mark any more, waiting for it."""
    until = asyncio.get_running_loop().time() + within
    while alive(mark):
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(0.02)
    return True


async def started(mark: str, program: str = "", within: float = 5) -> bool:
    """Whether a process carries the mark, waiting for it."""
    until = asyncio.get_running_loop().time() + within
    while not alive(mark, program):
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(0.02)
    return True
