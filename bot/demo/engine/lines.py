"""The simulated server's log lines: values in, one text out. Who prints them is elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bot.demo.engine.batch import Batch, Request
from bot.demo.engine.flags import Version
from bot.demo.engine.sizes import CONTEXT_LENGTH, SLOT_MIB, WEIGHTS_MIB, Sizes
from bot.demo.machine import GPU_TOTAL_MIB, Entry

ARCHITECTURE = "Qwen3_5ForConditionalGeneration"
READY = "The server is fired up and ready to roll!"


def context_length(args: argparse.Namespace) -> int:
    """The longest sequence."""
    return int(args.context_length or CONTEXT_LENGTH)


def server_args(shown: dict[str, object]) -> str:
    """The line that a start begins with."""
    return f"server_args={shown!r}"


def load_begin(free_gb: float) -> str:
    """Weights begin."""
    return f"Load weight begin. avail mem={free_gb:.2f} GB"


def shard_bar(done: int, total: int, spent: float) -> str:
    """A step of the weights' bar; ends its own line."""
    pace = done / spent if spent else 0.0
    left = (total - done) / pace if pace else 0.0
    shown = f"{pace:.2f}it/s" if pace >= 1 or not pace else f"{1 / pace:.2f}s/it"
    return (
        f"Loading safetensors checkpoint shards: {100 * done // total:3d}% Completed | {done}/{total} "
        f"[{_minutes(spent)}<{_minutes(left) if done else '?'}, {shown if done else '?it/s'}]"
    )


def load_end(spent: float, free_gb: float) -> str:
    """Weights are in."""
    return (
        f"Load weight end. elapsed={spent:.2f} s, type={ARCHITECTURE}, dtype=torch.bfloat16, "
        f"avail mem={free_gb:.2f} GB, mem usage={WEIGHTS_MIB / 1024:.2f} GB."
    )


def mamba_cache(sizes: Sizes) -> str:
    """The pool of states."""
    state = sizes.slots * SLOT_MIB / 1024
    return (
        f"Mamba Cache is allocated. max_mamba_cache_size: {sizes.slots}, conv_state size: {state * 0.025:.2f}GB, "
        f"ssm_state size: {state * 0.975:.2f}GB "
    )


def kv_cache(sizes: Sizes) -> str:
    """The KV pool, as versions before 0.5.19 say it."""
    half = sizes.tokens * 32 / 1024 / 1024
    return (
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {sizes.tokens}, "
        f"K size: {half:.2f} GB, V size: {half:.2f} GB"
    )


def pool_end(free_gb: float) -> str:
    """The pools are there."""
    return f"Memory pool end. avail mem={free_gb:.2f} GB"


def mamba_cap(sizes: Sizes) -> str:
    """The warning of newer versions that the pool caps concurrency."""
    return (
        f"max_running_requests is capped to {sizes.seats} by the mamba state cache "
        f"(max_mamba_cache_size={sizes.slots}, {sizes.reserved} state slots per request)"
    )


def graph_sizes(args: argparse.Namespace, sizes: Sizes) -> list[int]:
    """The batch sizes whose graphs are captured: 23 for 128 requests and more."""
    most = int(args.cuda_graph_max_bs or max(sizes.seats, 128))
    wanted = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152]
    return [size for size in wanted if size <= most] if args.cuda_graph_max_bs else wanted


def graph_begin(free_gb: float) -> str:
    """Graphs begin."""
    return f"Capture cuda graph begin. This can take up to several minutes. avail mem={free_gb:.2f} GB"


def graph_list(sizes: Sequence[int]) -> str:
    """Which sizes are captured."""
    return f"Capture cuda graph bs {list(sizes)}"


def graph_bar(size: int, done: int, total: int, spent: float, free_gb: float) -> str:
    """A step of the graphs' bar, which is redrawn in place."""
    left = spent / done * (total - done) if done else 0.0
    pace = f"{done / spent:5.2f}it/s" if done and spent else "?it/s"
    filled = "█" * (10 * done // total)
    return (
        f"\rCapturing batches (bs={size} avail_mem={free_gb:.2f} GB): {100 * done // total:3d}%|{filled:<10}| "
        f"{done}/{total} [{_minutes(spent)}<{_minutes(left) if done else '?'}, {pace}]"
    )


def graph_end(spent: float, free_gb: float) -> str:
    """Graphs are done."""
    return f"Capture cuda graph end. Time elapsed: {spent:.2f} s. mem usage=1.92 GB. avail mem={free_gb:.2f} GB."


def limits(args: argparse.Namespace, sizes: Sizes) -> str:
    """The line that says how much there is room for."""
    return (
        f"max_total_num_tokens={sizes.tokens}, chunked_prefill_size={args.chunked_prefill_size}, "
        f"max_prefill_tokens=16384, max_running_requests={sizes.seats}, context_len={context_length(args)}, "
        f"available_gpu_mem={sizes.free_gb:.2f} GB"
    )


def timings(weights: float, pools: float, graphs: float) -> str:
    """What newer versions say of the start as a whole, in seconds."""
    whole = weights + pools + graphs
    return (
        f"Engine startup timings (s): load_weight={weights:.2f}, kv_cache_allocation={pools:.2f}, "
        f"scheduler_e2e={whole:.2f}, cuda_graph={{prefill=0.00, decode={graphs:.2f}}}, tokenizer_e2e={whole + 1:.2f}"
    )


def prefill(batch: Batch, requests: Sequence[Request], throughput: float) -> str:
    """A prefill batch."""
    tokens = sum(request.prompt for request in requests)
    before = max(0, batch.running - len(requests))
    return (
        f"Prefill batch, #new-seq: {len(requests)}, #new-token: {tokens}, #cached-token: 0, "
        f"full token usage: {batch.kv_usage:.2f}, mamba usage: {batch.mamba_usage:.2f}, #running-req: {before}, "
        f"#queue-req: {batch.queued}, #pending-token: 0, cuda graph: False, "
        f"input throughput (token/s): {throughput:.2f}"
    )


def decode(batch: Batch, throughput: float) -> str:
    """A decode line."""
    return (
        f"Decode batch, #running-req: {batch.running}, #full token: {batch.tokens}, "
        f"full token usage: {batch.kv_usage:.2f}, mamba num: {batch.slots}, mamba usage: {batch.mamba_usage:.2f}, "
        f"cuda graph: True, gen throughput (token/s): {throughput:.2f}, #queue-req: {batch.queued}"
    )


def access(peer: str, method: str, path: str, status: int, reason: str) -> str:
    """A line of the HTTP server's access log."""
    return f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {reason}'


def bind_error(host: str, port: int) -> str:
    """The HTTP server could not have its port."""
    return f"ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): address already in use"


def out_of_memory(gpu: int, tried_mib: int, held: Sequence[Entry]) -> str:
    """The allocator's message when others hold the GPU."""
    used = sum(one.mib for one in held)
    free = max(0, GPU_TOTAL_MIB - used)
    others = " ".join(f"Process {one.pid} has {one.mib / 1024:.2f} GiB memory in use." for one in held)
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried_mib}.00 MiB. GPU {gpu} has a total "
        f"capacity of {GPU_TOTAL_MIB / 1024:.2f} GiB of which {free:.2f} MiB is free. {others}".rstrip()
    )


def is_old(version: Version) -> bool:
    """Whether a version still says how large the KV pool is and starts its process group aloud."""
    return version < (0, 5, 19)


def is_new(version: Version) -> bool:
    """Whether a version starts its group in the newer words and sums its start up."""
    return version >= (0, 5, 23)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
