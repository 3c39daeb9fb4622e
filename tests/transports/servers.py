"""Real things to reach, for tests: OpenSSH servers, ssh servers in the process, containers, and a network that breaks.

Everything lives in a directory that the test gives, on a loopback port that was free, and ends with its ``with``
block, by process id. Other tests may use it as it is::

    with sshd(tmp_path) as server, container(tmp_path, 200) as ct:
        hops = (server.hop(), ct.hop())      # domain hops: ssh to this machine, pct into the container

- ``sshd``       a real OpenSSH server (marker ``sshd``; as root it also needs /run/sshd, which it makes)
- ``container``  namespaces of its own for processes, mounts, network and host name (marker ``root``), entered by a
                 ``pct`` of ours that has Proxmox's command line and messages
- ``stand_in``   ``pct``, ``docker`` and ``sudo`` with the command line and messages of the real ones, that need
                 nothing at all: the "inside" is this machine
- ``server``     an ssh server in this process and event loop, which can be told to misbehave
- ``Relay``      a TCP relay that can freeze (a half-open connection) or cut
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

import asyncssh

from bot.domain.fleet import Hop

LOOPBACK = "127.0.0.1"
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin") or "/usr/sbin/sshd"

_PCT = r"""#!/bin/sh
# pct exec ID [options] -- COMMAND…, with the messages of the real one; DIR/ID says what the container is
dir=%(dir)s
[ "$1" = exec ] || { echo "ERROR: unknown command 'pct $1'" >&2; exit 255; }
id=$2; shift 2
[ "$1" = -- ] && shift
[ -f "$dir/$id" ] || { echo "Configuration file 'nodes/pve/lxc/$id.conf' does not exist" >&2; exit 2; }
read -r state rest < "$dir/$id"
case $state in
  running) exec env UPBOT_INSIDE="$id" $rest "$@" ;;
  entered) exec nsenter --target "$rest" --mount --uts --ipc --net --pid -- "$@" ;;
  locked) echo "CT is locked ($rest)" >&2; exit 255 ;;
  hung) exec sleep 600 ;;
  *) echo "CT $id not running" >&2; exit 255 ;;
esac
"""

_DOCKER = r"""#!/bin/sh
# docker exec [--interactive] [--user U] NAME COMMAND…
dir=%(dir)s
[ "$1" = exec ] || { echo "docker: '$1' is not a docker command." >&2; exit 1; }
shift; stdin=no
while :; do case $1 in
  --interactive) stdin=yes; shift ;;
  --user) shift 2 ;;
  *) break ;;
esac; done
name=$1; shift
[ -f "$dir/$name" ] || { echo "Error response from daemon: No such container: $name" >&2; exit 1; }
read -r state rest < "$dir/$name"
case $state in
  running) [ $stdin = yes ] || exec </dev/null; exec env UPBOT_INSIDE="$name" $rest "$@" ;;
  paused) echo "Error response from daemon: Container $name is paused, unpause the container before exec" >&2; exit 1 ;;
  bare) echo "OCI runtime exec failed: exec failed: unable to start container process: exec: \"$1\":" \
        "executable file not found in \$PATH: unknown" >&2; exit 127 ;;
  dead) echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2
        exit 1 ;;
  *) echo "Error response from daemon: container 4f1c is not running" >&2; exit 1 ;;
esac
"""

_SUDO = r"""#!/bin/sh
# sudo -n [-H] -u USER -- COMMAND…
dir=%(dir)s
while :; do case $1 in
  -n|-H) shift ;;
  -u) user=$2; shift 2 ;;
  --) shift; break ;;
  *) echo "sudo: invalid option" >&2; exit 1 ;;
esac; done
[ -f "$dir/$user" ] || { echo "sudo: unknown user $user" >&2; exit 1; }
read -r state rest < "$dir/$user"
case $state in
  running) exec env UPBOT_INSIDE="$user" $rest "$@" ;;
  refused) echo "ana is not in the sudoers file." >&2; exit 1 ;;
  *) echo "sudo: a password is required" >&2; exit 1 ;;
esac
"""

_SCRIPTS = {"pct": _PCT, "docker": _DOCKER, "sudo": _SUDO}
_SHORTHANDS = {"pct": "id", "docker": "container", "sudo": "user"}


@dataclass(frozen=True)
class StandIn:
    """A program that looks like pct, docker or sudo; ``state`` says what each of its insides is."""

    kind: str
    program: Path
    states: Path

    def state(self, name: str, state: str) -> None:
        """Make or change an inside: "running" (and words to put before the argv), "stopped", "locked backup"."""
        (self.states / name).write_text(state + "\n")

    def hop(self, name: str) -> Hop:
        """The domain hop into an inside."""
        return Hop(self.kind, ((_SHORTHANDS[self.kind], name), ("command", str(self.program))))


def stand_in(directory: Path, kind: str) -> StandIn:
    """Write a stand-in for pct, docker or sudo into the directory."""
    states = directory / f"{kind}.states"
    states.mkdir(exist_ok=True)
    (directory / "bin").mkdir(exist_ok=True)
    program = directory / "bin" / kind
    program.write_text(_SCRIPTS[kind] % {"dir": states})
    program.chmod(0o755)
    return StandIn(kind, program, states)


@dataclass
class Login:
    """What a client needs to log in somewhere: address, key, known_hosts, and an ssh config that says nothing."""

    directory: Path
    port: int
    user: str = field(default_factory=getpass.getuser)

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def key(self) -> Path:
        return self.directory / "id_test"

    @property
    def config(self) -> Path:
        return self.directory / "ssh_config"

    def hop(self, **more: str) -> Hop:
        """The domain hop to it."""
        settings = {
            "host": LOOPBACK,
            "port": str(self.port),
            "user": self.user,
            "key": str(self.key),
            "known_hosts": str(self.known_hosts),
            "config": str(self.config),
        }
        return Hop("ssh", tuple({**settings, **more}.items()))

    def trust(self, host_key: asyncssh.SSHKey) -> None:
        """Write the host key into known_hosts."""
        public = host_key.export_public_key().decode().strip()
        with self.known_hosts.open("a") as file:
            file.write(f"[{LOOPBACK}]:{self.port} {public}\n")


def login(directory: Path, port: int) -> Login:
    """Make the files of a login; its public key is ``id_test.pub``."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Login(directory, port)
    made.config.touch()
    if not made.key.exists():
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(made.key))
        key.write_public_key(str(made.key) + ".pub")
        made.key.chmod(0o600)
    return made


@contextlib.contextmanager
def sshd(directory: Path, **options: str) -> Iterator[Login]:
    """A real OpenSSH server for the user who runs the tests; ``options`` are lines of sshd_config."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    home = directory / "sshd"
    home.mkdir(exist_ok=True)
    for _ in range(3):  # somebody else may take the free port in between
        port = free_port()
        made = login(home, port)
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        host_key.write_private_key(str(home / "host_key"))
        (home / "host_key").chmod(0o600)
        config = _sshd_config(home, port, options)
        log = (home / "log").open("wb")
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)
        try:
            if _answers(process, port):
                made.trust(host_key)
                yield made
                return
        finally:
            log.close()
            process.terminate()
            process.wait(10)
    raise RuntimeError("sshd did not start: " + (home / "log").read_text())


def _sshd_config(home: Path, port: int, options: dict[str, str]) -> Path:
    lines = {
        "Port": str(port),
        "ListenAddress": LOOPBACK,
        "HostKey": str(home / "host_key"),
        "AuthorizedKeysFile": str(home / "id_test.pub"),
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "UseDNS": "no",
        # To bash this is no login's shell then, and whatever the tester's .bashrc does is not run before each command.
        "SetEnv": "SHLVL=2",
        **options,
    }
    path = home / "sshd_config"
    path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
    return path


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            select_nothing = socket.socketpair()
            with select_nothing[0], select_nothing[1]:
                select_nothing[0].settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    select_nothing[0].recv(1)
    return False


def free_port() -> int:
    """A port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Container:
    """A container of namespaces; ``pid`` is its first process, seen from outside."""

    pct: StandIn
    id: int
    pid: int

    def hop(self) -> Hop:
        return self.pct.hop(str(self.id))

    def stop(self) -> None:
        """Power it off: every process in it dies."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.pct.state(str(self.id), "stopped")


@contextlib.contextmanager
def container(directory: Path, number: int) -> Iterator[Container]:
    """A container with processes, mounts, network (its own loopback) and host name apart; root only."""
    namespaces = ["--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--mount-proc"]
    # The first process of the container tells its number outside, then reaps what is left to it.
    inside = f"hostname ct{number}; ip link set lo up 2>/dev/null; echo up; trap : CHLD; while :; do sleep 86400 & wait $!; done"
    outer = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", inside], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert outer.stdout is not None
        assert outer.stdout.readline() == b"up\n"
        pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        pct = stand_in(directory, "pct")
        pct.state(str(number), f"entered {pid}")
        yield Container(pct, number, pid)
    finally:
        outer.kill()
        outer.wait(10)
        assert outer.stdout is not None
        outer.stdout.close()


class Server:
    """An ssh server in this process that runs what it is told with ``sh``; what it should do wrong is set on it."""

    def __init__(self) -> None:
        self.is_login_refused = False
        self.noise = ""
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.commands: list[str] = []
        self.children: list[_Child] = []
        self.forwards: list[int] = []
        self.logins = 0
        self.login = Login(Path(), 0)

    def hop(self, **more: str) -> Hop:
        return self.login.hop(**more)

    def die(self) -> None:
        """Cut every connection, as a server that is killed does."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    async def end(self) -> None:
        """End what still runs, and let the loop see it."""
        for child in tuple(self.children):
            child.kill()
            await child.over.wait()


class _Child(asyncio.SubprocessProtocol):
    """The shell that runs a session's command; told apart from the session because both are "lost" in their own way."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._transport: asyncio.SubprocessTransport | None = None
        self.over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of asyncio's classes.
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        self._session.tell(fd, data)

    def process_exited(self) -> None:
        # sshd tells the status at once, also when a child that stays behind holds the pipes.
        assert self._transport is not None
        asyncio.get_running_loop().call_later(0.05, self._session.exited, self._transport.get_returncode() or 0)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None
        self._transport.close()
        self.over.set()

    def pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport else None

    def kill(self) -> None:
        """End it and its children; the pipes of a child that fled are closed."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
            for fd in (0, 1, 2):
                if pipe := self.pipe(fd):
                    pipe.close()


class _Session(asyncssh.SSHServerSession[bytes]):
    """One command, as sshd would run it: exit status and output, and its stdin closed when the client goes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._command = ""
        self._early: list[bytes | None] = []
        self._child: _Child | None = None
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None
        self._starting: asyncio.Task[None] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        self._command = command
        self._server.commands.append(command)
        return True

    def session_started(self) -> None:
        self._starting = asyncio.create_task(self._start())

    async def _start(self) -> None:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(self), "sh", "-c", f"{self._server.noise}{self._command}", start_new_session=True
        )
        self._child = child
        self._server.children.append(child)
        for data in self._early:
            self._feed(data)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._feed(data)

    def eof_received(self) -> bool:
        self._feed(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel = None
        self._feed(None)
        self.resume_writing()

    def pause_writing(self) -> None:
        for pipe in self._outputs():
            pipe.pause_reading()

    def resume_writing(self) -> None:
        for pipe in self._outputs():
            pipe.resume_reading()

    def _outputs(self) -> list[asyncio.ReadTransport]:
        pipes = [self._child.pipe(fd) for fd in (1, 2)] if self._child else []
        return [cast("asyncio.ReadTransport", pipe) for pipe in pipes if pipe and not pipe.is_closing()]

    def _feed(self, data: bytes | None) -> None:
        pipe = cast("asyncio.WriteTransport | None", self._child.pipe(0) if self._child else None)
        if self._child is None:
            self._early.append(data)
        elif pipe and not pipe.is_closing():
            pipe.write_eof() if data is None else pipe.write(data)

    def tell(self, fd: int, data: bytes) -> None:
        """The child wrote something."""
        if self._channel is not None and not self._channel.is_closing():
            self._channel.write(data) if fd == 1 else self._channel.write_stderr(data)

    def exited(self, status: int) -> None:
        """The child has ended."""
        if self._channel is None or self._channel.is_closing():
            return
        if status < 0:
            self._channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            self._channel.exit(status)


class _Doorman(asyncssh.SSHServer):
    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        self._server.forwards.append(dest_port)
        return True

    def session_requested(self) -> _Session:
        return _Session(self._server)

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to do: the list may hold what is closed."""

    def auth_completed(self) -> None:
        self._server.logins += 1

    def begin_auth(self, username: str) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return not self._server.is_login_refused

    def public_key_auth_supported(self) -> bool:
        return True


@contextlib.asynccontextmanager
async def server(directory: Path, host_key: asyncssh.SSHKey | None = None, port: int = 0) -> AsyncIterator[Server]:
    """An ssh server on a free port, with a login in the directory that it lets in."""
    host_key = host_key or asyncssh.generate_private_key("ssh-ed25519")
    made = Server()
    listener = await asyncssh.create_server(
        lambda: _Doorman(made),
        LOOPBACK,
        port,
        server_host_keys=[host_key],
        encoding=None,
        reuse_address=True,
    )
    made.login = login(directory / "server", listener.get_port())
    if not port:
        made.login.trust(host_key)
    try:
        yield made
    finally:
        made.die()
        await made.end()
        listener.close()
        await listener.wait_closed()


class Relay:
    """A TCP relay to a port of the loopback address; frozen it swallows everything, as a host without power does."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Swallow everything from now on, without a word to either side."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Go on; what was swallowed comes late."""
        self._thawed.set()

    def cut(self) -> None:
        """Break every connection."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection(LOOPBACK, self._to)
            try:
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
            finally:
                back.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            await self._thawed.wait()
            target.write(data)
            await target.drain()
        target.close()
