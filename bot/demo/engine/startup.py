"""A simulated start as data: what is printed when, and what happens to the GPU's memory.

The parts of a start add up to 75 seconds at speed 1; each server has a factor of its own, drawn from its port, so
that eight of them are not ready in the same second.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bot.demo.engine import lines
from bot.demo.engine.flags import Version
from bot.demo.engine.sizes import WEIGHTS_MIB, Sizes
from bot.demo.machine import GPU_TOTAL_MIB

SHARDS = 15
IMPORTS, GROUP, WEIGHTS, POOLS, GRAPHS, SERVER, WARM_UP = 7.0, 2.5, 38.0, 2.0, 22.0, 2.0, 1.5
COMPILING = 45.0
"""What a start takes longer that finds no compiled kernels."""
Part = Literal["imports", "group", "weights", "pools", "kernels", "graphs", "end"]


@dataclass(frozen=True, slots=True)
class Stage:
    """Wait that long, then print; ``is_bar`` text is written as it is. ``memory`` is what is held from then on, in MiB.

    ``part`` is where in the start this stands, so that a failure can be put there.
    """

    after: float
    text: str
    part: Part
    is_bar: bool = False
    memory: int | None = None


def personal_factor(port: int) -> float:
    """How much longer or shorter than usual a server on that port takes, between 0.88 and 1.12."""
    return 0.88 + 0.24 * random.Random(port).random()  # noqa: S311 - variety for the eye, not a secret


def stages(
    args: argparse.Namespace, version: Version, sizes: Sizes, shown: dict[str, object], *, is_cold: bool = False
) -> Iterator[Stage]:
    """A whole start until the HTTP server may open its port; a cold one compiles its kernels."""
    free = GPU_TOTAL_MIB / 1024 - 0.6
    yield Stage(IMPORTS, lines.server_args(shown), "imports")
    yield Stage(0.1, "Using default HuggingFace chat template with detected content format: openai", "imports")
    if lines.is_old(version):
        yield Stage(GROUP / 2, "Init torch distributed begin.", "group", memory=520)
        yield Stage(GROUP / 2, f"Init torch distributed ends. elapsed={GROUP / 2:.2f} s, mem usage=0.09 GB", "group")
    elif lines.is_new(version):
        yield Stage(GROUP / 2, "Init parallel begin.", "group", memory=520)
        yield Stage(GROUP / 2, f"Init parallel ends. elapsed={GROUP / 2:.2f} s", "group")
        yield Stage(0, "Memory baseline taken. mem usage=0.51 GB", "group")
    yield from _weights(free)
    free -= WEIGHTS_MIB / 1024
    yield from _pools(version, sizes)
    if is_cold:
        yield Stage(0.2, "Running FlashInfer autotune...", "kernels")
        yield Stage(COMPILING, "FlashInfer autotune completed.", "kernels")
    if not args.disable_cuda_graph:
        yield from _graphs(args, sizes)
    yield Stage(0.6, lines.limits(args, sizes), "end", memory=sizes.memory_mib)
    if lines.is_new(version):
        yield Stage(0, lines.timings(WEIGHTS - 1, POOLS, 0 if args.disable_cuda_graph else GRAPHS), "end")


def _weights(free: float) -> Iterator[Stage]:
    yield Stage(0.4, lines.load_begin(free), "weights")
    yield Stage(0.6, lines.shard_bar(0, SHARDS, 0) + "\n", "weights", is_bar=True)
    share = (WEIGHTS - 1.4) / SHARDS
    for done in range(1, SHARDS + 1):
        held = 520 + WEIGHTS_MIB * done // SHARDS
        yield Stage(share, lines.shard_bar(done, SHARDS, share * done) + "\n", "weights", is_bar=True, memory=held)
    yield Stage(0.4, lines.load_end(WEIGHTS - 1, free - WEIGHTS_MIB / 1024), "weights")


def _pools(version: Version, sizes: Sizes) -> Iterator[Stage]:
    held = 520 + WEIGHTS_MIB + sizes.slots * 147
    yield Stage(POOLS / 3, lines.mamba_cache(sizes), "pools", memory=held)
    if lines.is_old(version) or lines.is_new(version):
        yield Stage(POOLS / 3, lines.kv_cache(sizes), "pools", memory=sizes.memory_mib - 2_300)
    yield Stage(POOLS / 3, lines.pool_end(sizes.free_gb + 2.2), "pools", memory=sizes.memory_mib - 2_300)
    if version >= (0, 5, 19) and sizes.seats == sizes.slots // sizes.reserved:
        yield Stage(0, lines.mamba_cap(sizes), "pools")


def _graphs(args: argparse.Namespace, sizes: Sizes) -> Iterator[Stage]:
    wanted = lines.graph_sizes(args, sizes)[::-1]
    share, free = (GRAPHS - 1) / len(wanted), sizes.free_gb + 2.2
    yield Stage(0.5, lines.graph_begin(free), "graphs")
    yield Stage(0, lines.graph_list(wanted[::-1]), "graphs")
    yield Stage(0, lines.graph_bar(wanted[0], 0, len(wanted), 0, free), "graphs", is_bar=True)
    for done, size in enumerate(wanted, start=1):
        now_free = free - 1.92 * done / len(wanted)
        bar = lines.graph_bar(size, done, len(wanted), share * done, now_free)
        yield Stage(share, bar, "graphs", is_bar=True)
    yield Stage(0, "\n", "graphs", is_bar=True)
    yield Stage(0.5, lines.graph_end(GRAPHS, free - 1.92), "graphs")
