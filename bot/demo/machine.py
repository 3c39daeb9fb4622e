"""The simulated machine: who runs on it, who holds its GPUs' memory, and what was broken on purpose.

Everything stands in one directory (``UPBOT_SIM_DIR``) that simulated servers, the pretend nvidia-smi and the
fault panel share, because they are separate processes and the bot starts some of them itself:

    processes/<pid>.json   one a process; its modification time is a heartbeat
    control/<port>.json    what is wrong with the server on that port now
    failures/<port>        the cause that the next start on that port dies of; used once
    gpus/<index>.json      what is wrong with a GPU
    journal.jsonl          every start, every signal that a process took, and every end, one line each
    kernel.log             what the pretended kernel says, as dmesg prints it
    kernels/               the cache of compiled kernels that all its servers share

A driver gives memory back some time after its process is gone. Nobody can write that down after a SIGKILL, so a
process that is gone goes on holding its memory until its last heartbeat is old enough.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

MEMORY_FREED_AFTER = 3.0
"""Seconds at speed 1 from a process's end until the driver has given its memory back."""

GPU_TOTAL_MIB = 143_771
GPU_NAME = "NVIDIA H200"


@dataclass(frozen=True, slots=True)
class Entry:
    """A process of the simulation. ``started`` is the kernel's start time in ticks (0 where there is no /proc).

    ``is_ready``: its port is its own and it has said that it is ready.
    """

    pid: int
    started: int
    role: str
    port: int = 0
    gpus: tuple[int, ...] = ()
    mib: int = 0
    seats: int = 0
    running: int = 0
    is_ready: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """What is wrong with a server now: it may hang, or decode at a fraction of its speed."""

    is_hung: bool = False
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class GpuTrouble:
    """What is wrong with a GPU now, and for the sake of which server it was done."""

    is_hot: bool = False
    port: int = 0


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a process: "started", the name of a signal that it took, or "ended".

    Who was ended by SIGKILL could not say so: such a process started, never ended, and lives no more.
    """

    pid: int
    started: int
    role: str
    port: int
    what: str


def process_started(pid: int) -> int | None:
    """The start time of a living process in ticks; None when it is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _answers(pid)
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in b"ZX" else int(fields[19])


def _answers(pid: int) -> int | None:
    """Where there is no /proc: 0 for a process that can be signalled."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def speed_of(env: Mapping[str, str]) -> float:
    """How many times faster than life the simulation runs; 1 when it is not said."""
    try:
        speed = float(env.get("UPBOT_SIM_SPEED", "1"))
    except ValueError:
        return 1.0
    return speed if speed > 0 else 1.0


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def bus_of(gpu: int) -> str:
    """The PCI address of a GPU, as the kernel writes it."""
    return f"0000:{0x1B + 12 * gpu:02x}:00"


class Machine:
    """The shared directory. Reading forgives what is missing or half gone: processes come and go meanwhile."""

    def __init__(self, root: Path, speed: float = 1.0) -> None:
        self.root = root
        self.speed = speed

    @staticmethod
    def of(env: Mapping[str, str]) -> Machine:
        """The machine that the environment names; one of its own in the temporary directory where it names none."""
        root = env.get("UPBOT_SIM_DIR") or str(Path(tempfile.gettempdir()) / f"upbot-sim-{os.getuid()}")
        return Machine(Path(root), speed_of(env))

    # Processes

    def register(self, entry: Entry) -> None:
        """Write a process down, or what changed about it."""
        write_whole(self._process(entry.pid), json.dumps(asdict(entry)))

    def beat(self, pid: int) -> None:
        """Say that the process is alive."""
        with contextlib.suppress(OSError):
            os.utime(self._process(pid))

    def forget(self, pid: int) -> None:
        """Strike a process off; for those that hold no GPU memory."""
        self._process(pid).unlink(missing_ok=True)

    def living(self, role: str | None = None) -> list[Entry]:
        """The processes that run, by pid."""
        return [entry for entry, _ in self._entries() if _lives(entry) and role in (None, entry.role)]

    def server(self, port: int) -> Entry | None:
        """The simulated server that was started for a port, loading ones too; the newest where there are several."""
        found = [entry for entry in self.living("engine") if entry.port == port]
        return max(found, key=lambda entry: entry.started, default=None)

    def holders(self, gpu: int) -> list[Entry]:
        """Who holds memory on a GPU: the living, and the dead until the driver has caught up."""
        lag = MEMORY_FREED_AFTER / self.speed
        found = []
        for entry, beaten in self._entries():
            if gpu not in entry.gpus or not entry.mib:
                continue
            if _lives(entry) or time.time() - beaten < lag:
                found.append(entry)
            else:
                self.forget(entry.pid)
        return found

    def _process(self, pid: int) -> Path:
        return self.root / "processes" / f"{pid}.json"

    def _entries(self) -> Iterator[tuple[Entry, float]]:
        folder = self.root / "processes"
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                beaten = path.stat().st_mtime
            except OSError:
                continue
            entry = _entry(_json(path))
            if entry is not None:
                yield entry, beaten

    def note(self, entry: Entry, what: str) -> None:
        """Write down what happens to a process, for good; one write, so that lines of several never mix."""
        happening = Happening(entry.pid, entry.started, entry.role, entry.port, what)
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / "journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, json.dumps(asdict(happening)).encode() + b"\n")
        finally:
            os.close(handle)

    def journal(self) -> list[Happening]:
        """All that happened, the oldest first."""
        try:
            text = (self.root / "journal.jsonl").read_text("utf-8")
        except FileNotFoundError:
            return []
        return [Happening(**json.loads(line)) for line in text.splitlines()]

    # What is broken on purpose

    def control(self, port: int) -> Control:
        """What is wrong with the server on that port."""
        values = _json(self.root / "control" / f"{port}.json")
        slowdown = values.get("slowdown", 1.0)
        return Control(
            is_hung=values.get("is_hung") is True,
            slowdown=float(slowdown) if isinstance(slowdown, (int, float)) and 0 < slowdown <= 10 else 1.0,
        )

    def set_control(self, port: int, control: Control) -> None:
        """Break a server, or mend it with ``Control()``."""
        path = self.root / "control" / f"{port}.json"
        if control == Control():
            path.unlink(missing_ok=True)
        else:
            write_whole(path, json.dumps(asdict(control)))

    def control_mark(self, port: int) -> int:
        """A number that changes when the control of a port changes; cheap to ask."""
        try:
            return (self.root / "control" / f"{port}.json").stat().st_mtime_ns
        except OSError:
            return 0

    def fail_next(self, port: int, cause: str | None) -> None:
        """Let the next start on that port die of a cause; None takes it back."""
        path = self.root / "failures" / str(port)
        if cause is None:
            path.unlink(missing_ok=True)
        else:
            write_whole(path, cause)

    def take_failure(self, port: int) -> str | None:
        """The cause that this start has to die of, if any; it is used up."""
        path = self.root / "failures" / str(port)
        try:
            cause = path.read_text("utf-8", "replace").strip()
            path.unlink()
        except OSError:
            return None
        return cause or None

    def trouble(self, gpu: int) -> GpuTrouble:
        """What is wrong with a GPU."""
        values = _json(self.root / "gpus" / f"{gpu}.json")
        port = values.get("port")
        return GpuTrouble(is_hot=values.get("is_hot") is True, port=port if type(port) is int else 0)

    def set_trouble(self, gpu: int, trouble: GpuTrouble) -> None:
        """Break a GPU."""
        write_whole(self.root / "gpus" / f"{gpu}.json", json.dumps(asdict(trouble)))

    def mend_gpus(self, port: int) -> None:
        """Mend the GPUs that were broken for a server, whether it lives or not."""
        for path in (self.root / "gpus").glob("*.json"):
            if _json(path).get("port") == port:
                path.unlink(missing_ok=True)

    # What the kernel and the compilers leave

    @property
    def kernel_log(self) -> Path:
        """The pretended kernel's log."""
        return self.root / "kernel.log"

    @property
    def kernels(self) -> Path:
        """The folder of compiled kernels."""
        return self.root / "kernels"

    def kernel_says(self, text: str) -> None:
        """Add a line to the kernel's log, with the seconds since boot."""
        self.kernel_log.parent.mkdir(parents=True, exist_ok=True)
        with self.kernel_log.open("a", encoding="utf-8") as file:
            file.write(f"[{time.monotonic():12.6f}] {text}\n" if text else "")

    def empty_kernels(self) -> None:
        """Throw the compiled kernels away: the next start compiles them anew."""
        shutil.rmtree(self.kernels, ignore_errors=True)

    # For those that hold memory

    def with_memory(self, entry: Entry, mib: int) -> Entry:
        """The same process with that much memory on each of its GPUs, written down."""
        changed = replace(entry, mib=mib)
        self.register(changed)
        return changed


def _entry(values: dict[str, Any]) -> Entry | None:
    numbers = [values.get(key, 0) for key in ("pid", "started", "port", "mib", "seats", "running")]
    gpus, role = values.get("gpus", ()), values.get("role")
    if not isinstance(role, str) or not isinstance(gpus, (list, tuple)) or "pid" not in values:
        return None
    if any(type(one) is not int or not 0 <= one < 2**62 for one in (*numbers, *gpus)):
        return None
    pid, started, port, mib, seats, running = numbers
    return Entry(pid, started, role, port, tuple(gpus), mib, seats, running, values.get("is_ready") is True)


def _lives(entry: Entry) -> bool:
    return process_started(entry.pid) == entry.started


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
