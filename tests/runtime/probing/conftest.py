"""Leaves no stand-in server behind, whatever becomes of a test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.runtime.probing import stage


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """End what a failed test could not end itself."""
    yield
    for one in stage.STARTED:
        if one.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGKILL)
    stage.STARTED.clear()
