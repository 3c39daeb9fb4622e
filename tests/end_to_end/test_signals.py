"""Whom a restart signals: every kill(2) of the bot and of whatever it runs, by strace, beside somebody else's server.

The servers are called `sglang.launch_server`, as the other user's is: whoever signals by pattern would hit it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.demo import ROOT, wait
from tests.end_to_end.lasting import World, draining, lasting
from tests.end_to_end.test_kills import whole

pytestmark = [pytest.mark.tmux, pytest.mark.root, pytest.mark.strace, pytest.mark.slow, pytest.mark.timeout(180)]

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
def traced(world: World) -> Iterator[list[tuple[int, str]]]:
    """`upbot run` under strace: every signal that it and whatever it starts sends, once the block has ended.

    A number below zero is a group. Groups that the bot has made itself, for its own commands, are left out.
    """
    file = world.folder / "signals"
    tracing = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={CALLS},setsid", "-e", "signal=none")
    argv = (*tracing, "-o", str(file), sys.executable, "-m", "bot", "run")
    (world.state / "ask.sock").unlink(missing_ok=True)
    sent: list[tuple[int, str]] = []
    with (world.folder / "traced.log").open("wb") as log:
        tracer = subprocess.Popen(argv, cwd=ROOT, env=world.environment(), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (world.state / "ask.sock").exists() or not world.workspace.connected:
            assert tracer.poll() is None, (world.folder / "traced.log").read_text()
            assert time.monotonic() < deadline, (world.folder / "traced.log").read_text()
            wait(0.05)
        yield sent
        sent += sent_in(file.read_text())
    finally:
        (bot,) = (int(one) for one in Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children").read_text().split()[:1])
        os.kill(bot, signal.SIGTERM)
        while Path(f"/proc/{bot}").exists() and Path(f"/proc/{bot}/stat").read_text().split()[2] != "Z":
            wait(0.05)
        tracer.kill()
        tracer.wait()


def sent_in(trace: str) -> list[tuple[int, str]]:
    """Who was sent what, of a trace."""
    calls = re.findall(
        r"^\d+ +(?:t?kill|tgkill|pidfd_send_signal|rt_\w+)\((-?\d+), (?:\d+, )?(SIG\w+)", trace, re.MULTILINE
    )
    own = {-int(pid) for pid in re.findall(r"^(\d+) +setsid\(\) += \1$", trace, re.MULTILINE)}
    return [(int(pid), name) for pid, name in calls if int(pid) not in own]


def test_a_restart_signals_its_own_servers_by_pid_and_nobody_else(tmp_path: Path) -> None:
    """gpu0 ends by SIGTERM, gpu1 drains without end and is killed; another user's server of that name hears nothing."""
    with lasting(tmp_path, count=2) as world:
        by_its_real_name(world)
        world.start_bot()
        restart(world, "no_buffer")
        old = {port: found[0] for port, found in world.servers().items()}
        names = [Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")[2] for one in old.values()]
        assert names == [b"sglang.launch_server"] * 2
        job = world.job()
        world.end_bot()
        begun = len(world.fleet.machine.journal())
        gpu0, gpu1 = (old[port].pid for port in world.fleet.ports)
        with traced(world) as sent, draining(world.fleet.ports[1]):
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
