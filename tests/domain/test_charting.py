"""What a chart shows, as values, and that any of them can be drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from bot.domain.charting import Chart, Kind, Mark, chart, legend, short
from bot.domain.course import Point
from bot.domain.svg import WIDTH, drawing

NOW = datetime(2026, 11, 30, 5, 14, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def course(rate: float, *, minutes: int = 120, running: float = 30, queued: float = 0, then: float | None = None):
    """A server's minutes up to now; ``then`` is its rate in the last twenty."""
    found = []
    for number in range(minutes):
        now = rate if then is None or number < minutes - 20 else then
        at = NOW.timestamp() - 60 * (minutes - 1 - number)
        stats = {"running": (running,) * 3, "queued": (queued,) * 3, "rate": (now,) * 3}
        found.append(Point(at, 60.0, now * 60, 60.0, expected=rate, **stats))
    return found


def drawn(rates: dict[str, list[Point]], *, hours: float = 2, **more) -> Chart:
    return chart(rates, list(rates), NOW - timedelta(hours=hours), NOW, **more)


def parsed(one: Chart) -> ET.Element:
    return ET.fromstring(drawing(one))  # noqa: S314 - our own drawing


def texts(one: Chart) -> list[str]:
    """Every text of the picture, in order."""
    return [element.text or "" for element in parsed(one).iter(f"{SVG}text")]


def test_eight_servers_have_a_line_and_a_colour_each_and_what_is_usual_is_dashed() -> None:
    one = drawn({f"gpu{number}": course(650 + number) for number in range(8)})
    lines = one.panels[0].series
    assert [line.name for line in lines] == [*(f"gpu{number}" for number in range(8)), "usual"]
    assert len({(line.colour, line.dash) for line in lines}) == 9
    assert lines[-1].dash
    assert "#F0E442" not in {line.colour for line in lines}  # yellow can't be seen on a light card


def test_twelve_servers_whose_colours_come_again_differ_in_their_dashes() -> None:
    one = drawn({f"gpu{number}": course(650) for number in range(12)})
    lines = one.panels[0].series[:-1]
    assert len({(line.colour, line.dash) for line in lines}) == 12


def test_the_server_that_is_the_matter_stands_out_of_the_others() -> None:
    courses = {f"gpu{number}": course(650, then=400 if number == 3 else None) for number in range(8)}
    one = drawn(courses, subject=("gpu3",))
    assert [entry.name for entry in legend(one)] == ["the other 7", "gpu3", "usual"]
    widths = {line.name: line.width for line in one.panels[0].series}
    assert widths["gpu3"] > 2 * widths["the other 7"]
    assert one.panels[1].caption == "requests running, gpu3"
    assert one.alt == snapshot(
        "gpu3 over 2 h: 650 tok/s at first, 400 at the end, between 400 and 650, 650 is usual now"
    )


def test_of_two_hundred_servers_bands_are_shown_and_the_odd_ones_by_name() -> None:
    courses = {
        f"gpu{number}": course(600 + number / 4, then=300 if number in (7, 70) else None) for number in range(200)
    }
    one = drawn(courses)
    assert [entry.name for entry in legend(one)] == snapshot(
        ["the middle one", "gpu7", "gpu70", "usual", "8 in 10 of 198", "half of them"]
    )
    wide, narrow = one.panels[0].bands
    assert wide.lows[0] < narrow.lows[0] < narrow.highs[0] < wide.highs[0]
    assert one.panels[1].caption == "requests running, all 200"
    assert len(drawing(one)) < 40_000


def test_a_dead_server_makes_nothing_and_one_that_nobody_saw_has_a_gap() -> None:
    half = [one for one in course(650) if one.at < NOW.timestamp() - 3600]
    down = [Point(NOW.timestamp() - 60 * number, 60.0, down=60.0) for number in range(20, 0, -1)]
    one = drawn({"gpu0": [*half, *down]})
    row = one.panels[0].series[0].values
    assert row[10] == 650
    assert row[70] is None
    assert row[110] == 0


def test_waiting_requests_are_drawn_only_where_some_wait() -> None:
    assert len(drawn({"gpu0": course(650)}).panels[1].series) == 1
    one = drawn({"gpu0": course(650, queued=4), "gpu1": course(650, queued=1)})
    running, waiting = one.panels[1].series
    assert (running.values[50], waiting.values[50], waiting.dash) == (60, 5, "5 3")


def test_marks_have_their_words_and_those_outside_are_left_out() -> None:
    marks = [
        Mark(Kind.OPERATION, NOW - timedelta(minutes=80), "Restart gpu3 (ana)"),
        Mark(Kind.ALERT, NOW - timedelta(minutes=20), "gpu3 is slow"),
        Mark(Kind.ALERT, NOW - timedelta(hours=9), "gpu3 was slow", NOW - timedelta(hours=8)),
    ]
    one = drawn({"gpu3": course(650)}, marks=marks)
    assert [mark.label for mark in one.marks] == ["Restart gpu3 (ana)", "gpu3 is slow"]
    assert texts(one) == snapshot(
        [
            "tok/s a server, 2 h",
            "Nov 30, 05:14 UTC",
            "gpu3",
            "usual",
            "Restart gpu3 (ana)",
            "gpu3 is slow",
            "0",
            "200",
            "400",
            "600",
            "800",
            "requests running, gpu3",
            "0",
            "20",
            "40",
            "03:30",
            "04:00",
            "04:30",
            "05:00",
        ]
    )


def test_marks_that_crowd_keep_their_signs_and_lose_their_words() -> None:
    marks = [
        Mark(Kind.OPERATION, NOW - timedelta(minutes=20, seconds=number), f"restart {number}") for number in range(9)
    ]
    one = drawn({"gpu3": course(650)}, marks=marks)
    assert sum(text.startswith("restart") for text in texts(one)) == 2
    assert len(one.marks) == 9


def test_foreign_names_are_text_and_nothing_else() -> None:
    name = '<script>&"gpu\x00\x1b[31m' + "x" * 90
    one = drawn({name: course(650)}, marks=[Mark(Kind.ALERT, NOW, name)])
    assert any(text.startswith('<script>&"gpu') and len(text) <= 22 for text in texts(one))
    assert "<script>" not in drawing(one)


def test_nothing_recorded_is_said() -> None:
    assert drawn({}).alt == "tok/s over 2 h: nothing was recorded"
    assert short({}, []) == "nothing was recorded"


def test_ticks_are_round_and_few() -> None:
    one = drawn({"gpu0": course(1234)})
    assert one.panels[0].ticks == (0, 500, 1000, 1500)
    assert [label for _, label in one.ticks] == ["03:30", "04:00", "04:30", "05:00"]
    week = drawn({"gpu0": course(650, minutes=600)}, hours=168)
    assert [label for _, label in week.ticks] == snapshot(["Nov 25", "Nov 27", "Nov 29"])


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=40),
        st.lists(
            st.builds(
                lambda back, value, kind: Point(
                    NOW.timestamp() - back, 60.0, value * 60, 60.0 * kind, 60.0 * (1 - kind), running=(value,) * 3,
                    rate=(value,) * 3, queued=None if value > 9 else (value,) * 3,
                ),
                st.floats(0, 9000), st.floats(0, 1e9), st.integers(0, 1),
            ),
            min_size=1, max_size=6,
        ),
        max_size=20,
    ),
    st.floats(0.1, 1000),
)  # fmt: skip
def test_whatever_was_recorded_can_be_drawn_inside_its_card(courses: dict[str, list[Point]], hours: float) -> None:
    one = drawn(courses, hours=hours)
    assert one.alt
    root = parsed(one)
    height = float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.attrib["x"]) <= WIDTH
        assert 0 <= float(element.attrib["y"]) <= height
    assert len(one.panels[0].series[0].values if one.panels[0].series else ()) <= 240
