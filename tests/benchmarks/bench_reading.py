"""How fast the log readers are, against `grep -E` with the same words as the yardstick.

python tests/benchmarks/bench_reading.py [megabytes]
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

CHUNK = 1 << 20
_INTERESTING = {
    "sglang": (
        "[2026-05-01 10:00:00 TP0] Load weight begin. avail mem=78.10 GB",
        "Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:10<00:12,  1.10s/it]",
        "[2026-05-01 10:00:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 90",
        "[2026-05-01 10:00:00] Endpoint '/get_load' is deprecated and will be removed in a future version.",
        "ValueError: the request's input has 9000 tokens, more than the context length of 8192",
    ),
    "vllm": (
        "(EngineCore pid=7) INFO 05-01 10:00:00 [core.py:10] Initializing a V1 LLM engine (v0.28.0) with config: x",
        "(Worker_TP0 pid=8) WARNING 05-01 10:00:00 [scheduler.py:9] Sequence group 17 is preempted by recomputation",
        "(APIServer pid=9) ERROR 05-01 10:00:00 [serving_chat.py:20] Error in preprocessing prompt inputs",
        "ValueError: the prompt has 9000 tokens, more than the model takes",
    ),
}


def traffic(engine: str, dice: random.Random) -> str:
    """One line as a server at work writes it."""
    kind = dice.random()
    if kind < 0.15:
        return f'[2026-05-01 10:00:01] INFO:     10.0.0.7:{dice.randrange(65535)} - "GET /health HTTP/1.1" 200 OK'
    if engine == "sglang" and kind < 0.3:
        return (
            f"[2026-05-01 10:00:01 TP0] Prefill batch, #new-seq: 1, #new-token: {dice.randrange(8000)}, #cached-token: 12, "
            "token usage: 0.31, #running-req: 30, #queue-req: 0, #pending-token: 0, cuda graph: False, "
            f"input throughput (token/s): {dice.random() * 9000:.2f}"
        )
    if engine == "sglang":
        return (
            f"[2026-05-01 10:00:01 TP0] Decode batch, #running-req: {dice.randrange(99)}, #full token: 70112, full token "
            "usage: 0.19, mamba num: 99, mamba usage: 0.55, cuda graph: True, gen throughput (token/s): "
            f"{dice.random() * 900:.2f}, #queue-req: 0"
        )
    return (
        "(APIServer pid=9) INFO 05-01 10:00:01 [loggers.py:208] Engine 000: Avg prompt throughput: 850.5 tokens/s, "
        f"Avg generation throughput: {dice.random() * 900:.1f} tokens/s, Running: 24 reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: 7.9%, Prefix cache hit rate: 0.0%"
    )


def log(engine: str, megabytes: int, *, interesting: float) -> bytes:
    """A log of about that size, with that share of lines that a reader must look at."""
    dice = random.Random(7)  # noqa: S311 - a log to be read, not a secret
    lines, size = [], 0
    while size < megabytes << 20:
        is_interesting = dice.random() < interesting
        line = dice.choice(_INTERESTING[engine]) if is_interesting else traffic(engine, dice)
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines).encode() + b"\n"


def seconds(engine: str, data: bytes) -> float:
    """How long reading takes on one core."""
    reader = SglangReader() if engine == "sglang" else VllmReader()
    begin = time.process_time()
    for at in range(0, len(data), CHUNK):
        reader.feed(data[at : at + CHUNK])
    reader.diagnosis()
    return time.process_time() - begin


def grep_seconds(engine: str, path: Path) -> float:
    """How long `grep -E` takes to count the lines that hold one of the reader's words."""
    reader = SglangReader if engine == "sglang" else VllmReader
    pattern = "|".join(word.decode().replace("^", r"\^").replace("|", r"\|") for word in reader.words)
    begin = time.perf_counter()
    subprocess.run(["grep", "-cE", pattern, str(path)], check=False, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print megabytes a second for each engine and kind of log."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for engine in ("sglang", "vllm"):
        for name, share in (("traffic only", 0.0), ("one line in 100", 0.01)):
            data = log(engine, megabytes, interesting=share)
            took = seconds(engine, data)
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                grep = grep_seconds(engine, Path(file.name))
            speed = len(data) / took / 1e6
            print(f"{engine:7} {name:16} {speed:7.0f} MB/s   {grep / took:5.2f} of grep -E's speed")  # noqa: T201 - the result


if __name__ == "__main__":
    main()
