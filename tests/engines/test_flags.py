"""Flags that will not do in a version: the whole sentences, and the flags that would be right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.engine import FlagProblem
from bot.domain.flags import Flags
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM

NOTHING = frozenset()
NEW = frozenset(
    {
        "--model-path", "--tp-size", "--tensor-parallel-size", "--mem-fraction-static", "--max-running-requests",
        "--mamba-radix-cache-strategy", "--disable-overlap-schedule", "--disable-radix-cache", "--cuda-graph-max-bs-decode",
        "--cuda-graph-max-bs-prefill", "--cuda-graph-backend-prefill", "--speculative-algorithm", "--fuse-it", "--no-fuse-it",
        "--dsa-prefill-backend", "--page-size",
    }
)  # fmt: skip
OLD = frozenset({"--model-path", "--mamba-scheduler-strategy", "--cuda-graph-max-bs", "--mem-fraction-static"})


def sglang(version, known, **flags):
    return SGLANG.check(version, known, Flags.of({name.replace("_", "-"): value for name, value in flags.items()}))


def test_the_renamed_flag_of_scenario_5_is_named_with_its_new_name():
    assert sglang("0.5.23", NEW, mamba_scheduler_strategy="extra_buffer", mem_fraction_static="0.90") == (
        FlagProblem(
            "mamba-scheduler-strategy",
            "sglang 0.5.23 has no --mamba-scheduler-strategy; since 0.5.20 it is --mamba-radix-cache-strategy",
            Flags.of({"mamba-radix-cache-strategy": "extra_buffer", "mem-fraction-static": "0.90"}),
        ),
    )


CHECKED = NEW | {
    "--max-running-requests=int", "--mem-fraction-static=float", "--schedule-policy", "--schedule-policy=lpm|random|fcfs",
    "--mamba-radix-cache-strategy=auto|no_buffer|extra_buffer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("max-running-requests", "many", "--max-running-requests takes a whole number, not 'many'"),
        ("max-running-requests", "1.5", "--max-running-requests takes a whole number, not '1.5'"),
        ("max-running-requests", "-1", None),
        ("mem-fraction-static", "high", "--mem-fraction-static takes a number, not 'high'"),
        ("mem-fraction-static", "0.90", None),
        ("schedule-policy", "fastest", "--schedule-policy has no choice 'fastest'; there is lpm, random, fcfs"),
        ("schedule-policy", "rando", "--schedule-policy has no choice 'rando'; the nearest is random"),
        ("schedule-policy", "fcfs", None),
        ("page-size", "anything", None),
        ("mamba-radix-cache-strategy", "extra_bufer", "--mamba-radix-cache-strategy has no choice 'extra_bufer'; the nearest is extra_buffer"),
    ],
)  # fmt: skip
def test_a_value_that_the_installed_parser_refuses_is_refused_before_anything_is_stopped(flag, value, why):
    expected = () if why is None else (FlagProblem(flag, why),)
    assert SGLANG.check("0.5.23", CHECKED, Flags.of({flag: value})) == expected


def test_what_a_parser_says_of_values_is_no_flag():
    known = frozenset({"--max-num-seqs", "--max-num-seqs=int"})
    assert VLLM.check("0.32.0", known, Flags.of({"max-num-seq": "8"})) == ()
    assert VLLM.check("0.32.0", known, Flags.of({"max-seqs": "8"})) == (
        FlagProblem("max-seqs", "vllm 0.32.0 has no --max-seqs; the nearest is --max-num-seqs"),
    )
    assert VLLM.check("0.32.0", known, Flags.of({"max-num-seqs": "x"})) == (
        FlagProblem("max-num-seqs", "--max-num-seqs takes a whole number, not 'x'"),
    )


def test_two_cures_come_together():
    cured = Flags.of({"mamba-radix-cache-strategy": "no_buffer", "disable-overlap-schedule": True})
    assert sglang("0.5.23", NEW, mamba_scheduler_strategy="no_buffer") == (
        FlagProblem(
            "mamba-scheduler-strategy",
            "sglang 0.5.23 has no --mamba-scheduler-strategy; since 0.5.20 it is --mamba-radix-cache-strategy",
            cured,
        ),
        FlagProblem(
            "mamba-radix-cache-strategy",
            "sglang 0.5.23 starts no_buffer only with --disable-overlap-schedule (since 0.5.14 it no longer switches overlap off by itself)",
            cured,
        ),
    )


def test_a_new_name_on_an_old_version_is_turned_back():
    assert sglang("0.5.13", OLD, mamba_radix_cache_strategy="no_buffer") == (
        FlagProblem(
            "mamba-radix-cache-strategy",
            "sglang 0.5.13 has no --mamba-radix-cache-strategy; before 0.5.14 it is --mamba-scheduler-strategy",
            Flags.of({"mamba-scheduler-strategy": "no_buffer"}),
        ),
    )


def test_a_name_that_became_ambiguous_is_not_taken_for_an_abbreviation():
    assert sglang("0.5.23", NEW, cuda_graph_max_bs=64) == (
        FlagProblem(
            "cuda-graph-max-bs",
            "sglang 0.5.23 has no --cuda-graph-max-bs; since 0.5.20 it is --cuda-graph-max-bs-decode",
            Flags.of({"cuda-graph-max-bs-decode": 64}),
        ),
    )


def test_a_switch_that_became_a_value_gets_that_value():
    assert sglang("0.5.21", NEW, disable_piecewise_cuda_graph=True) == (
        FlagProblem(
            "disable-piecewise-cuda-graph",
            "sglang 0.5.21 has no --disable-piecewise-cuda-graph; since 0.5.20 it is --cuda-graph-backend-prefill disabled",
            Flags.of({"cuda-graph-backend-prefill": "disabled"}),
        ),
    )


def test_a_typing_error_is_answered_with_the_nearest_and_without_a_sure_cure():
    assert sglang("0.5.23", NEW, mem_fraction_statik=0.9) == (
        FlagProblem(
            "mem-fraction-statik", "sglang 0.5.23 has no --mem-fraction-statik; the nearest is --mem-fraction-static"
        ),
    )
    assert sglang("", NEW, zzz=1) == (FlagProblem("zzz", "this sglang has no --zzz"),)


def test_without_the_parsers_flags_only_the_table_speaks():
    assert sglang("0.5.23", NOTHING, mem_fraction_statik=0.9) == ()
    assert [one.flag for one in sglang("0.5.20", NOTHING, mamba_scheduler_strategy="auto", nsa_prefill_backend="fa3")] == [
        "mamba-scheduler-strategy", "nsa-prefill-backend",
    ]  # fmt: skip
    assert sglang("0.5.19", NOTHING, mamba_scheduler_strategy="auto") == ()
    assert sglang("", NOTHING, mamba_scheduler_strategy="no_buffer") == ()


@pytest.mark.parametrize(
    "name", ["tensor-parallel-s", "tensor-parallel-size", "tp", "fuse-it", "no-fuse-it", "no-fuse", "mem-frac"]
)
def test_abbreviations_and_no_forms_are_known(name):
    assert SGLANG.check("0.5.23", NEW, Flags(((name, ("1",)),))) == ()


@pytest.mark.parametrize("name", ["no-model-path", "cuda-graph", "dis", "m", "model-path-x"])
def test_what_argparse_would_refuse_is_refused(name):
    assert [one.flag for one in SGLANG.check("0.5.23", NEW, Flags(((name, ()),)))] == [name]


@pytest.mark.parametrize(
    ("version", "flags", "whys"),
    [
        ("0.5.13", {"mamba-scheduler-strategy": "no_buffer"}, []),
        ("0.5.14", {"mamba-scheduler-strategy": "no_buffer"}, ["sglang 0.5.14 starts no_buffer only with --disable-overlap-schedule (since 0.5.14 it no longer switches overlap off by itself)"]),
        ("0.5.14", {"mamba-radix-cache-strategy": "no_buffer", "disable-overlap-schedule": True}, []),
        ("0.5.14", {"mamba-radix-cache-strategy": "no_buffer", "disable-radix-cache": True}, []),
        ("0.5.14", {"mamba-radix-cache-strategy": "auto"}, []),
        ("0.5.23", {"mamba-radix-cache-strategy": "no_buffer", "disable-overlap-schedule": True, "page-size": 64, "attention-backend": "trtllm_mha"},
         ["sglang 0.5.23 starts no_buffer only with --page-size 1, not 64", "sglang 0.5.23 can't run no_buffer with --attention-backend trtllm_mha"]),
        ("0.5.9", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN"}, []),
        ("0.5.10", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN"},
         ["sglang 0.5.10 refuses speculative decoding with no_buffer while the radix cache is on; extra_buffer works together with SGLANG_ENABLE_SPEC_V2=1 in the environment"]),
        ("0.5.12.post1", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN"},
         ["sglang 0.5.12.post1 refuses speculative decoding with no_buffer while the radix cache is on; extra_buffer works"]),
        ("0.5.13", {"mamba-scheduler-strategy": "auto", "speculative-algorithm": "EAGLE"},
         ["sglang 0.5.13 refuses speculative decoding with auto, which means no_buffer there, while the radix cache is on; extra_buffer works"]),
        ("0.5.13", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN", "disable-radix-cache": True}, []),
        ("0.5.13", {"speculative-algorithm": "NEXTN"}, []),
        ("0.5.14", {"mamba-radix-cache-strategy": "extra_buffer", "speculative-algorithm": "NEXTN"}, []),
        ("0.5.13", {"mamba-scheduler-strategy": "extra_buffer", "disable-radix-cache": True},
         ["sglang 0.5.13 refuses extra_buffer with --disable-radix-cache; without a radix cache no_buffer does the same and keeps overlap scheduling"]),
        ("0.5.14", {"mamba-radix-cache-strategy": "extra_buffer", "disable-radix-cache": True}, []),
        ("0.5.12", {"mamba-scheduler-strategy": "extra_buffer_lazy"}, ["sglang 0.5.12 has no extra_buffer_lazy (it came with 0.5.13); it has extra_buffer"]),
        ("0.5.18", {"mamba-radix-cache-strategy": "extra_buffer_lazy", "speculative-num-draft-tokens": 4},
         ["sglang 0.5.18 can't run extra_buffer_lazy with speculative decoding (it can from 0.5.19); extra_buffer can"]),
        ("0.5.19", {"mamba-radix-cache-strategy": "extra_buffer_lazy", "speculative-num-draft-tokens": 4}, []),
        ("0.5.20", {"mamba-radix-cache-strategy": "extra_buffer_lazy", "disaggregation-mode": "decode"}, ["sglang 0.5.20 can't run extra_buffer_lazy in a prefill/decode split"]),
        ("0.5.10", {"mamba-scheduler-strategy": "no_buffer", "linear-attn-decode-backend": "flashinfer"},
         ["sglang 0.5.10 can't run no_buffer with --linear-attn-decode-backend flashinfer; extra_buffer can"]),
        ("0.5.23", {"mamba-radix-cache-strategy": "extra_bufer"}, ["--mamba-radix-cache-strategy has no choice 'extra_bufer'; the nearest is extra_buffer"]),
        ("0.5.23", {"mamba-radix-cache-strategy": "extra_buffer", "mamba-track-interval": 100, "page-size": 64, "speculative-num-draft-tokens": 128},
         ["--mamba-track-interval 100 must be a multiple of --page-size 64", "--mamba-track-interval 100 must be at least --speculative-num-draft-tokens 128"]),
    ],
)  # fmt: skip
def test_values_that_exclude_each_other_are_refused_in_the_versions_that_refuse_them(version, flags, whys):
    assert [one.why for one in SGLANG.check(version, NOTHING, Flags.of(flags))] == whys


@pytest.mark.parametrize(
    ("version", "flags", "right"),
    [
        ("0.5.14", {"mamba-radix-cache-strategy": "no_buffer"}, {"mamba-radix-cache-strategy": "no_buffer", "disable-overlap-schedule": True}),
        ("0.5.13", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN"}, {"mamba-scheduler-strategy": "extra_buffer", "speculative-algorithm": "NEXTN"}),
        ("0.5.10", {"mamba-scheduler-strategy": "no_buffer", "speculative-algorithm": "NEXTN"}, None),
        ("0.5.13", {"mamba-scheduler-strategy": "extra_buffer", "disable-radix-cache": True}, {"mamba-scheduler-strategy": "no_buffer", "disable-radix-cache": True}),
        ("0.5.23", {"mamba-radix-cache-strategy": "extra_bufer"}, None),
    ],
)  # fmt: skip
def test_a_cure_is_given_where_it_is_sure(version, flags, right):
    problems = SGLANG.check(version, NOTHING, Flags.of(flags))
    assert [one.corrected for one in problems] == [None if right is None else Flags.of(right)]
    if right is not None:
        assert SGLANG.check(version, NOTHING, Flags.of(right)) == ()


VLLM_KNOWN = frozenset({"--model", "--max-num-seqs", "--enable-log-requests", "--no-enable-log-requests", "--compilation-config", "--enable-prefix-caching", "--no-enable-prefix-caching", "--gpu-memory-utilization"})  # fmt: skip


def test_vllm_knows_its_json_keys_and_no_forms():
    flags = Flags.of(
        {
            "compilation-config.level": 3,
            "compilation-config.sizes+": 1,
            "no-enable-prefix-caching": True,
            "gpu-memory-utilization": "0.9",
        }
    )
    assert VLLM.check("0.32.0", VLLM_KNOWN, flags) == ()


def test_vllm_refuses_what_it_does_not_know():
    flags = Flags.of(
        {"disable-log-requests": True, "max-num-seq": 8, "max-number-seqs": 8, "gpu-memory-utilization": "90"}
    )
    assert VLLM.check("0.32.0", VLLM_KNOWN, flags) == (
        FlagProblem(
            "disable-log-requests",
            "vllm 0.32.0 has no --disable-log-requests; it logs requests only with --enable-log-requests",
            Flags.of({"max-num-seq": 8, "max-number-seqs": 8, "gpu-memory-utilization": "90"}),
        ),
        FlagProblem("max-number-seqs", "vllm 0.32.0 has no --max-number-seqs; the nearest is --max-num-seqs"),
        FlagProblem("gpu-memory-utilization", "--gpu-memory-utilization 90 is no fraction from 0 to 1"),
    )


@given(
    st.text(max_size=20),
    st.frozensets(st.text(max_size=10).map("--{}".format), max_size=5),
    st.lists(st.tuples(st.sampled_from(["mamba-radix-cache-strategy", "mamba-scheduler-strategy", "page-size", "mamba-track-interval", "gpu-memory-utilization", ""]) | st.text(max_size=8), st.lists(st.text(max_size=8), max_size=2).map(tuple)), max_size=4),
)  # fmt: skip
def test_any_version_and_flags_are_checked_without_an_error(version, known, items):
    for engine in (SGLANG, VLLM):
        engine.check(version, known, Flags(tuple(items)))
