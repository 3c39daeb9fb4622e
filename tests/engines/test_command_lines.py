"""Command lines: what is launched, and which running process is a server's main one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.flags import Flags
from bot.domain.fleet import Launch, Server
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM


def server(command, **fields):
    flags = fields.pop("flags", Flags())
    return Server("gpu3", "ct200", 30003, "sglang", Launch(tuple(command.split()), flags), **fields)


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        ("python -m sglang.launch_server --model-path /m --port 30003", 30003),
        ("/opt/venv/bin/python3.11 -u -X dev -m sglang.launch_server --port=30004 --model-path /m", 30004),
        ("python3 -msglang.launch_server --model-path /m", 30000),
        ("python -m sglang.launch_server --port 30001 --port 30002", 30002),
        ("/opt/venv/bin/python /opt/venv/bin/sglang serve --model-path /m --port 30005", 30005),
        ("sglang serve /models/m", 30000),
        ("python -m sglang.cli.main serve --model-path /m --port 30006", 30006),
        ("python /src/sglang/python/sglang/launch_server.py --port 30007", 30007),
        ("python -m bot.demo.engine --port 31000", 31000),
        ("python -m sglang.launch_server --port seven", None),
        ("python -m sglang.launch_server --port 99999", None),
        ("python -m sglang.launch_server --help", None),
        ("sglang serve --help", None),
        ("sglang generate --model-path /m", None),
        ("sglang version", None),
        ("sglang::scheduler_TP0", None),
        ("sglang::detokenizer", None),
        ("python -m sglang.bench_serving --port 30003", None),
        ("python -m sglang_router.launch_router --port 30003", None),
        ("python -m sglang_router.launch_server --dp-size 8 --port 30003", None),
        ("grep sglang.launch_server --port 30003", None),
        ("tail -f sglang serve --port 30003", None),
        ("uv run python -m sglang.launch_server --port 30003", None),
        ("numactl -N 0 python -m sglang.launch_server --port 30003", None),
        ("docker run lmsysorg/sglang python3 -m sglang.launch_server --port 30003", None),
        ("python", None),
        ("python -m", None),
        ("python -", None),
        ("vllm serve /m --port 30003", None),
    ],
)
def test_an_sglang_server_is_known_by_its_command_line(argv, port):
    assert SGLANG.port_of(argv.split()) == port


def test_a_shell_that_holds_the_command_is_not_the_server():
    command = "python -m sglang.launch_server --model-path /m --port 30003"
    for argv in (["sh", "-c", command], ["bash", "-lc", f"exec {command} > log"], ["tmux", "new", "-d", command]):
        assert SGLANG.port_of(argv) is None


def test_a_child_made_by_spawn_is_not_the_server():
    assert (
        SGLANG.port_of(["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--port", "1"])
        is None
    )


def test_a_program_that_set_its_own_title_is_one_word():
    assert SGLANG.port_of(["python -m sglang.launch_server --port 30003"]) == 30003
    assert SGLANG.port_of([""]) is None
    assert SGLANG.port_of([]) is None


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        ("vllm serve /m --port 8003", 8003),
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve /m", 8000),
        ("python -m vllm.entrypoints.openai.api_server --model /m --port=8001", 8001),
        ("python -m vllm.entrypoints.cli.main serve /m --port 8002", 8002),
        ("vllm serve /m --headless --port 8003", None),
        ("vllm bench serve --port 8003", None),
        ("vllm chat --port 8003", None),
        ("VLLM::EngineCore", None),
        ("VLLM::Worker_TP0", None),
        ("grep vllm serve", None),
        ("python -m sglang.launch_server --port 30000", None),
    ],
)
def test_a_vllm_server_is_known_by_its_command_line(argv, port):
    assert VLLM.port_of(argv.split()) == port


def test_the_flags_of_a_process_are_those_after_its_entry_with_secrets_hidden():
    argv = "python -X importtime -m sglang.launch_server --model-path /m --api-key sk-1 --hf-token=t --max-total-tokens 5 --tokenizer-path /t"
    assert SGLANG.flags_of(argv.split()) == Flags(
        (("model-path", ("/m",)), ("api-key", ("[hidden]",)), ("hf-token", ("[hidden]",)), ("max-total-tokens", ("5",)), ("tokenizer-path", ("/t",)))
    )  # fmt: skip


def test_the_flags_behind_a_wrapper_are_those_of_the_server():
    argv = "numactl --cpunodebind 0 python -m sglang.launch_server --tp 8"
    assert SGLANG.flags_of(argv.split()) == Flags((("tp", ("8",)),))
    assert VLLM.flags_of(["env", "A=1", "vllm", "serve", "/m", "--max-num-seqs", "8"]) == Flags(
        (("max-num-seqs", ("8",)),)
    )


def test_a_launch_has_the_flags_and_the_fleets_port():
    flags = Flags.of({"mem-fraction-static": "0.90", "port": "1", "enable-metrics": True})
    assert SGLANG.launch_argv(server("python -m sglang.launch_server"), flags) == (
        "python",
        "-m",
        "sglang.launch_server",
        "--mem-fraction-static",
        "0.90",
        "--enable-metrics",
        "--port",
        "30003",
    )
    assert VLLM.launch_argv(server("vllm serve /m"), Flags()) == ("vllm", "serve", "/m", "--port", "30003")


def test_a_server_that_is_reached_from_elsewhere_listens_there():
    there = server("sglang serve", address="10.0.0.5")
    assert SGLANG.launch_argv(there, Flags()) == ("sglang", "serve", "--host", "10.0.0.5", "--port", "30003")
    own = Flags.of({"host": "0.0.0.0"})
    assert SGLANG.launch_argv(there, own) == ("sglang", "serve", "--host", "0.0.0.0", "--port", "30003")


def test_a_secret_that_was_hidden_is_put_back_from_the_fleet_or_left_out():
    there = server("sglang serve", flags=Flags.of({"api-key": "sk-1"}))
    read = SGLANG.flags_of(["sglang", "serve", "--api-key", "sk-1", "--admin-api-key", "sk-2", "--tp", "2"])
    assert SGLANG.launch_argv(there, read) == ("sglang", "serve", "--api-key", "sk-1", "--tp", "2", "--port", "30003")


@given(st.lists(st.sampled_from(["python", "-m", "-", "--", "-X", "-c", "sglang.launch_server", "serve", "vllm", "sglang", "--port", "--port=", "1", "", "a b", "-mx", "\n"]), max_size=8))  # fmt: skip
def test_any_command_line_is_read_without_an_error(argv):
    for engine in (SGLANG, VLLM):
        engine.port_of(argv)
        engine.flags_of(argv)
        engine.version_argv(Server("a", "h", 1, "sglang", Launch(tuple(argv))))
