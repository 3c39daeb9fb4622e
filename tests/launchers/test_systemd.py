"""The launcher ``systemd`` with real units, in a machine whose init is systemd."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.launchers.systemd import LAUNCHER, environment, quoted
from bot.runtime.probing.line import Line
from bot.runtime.probing.wire import Chunk, Follow, Item, Request, Tail, Tailed
from tests import hosts
from tests.launchers.grounds import WITHIN, Ground
from tests.launchers.test_contract import POLITE, STUBBORN, ended, until

root = pytest.mark.root

UNIT = """\
[Unit]
Description=made by the administrator
[Service]
Type={type}
Environment=FROM_UNIT=yes HF_HOME=/unit
LimitNOFILE=777
Restart={restart}
RestartSec=100ms
ExecStart={command}
"""


async def call(ground: Ground, *argv: str, stdin: bytes = b"") -> str:
    done = await ground.host.run(list(argv), stdin=stdin, timeout=WITHIN)
    assert done.is_ok, done
    return done.stdout.decode()


async def show(ground: Ground, unit: str, key: str) -> str:
    return (await call(ground, "systemctl", "show", "-p", key, "--value", unit)).strip()


async def made(
    ground: Ground,
    *,
    restart: str = "no",
    type_: str = "simple",
    is_template: bool = False,
    command: str = "/bin/sleep 1000",
) -> str:
    """A unit of the administrator's; the instance's name."""
    stem = f"sglang{secrets.token_hex(3)}"
    file = f"/etc/systemd/system/{stem}{'@' if is_template else ''}.service"
    text = UNIT.format(restart=restart, type=type_, command=command)
    await call(ground, "sh", "-c", 'cat >"$1"', "x", file, stdin=text.encode())
    await call(ground, "systemctl", "daemon-reload")
    return f"{stem}@30000.service" if is_template else stem


def configured(ground: Ground, unit: str, **changes: object):
    return replace(ground.server(), launcher_settings=(("unit", unit),), **changes)  # type: ignore[arg-type]


async def begin(ground: Ground, server, script: str, env: dict[str, str] | None = None) -> tuple[Path, Process]:
    room = ground.room(server.name)
    process = await ground.start(server, ["sh", "-c", script, "x", str(room)], env)
    await hosts.until((room / "up").exists)
    return room, process


@root
@pytest.mark.parametrize("is_template", [False, True])
def test_a_configured_unit_runs_our_flags_and_keeps_the_rest(systemd_ground, is_template):
    ground = systemd_ground

    async def scenario() -> None:
        unit = await made(ground, is_template=is_template)
        server = configured(ground, unit)
        tell = 'ulimit -n >"$1/limit"; printf "%s %s" "$FROM_UNIT" "$HF_HOME" >"$1/env"; ' + POLITE
        room, process = await begin(ground, server, tell, {"HF_HOME": "/ours"})
        assert hosts.read(room / "limit") == "777\n"
        assert hosts.read(room / "env") == "yes /ours"
        assert await show(ground, unit, "MainPID") == str(process.pid)
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)

        async def is_noted() -> bool:
            return await ground.noted(server) == "5"

        await until(is_noted)

    asyncio.run(scenario())


@root
@pytest.mark.parametrize(("restart", "force"), [("always", False), ("on-failure", True), ("no", True)])
def test_what_systemd_would_start_again_stays_ended_until_the_next_start(systemd_ground, restart, force):
    ground = systemd_ground

    async def scenario() -> None:
        unit = await made(ground, restart=restart)
        server = configured(ground, unit)
        script = STUBBORN if force else POLITE
        _room, process = await begin(ground, server, script)
        assert await show(ground, unit, "Restart") == restart
        await ground.launcher.end(ground.host, server, process, force=force)
        await ended(ground, process)
        await asyncio.sleep(0.5)
        assert await show(ground, unit, "MainPID") == "0"
        _room, second = await begin(ground, server, script)
        assert await show(ground, unit, "Restart") == restart
        await ground.launcher.end(ground.host, server, second, force=True)
        await ended(ground, second)

    asyncio.run(scenario())


@root
def test_the_child_of_a_units_script_is_ended_and_does_not_come_back_either(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        room = ground.room(secrets.token_hex(4))
        script = f"/bin/sh -c 'sleep 1000 & echo $$! >{room}/pid; wait $$!; exit 1'"
        unit = await made(ground, restart="always", command=script)
        await call(ground, "systemctl", "start", unit)
        await hosts.until(lambda: hosts.read(room / "pid").endswith("\n"))
        process = await ground.process(int(hosts.read(room / "pid")))
        assert process.argv == ("sleep", "1000")
        await ground.launcher.end(ground.host, configured(ground, unit), process, force=False)
        await ended(ground, process)
        await asyncio.sleep(0.5)
        assert await show(ground, unit, "MainPID") == "0"
        assert await show(ground, unit, "NRestarts") == "0"

    asyncio.run(scenario())


@root
def test_a_unit_that_notifies_is_started_without_waiting_until_it_is_ready(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        server = configured(ground, await made(ground, type_="notify"))
        _room, process = await begin(ground, server, POLITE)
        assert await ground.lives(process)
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


@root
def test_a_unit_that_is_not_there_or_runs_by_itself_is_left_alone(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        with pytest.raises(StepFailed, match=r"no-such-unit\.service is not there"):
            await ground.start(configured(ground, "no-such-unit"), ["true"])
        unit = await made(ground)
        await call(ground, "systemctl", "start", unit)
        main = await show(ground, unit, "MainPID")
        with pytest.raises(StepFailed, match=f"already runs with other arguments, pid {main}"):
            await ground.start(configured(ground, unit), ["true"])
        assert await show(ground, unit, "MainPID") == main
        await call(ground, "systemctl", "stop", unit)

    asyncio.run(scenario())


@root
def test_a_secret_of_the_environment_is_shown_to_nobody_who_asks_systemd(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        server = ground.server()
        _room, process = await begin(ground, server, POLITE, {"HF_TOKEN": "hf_secret_of_the_night"})
        told = await call(ground, "systemctl", "show", f"upbot-{server.name}")
        told += await call(ground, "systemctl", "cat", f"upbot-{server.name}")
        assert "hf_secret" not in told
        folder = f"/run/systemd/system/upbot-{server.name}.service.d"
        assert (await call(ground, "stat", "-c", "%a", f"{folder}/upbot.env")).strip() == "600"
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


@root
def test_where_the_note_is_lost_systemd_itself_is_asked(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        server = ground.server()
        _room, process = await begin(ground, server, POLITE)
        await ground.launcher.end(ground.host, server, process, force=True)

        async def is_noted() -> bool:
            return await ground.noted(server) == "137"

        await until(is_noted)
        (Path(ground.state) / server.name / "exit").unlink()
        assert (await ground.launched(server)).exit_status == 137

    asyncio.run(scenario())


@root
def test_the_directory_and_the_rotated_log_are_as_configured(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        place = ground.room("a dir %n $x")
        server = ground.server()
        server = replace(server, launch=replace(server.launch, directory=str(place)))
        for word in ("first", "second"):
            await ground.start(server, ["sh", "-c", 'pwd; echo "$1" >&2', "x", word])

            async def is_noted() -> bool:
                return await ground.noted(server) == "0"

            await until(is_noted)
        assert hosts.read(server.log) == f"{place}\nsecond\n"
        assert hosts.read(f"{server.log}.1") == f"{place}\nfirst\n"

    asyncio.run(scenario())


@root
def test_the_journal_is_followed_like_a_log(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        name = ground.server().name
        server = ground.server(name, log=f"journal:upbot-{name}.service")
        script = 'echo one; until [ -e "$1/go" ]; do sleep 0.05; done; echo two; ' + POLITE
        room = ground.room(name)
        process = await ground.start(server, ["sh", "-c", script, "x", str(room)])
        line = await Line.open(ground.host, "h")
        try:
            follow, said = Follow(server.log), b""
            seen: list[Chunk] = []

            async def says(word: bytes) -> None:
                nonlocal follow, said

                async def has_come() -> bool:
                    nonlocal follow, said
                    found: list[Item] = []
                    await line.ask(Request(follows=(follow,)), found.append)
                    (chunk,) = [one for one in found if isinstance(one, Chunk)]
                    assert not chunk.why
                    seen.append(chunk)
                    said = chunk.data if chunk.is_reset else said + chunk.data
                    follow = Follow(server.log, chunk.end, chunk.inode, chunk.seam)
                    return word in said.split(b"\n")

                await until(has_come)

            await says(b"one")
            (room / "go").touch()
            await says(b"two")
            assert [chunk.is_reset for chunk in seen] == [True] + [False] * (len(seen) - 1)
            assert said.count(b"one\n") == said.count(b"two\n") == 1
            found: list[Item] = []
            await line.ask(Request(tails=(Tail(server.log, 4096), Tail("journal:no-such.service", 10))), found.append)
            tails = [one for one in found if isinstance(one, Tailed)]
            assert {b"one", b"two"} <= set(tails[0].data.split(b"\n"))
            assert tails[1] == Tailed(1, b"", is_cut=False)
        finally:
            await line.close()
        await ground.launcher.end(ground.host, server, process, force=True)

    asyncio.run(scenario())


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",))))
def test_a_quoted_word_has_nothing_that_a_unit_file_could_mistake(word):
    inside = quoted(word)[1:-1]
    assert inside.isascii()
    assert inside.isprintable()
    assert '"' not in inside
    assert not {"$", "%"} & set(inside.replace("$$", "").replace("%%", ""))


@pytest.mark.parametrize("env", [{"A": "\x1b"}, {"A": "\udcff"}, {"A": "a\0"}, {"a-b": ""}])
def test_what_systemd_would_silently_leave_out_is_refused(env):
    with pytest.raises(StepFailed):
        environment(env)


@pytest.mark.parametrize("unit", ["a b", "a/b", "x" * 260, "-\n", "a@b@c"])
def test_what_can_be_no_unit_is_refused(process_ground, unit):
    with pytest.raises(StepFailed, match="can't be the name of a unit"):
        asyncio.run(LAUNCHER.launched(process_ground.host, configured(process_ground, unit), process_ground.state))


def test_a_machine_without_systemd_says_so(process_ground, tmp_path):
    host = hosts.with_shell("busybox", tmp_path)
    with pytest.raises(StepFailed, match="there is no systemctl there"):
        asyncio.run(LAUNCHER.start(host, process_ground.server(), ["true"], {}, str(tmp_path / "state")))


@root
def test_a_logins_own_systemd_starts_and_ends_alike(systemd_ground):
    ground = systemd_ground

    async def scenario() -> None:
        await call(ground, "mkdir", "-p", "-m", "700", "/run/user/0")
        words = ("systemd-run", "--unit=own-manager", "-p", "Delegate=yes", "-E", "XDG_RUNTIME_DIR=/run/user/0")
        await call(ground, *words, "/lib/systemd/systemd", "--user", "--unit=basic.target")

        async def answers() -> bool:
            argv = ["env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user", "is-system-running"]
            return (await ground.host.run(argv, timeout=WITHIN)).stdout.strip() in (b"running", b"degraded")

        await until(answers)
        server = ground.server(launcher_settings=(("manager", "user"),))
        _room, process = await begin(ground, server, POLITE, {"HF_TOKEN": "hf_secret"})
        cgroup = await call(ground, "cat", f"/proc/{process.pid}/cgroup")
        assert f"own-manager.service/app.slice/upbot-{server.name}.service" in cgroup
        await ground.launcher.end(ground.host, server, process, force=False)
        await ended(ground, process)

        async def is_noted() -> bool:
            return await ground.noted(server) == "5"

        await until(is_noted)
        assert (await ground.launched(server)).exit_status == 5
        await call(ground, "systemctl", "stop", "own-manager")

    asyncio.run(scenario())
