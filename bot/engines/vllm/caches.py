"""Where vLLM keeps compiled kernels, and which of them a launch fills.

Read in vLLM's ``envs.py`` (``VLLM_CACHE_ROOT``, below ``XDG_CACHE_HOME`` by default), ``compilation/backends.py``
(``torch_compile_cache``, Inductor's and Triton's with it) and ``utils/deep_gemm.py`` (``DG_JIT_CACHE_DIR`` is
``VLLM_CACHE_ROOT/deep_gemm`` unless it is set).
"""

from __future__ import annotations

import re

from bot.domain.flags import Flags
from bot.domain.kernel_caches import KernelCache
from bot.engines._caches import FLASHINFER, TRITON, has_fp8

_ROOT = ("$VLLM_CACHE_ROOT", "$XDG_CACHE_HOME/vllm", "~/.cache/vllm")


def _below(folder: str) -> tuple[str, ...]:
    return tuple(f"{root}/{folder}" for root in _ROOT)


CACHES = (
    KernelCache("torch.compile", _below("torch_compile_cache"), is_sure=True),
    KernelCache("triton", TRITON),
    KernelCache("flashinfer", FLASHINFER),
    KernelCache("deep_gemm", ("$DG_JIT_CACHE_DIR", *_below("deep_gemm")), is_filled_once_made=True),
)
"""With torch.compile Triton's kernels lie there too, so that its own folder may never be filled."""

_OFF = re.compile(r'\s*0\s*|.*"(?:level|mode)"\s*:\s*(?:0\b|"NONE").*', re.DOTALL)


def used(version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
    """The caches that a launch with these flags goes by; eager mode compiles no graph."""
    del version  # they lie where they lay in 0.8
    left_out = set()
    if _is_eager(flags):
        left_out.add("torch.compile")
    if not has_fp8(flags):
        left_out.add("deep_gemm")
    return tuple(one for one in CACHES if one.name not in left_out)


def _is_eager(flags: Flags) -> bool:
    level = flags.value("compilation-config") or ""
    return flags.get("enforce-eager") is not None or bool(_OFF.fullmatch(level[:4000]))
