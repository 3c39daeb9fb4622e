"""The demo's fleet as a whole."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from bot.demo.faults import Faults
from bot.demo.fleet import SimulatedFleet
from bot.demo.spawn import package_root
from bot.domain.flags import Flags
from bot.plugins import load as plugins
from bot.settings import parse_fleet
from tests.demo.simulation import free_port, free_ports, get, load, until


def _fleet(home, count=2):
    return SimulatedFleet(home, free_ports(count)[0], speed=50, count=count)


def configured(fleet):
    """The fleet as the bot reads it."""
    return parse_fleet(
        fleet.fleet_file().encode(),
        "fleet.yaml",
        transports=plugins("bot.transports", "TRANSPORT"),
        engines=("sglang",),
        launchers=("process",),
    )


def _progress(fleet):
    return json.loads(fleet.progress_file.read_text())


async def _restart(fleet, index, flags):
    """What the bot does: the old one ends, and a process of somebody else's starts in its place."""
    server = configured(fleet).servers[index]
    old = fleet.machine.server(server.port)
    Faults(fleet.machine).kill(server.port)
    await until(lambda: not fleet.machine.holders(index))
    argv = (*server.launch.command, *server.launch.flags.merged(flags).argv(), "--port", str(server.port))
    with fleet.log(index).open("ab") as log:
        new = await asyncio.create_subprocess_exec(*argv, env=dict(server.launch.env), stdout=log, stderr=log)
    await fleet.wait_ready()
    return old.pid, new


def test_it_is_ready_at_once_feeds_its_job_and_leaves_nothing_behind(tmp_path):
    async def story():
        fleet = _fleet(tmp_path)
        await fleet.start()
        try:
            await fleet.wait_ready()
            await until(lambda: _progress(fleet)["done"] > 61_204)
            await until(lambda: "#running-req: 37" in fleet.log(1).read_text())
            roles = sorted(entry.role for entry in fleet.machine.living())
            loads = [await load(port) for port in fleet.ports]
            old, new = await _restart(fleet, 0, configured(fleet).profiles[1].flags)
            seats = (await load(fleet.ports[0]))["max_running_requests"]
        finally:
            await fleet.stop()
        return roles, loads, seats, await new.wait(), fleet, old

    roles, loads, seats, status, fleet, old = asyncio.run(story())
    assert roles == ["engine", "engine", "job"]
    assert [one["max_running_requests"] for one in loads] == [37, 37]
    assert (seats, status) == (72, -signal.SIGKILL)
    assert fleet.machine.living() == []
    assert [fleet.machine.holders(gpu) for gpu in (0, 1)] == [[], []]
    assert _progress(fleet)["state"] == "stopped"
    assert _progress(fleet)["done"] > 61_204
    assert old not in [entry.pid for entry in fleet.machine.living()]


def test_ending_what_has_just_been_started_leaves_nothing_either(tmp_path):
    async def story():
        fleet = _fleet(tmp_path)
        await fleet.start()
        await fleet.stop()
        ports = [(await get(port, "/health"))[0] for port in fleet.ports]
        await fleet.stop()
        return ports, fleet.machine.living()

    assert asyncio.run(story()) == ([0, 0], [])


def test_a_fleet_whose_port_is_another_s_is_not_ready(tmp_path):
    async def story():
        fleet = _fleet(tmp_path)
        stranger = await asyncio.start_server(_serve_ok, "127.0.0.1", fleet.ports[1])
        try:
            await fleet.start()
            with pytest.raises(TimeoutError, match=f"not ready: ports {fleet.ports[1]}$"):
                await fleet.wait_ready(within=3)
        finally:
            await fleet.stop()
            stranger.close()

    asyncio.run(story())


async def _serve_ok(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


@pytest.mark.tmux
def test_the_job_runs_in_a_session_of_its_own_that_goes_with_the_demo(tmp_path, monkeypatch):
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))

    async def sessions():
        listed = await asyncio.create_subprocess_exec(
            "tmux", "list-sessions", "-F", "#{session_name}", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return (await listed.communicate())[0].split()

    async def story():
        fleet = SimulatedFleet(tmp_path, free_port(), speed=50, count=1, session="upbot-test-datagen")
        await fleet.start()
        try:
            await fleet.wait_ready()
            await until(lambda: _progress(fleet)["done"] > 61_204)
            during = await sessions()
        finally:
            await fleet.stop()
        return during, await sessions(), fleet.machine.living(), _progress(fleet)["state"]

    assert asyncio.run(story()) == ([b"upbot-test-datagen"], [], [], "stopped")


def test_the_example_is_what_the_demo_writes_for_itself():
    example = Path(__file__).parent.parent.parent / "config" / "demo.yaml"
    written = SimulatedFleet(Path("/tmp/upbot-demo")).fleet_file("python3", "ana")
    assert example.read_text() == written.replace(package_root(), "/opt/upbot")


def test_the_fleet_says_how_it_was_launched(tmp_path):
    fleet = SimulatedFleet(tmp_path, 31_000, speed=2)
    values = configured(fleet)
    assert [(server.name, server.port, server.gpus) for server in values.servers][::7] == [
        ("gpu0", 31_000, (0,)),
        ("gpu7", 31_007, (7,)),
    ]
    assert values.target == 6_250
    assert [(profile.name, profile.seats) for profile in values.profiles] == [("extra_buffer", 37), ("no_buffer", 72)]
    assert values.profiles[1].flags == Flags.of(
        {"mamba-scheduler-strategy": "no_buffer", "mem-fraction-static": "0.90", "max-running-requests": 128}
    )
    assert fleet.environment()["UPBOT_SIM_SPEED"] == "2"
    assert values.jobs[0].command[1:3] == ("-m", "bot.demo.job")
    assert values.jobs[0].session is None
