"""A failing hop is named as a person would name it, and is never taken for the command's failure."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bot.domain.errors import ConfigError, HopError, TimedOut
from bot.domain.fleet import Hop
from bot.ports import Channel, Completed, Transport
from tests.transports.chains import KINDS, SOON, run, through
from tests.transports.gone import alive, gone
from tests.transports.servers import server, stand_in


async def _failure(transport: Transport) -> str:
    """What run and open say; both must say the same."""
    said: set[str] = set()
    calls: list[Callable[[], Awaitable[Completed | Channel]]] = [
        lambda: transport.run(["true"], timeout=SOON),
        lambda: transport.open(["true"]),
    ]
    for call in calls:
        with pytest.raises(HopError) as caught:
            await call()
        said.add(str(caught.value))
    await transport.close()
    assert len(said) == 1
    return said.pop()


@pytest.mark.parametrize(
    ("kind", "name", "state", "why"),
    [
        ("pct", "200", "stopped", "container 200 is stopped"),
        ("pct", "200", None, "container 200 does not exist"),
        ("pct", "200", "locked backup", "container 200 is locked (backup): look at it with `pct unlock`"),
        ("docker", "sglang", "exited", "container sglang is not running"),
        ("docker", "sglang", None, "container sglang does not exist"),
        ("docker", "sglang", "paused", "container sglang is paused"),
        ("docker", "sglang", "bare", "container sglang has no sh, and nothing can be run there without it"),
        (
            "docker",
            "sglang",
            "dead",
            "container sglang can't be entered: the docker daemon on its host is not running",
        ),
        ("sudo", "root", "asks", "sudo needs a password: allow it in sudoers with NOPASSWD"),
        ("sudo", "llm", "asks", "sudo as llm needs a password: allow it in sudoers with NOPASSWD"),
        ("sudo", "llm", None, "sudo as llm knows no user llm"),
        (
            "sudo",
            "root",
            "refused",
            "sudo does not let this login run commands: sudoers must allow /bin/sh",
        ),
    ],
)
@pytest.mark.parametrize("outside", ["here", "ssh"])
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, *, kind: str, name: str, state: str | None, why: str, outside: str
) -> None:
    async def main() -> None:
        made = stand_in(tmp_path, kind)
        if state:
            made.state(name, state)
        async with server(tmp_path) as there:
            hops = [made.hop(name)] if outside == "here" else [there.hop(), made.hop(name)]
            assert await _failure(through(hops)) == why

    run(main())


@pytest.mark.parametrize(
    ("kind", "key", "name"), [("pct", "id", "200"), ("docker", "container", "x"), ("sudo", "user", "root")]
)
@pytest.mark.parametrize("outside", ["here", "ssh"])
def test_a_missing_program_of_a_hop_is_the_hops_failure(
    tmp_path: Path, kind: str, key: str, name: str, outside: str
) -> None:
    async def main() -> None:
        hop = Hop(kind, ((key, name), ("command", f"/nowhere/{kind}")))
        async with server(tmp_path) as there:
            label = KINDS[kind].label(hop)
            hops = [hop] if outside == "here" else [there.hop(), hop]
            assert await _failure(through(hops)) == f"{label} can't be entered: there is no {kind} on its host"

    run(main())


def test_a_container_that_hangs_is_a_limit_that_passed_and_nothing_stays(tmp_path: Path) -> None:
    async def main() -> None:
        made = stand_in(tmp_path, "pct")
        made.state("200", "hung")
        transport = through([made.hop("200")])
        with pytest.raises(TimedOut, match=r"^true did not end within 0\.2 s in container 200$"):
            await transport.run(["true"], timeout=SOON / 100)
        assert alive(str(made.program)) == []
        await transport.close()

    run(main())


def test_a_hop_whose_words_are_unknown_is_quoted_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        program = tmp_path / "pct"
        program.write_text("#!/bin/sh\necho first >&2\nprintf 'second \\033[31m <!channel> %0300d\\n' 7 >&2\nexit 5\n")
        program.chmod(0o755)
        said = await _failure(through([Hop("pct", (("id", "7"), ("command", str(program))))]))
        assert said.startswith("container 7 can't be entered: second ?[31m <!channel> 000")
        assert len(said) < 250

    run(main())


def test_noise_before_the_command_is_not_its_output(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.noise = "echo Welcome; echo 'CT 200 not running' >&2; "
            transport = through([there.hop()])
            assert await transport.run(["echo", "hi"], timeout=SOON) == Completed(0, b"hi\n")
            channel = await transport.open(["cat"])
            await channel.send(b"x")
            assert await channel.receive() == b"x"
            await channel.close()
            assert channel.errors == b""
            await transport.close()

    run(main())


def test_a_login_that_may_run_nothing_is_the_hops_failure(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.noise = "echo 'This account is currently not available.'; exit 1; "
            said = await _failure(through([there.hop()]))
            assert said == (
                f"{KINDS['ssh'].label(there.hop())} runs no commands for this login: "
                "This account is currently not available."
            )

    run(main())


@pytest.mark.parametrize(
    "timeout_program",
    [
        None,
        # As old busybox has it: whole seconds only, and no -k.
        "#!/bin/sh\ncase $1 in -*) exit 1;; *.*) exit 1;; esac\necho wrong >&2; exit 1\n",
        # As newer busybox has it: -k, but whole seconds only.
        '#!/bin/sh\n[ "$1" = -k ] || exit 1\ncase $3 in *.*) exit 1;; esac\nexec /usr/bin/timeout "$@"\n',
    ],
    ids=["none", "no -k", "whole seconds"],
)
def test_commands_end_in_time_whatever_timeout_program_there_is(tmp_path: Path, timeout_program: str | None) -> None:
    async def main() -> None:
        made = stand_in(tmp_path, "pct")
        inside = tmp_path / "inside"
        inside.mkdir()
        for program in ("sh", "sleep", "cat", "true"):
            (inside / program).symlink_to(Path("/bin") / program)
        if timeout_program:
            (inside / "timeout").write_text(timeout_program)
            (inside / "timeout").chmod(0o755)
        made.state("200", f"running env PATH={inside}")
        transport = through([made.hop("200")])
        mark = f"61.{time.time_ns()}"
        for _ in range(2):
            assert await transport.run(["cat"], stdin=b"x", timeout=SOON) == Completed(0, b"x")
            assert await transport.run(["sh", "-c", "exit 7"], timeout=SOON) == Completed(7)
            with pytest.raises(TimedOut):
                await transport.run(["sleep", mark], timeout=SOON / 20)
            assert alive(mark, "sleep") == []
        assert await gone(mark)
        await transport.close()

    run(main())


@pytest.mark.parametrize(
    ("hop", "key"),
    [
        (Hop("pct", (("id", "two"),)), "pct.id"),
        (Hop("pct"), "pct.id"),
        (Hop("docker", (("container", "-x"),)), "docker.container"),
        (Hop("sudo", (("user", "-l"),)), "sudo.user"),
        (Hop("ssh", (("host", "-oProxyCommand=x"),)), "ssh.host"),
        (Hop("ssh", (("host", "h1:0"),)), "ssh.port"),
        (Hop("ssh", (("host", "h1"), ("jump", "-x"))), "ssh.jump"),
        (Hop("ssh", (("host", "h1"), ("prot", "22"))), "ssh.prot"),
    ],
)  # fmt: skip
def test_wrong_settings_name_their_key(hop: Hop, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KINDS[hop.transport].connect(hop, None)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("hop", "label"),
    [
        (Hop("local"), "this machine"),
        (Hop("ssh", (("host", "root@h1"),)), "ssh root@h1"),
        (Hop("ssh", (("host", "h1"),)), "ssh h1"),
        (Hop("ssh", (("host", "root@h1:22"),)), "ssh root@h1"),
        (Hop("ssh", (("host", "root@h1:2222"),)), "ssh root@h1:2222"),
        (Hop("ssh", (("host", "h1:2222"), ("user", "ana"), ("key", ""))), "ssh ana@h1:2222"),
        (Hop("ssh", (("host", "ana@corp@[fe80::1%eth0]:2222"),)), "ssh ana@corp@fe80::1%eth0:2222"),
        (Hop("ssh", (("host", "::1"),)), "ssh ::1"),
        (Hop("pct", (("id", "200"),)), "container 200"),
        (Hop("docker", (("container", "sglang"),)), "container sglang"),
        (Hop("sudo"), "sudo"),
        (Hop("sudo", (("user", "llm"),)), "sudo as llm"),
    ],
)
def test_labels_are_what_a_person_says(hop: Hop, label: str) -> None:
    assert KINDS[hop.transport].label(hop) == label
