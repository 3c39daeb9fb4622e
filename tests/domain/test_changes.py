"""What a look shows is a change only where the look could have told it apart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.changes import MARK_EACH, JobMark, ReadinessChange, changed, is_due
from bot.domain.facts import JobFacts, JobState, ServerFacts
from bot.domain.needs import Needs
from bot.domain.readiness import Readiness, Verdict
from tests.jumping import START

THIN, WHOLE = Needs(), Needs(log=True, load=True)
FACTS = ServerFacts("gpu0", START)


@pytest.mark.parametrize(
    ("last", "now", "needs", "is_change"),
    [
        (None, Readiness.READY, THIN, True),
        (None, Readiness.UNKNOWN, WHOLE, False),
        (Readiness.READY, Readiness.READY, WHOLE, False),
        (Readiness.READY, Readiness.UNKNOWN, WHOLE, False),
        (Readiness.READY, Readiness.DOWN, THIN, True),
        (Readiness.READY, Readiness.UNREACHABLE, THIN, True),
        (Readiness.STARTING, Readiness.READY, THIN, True),
        (Readiness.CRASHED, Readiness.DOWN, THIN, False),
        (Readiness.CRASHED, Readiness.DOWN, WHOLE, True),
        (Readiness.HUNG, Readiness.READY, THIN, False),
        (Readiness.HUNG, Readiness.READY, Needs(log=True), False),
        (Readiness.HUNG, Readiness.READY, WHOLE, True),
        (Readiness.DRAINING, Readiness.READY, Needs(load=True), False),
        (Readiness.HUNG, Readiness.DOWN, THIN, True),
    ],
)
def test_a_change_is_what_this_look_could_tell_apart(
    last: Readiness | None, now: Readiness, needs: Needs, *, is_change: bool
) -> None:
    before = ReadinessChange("gpu0", START, last) if last is not None else None
    assert changed(before, Verdict(now), FACTS, needs) is is_change


def test_what_nobody_has_seen_yet_is_no_change() -> None:
    pending = ServerFacts("gpu0", START, is_pending=True)
    assert not changed(None, Verdict(Readiness.READY), pending, WHOLE)


@pytest.mark.parametrize(
    ("state", "done", "later", "is_wanted"),
    [
        (JobState.UNKNOWN, 5, MARK_EACH, False),
        (JobState.STOPPED, 1, timedelta(), True),
        (JobState.RUNNING, 5, timedelta(minutes=1), False),
        (JobState.RUNNING, 5, MARK_EACH, True),
        (JobState.RUNNING, 1, MARK_EACH, False),
    ],
)
def test_a_job_is_marked_when_it_changed_or_moved_for_a_while(
    state: JobState, done: int, later: timedelta, *, is_wanted: bool
) -> None:
    last = JobMark("datagen", START, JobState.RUNNING, 1)
    assert is_due(last, JobFacts("datagen", START + later, state, done)) is is_wanted
    assert is_due(None, JobFacts("datagen", START, state, done)) is (state is not JobState.UNKNOWN)
