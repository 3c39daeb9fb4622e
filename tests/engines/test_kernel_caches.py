"""Where each engine keeps compiled kernels, and which caches a launch goes by."""

from __future__ import annotations

import pytest

from bot.domain.flags import Flags
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM

QWEN = {"model-path": "/models/Qwen3.6-27B"}
FP8 = {"model-path": "deepseek-ai/DeepSeek-V3"}


def names(engine, version, flags) -> list[str]:
    return [one.name for one in engine.caches_used(version, Flags.of(flags))]


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (QWEN, ["triton", "flashinfer"]),
        (QWEN | {"enable-torch-compile": True}, ["triton", "torch.compile", "flashinfer"]),
        (QWEN | {"quantization": "w8a8_fp8"}, ["triton", "flashinfer", "deep_gemm"]),
        (FP8, ["triton", "flashinfer", "deep_gemm"]),
        (QWEN | {"device": "cpu"}, []),
        (QWEN | {"device": "cuda"}, ["triton", "flashinfer"]),
    ],
)
def test_sglang_goes_by_the_caches_that_its_flags_need(flags, found) -> None:
    assert names(SGLANG, "0.5.13", flags) == found


def test_sglang_has_moved_its_caches_below_its_own_folder() -> None:
    def places(version: str | None) -> list[str]:
        return [one.place[-1] for one in SGLANG.caches_used(version, Flags.of(FP8))]

    assert places("0.5.17") == ["~/.triton/cache", "~/.cache/flashinfer", "~/.cache/deep_gemm"]
    assert places("0.5.18.post1") == [
        "~/.cache/sglang/triton",
        "~/.cache/sglang/.cache/flashinfer",
        "~/.cache/sglang/deep_gemm",
    ]
    assert len(places(None)) == len(places("unknown")) == 6


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({}, ["torch.compile", "triton", "flashinfer"]),
        ({"enforce-eager": True}, ["triton", "flashinfer"]),
        ({"compilation-config": "0"}, ["triton", "flashinfer"]),
        ({"compilation-config": '{"level": 0}'}, ["triton", "flashinfer"]),
        ({"compilation-config": '{"mode": "NONE", "x": 1}'}, ["triton", "flashinfer"]),
        ({"compilation-config": '{"level": 3}'}, ["torch.compile", "triton", "flashinfer"]),
        ({"model": "Qwen/Qwen3-FP8"}, ["torch.compile", "triton", "flashinfer", "deep_gemm"]),
    ],
)
def test_vllm_compiles_a_graph_unless_it_is_told_not_to(flags, found) -> None:
    assert names(VLLM, "0.32.0", flags) == found
    assert names(VLLM, None, flags) == found
