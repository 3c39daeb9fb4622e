"""What vLLM's own messages mean when it died (facts by version stand in docs/reading-logs.md)."""

from __future__ import annotations

import re

from bot.engines._reading.causes import Rule, rule

_RAISE = (
    "Raise --gpu-memory-utilization or lower --max-model-len, so that the KV cache holds at least one whole request."
)

FATAL = re.compile(
    r"EngineCore (?:failed to start|encountered a fatal error|hit an exception)|Engine core initialization failed"
    r"|WorkerProc (?:failed to start|hit an exception)|AsyncLLM output_handler failed|EngineDeadError|MQEngineDeadError"
    r"|Engine(?:Core)? encountered an issue|Engine process failed to start|engine core exited unexpectedly"
    r"|Worker proc \S+ died unexpectedly|[Ww]orker .{0,60}(?:died|exited unexpectedly)|Engine loop has died"
    r"|^Process (?:Spawn|Process-|Fork|Engine|APIServer|ApiServer|Vllm)[\w:.-]*:|EngineCore_?\w* died|AsyncEngineDead"
    r"|Background loop has errored|Engine background task failed|Terminating engine process|engine dead"
    r"|vLLM server process .{0,200}died|Engine is already dead"
)
"""Lines that one of vLLM's processes writes when it, or another one, ends."""

ERRORS: tuple[Rule, ...] = (
    rule(
        r"unrecognized arguments: (--[\w-]+)",
        "bad_argument",
        r"This version does not know \1: it was renamed, removed or belongs to another engine (see --help).",
    ),
    rule(
        r"Free memory on device .{0,200} is less than desired GPU memory utilization"
        r"|(?:decrease|lower|reduce) (?:the )?`?(?:gpu_memory_utilization"
        r"|GPU memory utilization)(?! or).{0,200}on startup",
        "memory_fraction_too_high",
        "Another process holds GPU memory, or too much is asked for: free it, or lower --gpu-memory-utilization.",
    ),
    rule(
        r"[Nn]o available memory for the cache blocks|is larger than the available KV cache memory"
        r"|larger than the maximum number of tokens that can be stored in KV cache"
        r"|To serve at least one request with|KV cache is needed, which is larger|[Nn]ot enough (?:memory|KV cache)"
        r"|Available KV cache memory: -|[Ii]ncrease `?gpu_memory_utilization",
        "memory_fraction_too_low",
        _RAISE,
    ),
    rule(
        r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks \((\d+)\)",
        "argument_conflict",
        r"Set --max-num-seqs to \1 or less.",
    ),
    rule(
        r"User-specified max_model_len",
        "bad_argument",
        "Lower --max-model-len to what the model's configuration allows.",
    ),
    rule(
        r"max_num_batched_tokens .{0,200}(?:smaller|less|must be)|attention heads .{0,200}divisible"
        r"|must be divisible by"
        r"|Tensor parallel size .{0,200}(?:larger|greater|cannot)|World size .{0,200}(?:larger|greater)"
        r"|is not supported with",
        "argument_conflict",
        "These settings do not go together: change the one that it names.",
    ),
    rule(
        r"out of memory occurred when warming up (?:the )?sampler",
        "cuda_oom",
        "Lower --max-num-seqs or --gpu-memory-utilization.",
    ),
    rule(
        r"Timed out waiting for engine core|engine core proc.{0,200}did not start"
        r"|Did not receive response from front-end"
        r"|RPC call to \w+ timed out|Timed out waiting for .{0,200}(?:handshake|startup)",
        "watchdog_timeout",
        "It did not answer in time: look for a rank that is stuck; VLLM_ENGINE_READY_TIMEOUT_S gives a slow "
        "start longer.",
        weight=2.5,
    ),
    rule(
        r"Bfloat16 is only supported on GPUs",
        "kernel_unsupported",
        "This GPU has no bfloat16: add --dtype half.",
    ),
    rule(
        r"engine core exited unexpectedly|Worker proc (\S+) died unexpectedly|[Ww]orker .{0,200}(?:died"
        r"|exited unexpectedly)",
        "other:engine_process_died",
        "Something killed the engine process: look in dmesg for the OOM killer and Xid errors; restart the server.",
        weight=0.7,
    ),
)
"""Patterns in the text of an error, the more telling first; they go before the common ones."""
