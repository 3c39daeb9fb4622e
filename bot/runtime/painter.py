"""SVG on stdin becomes PNG on stdout; run as a program of its own, so that its memory is nobody else's."""

from __future__ import annotations

import sys
from pathlib import Path

import resvg_py

FONT = Path(__file__).parent / "fonts" / "DejaVuSans.ttf"
ZOOM = 2.0


def main() -> None:
    """Paint one picture."""
    png = resvg_py.svg_to_bytes(
        svg_string=sys.stdin.buffer.read().decode(),
        zoom=ZOOM,
        skip_system_fonts=True,
        font_files=[str(FONT)],
        font_family="DejaVu Sans",
    )
    sys.stdout.buffer.write(bytes(png))


if __name__ == "__main__":
    main()
