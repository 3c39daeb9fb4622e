"""Runs simulated servers as real processes for a test, and ends each of them by pid."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bot.demo.machine import Machine
from bot.demo.spawn import package_root

FAST = 50.0


def free_port() -> int:
    """A port that is free now."""
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """Ports in a row that are free now, below those that the kernel gives to outgoing connections."""
    for _ in range(500):
        first = random.randrange(20_000, 32_000)  # noqa: S311 - any will do
        ports = tuple(range(first, first + count))
        if all(_is_free(port) for port in ports):
            return ports
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def until(is_so: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until something is so; what it gave. AssertionError when it never is."""
    deadline = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.02)
    return value


@dataclass
class Started:
    """A process and where its log is."""

    process: asyncio.subprocess.Process
    log: Path
    port: int

    def text(self) -> str:
        return self.log.read_text("utf-8")

    async def says(self, words: str) -> None:
        await until(lambda: words in self.text())

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 20)


@dataclass
class Bench:
    """A simulated machine in a folder, and what runs on it."""

    home: Path
    speed: float = FAST
    started: list[Started] = field(default_factory=list)

    @property
    def machine(self) -> Machine:
        return Machine(self.home / "machine", self.speed)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "UPBOT_SIM_DIR": str(self.home / "machine"),
            "UPBOT_SIM_SPEED": str(self.speed),
            "PYTHONPATH": package_root(),
            **more,
        }

    async def run(self, *words: str, port: int = 0, **env: str) -> Started:
        log = self.home / f"{len(self.started)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *words, env=self.environment(**env), stdout=file, stderr=file
            )
        self.started.append(Started(process, log, port))
        return self.started[-1]

    async def engine(self, port: int, *flags: str, gpu: int = 0, instant: bool = True, **env: str) -> Started:
        first = {"UPBOT_SIM_FIRST_START": "instant"} if instant else {}
        words = ("-m", "bot.demo.engine", "--model-path", "Qwen/Qwen3.6-27B", "--port", str(port), *flags)
        return await self.run(*words, port=port, CUDA_VISIBLE_DEVICES=str(gpu), **first, **env)

    async def ready(self, *flags: str, **kwargs: Any) -> Started:
        one = await self.engine(free_port(), *flags, **kwargs)
        await one.says("fired up and ready to roll!")
        return one


@asynccontextmanager
async def bench(home: Path, speed: float = FAST):
    """A machine whose processes are gone at the end."""
    made = Bench(home, speed)
    try:
        yield made
    finally:
        for one in made.started:
            if one.process.returncode is None:
                one.process.kill()
            await one.process.wait()


async def get(port: int, path: str, seconds: float = 10) -> tuple[int, str]:
    """Status and text of one GET; 0 when the connection is refused."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientConnectorError:
        return 0, ""


async def load(port: int) -> dict[str, Any]:
    """What /v1/loads says of the one rank."""
    return json.loads((await get(port, "/v1/loads"))[1])["loads"][0]


async def generate(session: aiohttp.ClientSession, port: int, tokens: int) -> dict[str, Any]:
    """One generation, to its end."""
    body = {"text": "x" * 400, "sampling_params": {"max_new_tokens": tokens}}
    async with session.post(f"http://127.0.0.1:{port}/generate", json=body) as answer:
        return await answer.json()


async def until_running(port: int, count: int) -> None:
    """Wait until exactly so many requests run."""
    for _ in range(500):
        if (await load(port))["num_running_reqs"] == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to be")
