"""Whom a restart signals: every kill(2) of the bot and of whatever it runs, by strace, beside somebody else's server.

The servers are called `sglang.launch_server`, as the other user's is: whoever signals by pattern would hit it.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.demo import wait
from tests.end_to_end.lasting import World, lasting
from tests.end_to_end.test_kills import whole

pytestmark = [pytest.mark.tmux, pytest.mark.root, pytest.mark.strace, pytest.mark.timeout(120)]

CALLS = "kill,tkill,tgkill,pidfd_send_signal,rt_sigqueueinfo,rt_tgsigqueueinfo"
LAUNCH = "from bot.demo.engine.__main__ import run\nrun()\n"


def by_its_real_name(world: World) -> None:
    """From the next start on the servers are `python -m sglang.launch_server`; one that does not end is killed soon."""
    module = world.folder / "ours" / "sglang"
    module.mkdir(parents=True)
    (module / "launch_server.py").write_text(LAUNCH)
    values = yaml.safe_load(world.fleet_path.read_text())
    (servers,) = values["servers"].values()
    servers["launch"] = [sys.executable, "-m", "sglang.launch_server"]
    servers["env"]["PYTHONPATH"] += f":{module.parent}"
    servers["grace"] = "2 s"
    world.fleet_path.write_text(yaml.safe_dump(values, sort_keys=False))


def restart(world: World, profile: str) -> None:
    """Ask, press, and wait for the end."""
    after = world.channel.say(f"restart {profile}")
    card = world.channel.until(
        lambda messages: next((one for one in messages if whole(one).startswith("Restart gpu0 and gpu1 with")), None),
        after,
    )
    world.press(card, "Restart gpu0 and gpu1")
    end = f"🟢 2/2 up with {profile}"
    world.channel.until(lambda messages: [one for one in messages if whole(one).startswith(end)], after, 60)


@contextmanager
def traced(pid: int, file: Path) -> Iterator[list[tuple[int, str]]]:
    """Every signal that a process and its children send, as target and name; there when the block has ended."""
    argv = ("strace", "-f", "-q", "-p", str(pid), "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(file))
    tracer = subprocess.Popen(argv, stderr=subprocess.PIPE)
    status = Path(f"/proc/{pid}/status")
    while f"TracerPid:\t{tracer.pid}" not in status.read_text():
        assert tracer.poll() is None, tracer.stderr and tracer.stderr.read()
        wait(0.02)
    sent: list[tuple[int, str]] = []
    try:
        yield sent
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
        assert tracer.stderr is not None
        tracer.stderr.close()
        sent += [(int(pid), name) for pid, name in re.findall(r"\((-?\d+), (?:-?\d+, )?(SIG\w+|0)", file.read_text())]


@contextmanager
def draining(port: int) -> Iterator[None]:
    """A client of a server that asks for more than it can wait for: its drain has no end."""
    body = b'{"text": "go on", "sampling_params": {"max_new_tokens": 100000}, "stream": true}'
    head = (
        f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head.encode() + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        yield


def test_a_restart_signals_its_own_servers_by_pid_and_nobody_else(tmp_path: Path) -> None:
    """gpu0 ends by SIGTERM, gpu1 drains without end and is killed; another user's server of that name hears nothing."""
    assert shutil.which("strace")
    with lasting(tmp_path, count=2) as world:
        by_its_real_name(world)
        world.start_bot()
        restart(world, "no_buffer")
        old = {port: found[0] for port, found in world.servers().items()}
        names = [Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")[2] for one in old.values()]
        assert names == [b"sglang.launch_server"] * 2
        bot, job = world.bot, world.job()
        assert bot is not None
        assert bot.pid is not None
        begun = len(world.fleet.machine.journal())
        gpu0, gpu1 = (old[port].pid for port in world.fleet.ports)
        with traced(bot.pid, tmp_path / "signals") as sent, draining(world.fleet.ports[1]):
            restart(world, "extra_buffer")
        assert sorted(sent) == sorted([(gpu0, "SIGTERM"), (gpu1, "SIGTERM"), (gpu1, "SIGKILL")])
        new = [*(found[0].pid for found in world.servers().values()), world.job()]
        happened = [(one.pid, one.what) for one in world.fleet.machine.journal()[begun:]]
        assert sorted(happened) == sorted(
            [
                *((gpu0, "SIGTERM"), (gpu0, "ended"), (gpu1, "SIGTERM")),
                *((job, "SIGINT"), (job, "ended")),  # the keys of its terminal
                *((pid, "started") for pid in new),
            ]
        )
        assert Path(f"/proc/{world.stranger.pid}/status").read_text().count("\t65534\t65534\t65534\t65534") == 2
        assert world.stranger.poll() is None
        assert world.strangers_signals == "here\n"
        world.end_bot()
