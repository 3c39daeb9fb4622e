"""Reading a Prometheus: the same numbers as the servers' own, and one line of error for whatever else comes."""

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
from bot.domain.facts import Answer, Outcome
from bot.domain.monitors import PrometheusSource
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM
from bot.monitors.prometheus import NotAnAnswer, Prometheus, Series, pages, selector, series
from tests.monitors.wire import Wire, wired

NOW = 1_790_000_000.0
EVERY = timedelta(seconds=15)
SOURCE = PrometheusSource("http://prom.example:9090", timeout=timedelta(seconds=0.5))


def row(
    name: str, value: str, *, at: float = NOW, instance: str = "ct200:30000", job: str = "inference", **labels: str
):
    return Series({"__name__": name, "instance": instance, "job": job, **labels}, at, value)


def load(rows: list[Series], engine: Any = SGLANG, instance: str = "ct200:30000") -> Any:
    page = pages(rows, "instance", EVERY)[instance].page
    return engine.load({"/metrics": Answer(Outcome.ANSWERED, datetime.now(UTC), 200, page)})  # noqa: TID251 - only a stamp


def test_the_query_asks_for_these_metrics_of_these_servers_and_nothing_else() -> None:
    source = PrometheusSource("http://p", only={"cluster": 'a"b'})
    told = selector(source, ["ct200:30000", "10.0.0.1:30001"], {"up", "sglang:num_running_reqs"})
    assert told == (
        '{__name__=~"sglang:num_running_reqs|up",instance=~"ct200:30000|10\\\\.0\\\\.0\\\\.1:30001",cluster="a\\"b"}'
    )


def test_numbers_are_those_that_the_engine_reads_of_the_servers_own_page() -> None:
    found = load(
        [
            row("up", "1"),
            row("sglang:num_running_reqs", "32", tp_rank="0"),
            row("sglang:num_running_reqs", "32", tp_rank="1"),
            row("sglang:realtime_tokens_total", "1234567", mode="decode", tp_rank="0"),
            row("sglang:realtime_tokens_total", "99", mode="prefill_compute", tp_rank="0"),
            row("sglang:generation_tokens_total", "7"),
            row("sglang:full_token_usage", "NaN"),
        ]
    )
    assert (found.running, found.tokens_total, found.prompt_tokens_total) == (32, 1_234_567.0, 99.0)
    assert (found.kv_usage, found.counts_at_end) == (None, False)


def test_vllm_is_read_by_its_own_reader() -> None:
    rows = [
        row("up", "1"),
        row("vllm:num_requests_running", "4", engine="0"),
        row("vllm:num_requests_running", "5", engine="1"),
    ]
    assert load(rows, VLLM).running == 9


def test_a_server_that_two_jobs_scrape_counts_once_by_the_one_that_is_up() -> None:
    rows = [
        row("up", "0", job="old", at=NOW + 2),
        row("up", "1", job="a"), row("sglang:num_running_reqs", "32", job="a"),
        row("up", "1", job="b", at=NOW - 5), row("sglang:num_running_reqs", "31", job="b", at=NOW - 5),
    ]  # fmt: skip
    assert load(rows).running == 32


def test_a_server_that_two_replicas_of_prometheus_scrape_counts_once() -> None:
    rows = [
        row(name, value, replica=replica)
        for replica in "ab"
        for name, value in (("up", "1"), ("sglang:num_running_reqs", "32"), ("sglang:num_queue_reqs", "3"))
    ]
    assert (load(rows).running, load(rows).queued) == (32, 3)


def test_what_is_older_than_the_last_scrape_is_not_its_number() -> None:
    rows = [row("up", "1"), row("sglang:num_running_reqs", "32", at=NOW - 15), row("sglang:num_queue_reqs", "3")]
    assert (load(rows).running, load(rows).queued) == (None, 3)


def test_a_failed_scrape_and_one_that_comes_no_more_are_told_apart() -> None:
    rows = [
        row("up", "0"), row("sglang:num_running_reqs", "32", at=NOW - 15),
        row("up", "1", instance="ct200:30001", at=NOW - 31), row("up", "1", instance="ct200:30002"),
    ]  # fmt: skip
    found = pages(rows, "instance", EVERY)
    assert {name: (one.is_up, one.page) for name, one in found.items()} == {
        "ct200:30000": (False, b""), "ct200:30002": (True, b""),
    }  # fmt: skip


def test_federated_metrics_have_no_up_and_are_read_all_the_same() -> None:
    assert load([row("sglang:num_running_reqs", "32"), row("sglang:num_queue_reqs", "3", at=NOW - 15)]).running == 32


def test_labels_that_hold_anything_stay_labels() -> None:
    bad = 'x"} 99\nsglang:num_running_reqs{a="b'
    rows = [row("up", "1", model_name=bad), row("sglang:num_running_reqs", "5", model_name=bad)]
    assert load(rows).running == 5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
rows = st.fixed_dictionaries(
    {
        "metric": st.dictionaries(st.sampled_from(["__name__", "instance", "job", "mode", "x"]), st.text(max_size=12)),
        "values": st.lists(
            st.tuples(st.floats() | st.integers() | json_values, st.text(max_size=12) | st.just("5") | json_values).map(
                list
            ),
            max_size=3,
        ),
    }
)


@given(st.lists(rows | json_values, max_size=6))
def test_any_matrix_is_read_or_passed_over(result: list[Any]) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    for one in pages(series(body), "instance", EVERY).values():
        assert SGLANG.load({"/metrics": Answer(Outcome.ANSWERED, one.at, 200, one.page)}) is not None


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_no_answer(body: bytes) -> None:
    with pytest.raises(NotAnAnswer):
        series(body)


def refused(make: Callable[[Wire], object], source: PrometheusSource = SOURCE) -> str:
    """What is said of an answer, and that it was said soon."""

    async def whole() -> str:
        async with wired() as wire:
            make(wire)
            prometheus = Prometheus("user:a-password")
            here = PrometheusSource(wire.url, timeout=source.timeout)
            begun = asyncio.get_running_loop().time()
            try:
                with pytest.raises(FleetError) as caught:
                    await prometheus.scraped(here, ["ct200:30000"], SGLANG.metric_names)
            finally:
                await prometheus.close()
            assert asyncio.get_running_loop().time() - begun < 3
            said = str(caught.value)
            assert "password" not in said
            assert "\n" not in said
            assert len(said) < 250
            return said.replace(f"127.0.0.1:{wire.port}", "here")

    return asyncio.run(whole())


def _slow(wire: Wire) -> None:
    wire.says(b"{}")
    wire.delay = 30


def _endless(wire: Wire) -> None:
    wire.raw, wire.endless = b"HTTP/1.1 200 OK\r\n\r\n", b"[" * 65_536


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_slow, "Prometheus at here did not answer within 0 s"),
        (_endless, "Prometheus at here answered more than can be"),
        (lambda wire: wire.says(b"<html>"), "Prometheus: here answered something that is no JSON"),
        (lambda wire: wire.says(b"[" * 100_000), "Prometheus: here answered something that is no JSON"),
        (lambda wire: wire.says(b'{"status":"success","data":{"resultType":"vector","result":[]}}'), "Prometheus: here answered, but not as Prometheus does"),
        (lambda wire: wire.says(b'{"status":"success"', length=500), "Prometheus at here broke off its answer (ClientPayloadError)"),
        (lambda wire: setattr(wire, "raw", b"no http at all\r\n\r\n"), "Prometheus at here broke off its answer (ClientResponseError)"),
        (lambda wire: setattr(wire, "raw", b""), "Prometheus at here broke off its answer (ServerDisconnectedError)"),
        (lambda wire: wire.says(b"", "302 Found", extra="Location: http://127.0.0.1:1/\r\n"), "Prometheus at here sends elsewhere (HTTP 302): the url must be where it really is"),
        (lambda wire: wire.says(b"no", "401 Unauthorized"), "Prometheus at here refuses us (HTTP 401): check its auth in the environment"),
        (lambda wire: wire.says(b'{"status":"error","error":"query timed out\\n in x"}', "503 Service Unavailable"), "Prometheus at here answered HTTP 503: query timed out in x"),
        (lambda wire: wire.says(b"x" * 200_000, "500 Internal Server Error"), "Prometheus at here answered HTTP 500"),
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_one_line_and_soon(make: Callable[[Wire], object], said: str) -> None:
    assert refused(make) == said


def test_a_good_answer_is_asked_for_with_a_form_and_its_auth_and_many_servers_in_a_few_queries() -> None:
    async def whole(act: Callable[[Wire], Awaitable[None]]) -> None:
        async with wired() as wire:
            await act(wire)

    async def act(wire: Wire) -> None:
        result = [{"metric": {"__name__": "up", "instance": "h:1", "job": "j"}, "values": [[NOW, "1"]]}]
        wire.says(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode())
        prometheus = Prometheus("a-token")
        found = await prometheus.scraped(PrometheusSource(wire.url), [f"h:{n}" for n in range(450)], frozenset({"x"}))
        await prometheus.close()
        assert found["h:1"].is_up
        assert found["h:1"].at == datetime.fromtimestamp(NOW, UTC)
        assert len(wire.asked) == 3
        assert all(one.startswith(b"POST /api/v1/query HTTP/1.1\r\n") for one in wire.asked)
        assert all(b"authorization: bearer a-token" in one.lower() for one in wire.asked)
        assert all(b"%5B45s%5D&timeout=3s" in one for one in wire.asked)

    asyncio.run(whole(act))
