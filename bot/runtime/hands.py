"""Acts on servers where they are: through their host's transport, by their launcher, as their engine has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from bot.domain.engine import Engine
from bot.domain.errors import FleetError, StepFailed, TimedOut
from bot.domain.facts import Process
from bot.domain.fleet import Host, Server
from bot.domain.phrases import span
from bot.ports import Clock, Completed, Hosts, Launcher, Transport

VERSION_WITHIN = timedelta(seconds=60)
"""Importing an engine to ask for its version takes tens of seconds on a cold disk."""
_log = structlog.get_logger(__name__)

VERSION_FRESH = timedelta(minutes=10)
VERSION_KEPT = timedelta(hours=24)
"""An answer that is not fresh is given at once and asked for anew meanwhile; a press decides again with the new one."""
WARM_UP_WITHIN = timedelta(minutes=2)
_MARGIN = timedelta(seconds=5)
_MOST_FLAGS = 5_000
_MOST_ANSWER = 65_536
_TOLD = 300
_DEPTH = 8

# $1 url, $2 seconds. On stdin what curl calls a configuration (header and body: nothing secret on a command line);
# python3 reads the same lines. The last line of what is printed: the status and the seconds it took.
_POST = r"""
if command -v curl >/dev/null 2>&1; then
  exec curl -sS -g -K - --noproxy '*' -m "$2" -w '\n%{http_code} %{time_total}\n' "$1"
fi
command -v python3 >/dev/null 2>&1 || { echo 'neither curl nor python3 is there to ask with' >&2; exit 69; }
exec python3 -c "$3" "$1" "$2"
"""
_POST_PYTHON = r"""
import json, sys, time, urllib.error, urllib.request
headers = {}
for line in sys.stdin:
    key, _, value = line.strip().partition(" = ")
    if key == "header":
        name, _, text = json.loads(value).partition(": ")
        headers[name] = text
    elif key == "data-raw":
        body = json.loads(value).encode()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
began = time.perf_counter()
try:
    with opener.open(urllib.request.Request(sys.argv[1], body, headers), timeout=float(sys.argv[2])) as answer:
        status, text = answer.status, answer.read(1 << 16)
except urllib.error.HTTPError as error:
    status, text = error.code, error.read(1 << 16)
except OSError as error:
    sys.exit(str(getattr(error, "reason", error)))
sys.stdout.buffer.write(text + b"\n%d %.6f\n" % (status, time.perf_counter() - began))
"""

# $1 the directory in which the server is launched, then the command: a relative path means what it means there.
_IN_DIRECTORY = r"""
case $1 in
  '~') cd -- "${HOME:?}" ;;
  '~/'*) cd -- "${HOME:?}/${1#??}" ;;
  *) CDPATH= cd -- "$1" ;;
esac || exit 1
shift
exec "$@"
"""


class FleetHands:
    """The Hands of a fleet.

    ``find_host`` gives the host of a name as it is configured now; KeyError when there is none.
    """

    def __init__(
        self,
        hosts: Hosts,
        find_host: Callable[[str], Host],
        launchers: Mapping[str, Launcher],
        engines: Mapping[str, Engine],
        clock: Clock,
        *,
        warm_up_within: timedelta = WARM_UP_WITHIN,
    ) -> None:
        self._hosts = hosts
        self._find_host = find_host
        self._launchers = launchers
        self._engines = engines
        self._clock = clock
        self._warm_up_within = warm_up_within
        self._versions: dict[tuple[str, ...], tuple[datetime, tuple[str, frozenset[str]]]] = {}
        self._asking: dict[tuple[str, ...], asyncio.Lock] = {}
        self._refreshing: dict[tuple[str, ...], asyncio.Future[None]] = {}

    async def start(self, server: Server, argv: Sequence[str], env: Mapping[str, str]) -> None:
        host = self._host(server)
        await self._launcher(server).start(self._hosts.transport(host), server, argv, env, host.state_dir)

    async def end(self, server: Server, process: Process, *, force: bool) -> None:
        await self._launcher(server).end(self._hosts.transport(self._host(server)), server, process, force=force)

    async def adopt(self, server: Server, process: Process) -> None:
        host = self._host(server)
        await self._launcher(server).adopt(self._hosts.transport(host), server, process, host.state_dir)

    async def warm_up(self, server: Server) -> float:
        request = self._engine(server).warm_up
        url = f"http://{_authority(server)}{request.path}"
        limit = self._warm_up_within
        config = _curl_config(request.body, server.launch.flags.value("api-key"))
        argv = ("sh", "-c", _POST, "upbot", url, f"{limit.total_seconds():.3f}", _POST_PYTHON)
        try:
            done = await self._transport(server).run(argv, stdin=config, timeout=limit + _MARGIN)
        except TimedOut as exc:
            raise StepFailed(f"{server.name} generated nothing within {span(limit)}") from exc
        return _generated(server, done)

    async def flags_known(self, server: Server) -> tuple[str, frozenset[str]]:
        argv = self._engine(server).version_argv(server)
        key = (server.host, server.launch.directory, *argv)
        kept, now = self._versions.get(key), self._clock.now()
        if kept is not None and VERSION_FRESH <= now - kept[0] < VERSION_KEPT:
            if key not in self._refreshing:
                self._refreshing[key] = asyncio.ensure_future(self._refresh(server, argv, key))
            return kept[1]
        return await self._fresh(server, argv, key)

    async def _fresh(self, server: Server, argv: Sequence[str], key: tuple[str, ...]) -> tuple[str, frozenset[str]]:
        # Eight servers of one host ask at once; one of them asks the host, the others wait for its answer.
        async with self._asking.setdefault(key, asyncio.Lock()):
            kept = self._versions.get(key)
            if kept is not None and self._clock.now() - kept[0] < VERSION_FRESH:
                return kept[1]
            found = await self._ask_version(server, argv)
            self._versions[key] = (self._clock.now(), found)
            return found

    async def _refresh(self, server: Server, argv: Sequence[str], key: tuple[str, ...]) -> None:
        """Ask again in the background; a host that can't be asked keeps its old answer."""
        try:
            await self._fresh(server, argv, key)
        except FleetError as error:
            _log.info("flags_not_asked_anew", why=str(error))
        finally:
            self._refreshing.pop(key, None)

    async def _ask_version(self, server: Server, argv: Sequence[str]) -> tuple[str, frozenset[str]]:
        if server.launch.directory:
            argv = ("sh", "-c", _IN_DIRECTORY, "upbot", server.launch.directory, *argv)
        done = await self._transport(server).run(argv, timeout=VERSION_WITHIN)
        version, known = read_version(done.stdout)
        if not done.is_ok or not version:
            raise StepFailed(
                f"{server.name}: the installed {server.engine} can't be asked for its flags: {_said(done)}"
            )
        return version, known

    def _host(self, server: Server) -> Host:
        try:
            return self._find_host(server.host)
        except KeyError as exc:
            raise StepFailed(f"{server.name}: there is no host {server.host} any more") from exc

    def _transport(self, server: Server) -> Transport:
        return self._hosts.transport(self._host(server))

    def _launcher(self, server: Server) -> Launcher:
        found = self._launchers.get(server.launcher)
        if found is None:
            raise StepFailed(f"{server.name}: there is no launcher {server.launcher}")
        return found

    def _engine(self, server: Server) -> Engine:
        found = self._engines.get(server.engine)
        if found is None:
            raise StepFailed(f"{server.name}: there is no engine {server.engine}")
        return found


def read_version(output: bytes) -> tuple[str, frozenset[str]]:
    """The version (the first line) and the flags (lines of one ``--name``) of a version command; "" without one."""
    lines = output.decode("utf-8", "replace").splitlines()
    version = next((line.strip() for line in lines if line.strip()), "")
    flags = [line.strip() for line in lines if line.strip().startswith("--") and " " not in line.strip()]
    return ("" if version.startswith("--") else version[:80]), frozenset(flags[:_MOST_FLAGS])


def has_generated(body: bytes) -> bool:
    """Whether an answer holds something that was generated: counted tokens, or text where nothing is counted."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    counts = _find(answer, ("completion_tokens",), _DEPTH)
    if counts:
        return any(isinstance(count, int | float) and count > 0 for count in counts)
    return any(isinstance(text, str) and text for text in _find(answer, ("text", "content"), _DEPTH))


def _generated(server: Server, done: Completed) -> float:
    body, _, last = done.stdout.rstrip(b"\n").rpartition(b"\n")
    status, _, took = last.decode("ascii", "replace").partition(" ")
    try:
        seconds = float(took)
    except ValueError:
        seconds = -1.0
    if not done.is_ok or status == "000" or seconds < 0:
        raise StepFailed(f"{server.name} generated nothing: {_said(done)}")
    if not (status.startswith("2") and has_generated(body[:_MOST_ANSWER])):
        raise StepFailed(f"{server.name} generated nothing: HTTP {status}, {_line(body) or 'an empty answer'}")
    return seconds


def _find(value: Any, keys: tuple[str, ...], depth: int) -> list[Any]:
    """Everything under these keys, down to a depth that no honest answer passes."""
    if depth == 0:
        return []
    if isinstance(value, dict):
        here = [value[key] for key in keys if key in value]
        return here + [found for one in value.values() for found in _find(one, keys, depth - 1)]
    if isinstance(value, list):
        return [found for one in value for found in _find(one, keys, depth - 1)]
    return []


def _authority(server: Server) -> str:
    address = "127.0.0.1" if server.address in ("", "0.0.0.0") else server.address  # noqa: S104 - asked, not bound
    address = "::1" if address == "::" else address
    return f"[{address}]:{server.port}" if ":" in address else f"{address}:{server.port}"


def _curl_config(body: bytes, key: str | None) -> bytes:
    """Headers and body as lines that both curl and JSON read: quoted, with only the escapes that both know."""
    lines = [("header", "Content-Type: application/json"), ("data-raw", body.decode("utf-8", "replace"))]
    if key:
        printable = "".join(char for char in key if char.isprintable())
        lines.insert(0, ("header", f"Authorization: Bearer {printable}"))
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in lines).encode()


def _said(done: Completed) -> str:
    return _line(done.stderr.strip().rpartition(b"\n")[2]) or f"exit status {done.status}"


def _line(data: bytes) -> str:
    text = " ".join(data[: _TOLD * 4].decode("utf-8", "replace").split())
    return "".join(char for char in text if char.isprintable())[:_TOLD]
