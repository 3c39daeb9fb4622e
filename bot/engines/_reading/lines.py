"""Cuts a stream of bytes into lines, however it arrives, in bounded memory."""

from __future__ import annotations

LINE_CAP = 64 * 1024
"""Bytes kept of one line; what is beyond is dropped while it streams by."""

SLICE = 256 * 1024
"""Bytes looked at in one go: large enough to be fast, small enough to bound the memory."""


class Cutter:
    r"""Cuts at ``\n`` and ``\r``, so that each redraw of a progress bar is a line of its own.

    NUL bytes, which a truncated log file leaves behind, are dropped.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """The line that has not ended yet."""
        return bytes(self._rest)

    def cut(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes; a piece is at most SLICE long."""
        if b"\0" in piece:
            piece = piece.replace(b"\0", b"")
        lines = piece.replace(b"\r", b"\n").split(b"\n")
        tail = lines.pop()
        if lines:
            self._keep(lines[0])
            lines[0] = bytes(self._rest)
            self._rest = bytearray()
        self._keep(tail)
        if len(piece) > LINE_CAP and any(len(line) > LINE_CAP for line in lines):
            return [line[:LINE_CAP] for line in lines]
        return lines

    def _keep(self, piece: bytes) -> None:
        room = LINE_CAP - len(self._rest)
        self._rest += piece[:room]
