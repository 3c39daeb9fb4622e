"""The simulated server's flags, by the version that it pretends to be."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

Version = tuple[int, ...]

# Names as SGLang's own parser has them; what the simulation gives a meaning is declared in `parser`.
_SWITCHES = """
abort-on-priority-when-disabled allow-auto-truncate constrained-json-disable-any-whitespace
delete-ckpt-after-loading disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding
disable-custom-all-reduce disable-fast-image-processor disable-flashinfer-autotune disable-hybrid-swa-memory
disable-outlines-disk-cache disable-priority-preemption disable-shared-experts-fusion
disable-tokenizer-batch-decode enable-cache-report enable-cudagraph-gc enable-custom-logit-processor
enable-deterministic-inference enable-dp-attention enable-dp-lm-head enable-dynamic-batch-tokenizer enable-eplb
enable-fp32-lm-head enable-hierarchical-cache enable-layerwise-nvtx-marker enable-lmcache enable-memory-saver
enable-metrics-for-all-schedulers enable-mixed-chunk enable-mscclpp enable-multi-layer-eagle enable-nccl-nvls
enable-p2p-check enable-pdmux enable-priority-scheduling enable-profile-cuda-graph
enable-request-time-stats-logging enable-return-hidden-states enable-return-routed-experts
enable-single-batch-overlap enable-ssl-refresh enable-symm-mem enable-tokenizer-batch-encode
enable-torch-compile enable-torch-symm-mem enable-trace enable-two-batch-overlap enable-weights-cpu-backup
encoder-only export-metrics-to-file flashinfer-mla-disable-ragged grpc-mode is-embedding language-only
log-requests quantize-and-serve schedule-low-priority-values-first show-time-cost skip-tokenizer-init
sleep-on-idle triton-attention-reduce-in-fp32 trust-remote-code weight-loader-disable-mmap
"""

_VALUED = """
admin-api-key base-gpu-id chat-template completion-template constrained-json-whitespace-pattern
cpu-offload-gb cuda-graph-bs data-parallel-size dp-size debug-tensor-dump-output-folder
decode-attention-backend deepep-config deepep-mode device disaggregation-bootstrap-port
disaggregation-ib-device disaggregation-mode disaggregation-transfer-backend dist-init-addr dist-timeout
download-dir dtype ep-num-redundant-experts ep-size expert-parallel-size eplb-algorithm
file-storage-path fp8-gemm-backend gpu-id-step grammar-backend hicache-io-backend hicache-mem-layout
hicache-ratio hicache-size hicache-storage-backend hicache-write-policy init-expert-location
json-model-override-args kv-cache-dtype kv-events-config linear-attn-backend load-balance-method load-format
log-level-http log-requests-level lora-backend lora-paths mamba-track-interval max-lora-rank
max-loras-per-batch max-prefill-tokens max-queued-requests mm-attention-backend model-impl
model-loader-extra-config moe-a2a-backend moe-dense-tp-size moe-runner-backend nccl-port nnodes node-rank
num-continuous-decode-steps numa-node otlp-traces-endpoint page-size pipeline-parallel-size pp-size
preferred-sampling-params prefill-attention-backend quantization quantization-param-path
radix-eviction-policy random-seed reasoning-parser revision sampling-backend sampling-defaults
schedule-conservativeness schedule-policy scheduler-recv-interval soft-watchdog-timeout
speculative-accept-threshold-acc speculative-accept-threshold-single speculative-algorithm
speculative-attention-mode speculative-draft-model-path speculative-eagle-topk
speculative-num-draft-tokens speculative-num-steps speculative-token-map ssl-certfile ssl-keyfile
stream-interval swa-full-tokens-ratio tbo-token-distribution-threshold tokenizer-metrics-custom-labels-header
tokenizer-mode tokenizer-path tokenizer-worker-num tool-call-parser torch-compile-max-bs
triton-attention-num-kv-splits uvicorn-access-log-exclude-prefixes warmups weight-version
"""

ATTENTION = ("triton", "torch_native", "flex_attention", "fa3", "fa4", "flashinfer", "flashmla", "trtllm_mha")


def version_of(text: str) -> Version:
    """The leading numbers of a version: (0, 5, 13) of 0.5.13.post1."""
    parts: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts) or (0, 5, 13)


class Parser(argparse.ArgumentParser):
    """Argparse under the name that the real program shows."""

    def __init__(self) -> None:
        super().__init__(prog="launch_server.py", description="Simulated SGLang server.")

    def error(self, message: str) -> NoReturn:
        """As argparse: usage, the message, status 2; the usage cut short, as there are hundreds of flags."""
        self.exit(2, f"usage: {self.prog} [-h] --model-path MODEL_PATH [options]\n{self.prog}: error: {message}\n")


def parser(version: Version) -> Parser:
    """The parser of a version."""
    made = Parser()
    for name in _SWITCHES.split():
        made.add_argument(f"--{name}", action="store_true")
    for name in _VALUED.split():
        made.add_argument(f"--{name}", nargs="+" if name.endswith(("-prefixes", "-paths", "-bs")) else None)
    _add_meaningful(made)
    _add_sizes(made)
    _add_mamba(made, version)
    graphs = "--cuda-graph-max-bs" if version < (0, 5, 20) else "--cuda-graph-max-bs-decode"
    made.add_argument(graphs, type=int, dest="cuda_graph_max_bs")
    if version >= (0, 5, 14) and graphs == "--cuda-graph-max-bs":
        made.add_argument("--cuda-graph-max-bs-decode", type=int, dest="cuda_graph_max_bs")
    return made


def _add_meaningful(made: Parser) -> None:
    made.add_argument("--model-path", "--model", required=True)
    made.add_argument("--served-model-name")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=30000)
    made.add_argument("--api-key")
    made.add_argument("--attention-backend", choices=ATTENTION, default="flashinfer")
    made.add_argument("--log-level", default="info")
    for switch in ("enable-metrics", "disable-overlap-schedule", "disable-radix-cache", "skip-server-warmup"):
        made.add_argument(f"--{switch}", action="store_true")


def _add_sizes(made: Parser) -> None:
    made.add_argument("--mem-fraction-static", type=float, default=0.85)
    made.add_argument("--max-running-requests", type=int)
    made.add_argument("--max-total-tokens", type=int)
    made.add_argument("--chunked-prefill-size", type=int, default=8192)
    made.add_argument("--context-length", type=int)
    made.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1, dest="tp_size")
    made.add_argument("--decode-log-interval", type=int, default=40)
    made.add_argument("--watchdog-timeout", type=float, default=300)


def _add_mamba(made: Parser, version: Version) -> None:
    made.add_argument("--max-mamba-cache-size", type=int)
    made.add_argument("--mamba-full-memory-ratio", type=float, default=0.9)
    made.add_argument("--mamba-ssm-dtype", choices=("float32", "bfloat16", "float16"))
    names = strategy_flags(version)
    if names:
        choices = ["auto", "no_buffer", "extra_buffer", *(["extra_buffer_lazy"] if version >= (0, 5, 13) else [])]
        made.add_argument(*names, choices=choices, default="auto", dest="mamba_strategy")


def strategy_flags(version: Version) -> tuple[str, ...]:
    """What the flag of the Mamba strategy is called in a version, the deprecated name last."""
    old, new = "--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"
    if version < (0, 5, 8):
        return ()
    if version < (0, 5, 14):
        return (old,)
    return (new, old) if version < (0, 5, 20) else (new,)


def known_flags(version: Version) -> tuple[str, ...]:
    """Every flag of a version, sorted; where values are checked, with ``--flag=int``, ``=float`` or ``=a|b`` too."""
    # The option strings have no public accessor.
    actions = parser(version)._option_string_actions  # noqa: SLF001 - as said
    shown = {name + takes for name, action in actions.items() for takes in ("", _takes(action))}
    return tuple(sorted(one for one in shown if one.startswith("--")))


def _takes(action: argparse.Action) -> str:
    if action.choices is not None:
        return "=" + "|".join(str(one) for one in action.choices)
    return {int: "=int", float: "=float"}.get(action.type, "") if isinstance(action.type, type) else ""


def uses_deprecated_strategy(argv: Sequence[str], version: Version) -> bool:
    """Whether the old name of the strategy flag was used where it is only an alias."""
    names = strategy_flags(version)
    return len(names) == 2 and any(word.split("=")[0] == names[1] for word in argv)
