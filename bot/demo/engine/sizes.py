"""How many requests and tokens a configuration has room for: flags in, sizes out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bot.demo.engine.flags import Version
from bot.demo.machine import GPU_TOTAL_MIB

WEIGHTS_MIB = 54_680
CONTEXT_LENGTH = 262_144
SLOT_MIB = 147
"""One state of the model's linear layers."""
KV_TOKEN_KIB = 64
RESERVED = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}
HELD = {1: 1, 3: 2, 4: 3, 5: 3}
"""Slots that a request really holds, by those that it reserves."""
UNLIMITED = 4096


class NoRoomError(Exception):
    """Weights and caches do not fit; the message is the engine's own last line."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What came of a configuration. ``seats`` is the engine's max_running_requests."""

    strategy: str
    reserved: int
    slots: int
    seats: int
    tokens: int
    memory_mib: int

    @property
    def held(self) -> int:
        """State slots that one running request holds."""
        return HELD[self.reserved]

    @property
    def free_gb(self) -> float:
        """GPU memory that is left, in GiB."""
        return (GPU_TOTAL_MIB - self.memory_mib) / 1024


def strategy_of(args: argparse.Namespace, version: Version) -> str:
    """The Mamba strategy that really runs."""
    asked: str = getattr(args, "mamba_strategy", "auto")
    if asked != "auto":
        return asked
    return "no_buffer" if version < (0, 5, 14) or args.disable_overlap_schedule else "extra_buffer"


def conflict_of(args: argparse.Namespace, version: Version) -> str | None:
    """The exception that flags which do not go together end in, or None."""
    asked = getattr(args, "mamba_strategy", "auto")
    if version >= (0, 5, 14) and asked == "no_buffer" and not args.disable_overlap_schedule:
        return "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
    if version < (0, 5, 14) and asked == "extra_buffer" and args.disable_radix_cache:
        return "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache."
    if args.speculative_algorithm and not args.disable_radix_cache and version >= (0, 5, 10):
        return _speculative_conflict(args, version)
    return None


def _speculative_conflict(args: argparse.Namespace, version: Version) -> str | None:
    if version >= (0, 5, 14) or strategy_of(args, version) != "no_buffer":
        return None
    return (
        "ValueError: Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache "
        "when using --mamba-scheduler-strategy no_buffer. To use radix cache with speculative decoding, please use "
        "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
    )


def sizes_of(args: argparse.Namespace, version: Version) -> Sizes:
    """The sizes; NoRoomError when nothing fits."""
    strategy = strategy_of(args, version)
    reserved = _reserved(args, strategy)
    fraction: float = args.mem_fraction_static
    share = args.mamba_full_memory_ratio / (1 + args.mamba_full_memory_ratio) / (0.9 / 1.9)
    states = 2 if args.mamba_ssm_dtype in ("bfloat16", "float16") else 1
    slots = args.max_mamba_cache_size or round((187 + (fraction - 0.85) * 600) * share * states)
    tokens = round((381_136 + (fraction - 0.85) / 0.05 * 11_072) * (1.9 - 0.9 * share))
    tokens = min(tokens, args.max_total_tokens or tokens)
    if slots < reserved or fraction * GPU_TOTAL_MIB * args.tp_size < WEIGHTS_MIB or tokens < 1:
        raise NoRoomError("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
    seats = min(args.max_running_requests or UNLIMITED, slots // reserved)
    return Sizes(strategy, reserved, slots, seats, tokens, round(fraction * GPU_TOTAL_MIB) + 2_900)


def _reserved(args: argparse.Namespace, strategy: str) -> int:
    if args.disable_radix_cache:
        return 1
    if strategy == "extra_buffer" and args.disable_overlap_schedule:
        return 4
    return RESERVED[strategy]
