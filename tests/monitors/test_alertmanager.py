"""Speaking with an Alertmanager, and reading what its webhook sends: well, and whatever else may come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.errors import FleetError
from bot.domain.monitors import AlertmanagerPeer
from bot.domain.watching import foreign
from bot.domain.watching.alerts import Book
from bot.domain.watching.exchange import Matcher, Outgoing, RemoteSilence, SilenceOrder
from bot.domain.watching.foreign import Notification, Told
from bot.domain.watching.limits import Limits
from bot.monitors.alertmanager import Alertmanager, NotANotification, notification
from tests.monitors.test_prometheus import json_values
from tests.monitors.wire import Wire, wired

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ORDER = SilenceOrder((Matcher("instance", "ct200:30003"),), NOON, NOON + HOUR, "ana", "fan [upbot s-1]")
SENT = {
    "version": "4",
    "groupKey": '{}:{alertname="Slow"}',
    "truncatedAlerts": 2,
    "status": "firing",
    "receiver": "upbot",
    "groupLabels": {"alertname": "Slow"},
    "commonLabels": {"alertname": "Slow", "severity": "page"},
    "commonAnnotations": {},
    "externalURL": "http://am",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "Slow", "instance": "ct200:30003"},
            "annotations": {"summary": "slow"},
            "startsAt": "2026-11-30T11:59:00.123456789Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://p",
            "fingerprint": "f1",
        },
        {"status": "resolved", "labels": {"alertname": "Slow"}, "startsAt": "2026-11-30T13:58:00+02:00", "fingerprint": "f2"},
    ],
}  # fmt: skip


def test_a_notification_is_read_as_it_was_sent() -> None:
    labels = {"alertname": "Slow", "instance": "ct200:30003"}
    assert notification(json.dumps(SENT).encode()) == Notification(
        '{}:{alertname="Slow"}',
        (
            Told("f1", True, datetime(2026, 11, 30, 11, 59, 0, 123456, UTC), labels, {"summary": "slow"}),
            Told("f2", False, datetime(2026, 11, 30, 11, 58, tzinfo=UTC), {"alertname": "Slow"}),
        ),
        {"alertname": "Slow", "severity": "page"},
        2,
    )


def test_grafanas_that_lacks_keys_has_a_group_all_the_same() -> None:
    sent = {key: value for key, value in SENT.items() if key in ("alerts", "commonLabels")}
    assert notification(json.dumps(sent).encode()).group == '{"alertname": "Slow", "severity": "page"}'


def test_whatever_is_sent_is_cut_to_a_size() -> None:
    huge = {f"l{n}": "x" * 2_000 for n in range(80)}
    sent = {"groupKey": "k" * 100_000, "commonLabels": huge, "alerts": [{"labels": huge}, *({} for _ in range(1_999))]}
    found = notification(json.dumps(sent).encode())
    assert (len(found.group), len(found.alerts), found.left_out) == (64, 1_000, 1_000)
    assert (len(found.common), max(map(len, found.alerts[0].labels.values()))) == (64, 1_000)


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_notification_is_refused(body: bytes) -> None:
    with pytest.raises(NotANotification):
        notification(body)


texts = st.dictionaries(
    st.sampled_from(["alertname", "instance", "cause", "source", "x", "severity"]), st.text(max_size=30)
)
alerts = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["firing", "resolved"]) | json_values,
        "labels": texts | json_values,
        "annotations": texts | json_values,
        "startsAt": st.sampled_from(["2026-11-30T11:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00"]) | json_values,
        "fingerprint": st.text(max_size=9) | json_values,
    },
)  # fmt: skip


@given(
    st.lists(
        st.tuples(st.lists(alerts | json_values, max_size=4), st.sampled_from(["g", "h"]), json_values), max_size=5
    )
)
def test_any_notifications_leave_a_book_that_can_go_on(sent: list[Any]) -> None:
    book, at = Book(), NOON
    for rows, group, truncated in sent:
        body = json.dumps({"groupKey": group, "alerts": rows, "truncatedAlerts": truncated}).encode()
        told = foreign.read(notification(body).without("Watchdog"), "instance", {"ct200:30003": "gpu3"})
        at += timedelta(seconds=30)
        if told is not None:
            book, changes = foreign.take(book, told, at, Limits())
            assert len(changes) <= 1
        assert len(book.alerts) <= 2
        assert all(one.since <= at for one in book.alerts)


def talked(act: Callable[[Wire, Alertmanager, AlertmanagerPeer], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with wired() as wire:
            remote = Alertmanager("ana:secret")
            try:
                await act(wire, remote, AlertmanagerPeer(wire.url, timeout=timedelta(seconds=1)))
            finally:
                await remote.close()

    asyncio.run(whole())


@pytest.mark.parametrize("answer", ['{"silenceID":"abc"}', '{"id":"abc","message":"silence created"}'])
def test_a_silence_is_set_and_its_id_read_grafanas_too(answer: str) -> None:
    async def act(wire: Wire, remote: Alertmanager, peer: AlertmanagerPeer) -> None:
        wire.says(answer.encode())
        assert await remote.silence(peer, ORDER) == "abc"
        head, _, body = wire.asked[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /api/v2/silences HTTP/1.1\r\n")
        assert b"authorization: basic yw5honnly3jlda==" in head.lower()
        assert json.loads(body) == {
            "matchers": [{"name": "instance", "value": "ct200:30003", "isRegex": False, "isEqual": True}],
            "startsAt": "2026-11-30T12:00:00+00:00", "endsAt": "2026-11-30T13:00:00+00:00",
            "createdBy": "ana", "comment": "fan [upbot s-1]",
        }  # fmt: skip

    talked(act)


def test_silences_that_stand_are_listed_and_only_such_are_ended() -> None:
    async def act(wire: Wire, remote: Alertmanager, peer: AlertmanagerPeer) -> None:
        listed = [
            {"id": "a/b", "comment": "x", "status": {"state": "active"}},
            {"id": "old", "comment": "y", "status": {"state": "expired"}}, {"id": 3}, "?",
        ]  # fmt: skip
        wire.says(json.dumps(listed).encode())
        assert await remote.silences(peer) == [RemoteSilence("a/b", "x")]
        await remote.unsilence(peer, "old")
        assert len(wire.asked) == 2
        await remote.unsilence(peer, "a/b")
        assert wire.asked[-1].startswith(b"DELETE /api/v2/silence/a%2Fb HTTP/1.1\r\n")

    talked(act)


def test_alerts_are_sent_and_fingerprints_read() -> None:
    async def act(wire: Wire, remote: Alertmanager, peer: AlertmanagerPeer) -> None:
        wire.says(b"")
        await remote.send(peer, [Outgoing({"alertname": "UpbotDown"}, NOON, NOON + HOUR, {"summary": "down"})])
        assert json.loads(wire.asked[0].partition(b"\r\n\r\n")[2]) == [
            {
                "labels": {"alertname": "UpbotDown"}, "annotations": {"summary": "down"},
                "startsAt": "2026-11-30T12:00:00+00:00", "endsAt": "2026-11-30T13:00:00+00:00",
            }
        ]  # fmt: skip
        wire.says(b'[{"fingerprint":"f1"},{"fingerprint":7},5]')
        assert await remote.fingerprints(peer) == {"f1"}

    talked(act)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda wire: wire.says(b"{}"), "Alertmanager at here took a silence and gave no id"),
        (lambda wire: wire.says(b"\xff\xfe"), "Alertmanager at here answered something that is no JSON"),
        (lambda wire: wire.says(b"{}", "307 Temporary Redirect", extra="Location: /x\r\n"), "Alertmanager at here sends elsewhere (HTTP 307): the url must be where it really is"),
        (lambda wire: wire.says(b'"end time must be in the future"', "400 Bad Request"), "Alertmanager at here answered HTTP 400: end time must be in the future"),
        (lambda wire: setattr(wire, "delay", 9), "Alertmanager at here did not answer within 1 s"),
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_one_line(make: Callable[[Wire], object], said: str) -> None:
    async def act(wire: Wire, remote: Alertmanager, peer: AlertmanagerPeer) -> None:
        make(wire)
        with pytest.raises(FleetError) as caught:
            await remote.silence(peer, ORDER)
        assert str(caught.value).replace(f"127.0.0.1:{wire.port}", "here") == said

    talked(act)
