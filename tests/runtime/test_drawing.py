"""Pictures are painted in a process of its own; whatever goes wrong in it is one error."""

from __future__ import annotations

import asyncio
import struct
import zlib
from datetime import timedelta
from pathlib import Path

import pytest

from bot.domain.charting import Kind, Mark, chart
from bot.domain.errors import FleetError
from bot.domain.svg import drawing
from bot.runtime.drawing import Drawer
from tests.domain.test_charting import NOW, course

TEXT = '<text x="10" y="40" font-family="DejaVu Sans" font-size="30">gpu3 is slow</text>'


def svg(inside: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="200" height="60" viewBox="0 0 200 60">{inside}</svg>'


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Width, height, and everything that is painted, unpacked."""
    width, height = struct.unpack(">II", png[16:24])
    place, data = 8, b""
    while place < len(png):
        (length,), kind = struct.unpack(">I", png[place : place + 4]), png[place + 4 : place + 8]
        data += png[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        place += 12 + length
    return width, height, zlib.decompress(data)


def test_a_chart_becomes_a_png_of_twice_its_size() -> None:
    marks = [Mark(Kind.ALERT, NOW - timedelta(minutes=20), "gpu3 is slow")]
    one = chart({"gpu3": course(650)}, ["gpu3"], NOW - timedelta(hours=2), NOW, marks=marks)
    png = asyncio.run(Drawer().png(drawing(one)))
    width, height, _ = pixels(png)
    assert width == 1000
    assert 600 < height < 1000
    assert len(png) < 300_000


def test_text_is_painted_with_our_own_font() -> None:
    """A renderer that finds no font leaves text out and says nothing."""

    async def both() -> tuple[bytes, bytes]:
        drawer = Drawer()
        return await drawer.png(svg(TEXT)), await drawer.png(svg(""))

    with_text, without = asyncio.run(both())
    painted = sum(1 for one in pixels(with_text)[2] if one)
    assert painted > sum(1 for one in pixels(without)[2] if one) + 1_000


def test_what_is_no_drawing_is_an_error_of_one_line() -> None:
    with pytest.raises(FleetError, match=r"^the picture can't be drawn: .+") as caught:
        asyncio.run(Drawer().png("<svg"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit(3)", "the picture can't be drawn: it said nothing"),
        ("print('no picture')", "the picture can't be drawn: it said nothing"),
        ("import resvg_py_that_is_not_there", "can't be drawn: ModuleNotFoundError"),
        (
            "raise ModuleNotFoundError(\"No module named 'resvg_py'\")",
            r"the picture can't be drawn: resvg-py is not installed \(pip install upbot\[charts\]\)",
        ),
        ("import time; time.sleep(60)", "the picture was not drawn within 0.7 s"),
    ],
)
def test_a_painter_that_fails_is_named_and_none_is_left(tmp_path: Path, program: str, said: str) -> None:
    path = tmp_path / "painter.py"
    path.write_text(program)

    async def paint() -> None:
        await Drawer(path, within=timedelta(seconds=0.7 if "sleep" in program else 30)).png(svg(""))

    with pytest.raises(FleetError, match=said):
        asyncio.run(paint())


def test_more_pictures_than_turns_all_come() -> None:
    async def many() -> list[bytes]:
        drawer = Drawer()
        return await asyncio.gather(*(drawer.png(svg(TEXT)) for _ in range(5)))

    assert len(set(asyncio.run(many()))) == 1
