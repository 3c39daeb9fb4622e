"""The launcher ``docker`` with real containers, Podman obeying the same command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.errors import StepFailed
from bot.launchers.docker import LAUNCHER, env_file, run_words
from tests import hosts
from tests.launchers import podman
from tests.launchers.grounds import Ground
from tests.launchers.test_contract import POLITE, begin, ended, until

root = pytest.mark.root


def tool(ground: Ground, *words: str) -> str:
    command = dict(ground.settings)["command"]
    done = subprocess.run([command, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@root
def test_a_container_of_that_name_that_is_not_ours_is_left_alone(docker_ground):
    ground = docker_ground
    server = ground.server()
    tool(ground, "create", "--name", f"upbot-{server.name}", podman.IMAGE, "sleep", "1")
    with pytest.raises(StepFailed, match="is there that is not ours"):
        asyncio.run(ground.start(server, ["sh", "-c", POLITE]))
    assert tool(ground, "inspect", "-f", "{{.State.Status}}", f"upbot-{server.name}") == "created"


@root
def test_what_runs_with_another_image_or_other_options_is_refused_and_goes_on(docker_ground):
    ground = docker_ground

    async def scenario() -> None:
        server, room, process = await begin(ground, POLITE)
        (Path(ground.state) / server.name / "start.json").unlink()
        same = ["sh", "-c", POLITE, "x", str(room)]
        await ground.launcher.start(ground.host, server, same, {}, ground.state)
        other = replace(server, launcher_settings=(*server.launcher_settings, ("args", "[]")))
        with pytest.raises(StepFailed, match=f"already runs with other arguments, pid {process.pid}"):
            await ground.launcher.start(ground.host, other, same, {}, ground.state)
        with pytest.raises(StepFailed, match="already runs with other arguments"):
            await ground.launcher.start(ground.host, server, same, {"A": "1"}, ground.state)
        assert await ground.lives(process)
        await ground.launcher.end(ground.host, server, process, force=True)
        await ended(ground, process)

    asyncio.run(scenario())


@root
def test_what_a_container_says_stands_in_the_servers_log_and_old_logs_are_kept(docker_ground):
    ground = docker_ground

    async def scenario() -> None:
        server = ground.server()
        for word in ("first", "second"):
            await ground.start(server, ["sh", "-c", 'echo "$1"; echo "err $1" >&2', "x", word])

            async def is_noted() -> bool:
                return await ground.noted(server) == "0"

            await until(is_noted)
        assert sorted(hosts.read(server.log).splitlines()) == ["err second", "second"]
        assert sorted(hosts.read(f"{server.log}.1").splitlines()) == ["err first", "first"]

    asyncio.run(scenario())


@root
def test_where_the_keeper_is_gone_the_container_itself_is_asked(docker_ground):
    ground = docker_ground

    async def scenario() -> None:
        server, _room, process = await begin(ground, POLITE)
        state = str(Path(ground.state) / server.name)
        (keeper,) = [pid for pid in hosts.pids() if f"upbot-keeper\0{state}\0".encode() in hosts.command_line(pid)]
        hosts.end(keeper)
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)

        async def is_told() -> bool:
            return (await ground.launched(server)).exit_status == 5

        await until(is_told)
        assert await ground.noted(server) == ""

    asyncio.run(scenario())


@root
def test_an_image_that_is_not_there_fails_the_start_and_leaves_nothing(docker_ground):
    ground = docker_ground
    server = ground.server()
    settings = (*server.launcher_settings, ("image", "localhost/no-such-image"))
    args = ("args", json.dumps(["--pull", "never"]))
    with pytest.raises(StepFailed, match="can't be started"):
        asyncio.run(ground.start(replace(server, launcher_settings=(*settings, args)), ["true"]))
    assert f"upbot-{server.name}" not in tool(ground, "ps", "-a", "--format", "{{.Names}}")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "names no image"),
        ((("image", "--rm"),), "names no image"),
        ((("image", "i"), ("args", '["--restart=always"]')), "--restart=always is the launcher's own"),
        ((("image", "i"), ("args", '["--rm"]')), "--rm is the launcher's own"),
    ],
)
def test_what_would_take_the_launchers_work_away_is_refused(process_ground, settings, said):
    server = replace(process_ground.server(), launcher_settings=settings)
    with pytest.raises(StepFailed, match=said):
        run_words(server, ["sh"])


@pytest.mark.parametrize("env", [{"A": "a\nB=b"}, {"A": "\r"}, {"A": "\udcff"}, {"A=B": "x"}])
def test_what_an_environment_file_can_not_hold_is_refused(env):
    with pytest.raises(StepFailed):
        env_file(env)


def test_a_machine_without_docker_says_so(process_ground, tmp_path):
    host = hosts.with_shell("busybox", tmp_path)
    server = replace(process_ground.server(), launcher_settings=(("image", "i"),))
    with pytest.raises(StepFailed, match="there is no command docker there"):
        asyncio.run(LAUNCHER.start(host, server, ["true"], {}, str(tmp_path / "state")))
