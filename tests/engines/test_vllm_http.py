"""vLLM's answers, read: the numbers of several versions, and of what is no answer at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Answer, Load, Outcome, Running
from bot.engines.vllm import ENGINE

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def answered(body, status=200):
    return Answer(Outcome.ANSWERED, NOW, status, body if isinstance(body, bytes) else body.encode())


def metrics(*rows):
    return {"/metrics": answered("# HELP x y\n" + "".join(f"vllm:{row}\n" for row in rows))}


def test_two_engines_behind_one_port_are_read_as_one_server():
    answers = metrics(
        'num_requests_running{engine="0",model_name="m"} 8.0', 'num_requests_running{engine="1",model_name="m"} 4.0',
        'num_requests_waiting{engine="0"} 14.0', 'num_requests_waiting{engine="1"} 0.0',
        'num_requests_waiting_by_reason{engine="0",reason="capacity"} 14.0',
        'kv_cache_usage_perc{engine="0"} 0.765', 'kv_cache_usage_perc{engine="1"} 0.2',
        'generation_tokens_total{engine="0"} 48929.0', 'generation_tokens_total{engine="1"} 71.0',
        'generation_tokens_created{engine="0"} 1.796e+09', 'prompt_tokens_total{engine="0"} 2736.0',
        'request_success_total{engine="0",finished_reason="stop"} 1.0', 'request_success_total{engine="0",finished_reason="length"} 36.0',
        'num_preemptions_total{engine="0"} 2.0',
        'spec_decode_num_drafts_total{engine="0"} 100.0', 'spec_decode_num_accepted_tokens_total{engine="0"} 180.0',
        'cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0',
        'cache_config_info{block_size="16",num_gpu_blocks="None",kv_cache_size_tokens="2097152",engine="1"} 1.0',
    )  # fmt: skip
    assert ENGINE.load(answers) == Load(
        running=12,
        queued=14,
        max_total_tokens=2113152,
        tokens_total=49000.0,
        prompt_tokens_total=2736.0,
        requests_total=37.0,
        kv_usage=0.765,
        accept_length=2.8,
        retracted=2,
    )


def test_the_cache_usage_of_old_versions_has_another_name():
    assert ENGINE.load(metrics("gpu_cache_usage_perc 0.5")) == Load(kv_usage=0.5)


def test_no_draft_is_no_accept_length():
    assert (
        ENGINE.load(metrics("spec_decode_num_drafts_total 0.0", "spec_decode_num_accepted_tokens_total 0.0")) == Load()
    )


def test_version_model_and_cache_are_told():
    answers = metrics('cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0') | {
        "/version": answered('{"version": "0.32.0"}'),
        "/v1/models": answered('{"data": [{"id": "tiny", "root": "/models/tiny"}]}'),
    }
    assert ENGINE.running(answers) == Running(version="0.32.0", model="/models/tiny", max_total_tokens=16000)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"data": [1]}', b'{"data": {"id": 3}}', b'{"version": 4}', b"\xff\xfe", b"[" * 90_000]
)
def test_what_is_no_answer_says_nothing(body):
    answers = dict.fromkeys(("/version", "/v1/models", "/metrics"), answered(body))
    assert ENGINE.running(answers) == Running()
    assert ENGINE.load(answers) == Load()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(body):
    answers = dict.fromkeys(("/version", "/v1/models", "/metrics"), answered(body))
    ENGINE.load(answers)
    ENGINE.running(answers)


@given(st.text(alphabet='{}="\\, \n1.eblock_sizenumgpu', max_size=200))
def test_what_nearly_is_metrics_is_read_without_an_error(text):
    ENGINE.load(metrics(f"cache_config_info{text}", f"kv_cache_usage_perc{text}"))
