"""Reads what vLLM answers: Prometheus text (one set of rows for each engine), ``/version`` and ``/v1/models``."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.facts import Answer, Load, Running
from bot.engines import _json, _prometheus
from bot.engines._prometheus import Metrics, Row

WANTED = frozenset(
    "vllm:" + name
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "generation_tokens_total",
        "prompt_tokens_total",
        "request_success_total",
        "num_preemptions_total",
        "spec_decode_num_drafts_total",
        "spec_decode_num_accepted_tokens_total",
        "cache_config_info",
    )
)


def load(answers: Mapping[str, Answer]) -> Load:
    """The numbers of ``/metrics``; there is no rate among them, and no cap on running requests."""
    metrics = _metrics(answers)
    return Load(
        running=_count(metrics, "num_requests_running"),
        queued=_count(metrics, "num_requests_waiting"),
        max_total_tokens=_capacity(metrics),
        tokens_total=_total(metrics, "generation_tokens_total"),
        prompt_tokens_total=_total(metrics, "prompt_tokens_total"),
        requests_total=_total(metrics, "request_success_total"),
        kv_usage=_kv_usage(metrics),
        accept_length=_accept_length(metrics),
        retracted=_count(metrics, "num_preemptions_total"),
    )


def running(answers: Mapping[str, Answer]) -> Running:
    """The version, the model and the size of its cache; flags are not told (outside the development mode)."""
    models = _json.objects(_json.document(answers.get("/v1/models")).get("data"))
    first = models[0] if models else {}
    return Running(
        version=_json.text(_json.document(answers.get("/version")).get("version")),
        model=_json.text(first.get("root")) or _json.text(first.get("id")),
        max_total_tokens=_capacity(_metrics(answers)),
    )


def _metrics(answers: Mapping[str, Answer]) -> Metrics:
    page = answers.get("/metrics")
    return _prometheus.read(page.body, WANTED) if page is not None and page.is_ok else Metrics()


def _total(metrics: Metrics, name: str) -> float | None:
    return _prometheus.total(metrics.of(f"vllm:{name}"))


def _count(metrics: Metrics, name: str) -> int | None:
    value = _total(metrics, name)
    return None if value is None or value < 0 else int(value)


def _kv_usage(metrics: Metrics) -> float | None:
    """The fullest engine's share; the older name stands up to 0.10."""
    rows = metrics.of("vllm:kv_cache_usage_perc") or metrics.of("vllm:gpu_cache_usage_perc")
    return _json.fraction(_prometheus.highest(rows))


def _accept_length(metrics: Metrics) -> float | None:
    """Tokens a step since the start: the accepted ones, and the one that the model itself adds."""
    drafts = _total(metrics, "spec_decode_num_drafts_total")
    accepted = _total(metrics, "spec_decode_num_accepted_tokens_total")
    if not drafts or accepted is None or drafts < 0 or accepted < 0:
        return None
    return 1 + accepted / drafts


def _capacity(metrics: Metrics) -> int | None:
    sizes = [_cache_size(row) for row in metrics.of("vllm:cache_config_info")]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _cache_size(row: Row) -> int | None:
    told = _whole(row.label("kv_cache_size_tokens"))
    if told is not None:
        return told
    blocks, size = _whole(row.label("num_gpu_blocks")), _whole(row.label("block_size"))
    return blocks * size if blocks and size else None


def _whole(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 16 else None
