"""SGLang's answers, read: the numbers of several versions, and of what is no answer at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Answer, Load, Outcome, Running
from bot.domain.flags import Flags
from bot.engines.sglang import ENGINE

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LABELS = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'


def answered(body, status=200):
    return Answer(Outcome.ANSWERED, NOW, status, body if isinstance(body, bytes) else body.encode())


def metrics(*rows):
    return {"/metrics": answered("\n".join(f"sglang:{row}" for row in rows) + "\n")}


def loads(*ranks, **top):
    return {"/v1/loads": answered(json.dumps({"version": "0.5.23", "loads": list(ranks), **top}))}


def test_a_hybrid_server_under_load_is_read_in_full():
    answers = metrics(
        f"num_running_reqs{{{LABELS}}} 32.0",
        f"num_queue_reqs{{{LABELS}}} 0.0",
        f"gen_throughput{{{LABELS}}} 671.84",
        f"token_usage{{{LABELS}}} 0.61",
        f"full_token_usage{{{LABELS}}} 0.21",
        f"swa_token_usage{{{LABELS}}} 0.0",
        f"mamba_usage{{{LABELS}}} 0.61",
        f"mamba_available_tokens{{{LABELS}}} 73.0",
        f"mamba_used_tokens{{{LABELS}}} 114.0",
        f"max_total_num_tokens{{{LABELS}}} 381000.0",
        f'realtime_tokens_total{{{LABELS},mode="prefill_compute"}} 1117.0',
        f'realtime_tokens_total{{{LABELS},mode="prefill_cache"}} 638.0',
        f'realtime_tokens_total{{{LABELS},mode="decode"}} 17011.0',
        'generation_tokens_total{is_streaming="false",model_name="m"} 8008.0',
        'num_requests_total{is_streaming="false",model_name="m"} 20.0',
        'num_requests_total{is_streaming="true",model_name="m"} 1.0',
        f"spec_accept_length{{{LABELS}}} 2.8",
        f"is_cuda_graph{{{LABELS}}} 1.0",
        f"num_retracted_requests_total{{{LABELS}}} 3.0",
    )
    answers |= loads({"dp_rank": 0, "timestamp": 1796.5, "num_running_reqs": 33, "num_waiting_reqs": 1,
                      "max_running_requests": 37, "max_total_num_tokens": 381000, "token_usage": 0.2})  # fmt: skip
    assert ENGINE.load(answers) == Load(
        running=33,
        queued=1,
        max_running=37,
        max_total_tokens=381000,
        tokens_total=17011.0,
        prompt_tokens_total=1117.0,
        requests_total=21.0,
        tokens_per_second=671.84,
        kv_usage=0.21,
        swa_usage=None,
        mamba_usage=0.61,
        accept_length=2.8,
        cuda_graph=True,
        retracted=3,
        stamp=1796.5,
    )


def test_ranks_are_summed_and_the_fullest_one_counts():
    answers = metrics(
        'num_running_reqs{dp_rank="0",tp_rank="0"} 3', 'num_running_reqs{dp_rank="1",tp_rank="4"} 4',
        'full_token_usage{dp_rank="0",tp_rank="0"} 0.2', 'full_token_usage{dp_rank="1",tp_rank="4"} 0.9',
        'realtime_tokens_total{dp_rank="0",tp_rank="0",mode="decode"} 100',
        'realtime_tokens_total{dp_rank="1",tp_rank="4",mode="decode"} 50',
        'gen_throughput{dp_rank="0",tp_rank="0"} 10', 'gen_throughput{dp_rank="1",tp_rank="4"} 20.5',
    )  # fmt: skip
    assert ENGINE.load(answers) == Load(running=7, tokens_total=150.0, prompt_tokens_total=0.0, tokens_per_second=30.5, kv_usage=0.9)  # fmt: skip


def test_every_rank_that_repeats_its_dp_rank_is_passed_over():
    """With metrics for all schedulers, TP rank 1 says the same again."""
    answers = metrics(
        *(
            f'num_running_reqs{{dp_rank="{dp}",pp_rank="{pp}",tp_rank="{tp}"}} 5'
            for dp in (0, 1)
            for pp in (0, 1)
            for tp in (2 * dp, 2 * dp + 1)
        )
    )
    assert ENGINE.load(answers) == Load(running=10)


def test_the_row_without_a_priority_is_the_sum_of_the_others():
    answers = metrics(
        'num_queue_reqs{priority=""} 9', 'num_queue_reqs{priority="1"} 4', 'num_queue_reqs{priority="2"} 5'
    )
    assert ENGINE.load(answers).queued == 9
    assert ENGINE.load(metrics('num_queue_reqs{priority="1"} 4', 'num_queue_reqs{priority="2"} 5')).queued == 9


def test_the_loads_of_two_ranks_are_added_and_the_older_stamp_counts():
    answers = loads(
        {"timestamp": 20.0, "num_running_reqs": 1, "num_waiting_reqs": 2, "max_running_requests": 36, "max_total_num_tokens": 10, "token_usage": 0.5, "gen_throughput": 7.0},
        {"timestamp": 10.0, "num_running_reqs": 3, "num_waiting_reqs": 0, "max_running_requests": 36, "max_total_num_tokens": 20, "token_usage": 0.25, "gen_throughput": 0.0},
    )  # fmt: skip
    assert ENGINE.load(answers) == Load(running=4, queued=2, max_running=72, max_total_tokens=30, tokens_per_second=7.0, kv_usage=0.5, stamp=10.0)  # fmt: skip


def test_a_throughput_of_zero_in_the_loads_is_no_throughput():
    """Without --enable-metrics it is never filled in."""
    assert ENGINE.load(loads({"num_running_reqs": 8, "gen_throughput": 0.0})) == Load(running=8)


def test_before_the_counter_of_each_step_the_one_of_finished_requests_counts():
    answers = metrics('generation_tokens_total{model_name="m"} 8008', 'prompt_tokens_total{model_name="m"} 12')
    assert ENGINE.load(answers) == Load(tokens_total=8008.0, prompt_tokens_total=12.0, counts_at_end=True)


def test_a_fresh_server_has_decoded_nothing_rather_than_what_requests_report_later():
    answers = metrics('realtime_tokens_total{mode="prefill_compute"} 40', 'generation_tokens_total{model_name="m"} 8')
    assert ENGINE.load(answers).tokens_total == 0.0


def test_up_to_0_5_10_token_usage_is_that_of_the_kv_cache():
    assert ENGINE.load(metrics("token_usage 0.25", "mamba_usage 0.4")) == Load(kv_usage=0.25, mamba_usage=0.4)


@pytest.mark.parametrize(
    ("rows", "usage"),
    [
        (("mamba_usage 0.0", "mamba_available_tokens 0.0", "mamba_used_tokens 0.0"), None),
        (("mamba_usage 0.0", "mamba_available_tokens 187.0", "mamba_used_tokens 0.0"), 0.0),
        (("mamba_usage 0.61", "mamba_available_tokens 73.0"), 0.61),
        (("mamba_usage 0.0",), None),
    ],
)
def test_a_model_without_mamba_state_has_no_mamba_usage(rows, usage):
    assert ENGINE.load(metrics(*rows)).mamba_usage == usage


def test_an_idle_server_says_nothing_of_cuda_graphs():
    assert ENGINE.load(metrics("num_running_reqs 0", "is_cuda_graph 0")).cuda_graph is None
    assert ENGINE.load(metrics("num_running_reqs 4", "is_cuda_graph 0")).cuda_graph is False


@pytest.mark.parametrize(
    "row",
    [
        "num_running_reqs NaN", "num_running_reqs +Inf", "num_running_reqs 1e400", "num_running_reqs 1e300",
        "num_running_reqs -4", "num_running_reqs", "num_running_reqs{", 'num_running_reqs{a="b', "num_running_reqs four",
        'num_running_reqs{a="b"}', "num_running_reqs_other 4", "num_running_reqs{}",
    ],
)  # fmt: skip
def test_a_broken_number_is_no_number(row):
    assert ENGINE.load(metrics(row)) == Load()


def test_labels_may_hold_anything():
    model = r'model_name="a \"quoted\" {name}, with \\ and \n, dp_rank=\"7\""'
    answers = metrics(
        f'num_running_reqs{{{model},dp_rank="0"}} 2', f'num_running_reqs{{{model},dp_rank="1"}} 3 1796060518000'
    )
    assert ENGINE.load(answers).running == 5


def test_a_page_without_metrics_and_a_refusal_say_nothing():
    page = {"/metrics": answered(b"<html>proxy</html>"), "/v1/loads": answered(b'{"loads": "none"}')}
    assert ENGINE.load(page) == Load()
    assert (
        ENGINE.load({"/metrics": answered(b"sglang:num_running_reqs 1\n", 404), "/v1/loads": answered(b"{}", 401)})
        == Load()
    )
    assert ENGINE.load({"/metrics": Answer(Outcome.REFUSED, NOW)}) == Load()
    assert ENGINE.load({}) == Load()


def info(**values):
    return {"/server_info": answered(json.dumps(values))}


def test_a_server_of_0_5_23_tells_what_was_asked_for_and_what_came_of_it():
    answers = info(
        version="0.5.23",
        model_path="/models/Qwen3.6-27B",
        launch_command="--model-path '/models/my model' --port 30003 --api-key sk-123 --max-running-requests 128 --enable-metrics",
        max_running_requests=128,
        max_total_num_tokens=1,
        internal_states=[{"effective_max_running_requests_per_dp": 72, "memory_usage": {"token_capacity": 392000}}],
    )
    assert ENGINE.running(answers) == Running(
        version="0.5.23",
        flags=Flags((("model-path", ("/models/my model",)), ("port", ("30003",)), ("api-key", ("[hidden]",)),
                     ("max-running-requests", ("128",)), ("enable-metrics", ()))),
        model="/models/Qwen3.6-27B",
        max_running=72,
        max_total_tokens=392000,
    )  # fmt: skip


def test_an_older_server_tells_every_argument_and_no_secret():
    answers = {
        "/server_info": answered(b"{}", 404),
        "/get_server_info": answered(
            json.dumps(
                {
                    "version": "0.5.5", "model_path": "/m", "mem_fraction_static": 0.85, "disable_radix_cache": False,
                    "enable_metrics": True, "context_length": None, "cuda_graph_bs": [1, 2, 4], "lora_paths": [], "_private": 1,
                    "api_key": "sk-1", "admin_api_key": "sk-2", "ssl_keyfile_password": "x", "model_loader_extra_config": "{}",
                    "max_total_num_tokens": 381000, "cuda_graph_config": {"decode": {}}, "internal_states": [{}, {}],
                }
            )
        ),
    }  # fmt: skip
    assert ENGINE.running(answers) == Running(
        version="0.5.5",
        flags=Flags(
            (
                ("model-path", ("/m",)), ("mem-fraction-static", ("0.85",)), ("enable-metrics", ()),
                ("cuda-graph-bs", ("1", "2", "4")), ("api-key", ("[hidden]",)), ("admin-api-key", ("[hidden]",)),
                ("ssl-keyfile-password", ("[hidden]",)), ("model-loader-extra-config", ("{}",)),
            )
        ),
        model="/m",
        max_total_tokens=381000,
    )  # fmt: skip


def test_the_caps_of_all_dp_ranks_are_added():
    states = [{"effective_max_running_requests_per_dp": 20, "memory_usage": {"token_capacity": 100}} for _ in range(4)]
    found = ENGINE.running(info(version="0.5.23", internal_states=states))
    assert (found.max_running, found.max_total_tokens) == (80, 400)


def test_a_launch_command_with_an_open_quote_is_still_read():
    flags = ENGINE.running(info(launch_command="--model-path 'half --port 30001")).flags
    assert flags == Flags((("model-path", ("'half",)), ("port", ("30001",))))


def test_the_model_and_version_are_found_elsewhere_when_the_scheduler_does_not_answer():
    answers = {"/model_info": answered(b'{"model_path": "/m"}'), "/v1/loads": answered(b'{"version": "0.5.20"}')}
    assert ENGINE.running(answers) == Running(version="0.5.20", model="/m")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([
        "loads", "internal_states", "version", "launch_command", "model_path", "num_running_reqs", "timestamp", "token_usage",
        "speculative", "accept_length", "memory_usage", "token_capacity", "effective_max_running_requests_per_dp", "scheduler_info",
        "max_total_num_tokens", "gen_throughput", "api_key",
    ]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_json_is_read_without_an_error(value):
    answer = answered(json.dumps(value))
    ENGINE.load({"/v1/loads": answer})
    ENGINE.running({"/server_info": answer, "/v1/loads": answer, "/model_info": answer})


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(body):
    answers = dict.fromkeys(
        ("/metrics", "/v1/loads", "/server_info", "/get_server_info", "/model_info"), answered(body)
    )
    ENGINE.load(answers)
    ENGINE.running(answers)


@given(st.text(alphabet='sglang:num_running_reqs{}="\\, \n1.e', max_size=200))
def test_what_nearly_is_metrics_is_read_without_an_error(text):
    ENGINE.load(metrics("num_running_reqs 1", f"num_running_reqs{text}"))


def test_json_that_nests_without_end_and_numbers_without_end_are_read_without_an_error():
    for body in (b"[" * 100_000, b'{"loads":' * 50_000, b'{"loads": [{"num_running_reqs": ' + b"9" * 10_000 + b"}]}"):
        assert ENGINE.load({"/v1/loads": answered(body)}) == Load()


def test_a_page_of_one_endless_line_costs_no_time():
    answers = {
        "/metrics": answered(b'sglang:num_running_reqs{a="' + b'\\"' * 2_000_000 + b"\nsglang:num_running_reqs 4\n")
    }
    assert ENGINE.load(answers).running == 4
