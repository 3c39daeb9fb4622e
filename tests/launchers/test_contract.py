"""What every launcher keeps to, on a real host each: a machine, a machine with systemd, Podman in Docker's place."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot import plugins
from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.ports import Launcher
from tests import hosts
from tests.launchers.grounds import WITHIN, Ground

HOSTILE = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$(id)",
    "`id`",
    "$HOME",
    "${HOME}",
    "$$",
    "*",
    "\\",
    "\\n",
    "a\nb\n",
    "-n",
    "--",
    "%s%%n",
]
HOSTILE += [";", "&", "ü€", "!", "a=b", "\t", "\x01", "\\0101", "\\c", "%h", "@x", "{{.Id}}", "#", "'\"\\"]
WAIT = 'echo up >"$1/up"; while :; do sleep 0.1; done'
POLITE = "trap 'echo bye >\"$1/bye\"; exit 5' TERM; " + WAIT
STUBBORN = "trap '' TERM; " + WAIT


@pytest.fixture(
    params=[
        "process",
        pytest.param("systemd", marks=pytest.mark.root),
        pytest.param("docker", marks=pytest.mark.root),
    ]
)
def ground(request: pytest.FixtureRequest) -> Ground:
    found = request.getfixturevalue(f"{request.param}_ground")
    assert isinstance(found, Ground)
    return found


async def until(what: Callable[[], Awaitable[bool]], within: float = 20) -> None:
    """Wait until it is so; fails when it is not so in time."""
    deadline = time.monotonic() + within
    while not await what():
        assert time.monotonic() < deadline, "it did not become so in time"
        await asyncio.sleep(0.05)


async def ended(ground: Ground, one: Process) -> None:
    async def is_gone() -> bool:
        return not await ground.lives(one)

    await until(is_gone)


async def begin(ground: Ground, script: str, name: str | None = None):
    """A server that runs this script, and is up."""
    server = ground.server(name)
    room = ground.room(server.name)
    process = await ground.start(server, ["sh", "-c", script, "x", str(room)])
    await hosts.until((room / "up").exists)
    return server, room, process


def test_the_loader_finds_all_of_them():
    found: dict[str, Launcher] = plugins.load("bot.launchers", "LAUNCHER")
    assert sorted(found) == ["docker", "process", "systemd"]


def test_a_start_is_detached_and_says_who_runs(ground):
    async def scenario() -> None:
        server, _room, process = await begin(ground, POLITE)
        assert (Path(process.argv[0]).name, *process.argv[1:3]) == ("sh", "-c", POLITE)
        assert process.started > 0
        record = json.loads((Path(ground.state) / server.name / "start.json").read_text())
        assert (record["pid"], record["started"]) == process.identity
        assert await ground.launched(server) == replace(
            await ground.launched(server), pid=process.pid, exit_status=None
        )
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


def test_a_second_start_with_the_same_words_is_done_already(ground):
    async def scenario() -> None:
        server, room, process = await begin(ground, POLITE)
        again = await ground.start(server, ["sh", "-c", POLITE, "x", str(room)])
        assert again.identity == process.identity
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


def test_other_words_for_what_runs_are_refused_and_it_goes_on(ground):
    async def scenario() -> None:
        server, _room, process = await begin(ground, POLITE)
        with pytest.raises(StepFailed, match="already runs with other arguments"):
            await ground.start(server, ["sh", "-c", "exit 0"])
        assert await ground.lives(process)
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


def test_it_ends_gently_and_its_exit_status_is_on_record(ground):
    async def scenario() -> None:
        server, room, process = await begin(ground, POLITE)
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)
        assert hosts.read(room / "bye") == "bye\n"

        async def is_noted() -> bool:
            return await ground.noted(server) == "5"

        await until(is_noted)
        found = await ground.launched(server)
        assert (found.pid, found.exit_status) == (process.pid, 5)

    asyncio.run(scenario())


def test_what_ignores_sigterm_is_ended_by_force_with_its_tree(ground):
    async def scenario() -> None:
        script = 'setsid sh -c \'echo $$ >"$1/child"; while :; do sleep 0.1; done\' y "$1" & ' + STUBBORN
        server, room, process = await begin(ground, script)
        await hosts.until((room / "child").exists)
        await ground.launcher.end(ground.host, server, process, force=False)
        await asyncio.sleep(0.3)
        assert await ground.lives(process)
        await ground.launcher.end(ground.host, server, process, force=True)
        await ended(ground, process)

        async def nobody_writes() -> bool:
            done = await ground.host.run(["pgrep", "-f", str(room)], timeout=WITHIN)
            return not done.stdout.strip()

        await until(nobody_writes)

        async def is_noted() -> bool:
            return await ground.noted(server) == "137"

        await until(is_noted)

    asyncio.run(scenario())


def test_a_pid_that_is_somebody_elses_by_now_is_not_signalled(ground):
    async def scenario() -> None:
        server, room, process = await begin(ground, POLITE)
        other = replace(process, started=process.started - 1)
        for force in (False, True):
            await ground.launcher.end(ground.host, server, other, force=force)
        await asyncio.sleep(0.3)
        assert await ground.lives(process)
        assert not (room / "bye").exists()
        await ground.launcher.end(ground.host, server, process, force=True)
        await ended(ground, process)

    asyncio.run(scenario())


def test_what_is_gone_already_is_no_error(ground):
    async def scenario() -> None:
        server, _room, process = await begin(ground, POLITE)
        await ground.launcher.end(ground.host, server, process, force=True)
        await ended(ground, process)
        for force in (False, True):
            await ground.launcher.end(ground.host, server, process, force=force)

    asyncio.run(scenario())


def test_nobody_is_no_process_to_end(ground):
    with pytest.raises(StepFailed, match="no process"):
        asyncio.run(ground.launcher.end(ground.host, ground.server(), Process(0, 0), force=True))


def test_a_process_that_the_launcher_did_not_start_is_ended_alike(ground):
    async def scenario() -> None:
        server = ground.server()
        room = ground.room(server.name)
        script = f"(setsid sh -c '{WAIT.replace(chr(39), '')}' x \"$1\" >/dev/null 2>&1 & echo $!)"
        done = await ground.host.run(["sh", "-c", script, "x", str(room)], timeout=WITHIN)
        await hosts.until((room / "up").exists)
        process = await ground.process(int(done.stdout))
        assert process.started
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)

    asyncio.run(scenario())


def test_hostile_arguments_and_variables_arrive_as_they_are(ground):
    async def scenario() -> None:
        server = ground.server()
        room = ground.room(server.name)
        tell = 'for word in "$@"; do printf "%s\\0" "$word"; done >"$ROOM/words"; printf "%s" "$ODD" >"$ROOM/odd"; echo said; exit 3'
        env = {"ROOM": str(room), "ODD": "s3cr3t ''\"$(id)`id` $HOME \\ \\n %h # ü ; x=y "}
        await ground.start(server, ["sh", "-c", tell, "x", *HOSTILE], env)

        async def is_noted() -> bool:
            return await ground.noted(server) == "3"

        await until(is_noted)
        assert (room / "words").read_bytes().decode().split("\0")[:-1] == HOSTILE
        assert (room / "odd").read_bytes().decode() == env["ODD"]
        assert hosts.read(server.log).splitlines()[-1] == "said"
        assert (await ground.launched(server)).exit_status == 3
        assert "s3cr3t" not in "".join(hosts.read(one) for one in (Path(ground.state) / server.name).iterdir())

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x\0", "../up"])
def test_a_name_that_leads_elsewhere_is_refused(ground, name):
    with pytest.raises(StepFailed):
        asyncio.run(ground.launcher.start(ground.host, replace(ground.server(), name=name), ["true"], {}, ground.state))


@pytest.mark.parametrize("name", ["A-b_c.d-1", "x" * 64])
def test_every_name_that_a_fleet_file_takes_can_be_started(ground, name):
    async def scenario() -> None:
        server, _room, process = await begin(ground, POLITE, name)
        await ground.launcher.end(ground.host, server, process, force=True)
        await ended(ground, process)

    asyncio.run(scenario())


@pytest.mark.parametrize("argv", [[], [""], ["/no/such/program"], ["no-such-program"]])
def test_what_can_not_be_run_is_a_failed_start(ground, argv):
    with pytest.raises(StepFailed, match="can't be started"):
        asyncio.run(ground.start(ground.server(), argv))


@pytest.mark.parametrize("env", [{"a b": "x"}, {"1": "x"}, {"A": "\0"}])
def test_a_variable_that_no_process_can_have_is_refused(ground, env):
    with pytest.raises(StepFailed):
        asyncio.run(ground.start(ground.server(), ["true"], env))


def test_a_start_after_an_end_is_a_new_story(ground):
    async def scenario() -> None:
        server, room, first = await begin(ground, POLITE)
        await ground.launcher.end(ground.host, server, first, force=False)

        async def is_noted() -> bool:
            return await ground.noted(server) == "5"

        await until(is_noted)
        second = await ground.start(server, ["sh", "-c", STUBBORN, "x", str(room)])
        assert second.identity != first.identity
        assert await ground.noted(server) == ""
        assert (await ground.launched(server)).exit_status is None
        await ground.launcher.end(ground.host, server, second, force=True)

    asyncio.run(scenario())


def test_eight_start_at_the_same_time(ground):
    async def scenario() -> None:
        begun = await asyncio.gather(*(begin(ground, POLITE) for _ in range(8)))
        assert len({process.pid for _server, _room, process in begun}) == 8
        await asyncio.gather(*(ground.launcher.end(ground.host, one[0], one[2], force=True) for one in begun))

    asyncio.run(scenario())


def test_what_somebody_else_started_is_adopted_and_then_on_record(ground):
    async def scenario() -> None:
        server = ground.server()
        done = await ground.host.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!"], timeout=WITHIN)
        await asyncio.sleep(0.1)
        process = await ground.process(int(done.stdout))
        await ground.launcher.adopt(ground.host, server, process, ground.state)
        assert (await ground.launched(server)).pid == process.pid
        with pytest.raises(StepFailed, match="other arguments"):
            await ground.start(server, ["sleep", "1"])
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)
        with pytest.raises(StepFailed, match="gone"):
            await ground.launcher.adopt(ground.host, server, process, ground.state)

    asyncio.run(scenario())
