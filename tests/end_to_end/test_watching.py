"""The whole demo watches itself: a server dies, the channel hears of it, a picture follows, monitors see the heart beat."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bot.__main__ import main
from tests.end_to_end.demo import running, wait, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def pictures(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in messages if one.get("files")]


def test_a_death_is_told_a_picture_follows_and_the_heart_beats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "demo") as demo:
        while not (demo.state / "heartbeat").exists():
            wait(0.1)
        wait(6)  # a round that saw the server alive
        demo.post("/control/break", what="kill", server="gpu3")
        told = demo.until(lambda found: [one for one in found if "gpu3 is down" in whole(one)], within=30)[0]
        begun = time.monotonic()
        picture = demo.until(pictures, within=15)[0]
        assert time.monotonic() - begun < 10
        assert picture["thread_ts"] == told["ts"]
        assert main(["heartbeat", "--state", str(demo.state)]) == 0
        assert capsys.readouterr().out.endswith(" ago, in touch with the chat\n")
    lines = (tmp_path / "demo").rglob("upbot.db")
    assert main(["export", "--state", str(next(lines).parent)]) == 0
    readings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any(one["servers"].get("gpu3", {}).get("is_dead") for one in readings)
    assert any(one["servers"].get("gpu3", {}).get("tokens_total") for one in readings)
