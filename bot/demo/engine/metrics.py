"""The simulated server's metrics in Prometheus' text form."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from bot.demo.engine.batch import Batch

_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 120.0, 200.0, 400.0)


@dataclass(slots=True)
class Histogram:
    """Observed seconds in buckets."""

    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.total += seconds
        self.counts[bisect_left(_SECONDS, seconds)] += 1

    def rows(self) -> list[tuple[str, str, float]]:
        """Suffix, the bucket's label, value."""
        rows, seen = [], 0
        for edge, count in zip((*(str(one) for one in _SECONDS), "+Inf"), self.counts, strict=True):
            seen += count
            rows.append(("_bucket", edge, float(seen)))
        return [("_sum", "", self.total), *rows, ("_count", "", float(seen))]


@dataclass(slots=True)
class Latencies:
    """How long requests took."""

    first_token: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)


def exposition(batch: Batch, model: str, throughput: float, latencies: Latencies) -> str:
    """The whole text of /metrics."""
    scheduler = {"engine_type": "unified", "model_name": model, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    front = {"engine_type": "unified", "model_name": model}
    out: list[str] = []
    for name, what, value in _gauges(batch, throughput):
        _family(out, name, "gauge", what, [("", scheduler, value)])
    counters = batch.counters
    for mode, value in (("prefill_compute", counters.prompted), ("prefill_cache", 0), ("decode", counters.decoded)):
        row = ("", scheduler | {"mode": mode}, float(round(value)))
        _family(out, "realtime_tokens_total", "counter", "Tokens processed, by mode.", [row])
    for name, what, value in (
        ("prompt_tokens_total", "Prompt tokens of finished requests.", counters.prompted),
        ("generation_tokens_total", "Generated tokens of finished requests.", counters.generated),
        ("num_requests_total", "Finished requests.", counters.finished),
        ("num_aborted_requests_total", "Aborted requests.", counters.aborted),
    ):
        _family(out, name, "counter", what, [("", front, float(value))])
    for name, what, histogram in (
        ("time_to_first_token_seconds", "Time to the first token.", latencies.first_token),
        ("queue_time_seconds", "Time in the queue.", latencies.queue),
        ("e2e_request_latency_seconds", "Time of a whole request.", latencies.whole),
    ):
        rows = [(end, front | ({"le": edge} if edge else {}), value) for end, edge, value in histogram.rows()]
        _family(out, name, "histogram", what, rows)
    return "\n".join(out) + "\n"


def _gauges(batch: Batch, throughput: float) -> list[tuple[str, str, float]]:
    sizes, used = batch.sizes, batch.tokens
    return [
        ("num_running_reqs", "Running requests.", batch.running),
        ("num_queue_reqs", "Waiting requests.", batch.queued),
        ("num_grammar_queue_reqs", "Requests that wait for their grammar.", 0),
        ("num_retracted_reqs", "Retracted requests.", 0),
        ("num_used_tokens", "Used tokens.", used),
        ("token_usage", "The fullest pool.", round(max(batch.kv_usage, batch.mamba_usage), 2)),
        ("full_token_usage", "Full-attention KV in use.", batch.kv_usage),
        ("swa_token_usage", "Sliding-window KV in use.", 0),
        ("mamba_usage", "Mamba states in use.", batch.mamba_usage),
        ("mamba_used_tokens", "Mamba states held.", batch.slots),
        ("mamba_available_tokens", "Mamba states free.", sizes.slots - batch.slots),
        ("mamba_evictable_tokens", "Mamba states kept for prefixes.", 0),
        ("kv_used_tokens", "KV tokens held.", used),
        ("kv_available_tokens", "KV tokens free.", sizes.tokens - used),
        ("kv_evictable_tokens", "KV tokens kept for prefixes.", 0),
        ("gen_throughput", "Decoded tokens a second.", throughput),
        ("cache_hit_rate", "Prefix cache hit rate.", 0),
        ("max_total_num_tokens", "Size of the KV pool in tokens.", sizes.tokens),
        ("page_size", "Tokens a page.", 1),
        ("is_cuda_graph", "Whether decoding runs on CUDA graphs.", 1),
    ]


def _family(out: list[str], name: str, kind: str, what: str, rows: list[tuple[str, dict[str, str], float]]) -> None:
    head = [f"# HELP sglang:{name} {what}", f"# TYPE sglang:{name} {kind}"]
    if f"# TYPE sglang:{name} {kind}" not in out:
        out.extend(head)
    for suffix, labels, value in rows:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
        out.append(f"sglang:{name}{suffix}{{{shown}}} {float(value)}")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
