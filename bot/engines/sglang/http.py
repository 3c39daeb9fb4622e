"""Reads what SGLang answers: Prometheus text, ``/v1/loads`` and ``/server_info``, of every version, leniently.

Counters that move with each step come before those that move when a request ends. A number that would lie is
left out: usages of pools that do not exist, and a throughput that is never filled in without metrics.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.domain.facts import Answer, Load, Running
from bot.domain.flags import Flags
from bot.engines import _json, _prometheus
from bot.engines._prometheus import Metrics, Row
from bot.engines._secrets import hidden

_PREFIX = "sglang:"
WANTED = frozenset(
    _PREFIX + name
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "gen_throughput",
        "token_usage",
        "full_token_usage",
        "swa_token_usage",
        "swa_available_tokens",
        "swa_evictable_tokens",
        "swa_used_tokens",
        "mamba_usage",
        "mamba_available_tokens",
        "mamba_evictable_tokens",
        "mamba_used_tokens",
        "max_total_num_tokens",
        "realtime_tokens_total",
        "generation_tokens_total",
        "prompt_tokens_total",
        "num_requests_total",
        "spec_accept_length",
        "is_cuda_graph",
        "num_retracted_reqs",
        "num_retracted_requests_total",
    )
)
_NOT_FLAGS = frozenset(
    {
        "internal_states",
        "version",
        "status",
        "launch_command",
        "scheduler_info",
        "startup_time",
        "kv_events",
        "frontend",
        "max_total_num_tokens",
        "max_req_input_len",
        "hicache_object_layout",
    }
)
_MOST_FLAGS = 1_000
_LONGEST_COMMAND = 32_768
_SHORTEST_METRICS = b"sglang:"


def load(answers: Mapping[str, Answer]) -> Load:
    """The numbers of ``/metrics`` and ``/v1/loads`` together; both may be missing."""
    page = answers.get("/metrics")
    has_metrics = page is not None and page.is_ok and _SHORTEST_METRICS in page.body
    metrics = _prometheus.read(page.body, WANTED) if page is not None and has_metrics else Metrics()
    ranks = _json.objects(_json.document(answers.get("/v1/loads")).get("loads"))
    running = _sum(ranks, "num_running_reqs", otherwise=_count(metrics, "num_running_reqs"))
    stamp = min((one for rank in ranks if (one := _json.number(rank.get("timestamp"))) is not None), default=None)
    return Load(
        running=running,
        queued=_sum(ranks, "num_waiting_reqs", otherwise=_count(metrics, "num_queue_reqs")),
        max_running=_sum(ranks, "max_running_requests"),
        max_total_tokens=_sum(ranks, "max_total_num_tokens", otherwise=_count(metrics, "max_total_num_tokens")),
        tokens_total=_tokens(metrics, "decode", "generation_tokens_total"),
        prompt_tokens_total=_tokens(metrics, "prefill_compute", "prompt_tokens_total"),
        requests_total=_prometheus.total(_rows(metrics, "num_requests_total")),
        tokens_per_second=_rate(metrics, ranks),
        kv_usage=_kv_usage(metrics, ranks),
        swa_usage=_pool_usage(metrics, "swa_token_usage", "swa"),
        mamba_usage=_pool_usage(metrics, "mamba_usage", "mamba"),
        accept_length=_accept_length(metrics, ranks),
        cuda_graph=_cuda_graph(metrics, running),
        retracted=_count(metrics, "num_retracted_requests_total"),
        stamp=stamp,
        counts_at_end=_counts_at_end(metrics) and stamp is None,
    )


def running(answers: Mapping[str, Answer]) -> Running:
    """The configuration in ``/server_info``, or in its older name; keys and passwords stay hidden."""
    info = _json.document(answers.get("/server_info")) or _json.document(answers.get("/get_server_info"))
    states = _json.objects(info.get("internal_states"))
    version = _json.text(info.get("version")) or _json.text(_json.document(answers.get("/v1/loads")).get("version"))
    return Running(
        version=version,
        flags=_flags(info),
        model=_json.text(info.get("model_path")) or _model_of(answers),
        max_running=_sum(states, "effective_max_running_requests_per_dp"),
        max_total_tokens=_capacity(info, states),
    )


def _rows(metrics: Metrics, name: str) -> tuple[Row, ...]:
    return _one_a_rank(metrics.of(_PREFIX + name))


def _one_a_rank(rows: Sequence[Row]) -> tuple[Row, ...]:
    """One report for each DP rank.

    With metrics for all schedulers, every TP and PP rank repeats the numbers of its DP rank; with priorities, the
    row without one is the sum of the others.
    """
    first: dict[str, tuple[int, int]] = {}
    for row in rows:
        rank = row.label("dp_rank")
        first[rank] = min(first.get(rank, _place(row)), _place(row))
    chosen = [row for row in rows if _place(row) == first[row.label("dp_rank")]]
    whole = [row for row in chosen if row.labels.get("priority") == ""]
    return tuple(whole or chosen)


def _place(row: Row) -> tuple[int, int]:
    return _rank(row.label("pp_rank")), _rank(row.label("tp_rank"))


def _rank(word: str) -> int:
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 6 else 0


def _count(metrics: Metrics, name: str) -> int | None:
    value = _prometheus.total(_rows(metrics, name))
    return None if value is None or value < 0 else int(value)


def _tokens(metrics: Metrics, mode: str, at_the_end: str) -> float | None:
    """A token counter; once the one that moves with each step exists it is the only source, or it would jump."""
    live = metrics.of(_PREFIX + "realtime_tokens_total")
    if live:
        return _prometheus.total(_one_a_rank([row for row in live if row.label("mode") == mode])) or 0.0
    return _prometheus.total(_rows(metrics, at_the_end))


def _counts_at_end(metrics: Metrics) -> bool:
    return not metrics.of(_PREFIX + "realtime_tokens_total") and bool(_rows(metrics, "generation_tokens_total"))


def _rate(metrics: Metrics, ranks: Sequence[Mapping[str, Any]]) -> float | None:
    gauge = _prometheus.total(_rows(metrics, "gen_throughput"))
    if gauge is not None:
        return max(gauge, 0.0)
    rates = [rate for one in ranks if (rate := _json.number(one.get("gen_throughput")))]
    return sum(rates) if rates else None  # 0 here may only mean that the server was started without metrics


def _kv_usage(metrics: Metrics, ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """The fullest rank's share of the full-attention cache.

    ``token_usage`` of the metrics means that up to 0.5.10, and the fullest of all pools from 0.5.12, where
    ``full_token_usage`` says it; in ``/v1/loads`` it always means that.
    """
    full = _rows(metrics, "full_token_usage")
    told = [usage for one in ranks if (usage := _json.fraction(one.get("token_usage"))) is not None]
    if full or not told:
        return _json.fraction(_prometheus.highest(full or _rows(metrics, "token_usage")))
    return max(told)


def _pool_usage(metrics: Metrics, usage: str, pool: str) -> float | None:
    """The usage of a pool that only some models have; a server without it reports zeros."""
    value = _prometheus.highest(_rows(metrics, usage))
    slots = [
        row.value for part in ("available", "evictable", "used") for row in _rows(metrics, f"{pool}_{part}_tokens")
    ]
    if value is None or (not value and not any(slots)):
        return None
    return _json.fraction(value)


def _accept_length(metrics: Metrics, ranks: Sequence[Mapping[str, Any]]) -> float | None:
    found = [row.value for row in _rows(metrics, "spec_accept_length") if row.value > 0]
    if not found:
        speculative = [one["speculative"] for one in ranks if isinstance(one.get("speculative"), dict)]
        found = [length for one in speculative if (length := _json.number(one.get("accept_length")))]
    return sum(found) / len(found) if found else None


def _cuda_graph(metrics: Metrics, running: int | None) -> bool | None:
    rows = _rows(metrics, "is_cuda_graph")
    return all(row.value > 0 for row in rows) if rows and running else None


def _sum(objects: Iterable[Mapping[str, Any]], key: str, otherwise: int | None = None) -> int | None:
    values = [_json.integer(one.get(key)) for one in objects]
    known = [value for value in values if value is not None]
    return sum(known) if known else otherwise


def _capacity(info: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> int | None:
    memory = [one["memory_usage"] for one in states if isinstance(one.get("memory_usage"), dict)]
    scheduler = info.get("scheduler_info")
    nested = scheduler.get("max_total_num_tokens") if isinstance(scheduler, dict) else None
    top = _json.integer(info.get("max_total_num_tokens"))
    return _sum(memory, "token_capacity", otherwise=top if top is not None else _json.integer(nested))


def _model_of(answers: Mapping[str, Answer]) -> str | None:
    for path in ("/model_info", "/get_model_info"):
        model = _json.text(_json.document(answers.get(path)).get("model_path"))
        if model is not None:
            return model
    return None


def _flags(info: Mapping[str, Any]) -> Flags | None:
    """What was asked for at launch (told since 0.5.23), else every resolved argument as a flag."""
    if not info:
        return None
    asked = info.get("launch_command")
    if isinstance(asked, str) and "--" in asked and len(asked) <= _LONGEST_COMMAND:
        try:
            words = shlex.split(asked)
        except ValueError:
            words = asked.split()
        return hidden(Flags.parse(words))
    return hidden(Flags(tuple(_resolved(info))))


def _resolved(info: Mapping[str, Any]) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key in list(info)[:_MOST_FLAGS]:
        values = None if key in _NOT_FLAGS or key.startswith("_") else _words(info[key])
        if values is not None:
            yield key.replace("_", "-"), values


def _words(value: Any) -> tuple[str, ...] | None:
    if value is True:
        return ()
    if value is None or value is False:
        return None
    if isinstance(value, (str, int, float)):
        return (str(value),)
    if isinstance(value, list) and value and all(isinstance(one, (str, int, float)) for one in value):
        return tuple(str(one) for one in value)
    return None
