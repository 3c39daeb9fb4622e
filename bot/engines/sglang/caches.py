"""Where SGLang keeps compiled kernels, and which of them a launch fills.

Read in the wheels of 0.4.6, 0.5.2, 0.5.9, 0.5.13, 0.5.16 to 0.5.20 and 0.5.23: ``srt/environ.py``
(``redirect_third_party_caches`` moves Triton, Inductor and FlashInfer below ``SGLANG_CACHE_DIR`` since 0.5.18),
``srt/layers/deep_gemm_wrapper/compile_utils.py`` (sets ``DG_JIT_CACHE_DIR`` from ``SGL_DG_CACHE_DIR``, later
``SGLANG_DG_CACHE_DIR``, whatever it was), ``srt/compilation/backend.py``.
"""

from __future__ import annotations

from bot.domain.flags import Flags
from bot.domain.kernel_caches import KernelCache
from bot.engines._caches import FLASHINFER, INDUCTOR, TRITON, has_fp8
from bot.engines._versions import parsed

_MOVED = (0, 5, 18)
_ROOT = ("$SGLANG_CACHE_DIR", "~/.cache/sglang")


def _below(folder: str) -> tuple[str, ...]:
    return tuple(f"{root}/{folder}" for root in _ROOT)


_DG = ("$SGLANG_DG_CACHE_DIR", "$SGL_DG_CACHE_DIR")

CACHES = (
    KernelCache("triton", TRITON, until=_MOVED, is_sure=True),
    KernelCache("triton", (TRITON[0], *_below("triton")), since=_MOVED, is_sure=True),
    KernelCache("torch.compile", INDUCTOR, until=_MOVED, is_sure=True),
    KernelCache("torch.compile", (INDUCTOR[0], *_below("inductor")), since=_MOVED, is_sure=True),
    KernelCache("flashinfer", FLASHINFER, until=_MOVED),
    KernelCache("flashinfer", (FLASHINFER[0], *_below(".cache/flashinfer")), since=_MOVED),
    KernelCache("deep_gemm", (*_DG, "~/.cache/deep_gemm"), until=_MOVED, is_filled_once_made=True),
    KernelCache("deep_gemm", (*_DG, *_below("deep_gemm")), since=_MOVED, is_filled_once_made=True),
)
"""FlashInfer may have come compiled (its jit-cache wheels), and DeepGEMM needs the right weights and GPU."""

_NO_GPU = ("cpu", "npu", "hpu", "tpu", "mps")


def used(version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
    """The caches that a launch with these flags goes by; none where nothing is compiled for a GPU."""
    if (flags.value("device") or "").split(":")[0] in _NO_GPU:
        return ()
    left_out = set()
    if flags.get("enable-torch-compile") is None:
        left_out.add("torch.compile")
    if not has_fp8(flags):
        left_out.add("deep_gemm")
    number = parsed(version) if version is not None else None
    return tuple(one for one in CACHES if one.name not in left_out and one.is_of(number))
