"""Knows a Python exception by its last line, and what its type alone says."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENDINGS = (
    "Error|Exception|Failure|Interrupt|Exit|Timeout|TimedOut|Expired|OutOfResources|NotFound|Unavailable|Denied|"
    "ExceptionGroup|Empty"
)
_LINE = re.compile(
    rf"[\s|+>-]{{0,40}}(?P<type>(?:[A-Za-z_]\w{{0,60}}\.){{0,8}}(?:[A-Z]\w{{0,80}}?)?(?:{_ENDINGS}))"
    r"(?P<inner>\([\w., ]+\))?(?::(?P<message>\s.*)?|\s*)",
    re.DOTALL,
)
_ANY_FINAL = re.compile(r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,80})(?::(?P<message>\s.*)?|\s*)", re.DOTALL)

TRACEBACK = "Traceback (most recent call last)"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")

DERIVED = re.compile(
    r"^(?:[\w.]*\.)?(?:EOFError|ConnectionResetError|BrokenPipeError|CancelledError|SystemExit|EngineDeadError"
    r"|ChildFailedError|ProcessExitedException|ProcessRaisedException|RayActorError|ActorDiedError|MQEngineDeadError"
    r"|ActorUnavailableError|RayTaskError)\b"
    r"|Engine core initialization failed|Engine process failed to start|Engine process \(pid"
    r"|EngineCore encountered an issue|WorkerProc initialization failed|See stack trace|see the error messages above"
    r"|See root cause above|scheduler (?:is dead|died)|Python is likely shutting down|Engine loop is not running"
    r"|Background loop has errored|Scheduler or DataParallelController|was never awaited|cannot schedule new futures"
    r"|generator didn't stop after|Connection closed by (?:remote )?peer|remote process exited|Socket closed"
    r"|ncclRemoteError|TCPStore.{0,200}(?:shut ?down|Broken pipe|recv)|monitoredBarrier|Worker failed with error"
    r"|there are other ranks that didn't|Executor failed|: cancelled$|No live scheduler|Initialization failed"
)
"""What dies because something else died; it is quoted only when nothing better stands in the log."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception's last line."""

    type: str
    message: str

    @property
    def name(self) -> str:
        """The type without its modules."""
        return self.type.rpartition(".")[2]

    @property
    def is_derived(self) -> bool:
        """Whether it only says that something else failed."""
        return DERIVED.search(f"{self.type}: {self.message}") is not None


def raised(text: str, *, in_traceback: bool = False) -> Raised | None:
    """The exception whose last line this is; inside a traceback names without a usual ending count too."""
    match = _LINE.fullmatch(text) or (_ANY_FINAL.fullmatch(text) if in_traceback else None)
    if match is None:
        return None
    return Raised(match["type"], (match["message"] or "").strip())


TYPES = {
    "ModuleNotFoundError": "import_error",
    "ImportError": "import_error",
    "PackageNotFoundError": "import_error",
    "MemoryError": "host_oom_killed",
    "RepositoryNotFoundError": "model_not_found",
    "GatedRepoError": "model_not_found",
    "RevisionNotFoundError": "model_not_found",
    "EntryNotFoundError": "model_not_found",
    "HFValidationError": "model_not_found",
    "FileNotFoundError": "model_not_found",
    "NotADirectoryError": "model_not_found",
    "ConnectTimeout": "download_failed",
    "ReadTimeout": "download_failed",
    "SSLError": "download_failed",
    "ProxyError": "download_failed",
    "HfHubHTTPError": "download_failed",
    "IncompleteRead": "download_failed",
    "ChunkedEncodingError": "download_failed",
    "DistBackendError": "nccl",
    "DistNetworkError": "nccl",
    "DistStoreError": "nccl",
    "PermissionError": "other:permission_denied",
    "OutOfResources": "kernel_unsupported",
    "RecursionError": "scheduler_exception",
}
"""What a type says by itself, where its message says nothing better."""
