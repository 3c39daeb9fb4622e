"""An Alertmanager's alerts in the book: what joins what, and what is only a claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.watching import alerts, foreign
from bot.domain.watching.alerts import Alert, Book, Did, Silence, State
from bot.domain.watching.causes import Cause, Finding
from bot.domain.watching.foreign import Heard, Notification, Told
from bot.domain.watching.limits import Limits

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIMITS = Limits()
EMPTY = Book()
SERVERS = {f"ct200:3000{n}": f"gpu{n}" for n in range(8)}


def told(
    *instances: str, is_firing: bool = True, name: str = "Slow", group: str = "g", left_out: int = 0, **labels: str
) -> Heard:
    each = [Told(one, is_firing, NOON, {"alertname": name, "instance": one, **labels}) for one in instances]
    heard = foreign.read(Notification(group, tuple(each), {}, left_out), "instance", SERVERS)
    assert heard is not None
    return heard


def taken(*heard: Heard, book: Book = EMPTY) -> tuple[Book, list[Did]]:
    did = []
    for number, one in enumerate(heard):
        book, changes = foreign.take(book, one, NOON + number * MINUTE, LIMITS)
        did += [change.did for change in changes]
    return book, did


def readings(book: Book, count: int, *, is_well: bool = True) -> tuple[Book, list[Did]]:
    """So many readings in which all servers are well, or none is."""
    did = []
    for number in range(count):
        at = NOON + timedelta(hours=1, seconds=5 * number)
        book, changes = alerts.advance(book, [], lambda _cause, _name: {} if is_well else None, at, LIMITS)
        did += [change.did for change in changes]
        book, changes = foreign.doubt(book, frozenset() if is_well else frozenset(SERVERS.values()), at)
        did += [change.did for change in changes]
    return book, did


def test_as_long_as_it_fires_there_it_is_on_here_however_well_the_server_is() -> None:
    book, _ = taken(told("ct200:30003"))
    book, did = readings(book, 10)
    assert (did, book.alerts[0].state) == ([], State.FIRING)


def test_a_claimed_end_needs_three_good_readings_and_is_doubted_once() -> None:
    book, _ = taken(told("ct200:30003"), told("ct200:30003", is_firing=False))
    book, did = readings(book, 5, is_well=False)
    assert did == [Did.DOUBTED]
    assert readings(book, 2)[1] == []
    assert readings(book, 3)[1] == [Did.RESOLVED]


def test_an_end_of_which_a_part_was_left_out_is_no_end() -> None:
    book, _ = taken(told("ct200:30003"), told("ct200:30003", is_firing=False, left_out=4))
    assert readings(book, 5)[1] == []


def test_what_fires_again_after_its_claimed_end_goes_on() -> None:
    book, did = taken(told("ct200:30003"), told("ct200:30003", is_firing=False), told("ct200:30003"))
    assert did == [Did.FIRING]
    assert readings(book, 5)[1] == []


def test_what_ended_a_moment_ago_is_the_same_alert_when_it_comes_back() -> None:
    book, _ = taken(told("ct200:30003"), told("ct200:30003", is_firing=False))
    book, _ = readings(book, 3)
    book, changes = foreign.take(book, told("ct200:30003"), NOON + timedelta(hours=1, minutes=2), LIMITS)
    assert [(one.did, one.alert.id, one.alert.returns) for one in changes] == [(Did.RETURNED, "alertmanager-1", 1)]


@pytest.mark.parametrize(
    ("state", "did", "after"),
    [
        (State.FIRING, Did.CONFIRMED, State.FIRING),
        (State.ACKED, Did.CONFIRMED, State.ACKED),
        (State.PENDING, Did.FIRING, State.FIRING),
    ],
)
def test_what_our_rules_have_found_is_joined_and_needs_no_further_look(state: State, did: Did, after: State) -> None:
    own = Alert("slow_server-1", Cause.SLOW_SERVER, ("gpu3", "gpu4"), NOON, state)
    book, found = taken(told("ct200:30003", cause="slow_server"), book=Book((own,), next_number=2))
    assert (found, [(one.id, one.state, one.groups) for one in book.alerts]) == (
        [did],
        [("slow_server-1", after, ("g",))],
    )


def test_another_cause_or_another_server_is_an_alert_of_its_own() -> None:
    own = Alert("slow_server-1", Cause.SLOW_SERVER, ("gpu3",), NOON, State.FIRING)
    others = (
        told("ct200:30003", cause="hung"),
        told("ct200:30005", cause="slow_server", group="h"),
        told("db1", group="i"),
    )
    book, did = taken(*others, book=Book((own,), next_number=2))
    assert did == [Did.FIRING] * 3
    assert [one.id for one in book.alerts][1:] == ["alertmanager-2", "alertmanager-3", "alertmanager-4"]


def test_our_own_finding_takes_over_the_alert_with_its_message_and_what_people_did_to_it() -> None:
    book, _ = taken(told("ct200:30003", cause="down"))
    book, _ = alerts.ack(book, "alertmanager-1", "ana", NOON)
    found = Finding(Cause.DOWN, ("gpu3",), NOON, {"lost_reads": 3})
    book, changes = alerts.advance(book, [found], lambda _cause, _name: None, NOON + MINUTE, LIMITS)
    (one,) = book.alerts
    assert [change.did for change in changes] == [Did.CONFIRMED]
    assert (one.id, one.cause, one.state, one.acked_by) == ("alertmanager-1", Cause.DOWN, State.ACKED, "ana")
    book, changes = foreign.take(book, told("ct200:30003", is_firing=False, cause="down"), NOON + 2 * MINUTE, LIMITS)
    assert [change.did for change in changes] == [Did.DOUBTED]


def test_what_is_silenced_is_not_told_and_is_told_when_the_silence_ends() -> None:
    quiet = Silence("s-1", NOON + MINUTE, "ana", NOON, servers=frozenset({"gpu3"}))
    book, did = taken(told("ct200:30003"), book=Book(silences=(quiet,)))
    assert did == [Did.SILENCED]
    assert readings(book, 1)[1] == [Did.UNSILENCED]


def test_what_an_operation_explains_is_kept_back_until_that_is_over() -> None:
    planned = frozenset({"gpu3"})
    book, changes = foreign.take(Book(), told("ct200:30003", cause="down"), NOON, LIMITS, planned)
    assert (changes, book.alerts[0].state) == ((), State.PENDING)
    assert foreign.confirm(book, planned, NOON)[1] == ()
    assert [one.did for one in foreign.confirm(book, frozenset(), NOON + MINUTE)[1]] == [Did.FIRING]
    book, _ = foreign.take(book, told("ct200:30003", cause="down", is_firing=False), NOON + MINUTE, LIMITS, planned)
    assert readings(book, 1)[0].alerts == ()
    _, changes = foreign.take(Book(), told("ct200:30003", cause="error_rate"), NOON, LIMITS, planned)
    assert [one.did for one in changes] == [Did.FIRING]


def test_only_instances_whose_up_is_one_are_over() -> None:
    book, _ = taken(told("db1", "db2"), told("db1", "db2", is_firing=False))
    assert foreign.awaited(book) == ("db1", "db2")
    book, changes = foreign.seen_up(book, {"db1": True}, NOON)
    assert [(one.did, one.alert.evidence["away"]) for one in changes] == [(Did.DOUBTED, ("db2",))]
    assert readings(book, 5)[1] == []
    book, changes = foreign.seen_up(book, None, NOON)
    assert (changes, readings(book, 5)[1]) == ((), [])
    book, _ = foreign.seen_up(book, {"db1": True, "db2": True}, NOON)
    assert readings(book, 5)[1] == [Did.RESOLVED]
