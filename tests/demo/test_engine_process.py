"""The simulated server as a process: its start, its port, its health, its end."""

import asyncio
import json
import re
import signal
import socket

import aiohttp
import pytest

from bot.demo.faults import CAUSES, Faults
from bot.demo.machine import Control
from tests.demo.simulation import bench, free_port, generate, get, load, until, until_running

EXTRA = ("--mamba-scheduler-strategy", "extra_buffer", "--mem-fraction-static", "0.85", "--max-running-requests", "64")
NO_BUFFER = ("--mamba-scheduler-strategy", "no_buffer", "--mem-fraction-static", "0.90")

STARTS = [
    r"server_args=\{'",
    r"Init torch distributed begin\.",
    r"Init torch distributed ends\.",
    r"Load weight begin\. avail mem=([\d.]+) GB",
    r"Loading safetensors checkpoint shards:\s+0% Completed \| 0/15",
    r"Loading safetensors checkpoint shards:\s+46% Completed \| 7/15",
    r"Loading safetensors checkpoint shards:\s+100% Completed \| 15/15",
    r"Load weight end\. elapsed=([\d.]+) s, type=Qwen3_5ForConditionalGeneration",
    r"Mamba Cache is allocated\. max_mamba_cache_size: 187, conv_state size: ([\d.]+)GB, ssm_state size: ([\d.]+)GB",
    r"KV Cache is allocated\.",
    r"Memory pool end\. avail mem=([\d.]+) GB",
    r"Capture cuda graph begin\.",
    r"Capturing batches \(bs=152 [^)]*\):\s+0%\|[^|]*\| 0/23",
    r"Capturing batches \([^)]*\):\s+52%\|[^|]*\| 12/23",
    r"Capture cuda graph end\. Time elapsed: ([\d.]+) s",
    r"max_total_num_tokens=381136, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=37, ",
    r"context_len=262144, available_gpu_mem=([\d.]+) GB",
    r"Started server process \[\d+\]",
    r"Waiting for application startup",
    r"Application startup complete\.",
    r"Uvicorn running on http://127\.0\.0\.1:\d+",
    r'"GET /model_info HTTP/1\.1" 200 OK',
    r"Prefill batch, #new-seq: 1, #new-token: 6",
    r'"POST /generate HTTP/1\.1" 200 OK',
    r"The server is fired up and ready to roll!",
]


def test_a_start_goes_through_its_phases_and_opens_the_port_last(tmp_path):
    async def story():
        async with bench(tmp_path, speed=40) as there:
            one = await there.engine(free_port(), *EXTRA, instant=False)
            seen = []
            while 200 not in seen:
                status, _ = await get(one.port, "/health")
                seen += [status] if seen[-1:] != [status] else []
                await asyncio.sleep(0.005)
            await one.says("ready to roll!")
            return seen, one.text(), there.machine.server(one.port)

    seen, text, entry = asyncio.run(story())
    assert seen == [0, 503, 200]
    found = [re.search(pattern, text) for pattern in STARTS]
    assert [pattern for pattern, match in zip(STARTS, found, strict=True) if match is None] == []
    places = [match.start() for match in found]
    assert places == sorted(places)
    assert (entry.gpus, entry.mib) == ((0,), 125_105)


def test_the_real_numbers_stand_in_every_answer(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready(*NO_BUFFER, "--max-running-requests", "128", "--served-model-name", "qwen")
            info = json.loads((await get(one.port, "/server_info"))[1])
            return (
                await load(one.port),
                info,
                (await get(one.port, "/metrics"))[0],
                json.loads((await get(one.port, "/v1/models"))[1]),
                (await get(one.port, "/nothing")),
            )

    load_, info, metrics, models, nothing = asyncio.run(story())
    assert (load_["max_running_requests"], load_["max_total_num_tokens"]) == (72, 392_208)
    state = info["internal_states"][0]
    assert (info["version"], info["max_running_requests"], info["mamba_scheduler_strategy"]) == (
        "0.5.13",
        128,
        "no_buffer",
    )
    assert (state["effective_max_running_requests_per_dp"], state["memory_usage"]["token_capacity"]) == (72, 392_208)
    assert metrics == 404
    assert [model["id"] for model in models["data"]] == ["qwen"]
    assert nothing == (404, '{"detail":"Not Found"}')


def test_under_load_seats_queue_pools_and_tokens_agree_everywhere(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready(*EXTRA, "--enable-metrics")
            work = [asyncio.create_task(generate(session, one.port, 4_000)) for _ in range(40)]
            await one.says("#running-req: 37")
            before = await get(one.port, "/metrics")
            await asyncio.sleep(1.5)
            after = await get(one.port, "/metrics")
            loads, health = await load(one.port), await get(one.port, "/health")
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await until_running(one.port, 0)
            return before[1], after[1], loads, health, one.text()

    before, after, loads, health, text = asyncio.run(story())
    assert (loads["num_running_reqs"], loads["num_waiting_reqs"], health[0]) == (37, 3, 200)
    assert 600 < (_metric(after, "decode") - _metric(before, "decode")) / 1.5 < 780
    assert (_metric(after, "num_running_reqs"), _metric(after, "num_queue_reqs")) == (37, 3)
    assert _metric(after, "mamba_usage") == pytest.approx(111 / 187)
    assert 0.005 < _metric(after, "full_token_usage") < 0.1
    line = re.compile(
        r"Decode batch, #running-req: 37, #full token: \d+, full token usage: [\d.]+, mamba num: 111, "
        r"mamba usage: 0\.59, cuda graph: True, gen throughput \(token/s\): ([\d.]+), #queue-req: 3\n"
    )
    assert len(line.findall(text)) >= 1
    assert re.search(r"Prefill batch, #new-seq: \d+, #new-token: \d+, #cached-token: 0, full token usage", text)


def _metric(text, name):
    pattern = rf'^sglang:(?:{name}{{|realtime_tokens_total{{.*mode="{name}").*}} ([\d.]+)$'
    return float(re.search(pattern, text, re.MULTILINE)[1])


def test_an_answer_comes_when_its_tokens_are_decoded(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready(*EXTRA)
            began = asyncio.get_running_loop().time()
            answer = await generate(session, one.port, 60)
            return answer["meta_info"], asyncio.get_running_loop().time() - began

    meta, took = asyncio.run(story())
    assert (meta["completion_tokens"], meta["prompt_tokens"], meta["finish_reason"]["type"]) == (60, 100, "length")
    assert took == pytest.approx(1.0, abs=0.25)


def test_a_port_that_is_taken_is_found_only_after_the_load(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            first = await there.ready(*EXTRA)
            second = await there.engine(first.port, *EXTRA, gpu=1)
            return await second.ended(), second.text()

    status, text = asyncio.run(story())
    assert status == 3
    complete, refused, ready = (
        text.index(words) for words in ("Application startup complete.", "[Errno 98]", "ready to roll!")
    )
    assert complete < refused < ready
    assert "address already in use" in text


def test_a_start_dies_of_memory_that_another_holds_and_works_once_it_is_free(tmp_path):
    async def story():
        async with bench(tmp_path, speed=4) as there:
            first = await there.ready(*EXTRA)
            second = await there.engine(free_port(), *EXTRA)
            status, text = await second.ended(), second.text()
            first.process.kill()
            await first.ended()
            held = [one.mib for one in there.machine.holders(0) if one.pid == first.process.pid]
            await until(lambda: not there.machine.holders(0))
            third = await there.ready(*EXTRA)
            return first.process.pid, status, text, held, third.process.returncode

    pid, status, text, held, third = asyncio.run(story())
    assert (status, held, third) == (-signal.SIGKILL, [125_105], None)
    assert "torch.OutOfMemoryError: CUDA out of memory." in text
    assert f"Process {pid} has 122.17 GiB memory in use." in text


def test_sigterm_lets_the_running_request_end_while_health_says_503(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready(*EXTRA)
            work = asyncio.create_task(generate(session, one.port, 90))
            await asyncio.sleep(0.3)
            one.process.terminate()
            await one.says("Draining requests")
            health = (await get(one.port, "/health"))[0]
            return (await work)["meta_info"]["completion_tokens"], health, await one.ended(), one.text()

    tokens, health, status, text = asyncio.run(story())
    assert (tokens, health, status) == (90, 503, 0)
    assert "Gracefully exiting... Remaining number of requests 1." in text
    assert "Remaining number of requests 0. Remaining requests remaining_rids=[]." in text
    assert "Application shutdown complete." in text


def test_sigterm_while_it_loads_is_plain_death(tmp_path):
    async def story():
        async with bench(tmp_path, speed=1) as there:
            one = await there.engine(free_port(), instant=False)
            await until(lambda: there.machine.server(one.port))
            one.process.terminate()
            return await one.ended(), one.text()

    assert asyncio.run(story()) == (-signal.SIGTERM, "")


def test_a_server_that_hangs_answers_only_what_needs_no_scheduler(tmp_path):
    async def story():
        async with bench(tmp_path, speed=20) as there, aiohttp.ClientSession() as session:
            one = await there.ready(*EXTRA, "--enable-metrics", "--watchdog-timeout", "0")
            work = asyncio.create_task(generate(session, one.port, 100_000))
            await asyncio.sleep(0.3)
            Faults(there.machine).hang(one.port)
            await asyncio.sleep(0.7)
            first, second = [_metric((await get(one.port, "/metrics"))[1], "decode") for _ in range(2)]
            with pytest.raises(TimeoutError):
                await get(one.port, "/server_info", seconds=0.5)
            statuses = [(await get(one.port, path))[0] for path in ("/model_info", "/v1/models", "/health")]
            Faults(there.machine).mend(one.port)
            await asyncio.sleep(0.7)
            third, last = _metric((await get(one.port, "/metrics"))[1], "decode"), (await get(one.port, "/health"))[0]
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return first, second, third, statuses, last, one.text()

    first, second, third, statuses, last, text = asyncio.run(story())
    assert first == second < third
    assert (statuses, last) == ([200, 200, 503], 200)
    assert "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds." in text


def test_a_hang_under_load_ends_in_the_watchdog(tmp_path):
    async def story():
        async with bench(tmp_path, speed=20) as there, aiohttp.ClientSession() as session:
            one = await there.ready(*EXTRA, "--watchdog-timeout", "10")
            work = asyncio.create_task(generate(session, one.port, 100_000))
            await asyncio.sleep(0.2)
            there.machine.set_control(one.port, Control(is_hung=True))
            status = await one.ended()
            await asyncio.gather(work, return_exceptions=True)
            return status, one.text()

    status, text = asyncio.run(story())
    assert status == -signal.SIGKILL
    assert "Scheduler watchdog timeout (self.watchdog_timeout=10, self.soft=False)" in text


@pytest.mark.parametrize("cause", CAUSES)
def test_a_start_that_is_made_to_fail_says_why_and_the_next_one_works(tmp_path, cause):
    words = {
        "oom": "torch.OutOfMemoryError: CUDA out of memory",
        "bad-kernel": "Capture cuda graph failed: CUDA error: no kernel image is available",
        "nccl": "NCCL error in:",
        "killed": "Rank 0 scheduler died during initialization (exit code: -9)",
        "assertion": "AssertionError: mamba_track_interval",
    }[cause]

    async def story():
        async with bench(tmp_path) as there:
            port = free_port()
            there.machine.fail_next(port, cause)
            failed = await there.engine(port, *EXTRA)
            status = await failed.ended()
            await until(lambda: not there.machine.holders(0))
            again = await there.engine(port, *EXTRA)
            await again.says("ready to roll!")
            return status, failed.text()

    status, text = asyncio.run(story())
    assert status == (1 if cause == "killed" else -signal.SIGKILL)
    assert words in text
    assert "Uvicorn running" not in text


@pytest.mark.parametrize(
    ("words", "env", "status", "last"),
    [
        (["--no-such-flag", "1"], {}, 2, "launch_server.py: error: unrecognized arguments: --no-such-flag 1"),
        (
            ["--attention-backend", "fa9"],
            {},
            2,
            "launch_server.py: error: argument --attention-backend: invalid choice",
        ),
        (
            ["--mamba-scheduler-strategy", "no_buffer"],
            {"UPBOT_SIM_VERSION": "0.5.23"},
            2,
            "launch_server.py: error: unrecognized arguments: --mamba-scheduler-strategy no_buffer",
        ),
        (["--model-path", "/no/such/folder"], {}, 1, "OSError: Repo id must be in the form"),
        (["--mem-fraction-static", "0.2"], {}, 1, "RuntimeError: Not enough memory."),
    ],
)
def test_what_cannot_start_ends_at_once_as_the_real_one_does(tmp_path, words, env, status, last):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.engine(free_port(), *words, **env)
            return await one.ended(), one.text().splitlines()[-1]

    ended, line = asyncio.run(story())
    assert (ended, line[: len(last)]) == (status, last)


def test_version_and_flags_are_printed_without_starting_anything(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            version = await there.run("-m", "bot.demo.engine", "--version", UPBOT_SIM_VERSION="0.5.20")
            shown = await there.run("-m", "bot.demo.engine", "--help")
            return await version.ended(), version.text().splitlines(), await shown.ended(), shown.text()

    status, lines, shown, text = asyncio.run(story())
    assert (status, lines[0], shown) == (0, "0.5.20", 0)
    assert "--mamba-radix-cache-strategy" in lines
    assert "--mamba-scheduler-strategy" not in lines
    assert "--mamba-scheduler-strategy {auto,no_buffer,extra_buffer,extra_buffer_lazy}" in text


def test_a_key_guards_everything_but_health_and_metrics(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready("--api-key", "sesame", "--enable-metrics")
            paths = ("/health", "/metrics", "/v1/loads", "/server_info", "/model_info")
            return [(await get(one.port, path))[0] for path in paths]

    assert asyncio.run(story()) == [200, 200, 401, 401, 401]


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[1]", b'{"sampling_params": {"max_new_tokens": "many"}}', b"\xff"]
)
def test_a_wrong_body_is_refused_and_never_stops_the_server(tmp_path, body):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready()
            async with session.post(f"http://127.0.0.1:{one.port}/v1/completions", data=body) as answer:
                return answer.status, (await get(one.port, "/health"))[0]

    assert asyncio.run(story()) in ((400, 200), (200, 200))


def test_the_port_is_free_until_the_server_is_loaded(tmp_path):
    async def story():
        async with bench(tmp_path, speed=2) as there:
            one = await there.engine(free_port(), instant=False)
            await until(lambda: there.machine.server(one.port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", one.port))
            return one.process.returncode

    assert asyncio.run(story()) is None
