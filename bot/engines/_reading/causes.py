"""What messages of Python, torch, CUDA and Linux mean for a server that died, whichever engine wrote them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.engines._reading.verdict import NAMED, PROVEN, SYMPTOM


@dataclass(frozen=True, slots=True)
class Rule:
    r"""A pattern in an error's text, what it means and what to do; the remedy may quote groups (``\1``)."""

    pattern: re.Pattern[str]
    cause: str
    remedy: str
    weight: float = NAMED


def rule(pattern: str, cause: str, remedy: str, weight: float = NAMED) -> Rule:
    """A rule, compiled."""
    return Rule(re.compile(pattern), cause, remedy, weight)


_HOST = "Look for the OOM killer in dmesg, then give the host or the container more memory or load with fewer threads."

ERRORS: tuple[Rule, ...] = (
    rule(
        r"(?i)address already in use|EADDRINUSE|\[?Errno (?:98|48)\b|errno: 98\b|port \d+ is (?:already )?in use"
        r"|port is already in use|at \d+ is not available|is used by a process already|port is already allocated"
        r"|(?:DistNetworkError|failed to bind).{0,200}(?:listen|port)",
        "port_in_use",
        "Find what listens on that port (ss -ltnp) and stop it, or start this server on another port.",
    ),
    rule(
        r"(?i)no space left on device|Errno 28\b|disk quota exceeded|Errno 122\b|not enough (?:free )?disk space",
        "disk_full",
        "Free space where it writes: the model cache, the compile caches in ~/.cache, /tmp or /dev/shm.",
    ),
    rule(
        r"(?i)device-side assert|Assertion `.{0,200}` failed",
        "other:cuda_device_assert",
        "Restart it; if it comes back, run once with CUDA_LAUNCH_BLOCKING=1 to see the kernel.",
    ),
    rule(
        r"does not recognize this architecture|Unrecognized (?:model|configuration class)"
        r"|[Uu]nsupported (?:model )?archit"
        r"|Model architectures? .{0,200} (?:are|is) not supported|has no (?:SGLang|vLLM) implementation"
        r"|[Nn]o module or parameter named|Cannot find model module|failed to be inspected"
        r"|model with architecture \S+ is not"
        r"|Tokenizer class \S+ does not exist",
        "other:model_not_supported",
        "This version does not know the model's architecture: upgrade the engine (and transformers) or take "
        "another model.",
    ),
    rule(
        r"(?i)no kernel image is available|cudaErrorNoKernelImageForDevice|device kernel image is invalid"
        r"|sm_?\d+\w* (?:is|are) not (?:supported|compatible)|not compatible with the current PyTorch installation"
        r"|unsupported (?:gpu|toolchain)|driver on your system is too old|supported (?:on|for|by) (?:this"
        r"|the current) (?:device|GPU|hardware|platform|card)|compiled with an unsupported toolchain"
        r"|driver version is insufficient"
        r"|not supported (?:on|for|by) .{0,60}(?:\bSM ?_?\d|compute capability|\bGPU|\barch)|not compiled with"
        r"|(?:requires|only supported|supported only|only supports|only available|need).{0,80}"
        r"(?:compute capability|\bSM ?_?\d+|\bSM ?[><=]|Hopper|Blackwell|Ampere|gfx\d|\bCUDA \d|\bsm_?\d\d)"
        r"|out of resource: |no valid kernel|invalid device function|hipErrorNoBinaryForGpu|Unknown CUDA arch"
        r"|Could not find .{0,200}kernel|Failed to find a kernel|kernel .{0,200}not (?:supported|implemented)"
        r"|(?:SM|compute capability) ?_?\d[\d.]* (?:is )?not supported|FP8.{0,200}not supported|nvcc fatal|ptxas fatal"
        r"|CUBLAS_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH)|Could not run '.{0,200}' with arguments from the"
        r"|no suitable .{0,200}kernel|Value 'sm_\w+' is not defined|marlin.{0,200}not supported|Torch not compiled",
        "kernel_unsupported",
        "Install the build made for this GPU (kernels, CUDA or ROCm), or choose another backend by its flag.",
    ),
    rule(
        r"(?i)illegal memory access|misaligned address|unspecified launch failure|illegal instruction was"
        r"|CUBLAS_STATUS_(?!ALLOC_FAILED|NOT_SUPPORTED)\w+|cudaErrorIllegalAddress|Memory access fault by GPU"
        r"|HSA_STATUS_ERROR_(?:MEMORY|EXCEPTION|ILLEGAL)|aicore (?:exception|error)|error code:? ?507015"
        r"|hipErrorIllegalAddress|CUDNN_STATUS_EXECUTION_FAILED|MTE DDR address out of range"
        r"|an invalid memory access|Xid.{0,200}: 31\b|page fault",
        "illegal_memory_access",
        "Restart it; look for Xid errors in dmesg, and if it comes back try another attention backend.",
    ),
    rule(
        r"OutOfMemoryError: Task was killed due to the node running low|\bOOMKilled\b|oom-kill"
        r"|(?i:std::bad_alloc|Cannot allocate memory|can't allocate memory: you tried|DefaultCPUAllocator"
        r"|not enough memory: you tried)",
        "host_oom_killed",
        _HOST,
    ),
    rule(
        r"(?i)(?:CUDA|HIP|NPU|XPU|MUSA|MLU|GPU|HBM|hip|device)[\w ]{0,40} out of memory|OutOfMemoryError"
        r"|CUDA error: out of memory|Cuda failure.{0,200}out of memory|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED|ERR02200|failed to allocate .{0,200}(?:device|gpu) memory"
        r"|graph failed:.{0,200}out of memory|cudaMalloc failed|HSA_STATUS_ERROR_OUT_OF_RES|UR_RESULT_ERROR_OUT_OF",
        "cuda_oom",
        "{oom}",
    ),
    rule(
        r"(?i)\bNCCL (?:error|failure)|setting up NCCL communicator|nccl(?:UnhandledCuda|System|Internal"
        r"|InvalidUsage|InvalidArgument)\w*"
        r"|ProcessGroup(?:NCCL|HCCL).{0,200}(?:timeout|timed out|terminated|exception|caught)"
        r"|collective operation timeout|\bHCCL\b.{0,200}(?:error|fail|timeout)|\bRCCL\b.{0,200}(?:error|fail)"
        r"|ERR02\d{3} DIST"
        r"|(?:HcclAllreduce|HcclCommInit\w*|hcclComm\w*).{0,80}(?:error|fail)|EI\d{4}"
        r"|gloo.{0,200}(?:connect|timed? ?out|closed)|Timed out after \d+ seconds waiting for clients"
        r"|client socket has timed out|NVSHMEM.{0,200}(?:fail|error|abort)|cuda error in nvshmem"
        r"|nvshmem\w* init.{0,200}fail",
        "nccl",
        "Check that all ranks are alive and reach each other (NCCL_DEBUG=INFO, /dev/shm size, IB and P2P "
        "settings, Xid).",
    ),
    rule(
        r"(?i)fallen off the bus|Xid.{0,200}: 79\b|uncorrectable (?:NVLink|ECC)|GPU is lost"
        r"|Unable to determine the device handle"
        r"|CUDA error: (?:unknown error|uncorrectable|hardware)|No CUDA GPUs are available"
        r"|could not select device driver|nvidia-container-cli|CUDA unknown error"
        r"|Found no NVIDIA driver|cudaErrorSystemDriverMismatch|CUDA driver initialization failed"
        r"|no ROCm-capable device"
        r"|Can not find any (?:device|npu)|Failed to infer device type|cudaGetDeviceCount|invalid device ordinal",
        "other:gpu_unavailable",
        "Look at the GPU itself: nvidia-smi, Xid errors in dmesg, CUDA_VISIBLE_DEVICES and the container's devices.",
    ),
    rule(
        r"[Nn]inja build failed|returned non-zero exit status|Failed to find C compiler|CUDA_HOME|Could not find nvcc"
        r"|No such file or directory: '[^']*(?:ninja|nvcc|gcc|g\\+\\+|cc|ptxas|ldconfig)'|Error compiling objects"
        r"|Error building extension|InductorError|BackendCompilerFailed",
        "other:kernel_build_failed",
        "A kernel could not be built here: install the CUDA toolkit, ninja and a C compiler, or take the "
        "prebuilt kernels.",
    ),
    rule(
        r"unrecognized arguments|invalid choice:|expected (?:one|at least one|\d+) argument"
        r"|the following arguments are "
        r"required|error: argument |invalid \w+ value:|ambiguous option|No such option|not allowed with argument"
        r"|Got unexpected extra argument|got an unexpected keyword argument '(?:model|tp|port)",
        "bad_argument",
        "Take that flag out or give it a value that this version knows (--help lists them).",
    ),
    rule(
        r"trust_remote_code|trust-remote-code",
        "argument_conflict",
        "This model brings its own code: add --trust-remote-code if you trust it.",
    ),
    rule(
        r"is not a local folder|Repo id must be|Repository Not Found|RepositoryNotFoundError"
        r"|Cannot find any model weights"
        r"|(?:is|are) not (?:a )?(?:valid )?(?:model identifier|Hub)|does not appear to have (?:a )?files? named"
        r"|gated repo|GatedRepo|Access to model .{0,200} is restricted|Invalid repository ID|Entry Not Found"
        r"|(?:401|403|404) Client Error|Can't (?:load|find) (?:the )?(?:config|tokenizer|model|a vocab|feature"
        r"|image|proc)"
        r"|Cannot find .{0,200}(?:config|tokenizer|weights|safetensors)"
        r"|No such file or directory: .{0,200}(?:config|model|token|"
        r"weights|safetensors|\.json|snapshots|/mnt|/data|hub)|(?:model"
        r"|tokenizer)[ _-]?path .{0,200}(?:not exist|not found)"
        r"|RevisionNotFound|Error no file named|No files? (?:found|matching).{0,200}(?:safetensors|weights|bin)"
        r"|HFValidationError"
        r"|Couldn't instantiate the backend tokenizer|The model .{0,200} does not exist|No model weights found"
        r"|No tokenizer (?:file )?found",
        "model_not_found",
        "Check the model's name or path, that the folder is mounted and whole, and that HF_TOKEN may read the "
        "repository.",
    ),
    rule(
        r"(?i)couldn't connect to|LocalEntryNotFound|(?:Max retries exceeded|NewConnectionError|ConnectionError"
        r"|MaxRetry"
        r"|ConnectTimeout|ReadTimeout|Read timed out|timed out)(?!.{0,200}(?:localhost|127\.0\.0\.1"
        r"|0\.0\.0\.0)).{0,200}"
        r"(?:https?|hugg|hf|model|hub|pool|Failed to (?:establish|resolve)|timed out|Connection)"
        r"|name or service not known|temporary failure in name resolution|failed to resolve|network is unreachable"
        r"|(?:429|50\d) (?:Client|Server) Error|Consistency check failed|OfflineModeIsEnabled|cannot find the requested"
        r" files in the (?:disk|local) cache|outgoing traffic has been disabled|CERTIFICATE_VERIFY_FAILED"
        r"|ChunkedEncoding|IncompleteRead|IncompleteBody|hf_transfer|xet.{0,200}(?:error|fail)|Error while downloading"
        r"|An error happened while trying to locate the file|Data processing error: CAS",
        "download_failed",
        "Check the way to the model hub (DNS, proxy, HF_ENDPOINT), or download the model first and give its "
        "local path.",
    ),
    rule(
        r"SafetensorError|(?i:invalid header or archive|incomplete metadata|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|corrupt(?:ed)? .{0,200}(?:file|weights|checkpoint)|unexpected end of (?:file|data)"
        r"|PytorchStreamReader failed)",
        "other:model_files_broken",
        "A weight file is cut short or damaged: delete it and download the model again.",
    ),
    rule(
        r"No module named|cannot import name|Failed to import|undefined symbol|cannot open shared object"
        r"|version `?GLIBC"
        r"|Please (?:un|re)?install|is not installed|DLL load failed|is required to use|pip install"
        r"|[Vv]ersion mismatch|requires .{0,200}version|incompatible.{0,200}version|libcu\w+\.so",
        "import_error",
        "Install the package that it names, in the version that this engine wants (a fresh environment is the "
        "sure way).",
    ),
    rule(
        r"(?i)too many open files|Errno 24\b",
        "other:too_many_open_files",
        "Raise the limit of open files (ulimit -n, LimitNOFILE) of the service.",
    ),
    rule(
        r"(?i)permission denied|Errno 13\b|read-only file system|Errno 30\b",
        "other:permission_denied",
        "Give the user of the service access to what it names.",
    ),
    rule(
        r"(?i)failed to extend /dev/shm|unable to (?:open|allocate|mmap) shared memory|Bus error.{0,200}shm"
        r"|insufficient shared",
        "other:shared_memory_too_small",
        "Give the container a larger /dev/shm (--shm-size 32g or --ipc host).",
    ),
)
"""Patterns in the text of an error, the more telling first."""

CONFLICT = re.compile(
    r"(?i)not (?:compatible|supported (?:with|when|for|together|in|by|yet)|allowed (?:with|when)|divisible)"
    r"|incompatible"
    r"|cannot be (?:used|enabled|set|combined|specified)|can't be (?:used|enabled|set|combined)|mutually exclusive"
    r"|conflict|do(?:es)? not support|doesn't support|don't support|only supports?\b|is only supported"
    r"|must be (?:disabled|"
    r"enabled|used|divisible|set)|requires?\b|cannot both|only (?:one|works) |not work with|together with"
    r"|is not guaranteed|should be "
    r"(?:divisible|disabled|used)|exceeds?|does not match the|(?:smaller|less|greater|larger) than|please (?:use"
    r"|set|disable|enable|add|specify)"
)
"""How an engine says that its flags do not go together."""

VALUE = re.compile(
    r"(?i)User-specified|greater than the derived|invalid value|unknown (?:[\w-]+ ){0,3}(?:type|backend|method|parser"
    r"|format|dtype"
    r"|quantization|policy|value|option)|must be (?:one of|in|between|greater|at least|positive|non-|a |an |>|<|either)"
    r"|should be (?:one of|in|between|greater|positive)|not a valid|is not valid|unsupported (?:value|dtype"
    r"|format|backend)"
    r"|Invalid (?:value|choice|input|argument|\w+ parser)|not found in|Input should be"
    r"|Extra inputs are not permitted|is not a built-in|got an unexpected keyword|not supported: "
    r"|property name enclosed|Expecting value: "
)
"""How an engine says that it does not take a value."""

CONFLICT_REMEDY = "These flags do not go together, or not with this model or GPU: change the one that it names."
VALUE_REMEDY = "Give that flag a value that this model and version allow."
EXCEPTION_REMEDY = (
    "Look for this error in the engine's issues; restart it, and try the version before if it comes back."
)

OOM_LOADING = (
    "The weights do not fit beside what is on the GPU: free it (nvidia-smi), use more GPUs or a smaller dtype."
)
OOM_RUNNING = (
    "Leave more room beside the caches: a lower memory fraction, smaller prefill chunks, fewer requests at once."
)

KILLED = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory)[^:]{0,80}: Killed process \d+ \((?P<name>[^)]*)\)"
    r"|oom-kill:.{0,200}task=(?P<task>[^,]+)|killed by the OOM killer|Failed with result 'oom-kill'|\bOOMKilled\b"
)
"""The kernel's and systemd's word that memory ran out on the host."""
OURS = re.compile(r"(?i)python|sglang|vllm|engine|worker|ray|pt_main|scheduler")
KILLED_RULE = Rule(KILLED, "host_oom_killed", _HOST, PROVEN)
COMMAND_REMEDY = "The program or its container could not be started: check the environment, the image and the command."
HOST_REMEDY = "It can't listen there: give --host an address of this machine, and a port that it may use."

SIGNALS = {
    9: (
        "host_oom_killed",
        "SIGKILL from outside: see in dmesg if it was the OOM killer; give the host more memory if so.",
    ),
    11: (
        "other:segmentation_fault",
        "A native library crashed: run with PYTHONFAULTHANDLER=1, and check driver and kernels.",
    ),
    7: ("other:bus_error", "SIGBUS is mostly a /dev/shm that is too small: start the container with --shm-size 32g."),
    6: (
        "other:abort",
        "Native code gave up, often NCCL or CUDA: look above for its message and in dmesg for Xid errors.",
    ),
    4: ("other:illegal_instruction", "This build uses instructions that the CPU lacks: take a build for this CPU."),
}
"""What a process died of, by the number of its signal."""

ASKED = {15: "other:sigterm", 2: "other:ctrl_c"}
"""Signals by which somebody asks for the end."""

_EXITED = re.compile(
    r"(?i)(?:exit ?code|exited with code|terminated with)[:=]?\s*(?P<python>-?\d{1,9})\b"
    r"|exit status (?P<status>\d{1,9})\b"
    r"|code=exited, status=(?P<exited>\d{1,9})|code=(?:killed|dumped), status=(?P<killed>\d{1,9})"
    r"|with signal (?P<name>SIG[A-Z]+)"
)
_NUMBERS = {"SIGKILL": 9, "SIGSEGV": 11, "SIGBUS": 7, "SIGABRT": 6, "SIGILL": 4, "SIGTERM": 15, "SIGINT": 2}
_SHELL_SIGNALS = range(129, 160)


def exit_code(text: str) -> int | None:
    """How a process ended by this line: a negative signal or an exit status; None when the line tells neither."""
    match = _EXITED.search(text)
    if match is None:
        return None
    if match["name"]:
        number = _NUMBERS.get(match["name"].upper())
        return None if number is None else -number
    if match["killed"]:
        return -int(match["killed"])
    code = int(match["python"] or match["status"] or match["exited"])
    return 128 - code if code in _SHELL_SIGNALS else code


NATIVE: tuple[Rule, ...] = (
    rule(
        r"Fatal Python error: Segmentation fault|^\s*Segmentation fault|Segfault encountered|Caught signal 11",
        *SIGNALS[11],
        weight=SYMPTOM,
    ),
    rule(r"Fatal Python error: Bus error|^\s*Bus error|Caught signal 7 ", *SIGNALS[7], weight=SYMPTOM),
    rule(
        r"Fatal Python error: (?!Segm|Bus|Illegal)|terminate called|^\s*Aborted\b|double free or corruption"
        r"|free\(\): invalid|malloc\(\): |corrupted size vs|malloc_consolidate",
        *SIGNALS[6],
        weight=0.6,
    ),
    rule(r"Fatal Python error: Illegal instruction|^\s*Illegal instruction", *SIGNALS[4], weight=SYMPTOM),
)
"""How native code and its shell announce an end."""
