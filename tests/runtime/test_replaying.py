"""`upbot replay` and `upbot export`, as a shell sees them."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from bot.__main__ import main
from bot.domain.errors import UserError
from bot.domain.watching.limits import Limits
from bot.domain.watching.recorded import plain_of
from bot.domain.watching.samples import Reading
from bot.runtime.clock import SystemClock
from bot.runtime.replaying import limits
from bot.stores.samples import SqlSamples
from bot.stores.sql import Database
from tests.domain.watching.watched_fleet import Fleet


def night() -> list[str]:
    """Forty quiet minutes, then a server that is gone for two of them."""
    fleet, lines = Fleet(3), []
    for number in range(560):
        fleet["gpu1"].is_lost = 480 <= number < 504
        lines.append(json.dumps(plain_of(fleet.read())))
    return lines


def test_a_night_is_told_line_by_line_with_a_sum_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "night.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(night()).encode()))
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out == snapshot("""\
2026-03-01 22:40:15  🔴 gpu1 is down for 10 s · 3 looks in a row without an answer
2026-03-01 22:42:20  🟢 gpu1 is back: 642 tok/s after 2 m 15 s down · before: 3 looks in a row without an answer
560 readings, 46 m 35 s of 3 servers: 1 alert (1 down)
""")


def test_for_programs_it_is_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "night.jsonl"
    path.write_text("\n".join(night()))
    assert main(["replay", str(path), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event"], one["cause"], one["servers"]) for one in told] == [
        ("firing", "down", ["gpu1"]),
        ("resolved", "down", ["gpu1"]),
    ]


def test_what_is_no_recording_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "night.jsonl"
    path.write_text('{"time": 5, "servers": {}}\nnot json\n')
    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().err == f"upbot: {path}:2: not a line of JSON\n"
    assert main(["replay", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"upbot: {tmp_path}/none: can't be read: No such file or directory\n"


def test_thresholds_can_be_tried() -> None:
    told = limits(["starved_for=60s", "scatter=4.5", "misses=5", "windows=90s:0.7,120s:0.75,300s:0.8", "recovered=0.9"])
    assert told.starved_for == timedelta(seconds=60)
    assert (told.scatter, told.misses, told.recovered) == (4.5, 5, 0.9)
    assert told.windows[0] == (timedelta(seconds=90), 0.7)
    assert limits([]) == Limits()


@pytest.mark.parametrize(
    "setting", ["hold=1", "nothing", "scatter=much", "starved_for=60", "windows=60s:0.7", "misses=1.5"]
)
def test_a_threshold_that_can_not_be_is_named(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"^--set "):
        limits([setting])
    assert main(["replay", "-", "--set", setting]) == 2
    assert capsys.readouterr().err.startswith("upbot: --set ")


def kept(state: Path, minutes: int) -> None:
    """A store with so many minutes of readings up to now."""
    database = Database.file(state / "upbot.db")
    samples, fleet = SqlSamples(database), Fleet(2)
    fleet.at = SystemClock().now() - timedelta(minutes=minutes)
    for _ in range(minutes * 12):
        samples.add(fleet.read(), {})
    samples.flush()
    database.close()


def test_an_export_is_what_a_replay_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path / "state", 30)
    target = tmp_path / "night.jsonl"
    assert main(["export", "--state", str(tmp_path / "state"), "--since", "20m", str(target)]) == 0
    number = int(capsys.readouterr().out.removeprefix(f"{target}: ").removesuffix(" readings\n"))
    assert 236 <= number <= 241
    assert target.stat().st_mode & 0o777 == 0o600
    assert main(["replay", str(target)]) == 0
    assert "of 2 servers: 0 alerts" in capsys.readouterr().out
    assert main(["export", "--state", str(tmp_path / "state"), str(target)]) == 2
    assert "overwrites nothing" in capsys.readouterr().err
    assert main(["export", "--state", str(tmp_path / "state"), "--since", "20m"]) == 0
    assert number - 2 <= len(capsys.readouterr().out.splitlines()) <= number


def test_an_export_without_a_state_or_a_span_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--state", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"upbot: there is no state in {tmp_path} yet\n"
    kept(tmp_path, 1)
    assert main(["export", "--state", str(tmp_path), "--since", "soon"]) == 2
    assert "takes a span" in capsys.readouterr().err


def test_a_reading_survives_the_way_out_and_in() -> None:
    fleet = Fleet(2)
    one: Reading = fleet.read()
    database = Database("sqlite://")
    samples = SqlSamples(database)
    samples.add(one, {})
    samples.flush()
    assert list(SqlSamples(database).readings(one.at)) == [one]
