"""sglang-router and SMG themselves, under load, in front of simulated servers: a rolling restart loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bot.demo.fleet import SimulatedFleet
from tests.conftest import ROUTERS
from tests.demo.simulation import free_ports
from tests.end_to_end.demo import ROOT

COMMANDS = {
    "sglang-router": ("bin/python", "-m", "sglang_router.launch_router"),
    "smg": ("bin/smg", "launch"),
}
SERVERS, CLIENTS = 2, 8
SPEED = 20.0


class WithoutJob(SimulatedFleet):
    """Only the servers: what they get to do comes through the router."""

    async def _start_job(self) -> None:
        """Nothing."""


def written(folder: Path, fleet: SimulatedFleet, port: int) -> Path:
    """The fleet file, with the router before all servers."""
    values = yaml.safe_load(fleet.fleet_file(login=pwd.getpwuid(os.getuid()).pw_name))
    del values["jobs"]
    values["routers"] = {"front": {"host": "ct200", "port": port, "drain": "30 s"}}
    values["defaults"] = {"router": "front"}
    values["limits"] = {"ask_may_confirm": True, "compare_after": "1 s"}
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@contextlib.asynccontextmanager
async def routing(kind: str, folder: Path, ports: tuple[int, ...]) -> AsyncIterator[str]:
    """A router that sends to these servers and repeats nothing that failed; gives its URL."""
    program, *words = COMMANDS[kind]
    *servers, own, metrics = ports
    urls = [f"http://127.0.0.1:{port}" for port in servers]
    argv = [
        *(str(ROUTERS / kind / program), *words, "--host", "127.0.0.1", "--port", str(own)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
        *("--policy", "round_robin", "--disable-retries", "--worker-urls", *urls),
    ]
    with (folder / "router.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{own}"
    finally:
        process.kill()
        await process.wait()


class Clients:
    """Ask for short answers through the router all the time, and count how it went."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.ended: Counter[str] = Counter()
        self.most_out = 0
        self.is_over = False

    async def workers(self) -> list[dict[str, Any]]:
        async with self.session.get(f"{self.url}/workers") as answer:
            return list((await answer.json())["workers"])

    async def until(self, number: int) -> None:
        """Wait until it lists so many."""
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if len(await self.workers()) == number:
                    return
            assert time.monotonic() < deadline, "the router does not list them"
            await asyncio.sleep(0.2)

    async def register_anew(self, url: str, **settings: Any) -> None:
        """Have one worker registered with settings of its own."""
        (old,) = [one["id"] for one in await self.workers() if one["url"] == url]
        async with self.session.delete(f"{self.url}/workers/{old}"):
            await self.until(SERVERS - 1)
        async with self.session.post(f"{self.url}/workers", json={"url": url, **settings}):
            await self.until(SERVERS)

    async def ask(self, number: int) -> None:
        while not self.is_over:
            body = {"text": f"{number} {sum(self.ended.values())}", "sampling_params": {"max_new_tokens": 60}}
            try:
                async with self.session.post(f"{self.url}/generate", json=body) as answer:
                    text = await answer.text()
                    is_good = answer.status == 200 and '"abort"' not in text
                    self.ended["good" if is_good else f"HTTP {answer.status}: {text[:200]}"] += 1
            except aiohttp.ClientError as error:
                self.ended[repr(error)] += 1

    async def count(self) -> None:
        while not self.is_over:
            healthy = sum(one["is_healthy"] for one in await self.workers())
            self.most_out = max(self.most_out, SERVERS - healthy)
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.routers
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_rolling_restart_loses_no_request_and_leaves_the_router_as_it_was(kind: str, tmp_path: Path) -> None:
    async def scene() -> None:
        ports = free_ports(SERVERS + 2)
        fleet = WithoutJob(tmp_path / "home", ports[0], SPEED, count=SERVERS)
        file = written(tmp_path, fleet, ports[SERVERS])
        await fleet.start()
        try:
            await fleet.wait_ready()
            async with routing(kind, tmp_path, ports) as url, aiohttp.ClientSession() as session:
                clients = Clients(session, url)
                await clients.until(SERVERS)
                first = f"http://127.0.0.1:{ports[0]}"
                await clients.register_anew(first, priority=70, cost=2.5, labels={"zone": "a"})
                asking = [asyncio.create_task(clients.ask(number)) for number in range(CLIENTS)]
                asking.append(asyncio.create_task(clients.count()))
                status, told = await restarted(file, tmp_path / "state")
                clients.is_over = True
                await asyncio.gather(*asking)
                assert (status, set(clients.ended), clients.most_out) == (0, {"good"}, 1), (told, clients.ended)
                assert "all 2 back" in told or "gpu0, gpu1 back in router front" in told, told
                left = {one["url"]: one for one in await clients.workers()}
                assert len(left) == SERVERS
                kept = left[first]
                assert (kept["priority"], kept["cost"]) == (70, 2.5)
                assert (kept.get("labels") or kept["metadata"])["zone"] == "a"
        finally:
            await fleet.stop()

    asyncio.run(scene())


async def restarted(file: Path, state: Path) -> tuple[int | None, str]:
    """`upbot ask` without a bot that runs, to its end: exit status and what it said."""
    words = ("-m", "bot", "ask", "--yes", "--as", "ana", "--", "restart --rolling no_buffer")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, env={**os.environ, "UPBOT_FLEET": str(file), "UPBOT_STATE": str(state)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()
