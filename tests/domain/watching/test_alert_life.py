from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from bot.domain.watching import alerts
from bot.domain.watching.alerts import NEXT, Alert, Book, Did, Event, Silence, State
from bot.domain.watching.causes import Cause, Finding
from bot.domain.watching.limits import Limits

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STEP = timedelta(seconds=5)
LIMITS = Limits()


def down(*servers: str) -> list[Finding]:
    return [Finding(Cause.DOWN, (server,), NOON, {"lost_reads": 3}) for server in servers]


def slow(*servers: str) -> list[Finding]:
    return [Finding(Cause.SLOW_SERVER, (server,), NOON) for server in servers]


def go(book, findings=(), *, proven=False, steps=1, at=NOON):
    """So many readings that found the same; the book, and what was told."""
    told = []
    for step in range(steps):
        book, changes = alerts.advance(
            book, findings, lambda _cause, _name: {"rate": 600.0} if proven else None, at + step * STEP, LIMITS
        )
        told += [(change.did, change.servers) for change in changes]
    return book, told


def firing(*servers: str) -> Book:
    book, _ = go(Book(), down(*servers))
    return book


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_only_what_stands_in_the_table_may_happen(state, event):
    alert = Alert("down-1", Cause.DOWN, ("gpu0",), NOON, state)
    if (state, event) in NEXT:
        assert alert.to(event).state is NEXT[state, event]
    else:
        with pytest.raises(ValueError, match=f"alert down-1 is {state.value}: {event.value} can't happen to it"):
            alert.to(event)


def test_a_cause_that_has_to_hold_is_pending_first_and_forgotten_when_it_does_not():
    book, told = go(Book(), slow("gpu3"), steps=2)
    assert (told, book.alerts[0].state) == ([], State.PENDING)
    book, told = go(book)
    assert (told, book.alerts) == ([], ())


def test_it_fires_when_it_has_held():
    _, told = go(Book(), slow("gpu3"), steps=3)
    assert told == [(Did.FIRING, ("gpu3",))]


def test_it_is_told_once_however_long_it_lasts():
    _, told = go(Book(), down("gpu3"), steps=100)
    assert told == [(Did.FIRING, ("gpu3",))]


def test_that_nothing_is_found_resolves_nothing():
    book, told = go(firing("gpu3"), steps=500, at=NOON + STEP)
    assert told == []
    assert book.alerts[0].state is State.FIRING


def test_proof_in_three_readings_in_a_row_resolves_it():
    book, told = go(firing("gpu3"), proven=True, steps=2)
    assert told == []
    book, _ = go(book, proven=False)
    book, told = go(book, proven=True, steps=2)
    assert told == []
    book, told = go(book, proven=True)
    assert told == [(Did.RESOLVED, ("gpu3",))]
    assert book.alerts[0].resolved_at == NOON


def test_servers_that_fail_together_are_one_alert_and_those_that_follow_join_it():
    book, told = go(Book(), down("gpu0", "gpu1"))
    assert told == [(Did.FIRING, ("gpu0", "gpu1"))]
    book, told = go(book, down("gpu0", "gpu1", "gpu2"), at=NOON + 6 * STEP)
    assert told == [(Did.JOINED, ("gpu2",))]
    assert book.alerts[0].servers == ("gpu0", "gpu1", "gpu2")


def test_one_that_fails_much_later_is_an_alert_of_its_own():
    book, told = go(firing("gpu0"), down("gpu0", "gpu7"), at=NOON + timedelta(minutes=10))
    assert told == [(Did.FIRING, ("gpu7",))]
    assert [alert.id for alert in book.alerts] == ["down-1", "down-2"]


def test_one_that_comes_back_soon_is_the_same_alert():
    book, _ = go(firing("gpu3"), proven=True, steps=3)
    book, told = go(book, down("gpu3"), at=NOON + timedelta(minutes=2))
    assert told == [(Did.RETURNED, ("gpu3",))]
    assert (book.alerts[0].id, book.alerts[0].returns, book.alerts[0].resolved_at) == ("down-1", 1, None)


def test_one_that_comes_back_late_is_another():
    book, _ = go(firing("gpu3"), proven=True, steps=3)
    book, _ = go(book, at=NOON + timedelta(minutes=8))
    assert book.alerts == ()
    book, told = go(book, down("gpu3"), at=NOON + timedelta(minutes=9))
    assert (told, book.alerts[0].id) == ([(Did.FIRING, ("gpu3",))], "down-2")


def test_an_ack_says_who_and_the_alert_still_ends_by_proof():
    book, changes = alerts.ack(firing("gpu3"), "down-1", "@ana", NOON)
    assert [(change.did, change.alert.state, change.alert.acked_by) for change in changes] == [
        (Did.ACKED, State.ACKED, "@ana")
    ]
    _, told = go(book, proven=True, steps=3)
    assert told == [(Did.RESOLVED, ("gpu3",))]


def test_an_ack_of_what_is_not_there_or_over_says_so():
    with pytest.raises(KeyError):
        alerts.ack(Book(), "down-1", "@ana", NOON)
    book, _ = go(firing("gpu3"), proven=True, steps=3)
    with pytest.raises(ValueError, match="alert down-1 is resolved: ack can't happen to it"):
        alerts.ack(book, "down-1", "@ana", NOON)


def silence(*servers: str, minutes: int = 60, causes: frozenset[Cause] = frozenset()) -> Silence:
    return Silence("s1", NOON + timedelta(minutes=minutes), "@ana", NOON, "eval", frozenset(servers), causes)


def test_a_silence_takes_what_fires_and_what_will():
    book, changes = alerts.silence(firing("gpu3"), silence("gpu3", "gpu4"))
    assert [change.did for change in changes] == [Did.SILENCED]
    book, told = go(book, down("gpu3", "gpu4"), at=NOON + timedelta(minutes=10))
    assert told == [(Did.SILENCED, ("gpu4",))]


def test_when_a_silence_is_over_what_is_still_on_is_told():
    book, _ = alerts.silence(firing("gpu3"), silence("gpu3", minutes=1))
    _, told = go(book, down("gpu3"), steps=30)
    assert told == [(Did.UNSILENCED, ("gpu3",))]


def test_what_was_acked_before_a_silence_is_acked_after_it():
    book, _ = alerts.ack(firing("gpu3"), "down-1", "@ana", NOON)
    book, _ = alerts.silence(book, silence("gpu3"))
    book, changes = alerts.unsilence(book, frozenset({"gpu3"}), NOON)
    assert [(change.did, change.alert.state) for change in changes] == [(Did.UNSILENCED, State.ACKED)]
    assert book.silences == ()


def test_what_ends_under_a_silence_is_resolved():
    book, _ = alerts.silence(firing("gpu3"), silence("gpu3"))
    book, told = go(book, proven=True, steps=3)
    assert (told, book.alerts[0].state) == ([(Did.RESOLVED, ("gpu3",))], State.RESOLVED)


def test_an_alert_of_two_servers_is_not_silenced_by_a_silence_of_one():
    _, changes = alerts.silence(firing("gpu3", "gpu4"), silence("gpu3"))
    assert changes == ()


def test_a_silence_may_be_for_a_cause_alone():
    _, changes = alerts.silence(firing("gpu3"), silence(causes=frozenset({Cause.HUNG})))
    assert changes == ()
    _, changes = alerts.silence(firing("gpu3"), silence(causes=frozenset({Cause.DOWN})))
    assert [change.did for change in changes] == [Did.SILENCED]


def test_unsilencing_one_server_keeps_the_silences_of_others():
    book = Book(silences=(silence("gpu1"), replace(silence("gpu2"), id="s2")))
    book, _ = alerts.unsilence(book, frozenset({"gpu2"}), NOON)
    assert [one.id for one in book.silences] == ["s1"]
    book, _ = alerts.unsilence(book, frozenset(), NOON)
    assert book.silences == ()


def test_a_stalled_job_never_joins_another_ones_alert():
    stalled = [Finding(Cause.JOB_STALLED, (name,), NOON) for name in ("a", "b")]
    book, _ = go(Book(), stalled[:1])
    _, told = go(book, stalled)
    assert told == [(Did.FIRING, ("b",))]
