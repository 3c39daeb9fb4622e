"""What a warm command over ssh costs, beside a cold ``ssh`` and beside asyncssh with nothing around it.

python -m tests.benchmarks.bench_transports [--rounds N] [--hosts N]

Needs an OpenSSH server and client; everything is on the loopback address, the server's share of the work included.
All ways take turns in one run, so that a busy machine is busy for all of them; ratios count, figures do not.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import asyncssh

from tests.transports.chains import through
from tests.transports.servers import LOOPBACK, Login, sshd, stand_in

Way = Callable[[], Awaitable[object]]
LIMIT = timedelta(seconds=10)
ARGV = ["echo", "up"]


async def main(login: Login, directory: Path, rounds: int, hosts: int) -> None:
    """Measure and print both tables."""
    made = stand_in(directory, "pct")
    made.state("200", "running")
    warm, inside = through([login.hop()]), through([login.hop(), made.hop("200")])
    async with await asyncssh.connect(**_tuned(login)) as bare:
        channel = await inside.open(["cat"])

        async def empty() -> None:
            await channel.send(b"x")
            await channel.receive()

        ways: dict[str, Way] = {
            "cold ssh, one process a command": lambda: _cold(login),
            "bare asyncssh, warm": lambda: bare.run(shlex.join(ARGV)),
            "bare asyncssh, warm, timeout -k1 10": lambda: bare.run(shlex.join(["timeout", "-k1", "10", *ARGV])),
            "ours, warm": lambda: warm.run(ARGV, timeout=LIMIT),
            "ours, warm, through pct": lambda: inside.run(ARGV, timeout=LIMIT),
            "ours, a channel through pct": empty,
        }
        _table("one command", await _measure(ways, rounds), "bare asyncssh, warm, timeout -k1 10")
        await channel.close()
    await warm.close()
    await inside.close()
    connects: dict[str, Way] = {
        f"bare asyncssh, {hosts} cold hosts": lambda: _all_bare(login, hosts),
        f"ours, {hosts} cold hosts": lambda: _all_ours(login, hosts),
    }
    _table("connect and one command", await _measure(connects, 5), f"bare asyncssh, {hosts} cold hosts")


def _tuned(login: Login) -> dict[str, object]:
    return {
        "host": LOOPBACK,
        "port": login.port,
        "username": login.user,
        "config": None,
        "client_keys": asyncssh.load_keypairs([str(login.key)]),
        "known_hosts": asyncssh.read_known_hosts(str(login.known_hosts)),
        "agent_path": None,
        "connect_timeout": 30,
    }


async def _cold(login: Login) -> None:
    options = ["-F", str(login.config), "-o", f"UserKnownHostsFile={login.known_hosts}", "-o", "BatchMode=yes"]
    address = ["-i", str(login.key), "-p", str(login.port), f"{login.user}@{LOOPBACK}", shlex.join(ARGV)]
    process = await asyncio.create_subprocess_exec("ssh", *options, *address, stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def _all_bare(login: Login, hosts: int) -> None:
    tuned = _tuned(login)
    few = asyncio.Semaphore(4)

    async def one() -> None:
        async with few:
            connection = await asyncssh.connect(**tuned)
        async with connection:
            await connection.run(shlex.join(["timeout", "-k1", "10", *ARGV]))

    await asyncio.gather(*(one() for _ in range(hosts)))


async def _all_ours(login: Login, hosts: int) -> None:
    async def one() -> None:
        transport = through([login.hop(timeout="30")])
        await transport.run(ARGV, timeout=LIMIT)
        await transport.close()

    await asyncio.gather(*(one() for _ in range(hosts)))


async def _measure(ways: dict[str, Way], rounds: int) -> dict[str, float]:
    """The median milliseconds of each, taking turns; the first turn of each warms up and does not count."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if turn:
                took[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(some) for name, some in took.items()}


def _table(title: str, medians: dict[str, float], unit: str) -> None:
    print(f"\n{title:<40} {'median ms':>10} {'ratio':>8}")  # noqa: T201 - a program for the terminal
    for name, median in medians.items():
        print(f"{name:<40} {median:>10.2f} {median / medians[unit]:>8.2f}")  # noqa: T201 - as above


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--hosts", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sshd(Path(name), MaxStartups="100:30:200") as server:
        asyncio.run(main(server, Path(name), given.rounds, given.hosts))
