"""Logs read to their end and as they grow: files, pipes, compressed ones, rotation, and what people and programs see."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from bot.__main__ import main
from bot.domain.diagnosis import Phase
from bot.domain.errors import UserError
from bot.domain.reading import five_lines, shown
from bot.runtime.diagnosing import (
    CHUNK,
    Archive,
    Follower,
    GrowingFile,
    Pipe,
    Reading,
    Teller,
    chunks,
    inflated,
    read,
    source_of,
)
from tests.jumping import JumpingClock, run

LOADS = (
    "[2026-11-30 03:00:01] server_args=ServerArgs(model_path='/models/Qwen3.6-27B', port=30000)\n"
    "[2026-11-30 03:00:09] Load weight begin. avail mem=139.00 GB\n"
    "Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:10<00:12,  1.10s/it]\n"
)
LIMITS = (
    "[2026-11-30 03:01:00] Load weight end. elapsed=21.50 s, type=Qwen3_5ForConditionalGeneration\n"
    "[2026-11-30 03:01:01] Mamba Cache is allocated. max_mamba_cache_size: 187, conv_state size: 0.71GB, ssm_state size: 26.20GB\n"
    "[2026-11-30 03:01:40] max_total_num_tokens=381136, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=37, context_len=262144, available_gpu_mem=18.04 GB\n"
)
ASSERTION = (
    "Traceback (most recent call last):\n"
    '  File "/opt/sglang/srt/speculative/eagle_worker.py", line 88, in __init__\n'
    "    assert steps > 0\n"
    "AssertionError: speculative steps\n"
)
READY = (
    "[2026-11-30 03:01:41] INFO:     Application startup complete.\n"
    "[2026-11-30 03:01:45] The server is fired up and ready to roll!\n"
)
DECODES = (
    "[2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, "
    "mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0\n"
)
CRASH = (
    "[2026-11-30 03:10:00] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/opt/sglang/srt/managers/scheduler.py", line 2612, in run_scheduler_process\n'
    "    scheduler.event_loop_overlap()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    "[2026-11-30 03:10:01] Received sigquit from a child process. It usually means the child failed.\n"
)


def log(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# What is seen


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["diagnose", *words])
    return status, capsys.readouterr().out


def test_a_crash_is_five_lines_and_the_piece_that_matters(tmp_path, capsys) -> None:
    name = log(tmp_path / "gpu0.log", LOADS + LIMITS + READY + DECODES * 20 + CRASH)
    assert said(capsys, name) == snapshot(
        (
            1,
            """\
state     sglang: crashed, cuda_oom
because   torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
to do     Leave more room beside the caches: a lower memory fraction, smaller prefill chunks, fewer requests at once.
numbers   32 of 37 running · queue 0 · 671 tok/s · KV 21 % · Mamba 61 % · 381,136 tokens of cache · 18.04 GB left
noted     nothing else

  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0
  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0
  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0
  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0
  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0
  [2026-11-30 03:10:00] Scheduler hit an exception: Traceback (most recent call last):
    File "/opt/sglang/srt/managers/scheduler.py", line 2612, in run_scheduler_process
      scheduler.event_loop_overlap()
> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
  [2026-11-30 03:10:01] Received sigquit from a child process. It usually means the child failed.

""",
        )
    )


def test_programs_get_one_object(tmp_path, capsys) -> None:
    status, out = said(capsys, "--json", log(tmp_path / "gpu0.log", LOADS + LIMITS + READY + DECODES + CRASH))
    assert (status, json.loads(out)) == snapshot(
        (
            1,
            {
                "engine": "sglang",
                "version": None,
                "phase": "crashed",
                "ready": False,
                "crashed": True,
                "cause": "cuda_oom",
                "decisive_line": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                "remedy": "Leave more room beside the caches: a lower memory fraction, smaller prefill chunks, fewer requests at once.",
                "progress_percent": None,
                "numbers": {
                    "max_mamba_cache_size": 187,
                    "max_total_num_tokens": 381136,
                    "max_running_requests": 37,
                    "context_len": 262144,
                    "available_gpu_mem_gb": 18.04,
                    "running_req": 32,
                    "queue_req": 0,
                    "gen_throughput": 671.02,
                    "full_token_usage": 0.21,
                    "mamba_usage": 0.61,
                    "mamba_num": 114,
                },
            },
        )
    )


def test_the_first_night_is_read_off_the_log_alone(tmp_path, capsys) -> None:
    assert said(capsys, log(tmp_path / "gpu0.log", LOADS + LIMITS + READY + DECODES)) == snapshot(
        (
            0,
            """\
state     sglang: serving
because   Concurrency is capped by Mamba state memory, and the client does not push more: 32 of at most 37 requests run, none wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full), 671 tok/s.
to do     --mamba-scheduler-strategy no_buffer (since 0.5.14: --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule) would raise the cap to about 62, at the price of overlap scheduling.
numbers   32 of 37 running · queue 0 · 671 tok/s · KV 21 % · Mamba 61 % · 381,136 tokens of cache · 18.04 GB left
noted     nothing else

  [2026-11-30 03:01:00] Load weight end. elapsed=21.50 s, type=Qwen3_5ForConditionalGeneration
  [2026-11-30 03:01:01] Mamba Cache is allocated. max_mamba_cache_size: 187, conv_state size: 0.71GB, ssm_state size: 26.20GB
  [2026-11-30 03:01:40] max_total_num_tokens=381136, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=37, context_len=262144, available_gpu_mem=18.04 GB
  [2026-11-30 03:01:41] INFO:     Application startup complete.
  [2026-11-30 03:01:45] The server is fired up and ready to roll!
  [2026-11-30 03:09:00] Decode batch, #running-req: 32, #full token: 80038, full token usage: 0.21, mamba num: 114, mamba usage: 0.61, cuda graph: True, gen throughput (token/s): 671.02, #queue-req: 0

""",
        )
    )


def test_a_server_short_of_seats_is_told_by_whose_word(tmp_path, capsys) -> None:
    batch = "Decode batch, #running-req: 2, token usage: 0.04, gen throughput (token/s): 154.58, #queue-req: 14\n"
    limits = "max_total_num_tokens=16384, chunked_prefill_size=4096, max_running_requests=2, context_len=4096\n"
    ready = "The server is fired up and ready to roll!\n"
    told = []
    for arguments in ("server_args={'model_path': '/m', 'max_running_requests': 2}\n", ""):
        _, out = said(capsys, log(tmp_path / "gpu0.log", arguments + limits + ready + batch))
        told.append(out.splitlines()[1])
    assert told == snapshot(
        [
            "because   Concurrency is capped by --max-running-requests 2: 2 of at most 2 requests run, 14 wait, KV cache 4 % used, 155 tok/s.",
            "because   Concurrency is capped by the server's own number of seats: 2 of at most 2 requests run, 14 wait, KV cache 4 % used, 155 tok/s.",
        ]
    )


def test_the_seats_of_vllm_are_known_by_its_arguments_alone(tmp_path, capsys) -> None:
    lines = (
        "INFO 11-30 10:00:00 [utils.py:1] non-default args: {'model': '/m', 'max_num_seqs': 8}\n"
        "INFO:     Application startup complete.\n"
        "INFO 11-30 10:05:00 [loggers.py:1] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: "
        "170.0 tokens/s, Running: 8 reqs, Waiting: 4 reqs, GPU KV cache usage: 3.0%\n"
    )
    _, out = said(capsys, log(tmp_path / "llm.log", lines))
    assert out.splitlines()[1] == snapshot(
        "because   Concurrency is capped by --max-num-seqs 8: 8 of at most 8 requests run, 4 wait, KV cache 3 % used, 170 tok/s."
    )


def test_a_log_that_stands_in_the_middle_of_a_start(tmp_path, capsys) -> None:
    assert said(capsys, log(tmp_path / "gpu0.log", LOADS)) == snapshot(
        (
            0,
            """\
state     sglang: loading weights 45 %
because   it is starting, and nothing in the log speaks against it
to do     wait; a start that writes nothing for minutes may be compiling
numbers   none told
noted     nothing else

  [2026-11-30 03:00:01] server_args=ServerArgs(model_path='/models/Qwen3.6-27B', port=30000)
  [2026-11-30 03:00:09] Load weight begin. avail mem=139.00 GB
  Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:10<00:12,  1.10s/it]

""",
        )
    )


def test_an_assertion_before_fired_up_is_no_crash(tmp_path, capsys) -> None:
    status, out = said(capsys, log(tmp_path / "big.log", LOADS + LIMITS + ASSERTION + READY))
    assert (status, out.splitlines()[:3]) == snapshot(
        (
            0,
            [
                "state     sglang: ready",
                "because   it says that it is ready, and nothing after that speaks against it",
                "to do     nothing",
            ],
        )
    )


def test_several_logs_have_their_names_and_one_crash_is_enough(tmp_path, capsys) -> None:
    good, bad = log(tmp_path / "a.log", LOADS + LIMITS + READY), log(tmp_path / "b.log", LOADS + CRASH)
    status, out = said(capsys, good, bad)
    assert status == 1
    assert [line for line in out.splitlines() if line.startswith(("==", "state"))] == [
        f"== {good}",
        "state     sglang: ready",
        f"== {bad}",
        "state     sglang: crashed, cuda_oom",
    ]
    status, out = said(capsys, "--json", good, bad)
    assert [json.loads(line)["file"] for line in out.splitlines()] == [good, bad]


def test_what_can_not_be_read_is_wrong_usage(tmp_path, capsys) -> None:
    assert main(["diagnose", str(tmp_path / "none.log")]) == 2
    assert main(["diagnose", str(tmp_path)]) == 2
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b\x08\x00garbage, no data at all")
    assert main(["diagnose", str(broken)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.rsplit(": ", 1)[1] for line in told.err.splitlines()] == [
        "no such file or directory",
        "is a directory",
        "broken gzip data",
    ]


def test_an_empty_log_says_so(tmp_path, capsys) -> None:
    status, out = said(capsys, log(tmp_path / "empty.log", ""))
    assert (status, out.splitlines()[0]) == (0, "state     nothing is in the log yet")


def test_a_hostile_line_moves_no_cursor_and_keeps_its_secrets(tmp_path, capsys) -> None:
    hostile = "ValueError: \x1b[2J\x1b]0;owned\x07 out of memory --api-key sk-verysecret123 \x08\x08\x9b31m\n"
    name = log(
        tmp_path / "gpu0.log", LOADS + "Scheduler hit an exception: Traceback (most recent call last):\n" + hostile
    )
    _, out = said(capsys, name)
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "verysecret" not in out


def test_a_line_is_shown_with_its_indentation_and_not_too_long() -> None:
    assert shown("\tat\x1b[31m red\x1b[0m  ") == "    at red"
    assert len(shown("x" * 10_000)) == 300


# Bytes


def test_a_pipe_is_read_to_its_end(tmp_path) -> None:
    behind = os.dup(0)
    reading, writing = os.pipe()
    try:
        os.write(writing, (LOADS + CRASH).encode())
        os.close(writing)
        os.dup2(reading, 0)
        assert read("-").diagnosis().cause == "cuda_oom"
    finally:
        os.dup2(behind, 0)
        os.close(behind)
        os.close(reading)


def test_compressed_logs_are_read_whatever_they_are_called(tmp_path) -> None:
    path = tmp_path / "gpu0.log.1"
    path.write_bytes(gzip.compress((LOADS + LIMITS).encode()) + gzip.compress((READY + DECODES + CRASH).encode()))
    reading = read(str(path))
    assert reading.diagnosis().cause == "cuda_oom"
    assert any(line.startswith("> torch.OutOfMemoryError") for line in reading.piece())


def test_a_compressed_log_that_breaks_off_ends_there(tmp_path) -> None:
    path = tmp_path / "gpu0.log.gz"
    whole = gzip.compress((LOADS + LIMITS + DECODES * 3000 + CRASH).encode(), mtime=0)
    path.write_bytes(whole[: len(whole) // 2])
    assert read(str(path)).diagnosis().phase in (Phase.LOADING_WEIGHTS, Phase.ALLOCATING_CACHE, Phase.SERVING)


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), max_size=20), st.booleans(), st.binary(max_size=8))
def test_bytes_come_out_as_they_went_in_however_they_are_cut(data, cuts, is_packed, padding) -> None:
    stored = gzip.compress(data) + bytes(len(padding)) if is_packed else data
    pieces: list[bytes] = []
    for size in cuts:
        pieces.append(stored[:size])
        stored = stored[size:]
    got = b"".join(inflated(iter([one for one in [*pieces, stored] if one]), "x"))
    assert got == data or data.startswith(b"\x1f\x8b")


def test_a_tiny_archive_of_much_is_inflated_piece_by_piece(tmp_path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(64 * CHUNK)))
    assert max(len(one) for one in chunks(str(path))) <= CHUNK


def test_memory_does_not_grow_with_the_log(tmp_path) -> None:
    path = tmp_path / "long.log"
    with path.open("w") as file:
        for _ in range(12):
            file.write(DECODES * (CHUNK // len(DECODES)))
        file.write("x" * (3 * CHUNK) + "\n")
        file.write(CRASH)
    read(str(path))
    tracemalloc.start()
    try:
        reading = read(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reading.diagnosis().cause == "cuda_oom"
    assert peak < 12 * CHUNK, f"{peak / CHUNK:.0f} MiB"


def test_the_piece_is_kept_though_much_follows_it() -> None:
    reading = Reading("x")
    reading.feed((LOADS + CRASH).encode())
    reading.feed(b"some other program's words\n" * 100_000)
    assert [line for line in reading.piece() if line.startswith(">")] == [
        "> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    ]


@given(st.lists(st.binary(max_size=300), max_size=8))
@settings(max_examples=60)
def test_no_bytes_make_it_fail(pieces) -> None:
    reading = Reading("x")
    for piece in pieces:
        reading.feed(piece)
    lines = [*five_lines(reading.diagnosis()), *reading.piece()]
    assert all(char.isprintable() for line in lines for char in line)


# As it grows


def following(path: Path, acts: Callable[[Path, JumpingClock], object], *, is_json: bool = False) -> list[str]:
    """What is told while ``acts`` writes."""
    told: list[str] = []

    async def scenario() -> None:
        clock = JumpingClock()
        teller = Teller(told.append, is_json=is_json, is_one=True)
        source = source_of(str(path))
        follower = Follower([source], clock, teller.changed)
        task = asyncio.create_task(follower.run())
        await asyncio.sleep(1)
        await acts(path, clock)  # type: ignore[misc] - a coroutine function
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if isinstance(source, GrowingFile):
            source.close()

    run(scenario())
    return [text.splitlines()[0] for text in told]


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def move(path: Path) -> None:
    path.rename(path.with_suffix(".1"))


def cut(path: Path) -> None:
    os.truncate(path, 0)


def test_a_start_is_told_as_it_goes_on(tmp_path) -> None:
    async def acts(path: Path, clock: JumpingClock) -> None:
        for text in (
            LOADS,
            LOADS.splitlines()[-1].replace("45%", "90%") + "\n",
            LIMITS,
            READY,
            DECODES,
            DECODES,
            CRASH,
        ):
            add(path, text)
            await clock.sleep(timedelta(seconds=5))

    assert following(tmp_path / "gpu0.log", acts) == snapshot(
        [
            "sglang: loading weights 45 %",
            "sglang: loading weights 90 %",
            "sglang: allocating cache",
            "state     sglang: ready",
            "sglang: serving",
            "state     sglang: crashed, cuda_oom",
        ]
    )


def test_what_holds_a_server_back_for_a_while_is_told_and_that_it_does_no_more(tmp_path) -> None:
    full = "Decode batch, #running-req: 2, token usage: 0.04, gen throughput (token/s): 154.58, #queue-req: 14\n"
    limits = "max_total_num_tokens=16384, chunked_prefill_size=4096, max_running_requests=2, context_len=4096\n"
    slack = full.replace("req: 14", "req: 0").replace("req: 2", "req: 1")

    async def acts(path: Path, clock: JumpingClock) -> None:
        add(path, "server_args={'model_path': '/m', 'max_running_requests': 2}\n" + limits + READY)
        for text in (slack, full, slack, *[full] * 12, *[slack] * 9):
            add(path, text)
            await clock.sleep(timedelta(seconds=5))

    assert following(tmp_path / "gpu0.log", acts) == snapshot(
        [
            "sglang: serving",
            "sglang: serving · Concurrency is capped by --max-running-requests 2: 2 of at most 2 requests run, 14 wait, KV cache 4 % used, 155 tok/s.",
            "sglang: serving",
        ]
    )


def test_a_failed_health_check_in_service_is_told_with_its_line(tmp_path) -> None:
    async def acts(path: Path, clock: JumpingClock) -> None:
        add(path, LOADS + LIMITS + READY + DECODES)
        await clock.sleep(timedelta(seconds=5))
        add(path, "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n")

    assert following(tmp_path / "gpu0.log", acts)[-2:] == snapshot(
        [
            "sglang: serving",
            "sglang: serving · Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
        ]
    )


def test_a_launch_that_looked_dead_goes_on_after_all(tmp_path) -> None:
    async def acts(path: Path, clock: JumpingClock) -> None:
        for text in (LOADS + LIMITS + ASSERTION, READY):
            add(path, text)
            await clock.sleep(timedelta(seconds=5))

    assert following(tmp_path / "gpu0.log", acts) == snapshot(
        ["state     sglang: crashed, scheduler_exception", "it goes on after all", "state     sglang: ready"]
    )


def test_rotation_and_truncation_lose_nothing(tmp_path) -> None:
    async def acts(path: Path, clock: JumpingClock) -> None:
        add(path, LOADS)
        await clock.sleep(timedelta(seconds=5))
        add(path, LIMITS + READY[:70])  # cut in the middle of a line
        move(path)
        await clock.sleep(timedelta(seconds=5))
        add(path.with_suffix(".1"), READY[70:])  # written after the move, by who still has it open
        await clock.sleep(timedelta(seconds=5))
        add(path, DECODES)
        await clock.sleep(timedelta(seconds=5))
        cut(path)
        await clock.sleep(timedelta(seconds=5))
        add(path, CRASH)

    assert following(tmp_path / "gpu0.log", acts) == snapshot(
        [
            "sglang: loading weights 45 %",
            "sglang: warming up",
            "state     sglang: ready",
            "sglang: serving",
            "state     sglang: crashed, cuda_oom",
        ]
    )


def test_the_end_is_not_told_twice() -> None:
    told: list[str] = []
    teller, reading = Teller(told.append, is_json=False, is_one=True), Reading("x")
    reading.feed((LOADS + CRASH).encode())
    teller.changed(reading)
    teller.whole(reading)
    assert len(told) == 1
    reading.feed((LOADS + LIMITS + READY).encode())
    teller.whole(reading)
    assert len(told) == 2


def test_programs_get_an_object_a_change(tmp_path) -> None:
    async def acts(path: Path, clock: JumpingClock) -> None:
        for text in (LOADS, LIMITS, READY):
            add(path, text)
            await clock.sleep(timedelta(seconds=5))

    told = [json.loads(line) for line in following(tmp_path / "gpu0.log", acts, is_json=True)]
    assert [(one["phase"], one["progress_percent"]) for one in told] == [
        ("loading_weights", 45),
        ("allocating_cache", None),
        ("ready", None),
    ]


def test_a_pipe_is_followed_to_its_end(tmp_path) -> None:
    reading, writing = os.pipe()
    told: list[Phase | None] = []

    async def scenario() -> Follower:
        follower = Follower([Pipe(reading)], JumpingClock(), lambda one: told.append(one.diagnosis().phase))
        task = asyncio.create_task(follower.run())
        await asyncio.sleep(3)
        os.write(writing, LOADS.encode())
        await asyncio.sleep(3)
        os.write(writing, (LIMITS + READY).encode())
        os.close(writing)
        await task
        return follower

    follower = run(scenario())
    os.close(reading)
    assert told == [Phase.LOADING_WEIGHTS, Phase.READY]
    assert follower.readings[0].diagnosis().is_ready


def test_what_does_not_grow_is_read_and_over(tmp_path) -> None:
    path = tmp_path / "old.gz"
    path.write_bytes(gzip.compress((LOADS + CRASH).encode()))
    source = source_of(str(path))
    assert isinstance(source, Archive)
    follower = Follower([source], JumpingClock(), lambda _: None)
    run(follower.run())
    assert follower.readings[0].diagnosis().cause == "cuda_oom"


def test_a_folder_can_not_be_followed(tmp_path) -> None:
    with pytest.raises(UserError, match="is a directory"):
        run(Follower([source_of(str(tmp_path))], JumpingClock(), lambda _: None).run())


def test_a_named_pipe_is_followed_to_its_end(tmp_path) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR)
    os.write(keeper, (LOADS + CRASH).encode())
    source = source_of(str(fifo))
    os.close(keeper)
    follower = Follower([source], JumpingClock(), lambda _: None)
    run(follower.run())
    assert isinstance(source, Pipe)
    source.close()
    assert follower.readings[0].diagnosis().is_crashed
