"""The demo's fleet: eight simulated servers and the job, started as somebody would have started them by hand.

The bot restarts some of them later by itself. So what is ended at the end is not what was started here but whatever
the simulated machine has written down as running.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bot.demo.job import TOKENS
from bot.demo.machine import Machine, process_started, write_whole
from bot.demo.spawn import end, package_root, reap, spawn
from bot.domain.flags import Flags

MODEL = "Qwen/Qwen3.6-27B"
DONE, TOTAL, RATE = 61_204, 193_000, 3_900.0
"""Where the job stands when the demo begins."""
TARGET = 6_250.0
EXTRA_BUFFER = Flags.of(
    {"mamba-scheduler-strategy": "extra_buffer", "mem-fraction-static": 0.85, "max-running-requests": 64}
)
NO_BUFFER = Flags.of(
    {"mamba-scheduler-strategy": "no_buffer", "mem-fraction-static": "0.90", "max-running-requests": 128}
)
HEAD = """\
# The demo's fleet: eight simulated servers on this machine, which stands for container 200. The demo writes this file
# for itself when it starts; it may be changed while it runs, and `reload` reads it again.
"""
_TOPICS = ("rain", "bridges", "bread", "clocks", "maps", "violins", "glass", "tides", "moss", "rivers")
_ENDS_WITHIN = 10.0


class SimulatedFleet:
    """Servers gpu0, gpu1, … on ports from ``base_port`` on, and the job datagen, all under ``home``.

    ``speed`` shortens starts and waits; the first start takes no time. With ``session`` the job runs in a tmux
    session of that name, else as a plain process with a pid file.
    """

    def __init__(
        self, home: Path, base_port: int = 30_000, speed: float = 1.0, *, count: int = 8, session: str | None = None
    ) -> None:
        self.home = home
        self.ports = tuple(range(base_port, base_port + count))
        self.speed = speed
        self.session = session if session is not None and shutil.which("tmux") else None
        self.machine = Machine(home / "machine", speed)
        self._children: list[int] = []
        self._has_session = False

    # What stands where

    @property
    def progress_file(self) -> Path:
        """The job's progress file."""
        return self.home / "datagen" / "progress.json"

    @property
    def job_pid_file(self) -> Path:
        """The job's pid file."""
        return self.home / "datagen" / "job.pid"

    @property
    def job_log(self) -> Path:
        """The job's log."""
        return self.home / "datagen" / "job.log"

    def log(self, index: int) -> Path:
        """A server's log."""
        return self.home / "logs" / f"gpu{index}.log"

    def environment(self) -> dict[str, str]:
        """What every process of the simulation needs in its environment."""
        return {
            "UPBOT_SIM_DIR": str(self.machine.root),
            "UPBOT_SIM_SPEED": f"{self.speed:g}",
            "UPBOT_SIM_GPUS": str(len(self.ports)),
            "TRITON_CACHE_DIR": str(self.machine.kernels),
            "PYTHONPATH": package_root(),
        }

    def gpu_query(self, python: str = sys.executable) -> list[str]:
        """The command that stands for nvidia-smi, with the environment that it needs."""
        assignments = [f"{key}={value}" for key, value in self.environment().items()]
        return ["env", *assignments, python, "-m", "bot.demo.nvidia_smi"]

    def job_arguments(self) -> tuple[str, ...]:
        """The job's arguments for Python."""
        urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        return (
            *("-m", "bot.demo.job", "--urls", *urls, "--concurrency", "64", "--total", str(TOTAL)),
            *("--progress", str(self.progress_file), "--prompts", str(self.home / "datagen" / "prompts.txt")),
            *("--pid-file", str(self.job_pid_file)),
        )

    def fleet_file(self, python: str = sys.executable, login: str | None = None) -> str:
        """The fleet file that describes all this to the bot; ``login`` is who ana is on this machine."""
        values = {
            "hosts": {"ct200": self._host(python)},
            "target": TARGET / 8 * len(self.ports),
            "servers": {f"gpu{{0..{len(self.ports) - 1}}}": self._servers(python)},
            "profiles": {
                "extra_buffer": {"flags": _plain(EXTRA_BUFFER), "seats": 37, "job_concurrency": 64},
                "no_buffer": {
                    "flags": _plain(NO_BUFFER),
                    "seats": 72,
                    "job_concurrency": 64,
                    "price": "no overlap scheduling",
                },
            },
            "jobs": {"datagen": self._job(python)},
            "people": {
                "ana": {"role": "operator", "slack": "U0ANA", **({"login": login} if login else {})},
                "bo": {"role": "operator", "slack": "U0BO"},
                "vic": {"role": "viewer", "slack": "U0VIC"},
            },
            "channels": {"fleet": {"slack": "C0FLEET", "targets": "ct200"}},
        }
        return HEAD + yaml.safe_dump(values, sort_keys=False, width=110, allow_unicode=True)

    def _host(self, python: str) -> dict[str, Any]:
        return {
            "gpu_query": self.gpu_query(python),
            "kernel_log": ["cat", str(self.machine.kernel_log)],
            "state_dir": str(self.home / "state"),
        }

    def _servers(self, python: str) -> dict[str, Any]:
        return {
            "host": "ct200",
            "port": f"{self.ports[0]}+n",
            "gpus": "n",
            "launch": [python, "-m", "bot.demo.engine"],
            "flags": {"model-path": MODEL, "host": "127.0.0.1", "enable-metrics": True},
            "env": self.environment(),
            "log": str(self.home / "logs" / "{name}.log"),
            "profile": "extra_buffer",
        }

    def _job(self, python: str) -> dict[str, Any]:
        return {
            "host": "ct200",
            "command": [python, *self.job_arguments()],
            **({"session": self.session} if self.session else {"pid_file": str(self.job_pid_file)}),
            "log": str(self.job_log),
            "env": self.environment(),
            "concurrency_flag": "--concurrency",
            "minimum_servers": max(1, len(self.ports) // 2),
            "progress": {"file": str(self.progress_file), "rate": "rate"},
        }

    # Starting and ending

    async def start(self) -> None:
        """Write what is needed and start everything; returns at once."""
        self._write_job_files()
        self.machine.kernel_says("")
        await self._end_all()
        for index, port in enumerate(self.ports):
            self._children.append(self._start_server(index, port))
        await self._start_job()

    def _write_job_files(self) -> None:
        prompts = "".join(f"Write what a curious child should know about {one}.\n" for one in _TOPICS)
        write_whole(self.home / "datagen" / "prompts.txt", prompts)
        if not self.progress_file.exists():
            seed = {"state": "stopped", "done": DONE, "total": TOTAL, "rate": RATE, "tokens": DONE * TOKENS}
            write_whole(self.progress_file, json.dumps(seed))

    def _start_server(self, index: int, port: int) -> int:
        env = {**self.environment(), "CUDA_VISIBLE_DEVICES": str(index), "UPBOT_SIM_FIRST_START": "instant"}
        flags = Flags.of({"model-path": MODEL, "host": "127.0.0.1", "port": port, "enable-metrics": True})
        words = ("-m", "bot.demo.engine", *flags.merged(EXTRA_BUFFER).argv())
        return spawn(words, env, self.log(index))

    async def _start_job(self) -> None:
        if self.session is None:
            self._children.append(spawn(self.job_arguments(), self.environment(), self.job_log))
            return
        assignments = [f"{key}={value}" for key, value in self.environment().items()]
        command = ("env", *assignments, sys.executable, *self.job_arguments())
        self._has_session = await _run(("tmux", "new-session", "-d", "-s", self.session, *command)) == 0

    async def wait_ready(self, within: float = 60.0) -> None:
        """Wait until every server is ready; TimeoutError, naming those that are not."""
        deadline = time.monotonic() + within
        while waiting := [port for port in self.ports if not self._is_ready(port)]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready: ports {', '.join(map(str, waiting))}")
            await asyncio.sleep(0.1)

    def _is_ready(self, port: int) -> bool:
        entry = self.machine.server(port)
        return entry is not None and entry.is_ready

    async def stop(self) -> None:
        """End whatever runs on the simulated machine, by pid: also what others have started there since."""
        await self._end_all()
        if self._has_session:
            await _run(("tmux", "kill-session", "-t", f"={self.session}"))
            self._has_session = False

    async def _end_all(self) -> None:
        for entry in self.machine.living("job"):
            end(entry, signal.SIGINT)
        deadline, quiet = time.monotonic() + _ENDS_WITHIN, 0
        # Something may have been started a moment ago and not be written down yet: look three times.
        while quiet < 3 and time.monotonic() < deadline:
            living = self.machine.living()
            is_late = time.monotonic() > deadline - _ENDS_WITHIN + 2
            for entry in living:
                if entry.role != "job" or is_late:
                    end(entry, signal.SIGKILL)
            self._reap()
            quiet = quiet + 1 if not living and not self._unborn() else 0
            await asyncio.sleep(0.1)
        for entry in (one for gpu in range(len(self.ports)) for one in self.machine.holders(gpu)):
            self.machine.forget(entry.pid)

    def _unborn(self) -> list[int]:
        """Children of ours that live and have not written themselves down yet; they are ended as well."""
        unborn = [pid for pid in self._children if process_started(pid) is not None]
        for pid in unborn:
            os.kill(pid, signal.SIGKILL)
        return unborn

    def _reap(self) -> None:
        for pid in self._children:
            reap(pid)
        self._children = [pid for pid in self._children if process_started(pid) is not None]


def _plain(flags: Flags) -> dict[str, str]:
    return {name: " ".join(values) for name, values in flags}


async def _run(argv: Sequence[str]) -> int:
    """Run a command to its end, its output thrown away; its status."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
