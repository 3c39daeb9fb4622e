"""The last lines of exceptions that people met, and the cause that each speaks for, in both engines' dress."""

from __future__ import annotations

import pytest

from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

EARLY, LOADING, CAPTURING, SERVING = "early", "loading", "capturing", "serving"

CASES = [
    (
        EARLY,
        "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        "other:model_not_supported",
    ),
    (EARLY, "ValueError: Unsupported architectures: Foo. Supported list: ['Bar']", "other:model_not_supported"),
    (EARLY, "ValueError: GGUF model with architecture foo is not supported yet.", "other:model_not_supported"),
    (EARLY, "ValueError: Tokenizer class FooTokenizer does not exist or is not imported.", "other:model_not_supported"),
    (LOADING, "AttributeError: 'FooConfig' object has no attribute 'moe_size'", "scheduler_exception"),
    (LOADING, "KeyError: 'model.layers.3.mlp.experts.w2_weight'", "scheduler_exception"),
    (LOADING, "RuntimeError: start (0) + length (5) exceeds dimension size (3).", "scheduler_exception"),
    (LOADING, "ValueError: Following weights were not initialized from checkpoint: {'x'}", "scheduler_exception"),
    (
        LOADING,
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "other:model_files_broken",
    ),
    (LOADING, "AssertionError: num_kv_heads=2 must be divisible by tp_size=3", "argument_conflict"),
    (
        LOADING,
        "ValueError: Weight output_partition_size = 1088 is not divisible by block_n = 128.",
        "argument_conflict",
    ),
    (EARLY, "ValueError: torch.bfloat16 is not supported for quantization method awq.", "argument_conflict"),
    (
        EARLY,
        "ValueError: Quantization method in the config (awq) does not match the argument (gptq).",
        "argument_conflict",
    ),
    (EARLY, "AssertionError: Please enable dp attention when setting enable_dp_lm_head.", "argument_conflict"),
    (EARLY, "AssertionError: compatibility of overlap and speculative is not guaranteed", "argument_conflict"),
    (EARLY, "AssertionError: HybridBackend does not support speculative decoding.", "argument_conflict"),
    (EARLY, "AssertionError: schedule_conservativeness must be non-negative", "bad_argument"),
    (EARLY, "ValueError: Unknown RoPE scaling type longrope", "bad_argument"),
    (EARLY, "ValueError: Attention backend not supported: foo", "bad_argument"),
    (EARLY, "TypeError: ServerArgs.__init__() got an unexpected keyword argument 'foo'", "bad_argument"),
    (EARLY, "json.decoder.JSONDecodeError: Expecting value: line 1 column 2 (char 1)", "bad_argument"),
    (EARLY, "ValueError: The quantization method fp8 is not supported for the current GPU.", "kernel_unsupported"),
    (EARLY, "NotImplementedError: MLA is not supported for this device", "kernel_unsupported"),
    (EARLY, "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "kernel_unsupported"),
    (EARLY, "AssertionError: FlashMLA is only supported on Hopper", "kernel_unsupported"),
    (CAPTURING, "RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "kernel_unsupported"),
    (
        CAPTURING,
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 9",
        "kernel_unsupported",
    ),
    (
        CAPTURING,
        "NotImplementedError: Could not run 'k::f' with arguments from the 'CUDA' backend.",
        "kernel_unsupported",
    ),
    (CAPTURING, "RuntimeError: Failed to find C compiler. Please specify via CC.", "other:kernel_build_failed"),
    (CAPTURING, "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "other:kernel_build_failed"),
    (
        CAPTURING,
        "subprocess.CalledProcessError: Command '['ninja']' returned non-zero exit status 1.",
        "other:kernel_build_failed",
    ),
    (CAPTURING, "RuntimeError: CUDA error: operation not permitted when stream is capturing", "scheduler_exception"),
    (CAPTURING, "Exception: Capture CUDA graph failed: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda_oom"),
    (LOADING, "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "import_error"),
    (EARLY, "RuntimeError: Failed to import transformers.models.foo because of the following error", "import_error"),
    (EARLY, "importlib.metadata.PackageNotFoundError: No package metadata was found for foo", "import_error"),
    (EARLY, "OSError: org/m does not appear to have a file named config.json.", "model_not_found"),
    (EARLY, "OSError: You are trying to access a gated repo.", "model_not_found"),
    (EARLY, "FileNotFoundError: [Errno 2] No such file or directory: '/m/config.json'", "model_not_found"),
    (EARLY, "ValueError: No tokenizer file found in directory: /m", "model_not_found"),
    (EARLY, "OSError: We couldn't connect to 'https://hub' to load this file", "download_failed"),
    (
        EARLY,
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach the hub: offline mode is enabled.",
        "download_failed",
    ),
    (LOADING, "OSError: Consistency check failed: file should be of size 9 but has size 1 (x).", "download_failed"),
    (LOADING, "httpx.ConnectError: [Errno -3] Temporary failure in name resolution", "download_failed"),
    (LOADING, "huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out", "download_failed"),
    (LOADING, "RuntimeError: unable to write to file </torch_x>: No space left on device (28)", "disk_full"),
    (EARLY, "OSError: [Errno 122] Disk quota exceeded", "disk_full"),
    (EARLY, "zmq.error.ZMQError: Address already in use (addr='tcp://*:5557')", "port_in_use"),
    (EARLY, "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients.", "nccl"),
    (EARLY, "RuntimeError: [3] is setting up NCCL communicator, got error: Connection reset by peer", "nccl"),
    (LOADING, "RuntimeError: NCCL Error 1: unhandled cuda error", "nccl"),
    (SERVING, "RuntimeError: CUDA error: unspecified launch failure", "illegal_memory_access"),
    (SERVING, "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", "illegal_memory_access"),
    (SERVING, "RuntimeError: HIP error: an illegal memory access was encountered", "illegal_memory_access"),
    (SERVING, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "cuda_oom"),
    (SERVING, "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.", "cuda_oom"),
    (SERVING, "RuntimeError: CUDA error: device-side assert triggered", "other:cuda_device_assert"),
    (SERVING, "RuntimeError: CUDA error: uncorrectable ECC error encountered", "other:gpu_unavailable"),
    (EARLY, "RuntimeError: No CUDA GPUs are available", "other:gpu_unavailable"),
    (EARLY, "RuntimeError: CUDA error: invalid device ordinal", "other:gpu_unavailable"),
    (
        LOADING,
        "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
        "host_oom_killed",
    ),
    (LOADING, "MemoryError", "host_oom_killed"),
    (EARLY, "OSError: [Errno 24] Too many open files", "other:too_many_open_files"),
    (SERVING, "IndexError: list index out of range", "scheduler_exception"),
]

SGLANG_BEFORE = {
    EARLY: "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='a')\n",
    LOADING: "[2026-05-01 10:00:00 TP0] Load weight begin. avail mem=1 GB\n",
    CAPTURING: "[2026-05-01 10:00:00 TP0] Capture cuda graph begin.\n",
    SERVING: "The server is fired up and ready to roll!\n",
}
VLLM = "(EngineCore_DP0 pid=1) {} 05-01 10:00:00 [core.py:1] {}\n"
VLLM_BEFORE = {
    EARLY: VLLM.format("INFO", "Initializing a V1 LLM engine (v0.14.1) with config: x"),
    LOADING: VLLM.format("INFO", "Starting to load model a..."),
    CAPTURING: VLLM.format("INFO", "GPU KV cache size: 1 tokens"),
    SERVING: "INFO:     Application startup complete.\n",
}


@pytest.mark.parametrize(("when", "line", "cause"), CASES)
def test_an_exception_of_sglang_speaks_for_its_cause(when, line, cause):
    reader = SglangReader()
    head = "[2026-05-01 10:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    end = "\n[2026-05-01 10:00:02] Received sigquit from a child process. It usually means the child failed.\n"
    frames = '  File "/opt/sglang/srt/a.py", line 1, in f\n    g()\n'
    reader.feed((SGLANG_BEFORE[when] + head + frames + line + end).encode())
    diagnosis = reader.diagnosis()
    assert (diagnosis.cause, diagnosis.decisive_line) == (cause, line)


@pytest.mark.parametrize(("when", "line", "cause"), CASES)
def test_an_exception_of_vllm_speaks_for_its_cause(when, line, cause):
    reader = VllmReader()
    told = [
        "EngineCore hit an exception.",
        "Traceback (most recent call last):",
        '  File "/opt/vllm/a.py", line 1, in f',
        line,
    ]
    end = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    reader.feed((VLLM_BEFORE[when] + "".join(VLLM.format("ERROR", text) for text in told) + end).encode())
    diagnosis = reader.diagnosis()
    assert (diagnosis.cause, diagnosis.decisive_line) == (cause, VLLM.format("ERROR", line).rstrip("\n"))


@pytest.mark.parametrize(("when", "line", "cause"), [case for case in CASES if case[0] != SERVING])
def test_without_a_word_of_a_process_that_ended_the_start_failed_by_it(when, line, cause):
    reader = SglangReader()
    reader.feed(
        (SGLANG_BEFORE[when] + 'Traceback (most recent call last):\n  File "/opt/a.py", line 1, in f\n' + line).encode()
    )
    diagnosis = reader.diagnosis()
    assert (diagnosis.is_crashed, diagnosis.cause, diagnosis.decisive_line) == (True, cause, line)


@pytest.mark.parametrize("line", [case[1] for case in CASES if case[2] in {"scheduler_exception", "model_not_found"}])
def test_the_same_while_serving_is_one_requests_affair(line):
    reader = SglangReader()
    reader.feed(
        (SGLANG_BEFORE[SERVING] + 'Traceback (most recent call last):\n  File "/opt/a.py", line 1\n' + line).encode()
    )
    assert reader.diagnosis().is_ready
