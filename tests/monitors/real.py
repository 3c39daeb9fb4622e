"""Debian's Prometheus and Alertmanager on ports of their own, ended by pid; their own tools beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.demo.simulation import free_ports

SHIPPED = Path(__file__).parents[2] / "config" / "prometheus"
SCRAPE = 2


def hurried(rules: str) -> str:
    """The shipped rules with their spans made short, so that a test need not wait minutes; nothing else changed."""
    for span, short in (("[1m]", "[8s]"), ("[6h]", "[60s]"), ("for: 30s", "for: 2s"), ("for: 1m", "for: 4s")):
        rules = rules.replace(span, short)
    return re.sub(r"for: (2m|5m)", "for: 10s", rules)


async def seen(is_so: Callable[[], Any], within: float = 30) -> Any:
    """Wait until something is so; what it gave."""
    deadline = time.monotonic() + within
    while True:
        value = is_so()
        value = await value if asyncio.iscoroutine(value) else value
        if value:
            return value
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.1)


class Program:
    """A program with a port, from its start until it answers, to its end by pid."""

    def __init__(self, name: str, port: int, home: Path, argv: Sequence[str]) -> None:
        self.name, self.port, self.home = name, port, home
        self.argv = (str(shutil.which(name)), *argv)
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with (self.home / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.argv, cwd=self.home, stdout=log, stderr=log)
        await seen(self._is_ready, 20)

    async def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, (self.home / f"{self.name}.log").read_text()[-2000:]
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None


async def get(url: str, **query: str) -> Any:
    """The JSON of one GET."""
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
        return json.loads(await answer.read())


@contextlib.asynccontextmanager
async def monitoring(
    home: Path, targets: Sequence[int], *, webhook: int | None = None, secret: str = "", names: Mapping[int, str] = {}
) -> AsyncIterator[tuple[Program, Program]]:
    """A Prometheus with the shipped rules over these ports, and an Alertmanager that tells a webhook."""
    one, two = free_ports(2)
    (home / "inference.rules.yml").write_text(hurried((SHIPPED / "inference.rules.yml").read_text()))
    scrape = {
        "global": {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"},
        "rule_files": ["inference.rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{two}"]}]}]},
        "scrape_configs": [
            {"job_name": "inference", "scrape_timeout": "2s", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}]}
        ],
    }  # fmt: skip
    (home / "prometheus.yml").write_text(yaml.safe_dump(scrape))
    shipped = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text())
    shipped["route"] |= {"group_wait": "1s", "group_interval": "2s"}
    shipped["route"]["routes"][0] |= {"group_interval": "2s", "repeat_interval": "2s"}
    (hook,) = shipped["receivers"][0]["webhook_configs"]
    hook["url"] = f"http://127.0.0.1:{webhook or 9}/alertmanager"
    (home / "secret").write_text(secret)
    hook["http_config"]["authorization"]["credentials_file"] = str(home / "secret")
    (home / "alertmanager.yml").write_text(yaml.safe_dump(shipped))
    prometheus = Program(
        "prometheus", one, home,
        ("--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{one}", f"--storage.tsdb.path={home}/tsdb",
         "--rules.alert.resend-delay=2s"),
    )  # fmt: skip
    alertmanager = Program(
        "prometheus-alertmanager", two, home,
        ("--config.file=alertmanager.yml", f"--web.listen-address=127.0.0.1:{two}", f"--storage.path={home}/am",
         "--cluster.listen-address="),
    )  # fmt: skip
    try:
        await alertmanager.start()
        await prometheus.start()
        yield prometheus, alertmanager
    finally:
        await prometheus.end()
        await alertmanager.end()


def tool(*argv: str) -> str:
    """What promtool or amtool prints; the test fails with it when the tool is not content."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
