"""How fast a look is, beside what people do by hand, in one run on one machine; prints milliseconds and ratios.

python tests/benchmarks/bench_probe.py [rounds]

Everything is on loopback. ``limit`` is an empty round trip over a warm channel (``cat``). For 2,048 servers, one
process answers on as many loopback addresses; curl -Z gets a connection a server, with 300 in parallel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))

from bot.domain.fleet import Fleet, Host, Launch, Limits, Server
from bot.ports import Transport
from bot.runtime.prober import Prober
from bot.transports import pct, ssh
from tests.runtime.probing.stage import FakeEngine, Plain, free_port
from tests.transports.servers import SSHD, container, sshd

FEW, MANY = 8, 2048
QUIET = 0.02
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def say(line: str) -> None:
    """One line of the result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class WallClock:
    """Real time."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(span.total_seconds())


class Answering(asyncio.Protocol):
    """A server that answers at once and keeps its connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(ANSWER * data.count(b"\r\n\r\n"))


async def serve(ports: Sequence[int]) -> None:
    """The process that stands for all servers."""
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(Answering, "0.0.0.0", port, backlog=4096)
    say("serving")
    await loop.run_in_executor(None, sys.stdin.read)


async def measured(rounds: int, once: Callable[[], Awaitable[float]]) -> float:
    """The median, in milliseconds, after one round that warms up."""
    await once()
    return statistics.median([await once() * 1000 for _round in range(rounds)])


async def timed(doing: Awaitable[object]) -> float:
    """How long it takes, in seconds."""
    begun = time.perf_counter()
    await doing
    return time.perf_counter() - begun


def prober(servers: Sequence[Server], there: Transport) -> Prober:
    """A prober of one host."""
    fleet = Fleet((Host("here"),), tuple(servers), limits=Limits(host_timeout=timedelta(seconds=20)))
    return Prober(
        fleet=lambda: fleet, engines={"fake-engine": FakeEngine()}, transport=lambda _host: there, clock=WallClock()
    )


async def settled(eyes: Prober, servers: Sequence[Server]) -> float:
    """How long until the instant facts are in, in seconds; then wait for the end of the look."""
    took = 0.0
    begun = time.perf_counter()
    async for sight in eyes.look(servers):
        if sight.is_settled and not took:
            took = time.perf_counter() - begun
    assert all(facts.instant and facts.instant.status == 200 for facts in sight.servers.values())
    return took


@dataclass(frozen=True)
class Way:
    """A way to a host: its transport, and the command line by which a person would go it, before the remote one."""

    name: str
    transport: Transport
    by_hand: tuple[str, ...] = ()


async def few(way: Way, ports: Sequence[int], rounds: int) -> None:
    """Eight servers of one host; the ways take turns, so that what else the machine does hits all alike."""
    there, wait = way.transport, timedelta(seconds=60)
    servers = [Server(f"gpu{port}", "here", port, "fake-engine", Launch(("fake-engine",))) for port in ports]
    eyes = prober(servers, there)
    channel = await there.open(("cat",))
    urls = [f"http://127.0.0.1:{port}/ready" for port in ports]
    curl = ("curl", "-s", "--no-progress-meter", "-Z", *[word for url in urls for word in ("-o", "/dev/null", url)])
    loop = f"for url in {shlex.join(urls)}; do curl -s -o /dev/null -w '%{{http_code}}\\n' $url; done"
    by_hand = ("bash", "-c", loop)
    if way.by_hand:
        by_hand = (*way.by_hand[:-1], f"{way.by_hand[-1]} {shlex.join(by_hand)}")

    async def echo() -> None:
        await channel.send(b"x\n")
        await channel.receive()

    took: dict[str, list[float]] = {"limit": [], "look": [], "curl": [], "hand": []}
    await settled(eyes, servers)
    for _round in range(rounds):
        for _often in range(5):
            # Both out of the same quiet, as a person's question comes.
            await asyncio.sleep(QUIET)
            took["limit"].append(await timed(echo()))
            await asyncio.sleep(QUIET)
            took["look"].append(await settled(eyes, servers))
        took["curl"].append(await timed(there.run(curl, timeout=wait)))
        took["hand"].append(await timed(Plain().run(by_hand, timeout=wait)))
    await channel.close()
    await eyes.close()
    await there.close()
    limit, look, parallel, hand = (statistics.median(took[name]) * 1000 for name in took)
    say(
        f"{FEW} servers, {way.name}: limit {limit:.2f} ms · look {look:.2f} · curl -Z {parallel:.1f} · by hand {hand:.0f}"
    )
    say(
        f"  a look is {look / limit:.1f} x the limit, {parallel / look:.0f} x faster than curl -Z, {hand / look:.0f} x by hand"
    )


@contextlib.asynccontextmanager
async def behind_ssh(folder: Path, ports: Sequence[int]) -> AsyncIterator[Way]:
    """The same servers in a container that is reached through a real OpenSSH server and a pct."""
    with sshd(folder) as login, container(folder, 200) as inside:
        enter = (str(inside.pct.program), "exec", "200", "--")
        transport = pct.TRANSPORT.connect(inside.hop(), ssh.TRANSPORT.connect(login.hop(), None))
        options = ("-F", str(login.config), "-i", str(login.key), "-p", str(login.port))
        known = ("-o", f"UserKnownHostsFile={login.known_hosts}")
        by_hand = ("ssh", *options, *known, f"{login.user}@127.0.0.1", shlex.join(enter))
        async with serving(ports, enter):
            yield Way("ssh and a container", transport, by_hand)


@contextlib.asynccontextmanager
async def serving(ports: Sequence[int], before: Sequence[str] = ()) -> AsyncIterator[None]:
    """The servers, in a process of their own."""
    pipe = asyncio.subprocess.PIPE
    command = (*before, sys.executable, __file__, "serve", *map(str, ports))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    await process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def many(port: int, rounds: int) -> None:
    """2,048 servers, directly: with new connections (a fresh scout each time), and with kept ones."""
    here, wait = Plain(), timedelta(seconds=60)
    addresses = [f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}" for number in range(MANY)]
    servers = [
        Server(f"s{number}", "here", port, "fake-engine", Launch(("fake-engine",)), address=address)
        for number, address in enumerate(addresses)
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "urls")
        await asyncio.to_thread(
            config.write_text,
            "".join(f'url = "http://{one}:{port}/ready"\noutput = "/dev/null"\n' for one in addresses),
        )
        curl = ("curl", "-s", "--no-progress-meter", "-Z", "--parallel-max", "300", "-K", str(config))
        new, kept, by_curl = [], [], []
        for _round in range(rounds):
            eyes = prober(servers, here)
            # The line is warm, no connection to a server is.
            await settled(eyes, servers[:1])
            for took in (new, kept):
                took.append(await settled(eyes, servers) * 1000)
            await eyes.close()
            by_curl.append(await timed(here.run(curl, timeout=wait)) * 1000)
    fresh, warm, yardstick = min(new), min(kept), min(by_curl)
    say(
        f"{MANY} servers, direct: new connections {fresh:.0f} ms · kept {warm:.0f} · curl -Z {yardstick:.0f} (best of {rounds})"
    )
    say(f"  new = {fresh / yardstick:.2f} x curl -Z · kept = {warm / yardstick:.2f} x curl -Z")


async def main(rounds: int) -> None:
    """All of it; what needs root and an OpenSSH server is left out where these are missing."""
    ports = [free_port() for _server in range(FEW)]
    async with serving(ports):
        await few(Way("this machine", Plain()), ports, rounds)
        await many(ports[0], max(3, rounds // 4))
    if SSHD and os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            async with behind_ssh(Path(folder), ports) as way:
                await few(way, ports, rounds)
    say(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    _soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16384), most))
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve([int(word) for word in sys.argv[2:]]))
    else:
        uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
