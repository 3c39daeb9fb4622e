"""Logs and what they say: our own cases, and those that were given where they lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.domain.diagnosis import Diagnosis
from bot.engines._reading.detect import AnyReader
from bot.engines._reading.reader import Reader
from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

READERS: dict[str, type[Reader]] = {"sglang": SglangReader, "vllm": VllmReader}
OWN = sorted((Path(__file__).parent / "cases").glob("*.json"))
GIVEN = sorted((Path(__file__).parents[2].parent / "shared" / "cases" / "logs").glob("*.json"))
NAMELESS = {
    "sglang-download-offline",
    "sglang-empty-lines",
    "sglang-model-gated",
    "sglang-model-name",
    "sglang-model-repo",
    "vllm-model",
}
"""Excerpts in which nothing tells the engine."""


def diagnose(case: dict[str, Any]) -> Diagnosis:
    reader = READERS[case["engine"]]()
    reader.feed(case["excerpt"].encode())
    return reader.diagnosis()


def words(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "phase": None if diagnosis.phase is None else diagnosis.phase.value,
        "ready": diagnosis.is_ready,
        "crashed": diagnosis.is_crashed,
        "cause": diagnosis.cause,
        "decisive_line": diagnosis.decisive_line,
        "progress_percent": diagnosis.progress_percent,
        "numbers": dict(diagnosis.numbers),
        "version": diagnosis.version,
        "step": diagnosis.step,
        "seats_asked": diagnosis.seats_asked,
        "is_warming_up": diagnosis.is_warming_up,
        "ranks": {rank: phase.value for rank, phase in diagnosis.ranks.items()},
    }


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_a_log_says_what_its_case_says(path):
    case = json.loads(path.read_text())
    expected = case["expected"]
    diagnosis = diagnose(case)
    told = words(diagnosis)
    assert {key: told[key] for key in expected if key in told} == {
        key: expected[key] for key in expected if key in told
    }
    assert expected.get("remedy_has", "") in (diagnosis.remedy or "")
    assert all(any(part in text for text in diagnosis.warnings) for part in expected.get("warnings_have", ()))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_the_engine_is_found_by_itself_and_says_the_same(path):
    case = json.loads(path.read_text())
    reader = AnyReader()
    reader.feed(case["excerpt"].encode())
    diagnosis = reader.diagnosis()
    assert diagnosis.engine == (None if path.stem in NAMELESS else case["engine"])
    if path.stem not in NAMELESS:
        assert words(diagnosis) == words(diagnose(case))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_crash_has_a_remedy_that_is_a_sentence(path):
    diagnosis = diagnose(json.loads(path.read_text()))
    assert diagnosis.remedy or not diagnosis.is_crashed
    assert (diagnosis.remedy or ".").endswith(".")


def test_there_is_a_case_for_each_cause():
    causes = {json.loads(path.read_text())["expected"]["cause"] for path in OWN}
    assert causes >= {
        "cuda_oom",
        "memory_fraction_too_low",
        "memory_fraction_too_high",
        "port_in_use",
        "nccl",
        "illegal_memory_access",
        "bad_argument",
        "argument_conflict",
        "model_not_found",
        "download_failed",
        "kernel_unsupported",
        "host_oom_killed",
        "watchdog_timeout",
        "scheduler_exception",
        "import_error",
        "disk_full",
    }


@pytest.mark.parametrize("path", GIVEN or [None], ids=lambda path: path.stem if path else "none here")
def test_a_given_log_says_what_was_expected_of_it(path):
    if path is None:  # where no such folder stands beside the project there is nothing to hold it against
        return
    case = json.loads(path.read_text())
    expected = case["expected"]
    told = words(diagnose(case))
    assert told["phase"] in [expected["phase_last"], *case["phase_also_acceptable"]]
    assert told["cause"] in [expected["cause"], *case["cause_also_acceptable"]]
    rest = ("ready", "crashed", "decisive_line", "progress_percent", "numbers")
    assert {key: told[key] for key in rest} == {key: expected[key] for key in rest}
