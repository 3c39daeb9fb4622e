"""Where compiled kernels are kept by what both engines are built on.

Read in flashinfer 0.7.4 (``jit/env.py``), triton 3.1 and 3.4 (``runtime/cache.py``, ``knobs.py``), PyTorch
(``torch/_inductor/runtime/cache_dir_utils.py``) and DeepGEMM (``csrc/jit/compiler.hpp``).
"""

from __future__ import annotations

import re

from bot.domain.flags import Flags

TRITON = ("$TRITON_CACHE_DIR", "$TRITON_HOME/.triton/cache", "~/.triton/cache")
INDUCTOR = ("$TORCHINDUCTOR_CACHE_DIR", "$TMPDIR/torchinductor_{user}", "/tmp/torchinductor_{user}")  # noqa: S108 - PyTorch's choice
FLASHINFER = ("$FLASHINFER_WORKSPACE_BASE/.cache/flashinfer", "~/.cache/flashinfer")

_FP8 = re.compile(r"fp8|deepseek[-_]?(?:v3|r1)", re.IGNORECASE)


def has_fp8(flags: Flags) -> bool:
    """Whether the weights look like those that DeepGEMM multiplies: FP8 by flag, or by the model's name."""
    words = (flags.value(name) or "" for name in ("quantization", "model-path", "model", "served-model-name"))
    return any(_FP8.search(word[:500]) for word in words)
