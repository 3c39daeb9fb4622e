"""`upbot audit` and `upbot backup`, as a shell sees them."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.stores.audit import SqlAudit
from bot.stores.sql import Database
from tests.jumping import START
from tests.stores.test_audit import ENTRY


def upbot(*words: str) -> tuple[int, str, str]:
    """Run the command; its exit status, stdout and stderr."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("UPBOT_", "SLACK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "bot", *words], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state with three entries."""
    state = tmp_path / "state"
    database = Database.file(state / "upbot.db")
    for minute in range(3):
        entry = replace(ENTRY, at=START + timedelta(minutes=minute), words=f"restart gpu{minute}\x1b[31m")
        SqlAudit(database).write(entry)
    database.close()
    return state


def test_the_entries_are_printed_the_oldest_first_and_escape_nothing(state: Path) -> None:
    assert upbot("audit", "--state", str(state)) == (
        0,
        (
            "    1  2026-11-30 03:00:00 UTC  C1  ana: restart gpu0 [31m – asked 7F3A\n"
            "    2  2026-11-30 03:01:00 UTC  C1  ana: restart gpu1 [31m – asked 7F3A\n"
            "    3  2026-11-30 03:02:00 UTC  C1  ana: restart gpu2 [31m – asked 7F3A\n"
        ),
        "",
    )


def test_since_chooses_and_json_has_everything(state: Path) -> None:
    status, told, _ = upbot("audit", "--state", str(state), "--since", "2026-11-30T03:02", "--json")
    assert (status, [json.loads(line) for line in told.splitlines()]) == (
        0,
        [
            {
                "number": 3,
                "at": "2026-11-30T03:02:00+00:00",
                "act": "command",
                "result": "asked",
                "by": "ana",
                "user": "U1",
                "channel": "C1",
                "words": "restart gpu2\x1b[31m",
                "why": "",
                "seen": "8 ready: gpu0 ready (pid 4001)",
                "title": "Restart 8 servers · no_buffer",
                "steps": ["stop 8 servers", "start"],
                "servers": ["gpu0", "gpu1"],
                "operation": None,
                "question": "7F3A",
            }
        ],
    )


def test_verify_names_the_first_broken_row(state: Path) -> None:
    status, told, errors = upbot("audit", "--verify", "--state", str(state))
    assert (status, errors) == (0, "")
    assert told.startswith("3 rows, unbroken; the newest has the hash ")
    status, told, _ = upbot("audit", "--expect", "f00d", "--state", str(state))
    assert (status, told) == (
        1,
        (
            "broken at row 4: no row has the hash that was expected: rows were taken away or made anew "
            "(3 rows before it)\n"
        ),
    )
    with closing(sqlite3.connect(state / "upbot.db")) as raw:
        raw.execute("DELETE FROM audit WHERE number = 2")
        raw.commit()
    assert upbot("audit", "--verify", "--state", str(state)) == (
        1,
        "broken at row 3: row 2 is missing before it (1 row before it)\n",
        "",
    )


def test_what_cannot_be_answered_says_so(state: Path, tmp_path: Path) -> None:
    assert upbot("audit", "--state", str(tmp_path / "none")) == (
        2,
        "",
        f"upbot: there is no state in {tmp_path / 'none'} yet\n",
    )
    assert not (tmp_path / "none").exists()
    assert upbot("audit", "--state", str(state), "--since", "noonish") == (
        2,
        "",
        "upbot: --since: takes a span (24h, 7d), a time of day in UTC (03:12) or a date, not 'noonish'\n",
    )


def test_a_backup_holds_the_audit_and_is_made_once(state: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy" / "upbot.db"
    target.parent.mkdir()
    status, told, errors = upbot("backup", str(target), "--state", str(state))
    assert (status, told, errors) == (0, f"{target}: {target.stat().st_size:,} bytes, checked\n", "")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert upbot("backup", str(target), "--state", str(state)) == (
        2,
        "",
        f"upbot: {target} exists already: a backup overwrites nothing\n",
    )
    assert upbot("audit", "--verify", "--state", str(target.parent))[0] == 0
