"""What a start can be made to die of: in which part, with which text."""

from __future__ import annotations

from dataclasses import dataclass

from bot.demo.engine import lines
from bot.demo.engine.sizes import WEIGHTS_MIB
from bot.demo.engine.startup import Part

_SCHEDULER = 'File "sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process\n    scheduler = Scheduler('
_RUNNER = 'File "sglang/srt/model_executor/model_runner.py", line 451, in initialize\n    '
_MODEL = 'File "sglang/srt/model_loader/loader.py", line 689, in load_model\n    model = _initialize_model('

GRAPH_ADVICE = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose """


@dataclass(frozen=True, slots=True)
class Failure:
    """One way to die: where in the start, what is logged, and the scheduler's exit code when it dies silently.

    ``after`` is how many records of that part are still printed.
    """

    part: Part
    after: int
    error: str
    where: str = ""
    exit_code: int | None = None


def traceback_of(failure: Failure) -> str:
    """The scheduler's last words."""
    where = f"  {_SCHEDULER}\n  {failure.where}\n" if failure.where else f"  {_SCHEDULER}\n"
    return f"Scheduler hit an exception: Traceback (most recent call last):\n{where}{failure.error}\n"


def died(exit_code: int) -> str:
    """What the main process says of a scheduler that vanished."""
    reason = " This is likely an out-of-memory kill by the operating system (SIGKILL)." if exit_code == -9 else ""
    return f"RuntimeError: Rank 0 scheduler died during initialization (exit code: {exit_code}).{reason}"


FAILURES = {
    "oom": Failure("weights", 1, lines.out_of_memory(0, WEIGHTS_MIB // 64, ()), _MODEL),
    "bad-kernel": Failure(
        "graphs",
        3,
        "Exception: Capture cuda graph failed: CUDA error: no kernel image is available for execution on the device\n"
        + GRAPH_ADVICE,
        _RUNNER + "self.init_device_graphs()",
    ),
    "nccl": Failure(
        "group",
        1,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
        _RUNNER + "min_per_gpu_memory = self.init_torch_distributed()",
    ),
    "killed": Failure("weights", 9, "", exit_code=-9),
    "assertion": Failure(
        "pools",
        1,
        "AssertionError: mamba_track_interval must be divisible by page_size",
        _RUNNER + "self.validate_mamba_extra_buffer()",
    ),
}
"""By the name that the fault panel uses."""
