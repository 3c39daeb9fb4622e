"""The contract's hard parts against a real OpenSSH server, through it into a container, and through OpenSSH's client."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bot.domain.errors import HopError, TimedOut
from bot.domain.fleet import Hop
from bot.ports import Completed, Transport
from tests.transports.chains import KINDS, SOON, run, through
from tests.transports.gone import gone, started
from tests.transports.servers import LOOPBACK, Login, container, free_port, sshd, stand_in
from tests.transports.test_contract import ECHO, HOSTILE

pytestmark = pytest.mark.sshd

# Bytes that are no UTF-8 arrive too; the server in the process could not take them.
BYTES = [os.fsdecode(bytes([byte])) for byte in range(1, 256)]


# Kills the sshd process that it hangs on: the first ancestor of that name.
KILLER = (
    "echo partial; p=$$; while read -r _ name _ < /proc/$p/stat && [ \"$name\" != '(sshd)' ]; do "
    "read -r _ _ _ p _ < /proc/$p/stat; done; kill -9 $p; sleep 1"
)


async def _exact(transport: Transport) -> None:
    for strings in (HOSTILE, BYTES):
        done = await transport.run([sys.executable, "-c", ECHO, *strings], timeout=SOON)
        assert done == Completed(0, b"\0".join(map(os.fsencode, strings)))


async def _bounded(transport: Transport) -> None:
    mark = f"{time.time_ns()}"
    with pytest.raises(TimedOut):
        await transport.run(
            ["sh", "-c", f"trap '' TERM; (trap '' TERM; sleep 60.{mark}) & sleep 60.{mark}"],
            timeout=timedelta(seconds=0.5),
        )
    assert await gone(mark)


def test_hostile_strings_and_limits_hold_over_a_real_server(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        await _exact(transport)
        await _bounded(transport)
        data = bytes(range(256)) * 8192
        assert await transport.run(["cat"], stdin=data, timeout=SOON) == Completed(0, data)
        assert await transport.run(["sh", "-c", "kill -KILL $$"], timeout=SOON) == Completed(137)
        await transport.close()

    with sshd(tmp_path) as login:
        run(main(login))


def test_thirty_commands_at_once_stay_under_the_servers_limit_of_sessions(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        for _ in range(3):
            runs = [transport.run(["echo", str(n)], timeout=SOON) for n in range(30)]
            assert [done.stdout for done in await asyncio.gather(*runs)] == [f"{n}\n".encode() for n in range(30)]
        await transport.close()

    with sshd(tmp_path) as login:
        run(main(login))


def test_a_server_that_allows_two_sessions_gets_two(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        runs = [transport.run(["echo", str(n)], timeout=SOON) for n in range(20)]
        assert [done.stdout for done in await asyncio.gather(*runs)] == [f"{n}\n".encode() for n in range(20)]
        await transport.close()

    with sshd(tmp_path, MaxSessions="2") as login:
        run(main(login))


def test_a_session_whose_server_process_is_killed_is_a_failure(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        label = KINDS["ssh"].label(login.hop())
        with pytest.raises(HopError) as caught:
            await transport.run(["sh", "-c", KILLER], timeout=SOON)
        assert str(caught.value) == f"{label} lost the connection while sh ran"
        assert await transport.run(["echo", "hi"], timeout=SOON) == Completed(0, b"hi\n")
        await transport.close()

    with sshd(tmp_path) as login:
        run(main(login))


def test_giving_up_many_commands_keeps_the_connection_usable(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        mark = f"{time.time_ns()}"
        tasks = [asyncio.create_task(transport.run(["sleep", f"9{n}.{mark}"], timeout=SOON)) for n in range(8)]
        assert await started(mark)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await gone(mark)
        runs = [transport.run(["echo", str(n)], timeout=SOON) for n in range(20)]
        assert len(await asyncio.gather(*runs)) == 20
        await transport.close()

    with sshd(tmp_path) as login:
        run(main(login))


def test_a_login_without_the_right_key_is_refused(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        transport = through([login.hop()])
        with pytest.raises(HopError, match=r"^ssh \S+ refused the login$"):
            await transport.run(["true"], timeout=SOON)

    with sshd(tmp_path, AuthorizedKeysFile="/nonexistent") as login:
        run(main(login))


def test_openssh_s_client_inside_another_hop_keeps_the_contract(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        made = stand_in(tmp_path, "sudo")
        made.state("root", "running")
        transport = through([made.hop("root"), login.hop()])
        await _exact(transport)
        await _bounded(transport)
        assert await transport.run(["sh", "-c", "exit 255"], timeout=SOON) == Completed(255)
        channel = await transport.open(["cat"])
        await channel.send(b"x")
        assert await channel.receive() == b"x"
        await channel.close()
        await transport.close()

    with sshd(tmp_path) as login:
        run(main(login))


def test_failures_of_openssh_s_client_are_named_like_ours(tmp_path: Path) -> None:
    async def main(login: Login) -> None:
        made = stand_in(tmp_path, "sudo")
        made.state("root", "running")

        async def says(hop: Hop) -> str:
            with pytest.raises(HopError) as caught:
                await through([made.hop("root"), hop]).run(["true"], timeout=SOON)
            return str(caught.value)

        other = tmp_path / "other"
        other.write_text(login.known_hosts.read_text().replace(str(login.port), "1"))
        changed = tmp_path / "changed"
        public = (login.directory / "id_test.pub").read_text()
        changed.write_text(f"[{LOOPBACK}]:{login.port} {public}")
        label, nobody = KINDS["ssh"].label(login.hop()), str(free_port())
        assert (await says(login.hop(known_hosts=str(other)))).startswith(f"{label} is not trusted yet: ")
        assert (await says(login.hop(known_hosts=str(changed)))).startswith(
            f"{label} is refused: the host key has changed. "
        )
        assert await says(login.hop(key=str(login.directory / "host_key"))) == f"{label} refused the login"
        assert (await says(login.hop(port=nobody))).endswith(
            f":{nobody} refused the connection: nothing listens on port {nobody}"
        )
        assert (await says(login.hop(host="no-such-host.invalid"))).endswith(" is not a known name")

    with sshd(tmp_path) as login:
        run(main(login))


@pytest.mark.root
def test_a_container_behind_a_real_server_keeps_the_contract(tmp_path: Path) -> None:
    async def main(login: Login, hop: Hop) -> None:
        transport = through([login.hop(), hop])
        assert (await transport.run(["hostname"], timeout=SOON)).stdout == b"ct200\n"
        await _exact(transport)
        await _bounded(transport)
        channel = await transport.open(
            [sys.executable, "-u", "-c", "import sys\nfor x in sys.stdin: sys.stdout.write(x)"]
        )
        await channel.send(b"hello\n")
        assert await channel.receive() == b"hello\n"
        await channel.close()
        deaf = time.time_ns()
        channel = await transport.open(["sh", "-c", f"echo up; exec sleep 70.{deaf}"])
        assert await channel.receive() == b"up\n"
        await channel.close()
        assert await gone(str(deaf))
        await transport.close()

    with sshd(tmp_path) as login, container(tmp_path, 200) as inside:
        run(main(login, inside.hop()))


@pytest.mark.root
def test_a_container_that_is_powered_off_in_the_middle_is_stopped(tmp_path: Path) -> None:
    with sshd(tmp_path) as login, container(tmp_path, 200) as inside:

        async def main() -> None:
            transport = through([login.hop(), inside.hop()])
            mark = f"{time.time_ns()}"
            task = asyncio.create_task(transport.run(["sleep", f"60.{mark}"], timeout=SOON))
            assert await started(mark, "sleep")
            inside.stop()
            assert (await task).status == 137
            with pytest.raises(HopError, match=r"^container 200 is stopped$"):
                await transport.run(["true"], timeout=SOON)
            await transport.close()

        run(main())
