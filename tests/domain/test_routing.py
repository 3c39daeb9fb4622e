"""What routers say of their workers is read, forgiven and put back as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Answer, Load, Outcome, Process, ServerFacts
from bot.domain.readiness import Readiness, Verdict, judge
from bot.domain.routing import (
    Routed,
    Standing,
    Worker,
    addition,
    base,
    of_server,
    place,
    read_workers,
    standing,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SGLANG_ROUTER: dict[str, Any] = {
    "id": "7cc8fdda", "url": "http://127.0.0.1:30000", "model_id": "tiny", "priority": 70, "cost": 2.5,
    "worker_type": "regular", "is_healthy": True, "load": 3, "connection_mode": "HTTP", "disable_health_check": False,
    "metadata": {"served_model_name": "tiny", "model_path": "/m", "tp_size": "1", "priority": "70", "zone": "a"},
}  # fmt: skip
SMG: dict[str, Any] = {
    "id": "01a22d91", "url": "http://127.0.0.1:30000", "model_id": "tiny", "models": [{"id": "tiny"}],
    "worker_type": "prefill", "bootstrap_port": 8998, "connection_mode": "http", "runtime_type": "sglang",
    "labels": {"version": "0.5.23", "max_running_requests": "8", "zone": "a"}, "priority": 50, "cost": 1.0,
    "health": {"disable_health_check": True, "drain_settle_secs": 1}, "is_healthy": False, "status": "draining",
    "load": 0, "http2": False,
}  # fmt: skip


def listed(*workers: Any) -> bytes:
    return json.dumps({"workers": list(workers), "total": len(workers), "stats": {}}).encode()


def test_what_sglang_router_lists_is_read_with_what_a_worker_was_registered_with() -> None:
    (one,) = read_workers(listed(SGLANG_ROUTER))
    assert (one.id, one.url, one.is_healthy, one.is_draining) == ("7cc8fdda", "http://127.0.0.1:30000", True, False)
    assert json.loads(one.settings) == {
        "cost": 2.5, "labels": {"zone": "a"}, "priority": 70, "worker_type": "regular",
    }  # fmt: skip


def test_what_smg_lists_is_read_too_and_what_drains_is_not_healthy() -> None:
    (one,) = read_workers(listed({**SMG, "is_healthy": True}))
    assert (one.is_healthy, one.is_draining) == (False, True)
    assert json.loads(one.settings) == {
        "bootstrap_port": 8998, "cost": 1.0, "health": {"disable_health_check": True, "drain_settle_secs": 1},
        "labels": {"zone": "a"}, "priority": 50, "worker_type": "prefill",
    }  # fmt: skip


def test_a_model_name_that_the_worker_does_not_tell_itself_was_given_and_is_put_back() -> None:
    (one,) = read_workers(listed({**SGLANG_ROUTER, "model_id": "other"}))
    assert json.loads(one.settings)["model_id"] == "other"
    (one,) = read_workers(listed({**SGLANG_ROUTER, "model_id": "unknown"}))
    assert "model_id" not in json.loads(one.settings)


def test_the_addition_has_all_of_it_and_the_servers_own_key() -> None:
    body = addition("http://x:1", '{"priority": 70}', "sk-1")
    assert json.loads(body) == {"priority": 70, "url": "http://x:1", "api_key": "sk-1"}
    for broken in ("{", "[]", "7"):
        assert json.loads(addition("http://x:1", broken, None)) == {"url": "http://x:1"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"workers": 5}', b'{"workers": {}}', b"\xff", b"null"])
def test_what_is_no_list_of_workers_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="no list of workers"):
        read_workers(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*SMG, "metadata", "api_key", "extra"])


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=8) | JSON, max_size=4))
def test_any_list_is_read_without_a_fault_and_what_is_put_back_is_json(workers: list[Any]) -> None:
    for one in read_workers(listed(*workers)):
        settings = json.loads(one.settings)
        assert "api_key" not in settings
        assert len(one.settings) <= 8_192
        assert json.loads(addition(base(one.url), one.settings, None))["url"] == base(one.url)


@given(st.text(max_size=40))
def test_any_url_has_a_place(url: str) -> None:
    host, port = place(url)
    assert isinstance(host, str)
    assert isinstance(port, int)


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://127.0.0.1:30000", "http://localhost:30000/"),
        ("http://127.0.0.1:30000", "127.0.0.1:30000"),
        ("http://127.0.0.1:30000", "http://0.0.0.0:30000"),
        ("http://H1:30000", "http://h1:30000@3"),
        ("http://[::1]:30000", "http://127.0.0.1:30000"),
    ],
)
def test_a_server_is_known_by_its_place_however_it_is_written(url: str, same: str) -> None:
    assert of_server((Worker("a", same, is_healthy=True),), url) != ()


def test_others_are_not_taken_for_it() -> None:
    others = ("http://127.0.0.1:30001", "http://10.0.0.9:30000", "http://h1", "nonsense")
    assert of_server([Worker("a", url, is_healthy=True) for url in others], "http://127.0.0.1:30000") == ()


def test_the_standing_of_ranks_is_that_of_the_worst() -> None:
    good, bad = Worker("a", "u@0", is_healthy=True), Worker("b", "u@1", is_healthy=False)
    going = Worker("c", "u@2", is_healthy=False, is_draining=True)
    assert standing(()) is Standing.ABSENT
    assert standing((good,)) is Standing.HEALTHY
    assert standing((good, bad)) is Standing.UNHEALTHY
    assert standing((going, going)) is Standing.DRAINING
    assert standing((good, going)) is Standing.UNHEALTHY


def seen(*standings: Standing, running: int = 4) -> Verdict:
    ours = Process(7, 70, ("sglang",))
    routed = tuple(Routed(f"r{number}", one) for number, one in enumerate(standings))
    answer = Answer(Outcome.ANSWERED, NOON, 200)
    facts = ServerFacts("gpu0", NOON, process=ours, port_owner=ours, instant=answer, load=Load(running), routed=routed)
    return judge(facts, NOON)


def test_a_server_drains_while_its_router_lets_its_requests_end_and_none_sends_more() -> None:
    assert seen(Standing.DRAINING) == Verdict(Readiness.DRAINING, "taken out of its router, 4 requests left")
    assert seen(Standing.DRAINING, running=0) == Verdict(Readiness.DRAINING, "taken out of its router")
    assert seen(Standing.DRAINING, Standing.ABSENT).readiness is Readiness.DRAINING
    assert seen(Standing.DRAINING, Standing.HEALTHY).readiness is Readiness.READY
    for one in (Standing.ABSENT, Standing.UNHEALTHY, Standing.UNKNOWN):
        assert seen(one).readiness is Readiness.READY
