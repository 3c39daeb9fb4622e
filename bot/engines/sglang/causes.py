"""What SGLang's own messages mean when it died (facts by version stand in docs/reading-logs.md)."""

from __future__ import annotations

import re

from bot.engines._reading.causes import Rule, rule

_RENAMED = (
    ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy", "0.5.20"),
    ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode", "0.5.20"),
)
_FRACTION = "First see who else holds GPU memory; then raise --mem-fraction-static, or use fewer requests or more GPUs."
_LOWER = "Lower --mem-fraction-static and --cuda-graph-max-bs, so that the graphs find room."

FATAL = re.compile(
    r"^\w+ hit an exception|[Rr]eceived sigquit|SIGQUIT received|scheduler (?:is dead|died)|^Exit code: -?\d+"
    r"|Subprocess \S+ .{0,40}crashed with exit code|Initialization failed\."
    r"|(?i:watchdog timeout \((?!.{0,200}soft=True))"
    r"|^Process (?:sglang::|Spawn|Process-|Fork)[\w:.-]*:|(?:Scheduler|DataParallelController)\b.{0,40}terminated with"
    r"|Exception in (?:ModelTpServer|ModelRpc\w*|run_tp_server|Controller\w*|T[pP]\w*Worker\w*)"
    r"|TokenizerManager .{0,200}crashed|pool memory leak detected|^\S+ memory leak detected!"
)
"""Lines that one of SGLang's processes writes when it, or another one, ends."""

ERRORS: tuple[Rule, ...] = (
    *(
        rule(
            rf"unrecognized arguments:.{{0,200}}{old}(?![\w-])",
            "bad_argument",
            f"{old} is gone since {since}: write {new} instead.",
        )
        for old, new, since in _RENAMED
    ),
    rule(
        r"unrecognized arguments: (--[\w-]+)",
        "bad_argument",
        r"This version does not know \1: it was renamed, removed or belongs to another engine (see --help).",
    ),
    rule(
        r"no_buffer do(?:es)? not support overlap schedule",
        "argument_conflict",
        "Add --disable-overlap-schedule to no_buffer, or use --mamba-radix-cache-strategy extra_buffer.",
    ),
    rule(
        r"Speculative decoding for \S+ is not compatible with radix cache when using "
        r"--mamba-scheduler-strategy no_buffer",
        "argument_conflict",
        "Use --mamba-scheduler-strategy extra_buffer with SGLANG_ENABLE_SPEC_V2=1, or add --disable-radix-cache.",
    ),
    rule(
        r"extra_buffer is not compatible with --disable-radix-cache",
        "argument_conflict",
        "Use no_buffer with --disable-radix-cache, or leave the radix cache on.",
    ),
    rule(
        r"extra_buffer is (?:not supported for|only supported)",
        "argument_conflict",
        "Use the no_buffer strategy: extra_buffer is not for this model, platform or backend.",
    ),
    rule(
        r"mamba_track_interval|validate_mamba_extra_buffer",
        "argument_conflict",
        "Make --mamba-track-interval a multiple of the page size and no less than the draft tokens.",
    ),
    rule(
        r"FlashInfer GDN decode .{0,200}not compatible",
        "argument_conflict",
        "Use the extra_buffer strategy, or the Triton decode backend for linear attention.",
    ),
    rule(
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache"
        r"|Not enough GPU memory for hybrid|state cache is too small to serve any requests"
        r"|[Nn]ot enough memory for (?:the )?(?:KV|kv|mamba)|increase (?:the )?--mem-fraction-static"
        r"|max_total_num_tokens .{0,200}(?:<=|less than|too small)|mem_fraction_static.{0,200}too (?:small|low)",
        "memory_fraction_too_low",
        _FRACTION,
    ),
    rule(
        r"(?i)mem[_-]fraction[_-]static.{0,200}too (?:large|high|big)|(?:lower|reduce"
        r"|decrease) (?:the )?--mem-fraction-static",
        "memory_fraction_too_high",
        _LOWER,
    ),
    rule(
        r"memory capacity is unbalanced|Some GPUs may be occupied",
        "other:gpu_occupied",
        "Another process holds memory on one of the GPUs: find it by nvidia-smi and end it, then start again.",
    ),
    rule(
        r"(?i)watchdog timeout \(",
        "watchdog_timeout",
        "A forward pass hung: look at the stack dump, NCCL and Xid errors; raise --watchdog-timeout only for "
        "first-run JIT.",
    ),
    rule(
        r"Not enough space for mamba|Can not alloc mamba",
        "scheduler_exception",
        "The Mamba slots ran out: lower --max-running-requests or raise --max-mamba-cache-size by one or more.",
    ),
    rule(
        r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
        "cuda_oom",
        "The KV pool ran out: lower --max-running-requests, or raise --schedule-conservativeness.",
    ),
    rule(
        r"res=<Response \[(\d+)\]>",
        "scheduler_exception",
        r"Its warm-up request got \1: a proxy or another server answered on that port (set no_proxy=127.0.0.1).",
    ),
    rule(
        r"memory leak detected",
        "scheduler_exception",
        "Restart and upgrade; SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE=0 makes this check a warning.",
    ),
    rule(
        r"think_end_token|reasoning[_-]parser|tool[_-]call[_-]parser",
        "argument_conflict",
        "Choose a reasoning and tool parser that fit this model's tokenizer, or leave them out.",
        weight=2.5,
    ),
)
"""Patterns in the text of an error, the more telling first; they go before the common ones."""
