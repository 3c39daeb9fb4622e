"""A cache is called empty only when all of it was seen to be."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bot.runtime.probing.scout.folders import MOST, walked


def test_a_folder_of_which_only_what_stands_aside_was_seen_is_not_called_empty(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        (tmp_path / f"{number}.lock").touch()
    with pytest.raises(OSError, match="more than is looked at"):
        walked(str(tmp_path), time.monotonic() + 10)


def test_loops_of_links_and_odd_names_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "<!channel>\n\u202e").touch()
    assert walked(str(tmp_path), time.monotonic() + 10)[0] == 2
