"""What goes out to an Alertmanager, as values."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.monitors import AlertmanagerPeer, Labelling
from bot.domain.watching.alerts import Alert, Book, Silence, State
from bot.domain.watching.causes import Cause
from bot.domain.watching.exchange import Matcher, RemoteSilence, marker, order, outgoing, to_set
from tests.tester import first_night

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FLEET = first_night()
PEER = AlertmanagerPeer("http://am", Labelling("server", "{name}+{port}"))


def silence(*servers: str, id_: str = "s-1", alerts: tuple[str, ...] = ()) -> Silence:
    return Silence(id_, NOON + HOUR, "ana", NOON, "fan", frozenset(servers), alerts=frozenset(alerts))


def test_one_server_is_matched_as_it_is_and_several_by_an_expression_that_means_just_them() -> None:
    one = order(silence("gpu3"), Book(), FLEET, PEER)
    several = order(silence("gpu3", "gpu5"), Book(), FLEET, PEER)
    assert one is not None
    assert several is not None
    assert one.matchers == (Matcher("server", "gpu3+30003"),)
    (matcher,) = several.matchers
    assert matcher.is_regex
    labels = FLEET.labelled(PEER.labelling)
    assert [name for value, name in labels.items() if re.fullmatch(matcher.value, value)] == ["gpu3", "gpu5"]


def test_what_could_mean_everything_is_not_sent() -> None:
    assert order(silence("gone"), Book(), FLEET, PEER) is None
    assert order(silence(), Book(), FLEET, PEER) is None
    assert order(silence(alerts=("alertmanager-1",)), Book(), FLEET, PEER) is None


def test_an_alert_of_a_job_or_of_the_whole_fleet_names_no_server() -> None:
    alerts = (
        Alert("slow_fleet-1", Cause.SLOW_FLEET, (), NOON, State.FIRING),
        Alert("job_stalled-2", Cause.JOB_STALLED, ("datagen",), NOON, State.ACKED),
        Alert("down-3", Cause.DOWN, ("gpu1", "gpu2"), NOON, State.SILENCED),
        Alert("hung-4", Cause.HUNG, ("gpu3",), NOON, State.PENDING),
        Alert("alertmanager-5", Cause.FOREIGN, ("gpu4",), NOON, State.FIRING),
    )
    found = outgoing(Book(alerts), FLEET, PEER, NOON)
    assert {key: one.labels for key, one in found.items()} == {
        "slow_fleet-1/": {"alertname": "UpbotSlowFleet", "source": "upbot", "cause": "slow_fleet", "severity": "critical"},
        "job_stalled-2/datagen": {
            "alertname": "UpbotJobStalled", "source": "upbot", "cause": "job_stalled", "severity": "warning", "job_name": "datagen",
        },
        **{
            f"down-3/gpu{n}": {
                "alertname": "UpbotDown", "source": "upbot", "cause": "down", "severity": "critical",
                "server": f"gpu{n}+3000{n}", "host": "ct200",
            }
            for n in (1, 2)
        },
    }  # fmt: skip


@given(st.lists(st.sampled_from("abcd"), unique=True), st.dictionaries(st.sampled_from("abcd"), st.text(min_size=1)))
def test_a_silence_that_bears_our_mark_is_known_and_never_doubled(names: list[str], known: dict[str, str]) -> None:
    ours = [silence("gpu1", id_=name) for name in names]
    there = [RemoteSilence(f"theirs-{one.id}", f"why {marker(one)}") for one in ours] + [RemoteSilence("x", "other")]
    found = to_set(ours, known, there)
    assert found == {name: known.get(name, f"theirs-{name}") for name in names}
