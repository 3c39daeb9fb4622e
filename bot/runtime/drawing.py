"""Turns drawings into PNG in a process of its own, which ends with its picture: the bot keeps none of its memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import timedelta
from pathlib import Path

from bot.domain.errors import FleetError

PROGRAM = Path(__file__).with_name("painter.py")
WITHIN = timedelta(seconds=10)
AT_ONCE = 2
"""So many pictures are drawn at a time; the others wait."""
_PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST = 8 * 2**20


class Drawer:
    """Implements `Painter`."""

    def __init__(self, program: Path = PROGRAM, *, within: timedelta = WITHIN) -> None:
        self._program = program
        self._within = within
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def png(self, svg: str) -> bytes:
        async with self._turns:
            return await self._paint(svg.encode("utf-8", "replace"))

    async def _paint(self, svg: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(self._program), stdin=pipe, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise FleetError(f"the picture can't be drawn: {error.strerror or error}") from error
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                png, errors = await child.communicate(svg)
        except TimeoutError as error:
            raise FleetError(f"the picture was not drawn within {self._within.total_seconds():g} s") from error
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode or not png.startswith(_PNG) or len(png) > _LARGEST:
            raise FleetError(f"the picture can't be drawn: {_reason(errors)}")
        return png


def _reason(errors: bytes) -> str:
    """The last line that it said; a missing library is named with its remedy."""
    said = errors.decode("utf-8", "replace").strip().splitlines()
    last = said[-1][:200] if said else "it said nothing"
    return "resvg-py is not installed (pip install upbot[charts])" if "No module named 'resvg_py'" in last else last
