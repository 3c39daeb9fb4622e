"""Whether a start will find its kernels compiled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.kernel_caches import NOT_SEEN, CacheSeen, CacheState, KernelCache, said, state_of, together
from bot.domain.records import StartRecord, Warmth
from tests.jumping import START

TRITON = KernelCache("triton", ("~/.triton/cache",), is_sure=True)
MOVED = KernelCache("triton", ("~/.cache/sglang/triton",), since=(0, 5, 18), is_sure=True)
DEEP_GEMM = KernelCache("deep_gemm", ("~/.cache/deep_gemm",), is_filled_once_made=True)
FLASHINFER = KernelCache("flashinfer", ("~/.cache/flashinfer",))
FULL, EMPTY, MISSING = CacheSeen(12, START, is_there=True), CacheSeen(0, None, is_there=True), CacheSeen(0)
USED = (TRITON, DEEP_GEMM, FLASHINFER)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (None, NOT_SEEN),
        ({}, NOT_SEEN),
        ({TRITON: CacheSeen()}, NOT_SEEN),
        ({TRITON: FULL, DEEP_GEMM: FULL, FLASHINFER: FULL}, CacheState(Warmth.WARM)),
        ({TRITON: MISSING, DEEP_GEMM: FULL}, CacheState(Warmth.COLD, ("triton",))),
        ({TRITON: MISSING, DEEP_GEMM: MISSING}, CacheState(Warmth.COLD, ("deep_gemm", "triton"))),
        ({TRITON: MISSING, FLASHINFER: MISSING}, CacheState(Warmth.COLD, ("triton",))),
        ({TRITON: MISSING, FLASHINFER: EMPTY}, CacheState(Warmth.COLD, ("flashinfer", "triton"))),
        # One that is not there may never be needed; one that was made and lies empty was thrown away.
        ({TRITON: FULL, DEEP_GEMM: MISSING}, CacheState(Warmth.WARM)),
        ({TRITON: FULL, DEEP_GEMM: EMPTY}, CacheState(Warmth.COLD, ("deep_gemm",))),
        # FlashInfer makes its folder even where all came compiled with it.
        ({TRITON: FULL, FLASHINFER: EMPTY}, CacheState(Warmth.WARM)),
        ({FLASHINFER: EMPTY}, NOT_SEEN),
    ],
)
def test_what_lies_there_says_how_a_start_will_be(seen, state) -> None:
    assert state_of(seen, USED, (), "gpu0", "0.5.13") == state


def test_of_two_places_that_versions_keep_a_cache_in_one_that_is_full_is_enough_where_the_version_is_not_known() -> (
    None
):
    assert state_of({TRITON: MISSING, MOVED: FULL}, (TRITON, MOVED), (), "gpu0", None) == CacheState(Warmth.WARM)
    assert [one.is_of((0, 5, 13)) for one in (TRITON, MOVED)] == [True, False]
    assert KernelCache("x", (), until=(0, 5, 18)).is_of((0, 5, 18)) is False


def started(version: str | None, *, hours_ago: float = 24, is_ready: bool = True) -> StartRecord:
    at = START - timedelta(hours=hours_ago)
    return StartRecord("gpu0", "p", at, timedelta(minutes=2), is_ready, version=version)


def test_what_another_version_has_filled_is_cold() -> None:
    seen = {TRITON: CacheSeen(12, START - timedelta(hours=23, minutes=55), is_there=True)}
    found = state_of(seen, USED, [started("0.5.12")], "gpu0", "0.5.13")
    assert found == CacheState(Warmth.COLD, made_for="0.5.12")
    assert said(found) == "kernel caches were made for 0.5.12 – it may compile"
    # This version has started here, or somebody has compiled something since then: nothing is known against it.
    assert state_of(seen, USED, [started("0.5.13"), started("0.5.12")], "gpu0", "0.5.13").warmth is Warmth.WARM
    later = {TRITON: CacheSeen(12, START, is_there=True)}
    assert state_of(later, USED, [started("0.5.12")], "gpu0", "0.5.13").warmth is Warmth.WARM
    for past in ([], [started(None)], [started("0.5.12", is_ready=False)]):
        assert state_of(seen, USED, past, "gpu0", "0.5.13").warmth is Warmth.WARM
    assert state_of(seen, USED, [started("0.5.12")], "gpu1", "0.5.13").warmth is Warmth.WARM
    assert state_of(seen, USED, [started("0.5.12")], "gpu0", None).warmth is Warmth.WARM


def test_several_starts_are_cold_where_one_of_them_is() -> None:
    cold, warm = CacheState(Warmth.COLD, ("triton",)), CacheState(Warmth.WARM)
    assert together([warm, cold, CacheState(Warmth.COLD, ("deep_gemm", "triton"))]) == CacheState(
        Warmth.COLD, ("triton", "deep_gemm")
    )
    assert together([warm, NOT_SEEN]) == warm
    assert together([]) == NOT_SEEN
    assert said(cold) == "kernel caches are cold: triton – it may compile"
    assert said(warm) is None
