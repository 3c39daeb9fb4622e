"""The warm ssh connection: made once, checked always, found out when it is dead, and made again."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from bot.domain.errors import FleetError, HopError, TimedOut
from bot.domain.fleet import Hop
from bot.ports import Completed, Transport
from tests.transports.chains import KINDS, SOON, run, through
from tests.transports.gone import gone, started
from tests.transports.servers import LOOPBACK, Relay, Server, free_port, login, server, stand_in


async def _says(attempt: Coroutine[Any, Any, object]) -> str:
    with pytest.raises(HopError) as caught:
        await attempt
    return str(caught.value)


async def _echo(transport: Transport) -> None:
    assert await transport.run(["echo", "hi"], timeout=SOON) == Completed(0, b"hi\n")


def _name(there: Server) -> str:
    return KINDS["ssh"].label(there.hop())


def test_one_connection_serves_all_who_come_at_once_and_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            await asyncio.gather(*(_echo(transport) for _ in range(30)))
            await _echo(transport)
            assert there.logins == 1
            await transport.close()

    run(main())


def test_a_lost_connection_is_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            for logins in (1, 2, 3):
                await _echo(transport)
                assert there.logins == logins
                there.die()
            await transport.close()

    run(main())


def test_a_server_that_dies_in_the_middle_is_a_failure_and_no_result(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            mark = f"{time.time_ns()}"
            task = asyncio.create_task(
                transport.run(["sh", "-c", f"echo partial; sleep 3.{mark}"], timeout=timedelta(seconds=4))
            )
            assert await started(mark)
            there.die()
            assert await _says(_wait(task)) == f"{_name(there)} lost the connection while sh ran"
            await _echo(transport)
            assert await gone(mark)
            await transport.close()

    run(main())


async def _wait(task: asyncio.Task[Completed]) -> Completed:
    return await task


def test_a_channel_whose_server_dies_ends_and_can_be_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            channel = await transport.open(["cat"])
            there.die()
            assert await channel.receive() == b""
            with pytest.raises(HopError):
                await channel.send(b"x")
            await channel.close()
            await transport.close()

    run(main())


def test_a_half_open_connection_is_noticed_and_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there, Relay(there.login.port) as relay:
            _trust_at(there, relay.port)
            transport = through([there.hop(port=str(relay.port))])
            await _echo(transport)
            channel = await transport.open(["cat"])
            relay.freeze()
            began = time.monotonic()
            said = await _says(transport.run(["true"], timeout=timedelta(seconds=0.5)))
            assert said == f"ssh {there.login.user}@{LOOPBACK}:{relay.port} timed out after 0.5 s"
            assert await channel.receive() == b""
            assert time.monotonic() - began < 6
            await channel.close()
            relay.cut()
            relay.thaw()
            await _echo(transport)
            await transport.close()

    run(main())


def _trust_at(there: Server, port: int) -> None:
    """Know the server's host key at another port too."""
    key = there.login.known_hosts.read_text().split(maxsplit=1)[1]
    with there.login.known_hosts.open("a") as file:
        file.write(f"[{LOOPBACK}]:{port} {key}")


def test_a_refused_login_says_so_and_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.is_login_refused = True
            transport = through([there.hop()])
            assert await _says(transport.run(["true"], timeout=SOON)) == f"{_name(there)} refused the login"
            there.is_login_refused = False
            await _echo(transport)
            await transport.close()

    run(main())


def test_a_changed_host_key_is_refused_with_what_to_do_and_heals_when_it_is_mended(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            good = there.login.known_hosts.read_text()
            there.login.known_hosts.write_text("")
            for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256"):
                there.login.known_hosts.write_text("")
                there.login.trust(asyncssh.generate_private_key(kind))
                transport = through([there.hop()])
                assert await _says(transport.run(["true"], timeout=SOON)) == (
                    f"{_name(there)} is refused: the host key has changed. If the machine was set up anew, remove the "
                    f"old key with `ssh-keygen -R '[{LOOPBACK}]:{there.login.port}'` and accept the new one with a "
                    "first login by hand"
                )
            there.login.known_hosts.write_text("nonsense line\n" + good)
            await _echo(transport)
            await transport.close()

    run(main())


@pytest.mark.parametrize("config", ["", "UserKnownHostsFile none\nStrictHostKeyChecking no\n"])
def test_an_unknown_host_key_is_refused_whatever_the_ssh_config_says(tmp_path: Path, config: str) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.login.known_hosts.unlink()
            there.login.config.write_text(config)
            assert await _says(through([there.hop()]).run(["true"], timeout=SOON)) == (
                f"{_name(there)} is not trusted yet: there is no host key of it in known_hosts; log in once by hand "
                f"with `ssh -p {there.login.port} {LOOPBACK}` and compare the fingerprint"
            )
            assert there.logins == 0

    run(main())


def test_a_revoked_host_key_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.login.known_hosts.write_text(
                "".join(mark + there.login.known_hosts.read_text() for mark in ("", "@revoked "))
            )
            assert await _says(through([there.hop()]).run(["true"], timeout=SOON)) == (
                f"{_name(there)} is refused: its host key is marked as revoked in known_hosts"
            )

    run(main())


def test_a_host_that_swallows_everything_times_out_in_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as silent:
            silent.bind((LOOPBACK, 0))
            silent.listen()
            hop = login(tmp_path, silent.getsockname()[1]).hop(user="root", timeout="0.5")
            transport = through([hop])
            began = time.monotonic()
            said = await asyncio.gather(*(_says(transport.run(["true"], timeout=SOON)) for _ in range(5)))
            assert time.monotonic() - began < 1.5
            assert set(said) == {f"ssh root@{LOOPBACK}:{hop.get('port')} timed out after 0.5 s"}
            await transport.close()

    run(main())


def test_closing_while_it_connects_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as silent:
            silent.bind((LOOPBACK, 0))
            silent.listen()
            transport = through([login(tmp_path, silent.getsockname()[1]).hop()])
            task = asyncio.create_task(transport.run(["true"], timeout=SOON))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
            await transport.close()

    run(main())


def test_nobody_listening_and_no_such_name_are_said(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        made = login(tmp_path, port)
        assert await _says(through([made.hop(user="root")]).run(["true"], timeout=SOON)) == (
            f"ssh root@{LOOPBACK}:{port} refused the connection: nothing listens on port {port}"
        )
        nameless = made.hop(host="no-such-host.invalid")
        assert await _says(through([nameless]).run(["true"], timeout=SOON)) == (
            "no-such-host.invalid is not a known name"
        )

    run(main())


def test_something_that_is_no_ssh_server_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        listener = await asyncio.start_server(serve, LOOPBACK, 0)
        port = listener.sockets[0].getsockname()[1]
        said = await _says(through([login(tmp_path, port).hop(user="root")]).run(["true"], timeout=SOON))
        assert said == f"ssh root@{LOOPBACK}:{port} closed the connection before the login was done"
        listener.close()
        await listener.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "can't be tried: {}: No such file or directory"),
        ("hunter2 is no key", "can't be tried: its private key can't be read (is it a key?)"),
    ],
)
def test_a_key_file_that_is_missing_or_wrong_is_said_without_a_word_of_it(
    tmp_path: Path, text: str | None, why: str
) -> None:
    async def main() -> None:
        key = tmp_path / "key"
        if text:
            key.write_text(text)
        hop = Hop("ssh", (("host", "root@h1"), ("key", str(key)), ("config", "/dev/null")))
        assert await _says(through([hop]).run(["true"], timeout=SOON)) == f"ssh root@h1 {why.format(key)}"

    run(main())


def test_an_encrypted_key_that_no_agent_has_is_a_refused_login(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            secret = asyncssh.generate_private_key("ssh-ed25519")
            secret.write_private_key(str(tmp_path / "locked"), "pkcs8-pem", passphrase="hunter2")
            said = await _says(through([there.hop(key=str(tmp_path / "locked"))]).run(["true"], timeout=SOON))
            assert said == f"{_name(there)} refused the login"

    run(main())


def test_the_ssh_config_gives_the_address_the_login_and_the_jump_host(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with server(tmp_path / "a") as bastion, server(tmp_path / "b") as inner:
            inner.login.known_hosts.write_text(
                inner.login.known_hosts.read_text() + bastion.login.known_hosts.read_text()
            )
            inner.login.config.write_text(
                f"Host gpu\n HostName {LOOPBACK}\n Port {inner.login.port}\n User ana\n ProxyJump front\n"
                f" IdentityFile {inner.login.key}\n UserKnownHostsFile {inner.login.known_hosts}\n"
                f"Host front\n HostName {LOOPBACK}\n Port {bastion.login.port}\n User bo\n"
                f" IdentityFile {bastion.login.key}\n UserKnownHostsFile {bastion.login.known_hosts}\n"
            )
            hop = Hop("ssh", (("host", "gpu"), ("config", str(inner.login.config))))
            transport = through([hop])
            await _echo(transport)
            assert (bastion.logins, inner.logins, bastion.forwards) == (1, 1, [inner.login.port])
            inner.die()
            await _echo(transport)
            bastion.is_login_refused = True
            bastion.die()
            assert await _says(transport.run(["true"], timeout=SOON)) == "ssh front refused the login"
            await transport.close()

    run(main())


@pytest.mark.parametrize(
    ("config", "cipher"),
    [("", "aes256-gcm@openssh.com"), ("Ciphers aes192-ctr\n", "aes192-ctr")],
    ids=["none set", "the ssh config's"],
)
def test_the_cipher_is_the_cheapest_here_unless_the_ssh_config_sets_one(
    tmp_path: Path, config: str, cipher: str
) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            there.login.config.write_text(config)
            transport = KINDS["ssh"].connect(there.hop(), None)
            line = await transport.line()
            assert line.connection.get_extra_info("send_cipher") == cipher
            await transport.close()

    run(main())


def test_a_jump_host_that_can_not_reach_the_next_is_told_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as bastion:
            nobody = free_port()
            hop = bastion.hop(port=str(nobody), user="root", jump=f"{LOOPBACK}:{bastion.login.port}")
            said = await _says(through([hop]).run(["true"], timeout=SOON))
            assert said.startswith(f"ssh root@{LOOPBACK}:{nobody} can't be reached from its jump host: ")

    run(main())


def test_a_command_too_long_for_ssh_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            await _echo(transport)
            with pytest.raises(
                FleetError, match=r"^the command echo is too long for ssh: 1\d\d,\d\d\d bytes, 131,071 at most$"
            ):
                await transport.run(["echo", "x" * 70_000, "y" * 70_000], timeout=SOON)
            await _echo(transport)
            assert there.logins == 1
            await transport.close()

    run(main())


def test_lasting_channels_leave_places_for_commands(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            channels = [await transport.open(["cat"]) for _ in range(6)]
            await asyncio.gather(*(_echo(transport) for _ in range(10)))
            said = await _says(transport.open(["cat"]))
            assert said == f"{_name(there)} gives no further session: all 6 places for lasting channels are taken"
            await channels[0].close()
            channels[0] = await transport.open(["cat"])
            for channel in channels:
                await channel.close()
            await transport.close()

    run(main())


def test_a_command_given_up_ends_soon_on_the_far_side(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            mark = f"{time.time_ns()}"
            tasks = [asyncio.create_task(transport.run(["sleep", f"9{n}.{mark}"], timeout=SOON)) for n in range(8)]
            assert await started(mark)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert await gone(mark, within=4)
            await asyncio.gather(*(_echo(transport) for _ in range(10)))
            await transport.close()

    run(main())


def test_closing_the_transport_ends_its_channels_and_commands(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            made = stand_in(tmp_path, "pct")
            made.state("200", "running")
            transport = through([there.hop(), made.hop("200")])
            channel = await transport.open(["cat"])
            task = asyncio.create_task(transport.run(["sleep", "3"], timeout=SOON))
            await asyncio.sleep(0.3)
            await transport.close()
            assert await channel.receive() == b""
            assert await _says(_wait(task)) == f"{_name(there)} lost the connection while pct ran"
            await channel.close()

    run(main())


def test_an_overdue_command_is_the_commands_fault_and_the_connection_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as there:
            transport = through([there.hop()])
            with pytest.raises(TimedOut) as caught:
                await transport.run(["/bin/sleep", "9"], timeout=timedelta(seconds=0.2))
            assert str(caught.value) == f"sleep did not end within 0.2 s on {_name(there)}"
            await _echo(transport)
            assert there.logins == 1
            await transport.close()

    run(main())
