"""The heartbeat, and what a monitor is told of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bot.__main__ import main
from bot.runtime.heartbeat import Heart, health
from tests.jumping import START, JumpingClock, run


def test_a_beat_says_when_it_looked_saw_and_was_in_touch(tmp_path: Path) -> None:
    async def beats() -> None:
        is_connected = True
        heart = Heart(tmp_path / "heartbeat", JumpingClock(), lambda: is_connected)
        heart.beat(START)
        assert (tmp_path / "heartbeat").read_text() == (
            '{"at": "2026-11-30T03:00:00+00:00", "seen": "2026-11-30T03:00:00+00:00", "chat": "2026-11-30T03:00:00+00:00"}\n'
        )
        is_connected = False
        await asyncio.sleep(60)
        heart.beat(START + timedelta(seconds=58))
        assert '"chat": "2026-11-30T03:00:00+00:00"' in (tmp_path / "heartbeat").read_text()

    run(beats())
    assert [path.name for path in tmp_path.iterdir()] == ["heartbeat"]


@pytest.mark.parametrize(
    ("text", "later", "is_ok", "why"),
    [
        ('{"at": "{0}", "seen": "{0}", "chat": "{0}"}', 9, True, "looked 9 s ago, in touch with the chat"),
        (
            '{"at": "{0}", "seen": "{0}", "chat": "{0}"}',
            300,
            False,
            "the last round was 5 m ago: the bot does not run, or stands still",
        ),
        (
            '{"at": "{290}", "seen": "{0}", "chat": "{290}"}',
            300,
            False,
            "the bot is blind: nothing was seen since 5 m",
        ),
        (
            '{"at": "{0}", "seen": null, "chat": "{0}"}',
            5,
            False,
            "the bot is blind: nothing was seen since the start",
        ),
        (
            '{"at": "{400}", "seen": "{400}", "chat": "{0}"}',
            401,
            False,
            "no contact with the chat since 6 m 41 s",
        ),
    ],
)
def test_health_names_the_first_thing_that_is_wrong(
    tmp_path: Path, text: str, later: int, is_ok: bool, why: str
) -> None:
    for number in (0, 290, 400):
        text = text.replace(f"{{{number}}}", (START + timedelta(seconds=number)).isoformat())
    path = tmp_path / "heartbeat"
    path.write_text(text)
    found = health(path, START + timedelta(seconds=later))
    assert (found.is_ok, found.why) == (is_ok, why)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"at": 5}', '{"at": "soon"}', "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_heartbeat_that_can_not_be_read_is_not_well(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "heartbeat"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert not health(path, START).is_ok


def test_a_disk_that_is_full_stops_the_heart_and_nothing_else(tmp_path: Path) -> None:
    async def beat() -> None:
        Heart(tmp_path / "gone" / "heartbeat", JumpingClock(), lambda: True).beat(None)

    run(beat())


def test_the_command_exits_with_1_where_no_bot_has_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heartbeat", "--state", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"there is no {tmp_path}/heartbeat: no bot has run on this state\n"
