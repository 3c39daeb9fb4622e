"""Which of a host's processes is which server, who owns its port, and which profile it runs.

Our own process of a server is the one whose command line, as its engine reads it, serves the server's port,
whoever started it; or the one that the launcher has on record, by pid and start time. Of several that fit (a
wrapper and what it started, forks with the same command line) the port's owner counts, then the nearest one
above the owner, then the topmost, the youngest of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import PurePosixPath

from bot.domain.engine import Engine
from bot.domain.facts import Process
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet, Server
from bot.engines._reading.redact import redact
from bot.runtime.probing.wire import Listener, Record, Report, Running

CUSTOM = "custom"
ENV = ("CUDA_VISIBLE_DEVICES",)
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - read from a socket table, not bound
_LOOPBACK = ("127.0.0.1", "::1")
# Where a server listens and what opens it is not what a profile is about.
_ASIDE = ("host", "port", "api-key", "admin-api-key")
_RUNNERS = ("python", "python3", "bash", "sh", "env", "uv", "run", "exec", "serve", "server", "sudo", "nohup")
_WORKERS = ("VLLM::", "sglang::")
_MOST_ANCESTORS = 8
_STATUS = re.compile(r"-?[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Recognised:
    """What the processes of a host say of one server. ``gpus`` is None where its environment does not tell.

    ``ended`` is the launcher's whole record of an end, whoever runs now: one that stood there while a process ran
    tells of an earlier one.
    """

    process: Process | None = None
    port_owner: Process | None = None
    exit_status: int | None = None
    gpus: tuple[int, ...] | None = None
    ended: tuple[str, str] | None = None
    orphans: tuple[Process, ...] = ()
    session: str | None = None
    is_adopted: bool = False


def record_path(state_dir: str, server: str) -> str:
    """Where on the host the launcher keeps a server's pid and exit status."""
    return f"{state_dir.rstrip('/')}/{server}"


def words_of(servers: Iterable[Server]) -> tuple[str, ...]:
    """Words of which a process that could be one of these servers holds at least one in its command line."""
    found: dict[str, None] = {}
    for server in servers:
        found[server.engine] = None
        found[str(server.port)] = None
        for word in server.launch.command:
            name = PurePosixPath(word).name
            if len(name) > 2 and not name.startswith("-") and name.split(".")[0].lower() not in _RUNNERS:
                found[name] = None
    return tuple(found)


class Census:
    """The processes of one report, read once for all the servers of a host."""

    def __init__(self, report: Report, engines: Iterable[Engine]) -> None:
        self.report = report
        self._by_pid = {one.process.pid: one for one in report.processes}
        self._claims: dict[tuple[str, int], dict[int, Running]] = {}
        for engine in engines:
            for one in report.processes:
                port = engine.port_of(one.process.argv)
                if port is not None:
                    self._claims.setdefault((engine.name, port), {})[one.process.pid] = one
        self._found: dict[tuple[str, int, str, str], Recognised] = {}
        self._listeners: dict[int, list[Listener]] = {}
        for listener in report.listeners:
            self._listeners.setdefault(listener.port, []).append(listener)

    def recognise(self, server: Server, engine: Engine, state_dir: str) -> Recognised:
        """Find a server among them; looked for once a census."""
        key = (server.name, server.port, server.address, server.engine)
        if key not in self._found:
            self._found[key] = self._find(server, engine, state_dir)
        return self._found[key]

    def _find(self, server: Server, engine: Engine, state_dir: str) -> Recognised:
        candidates = self._claims.get((engine.name, server.port), {})
        record = self.report.records.get(record_path(state_dir, server.name), Record())
        listener = _listener(self._listeners.get(server.port, []), server)
        owner = self._by_pid.get(listener.holder) if listener is not None and listener.holder is not None else None
        ours = _choose(candidates, owner, self._by_pid) or _recorded(record, self._by_pid)
        orphans = self._orphans(record_path(state_dir, server.name))
        if ours is None:
            status, port_owner = _exit_status(record), _owner(listener, owner, None)
            return Recognised(port_owner=port_owner, exit_status=status, ended=_ended(record), orphans=orphans)
        # A record of this very process was written while it was being read: it tells of now.
        ended = _ended(record) if _recorded(record, self._by_pid) is not ours else None
        return Recognised(
            ours.process,
            _owner(listener, owner, ours),
            gpus=_devices(ours.env),
            ended=ended,
            session=ours.session,
            is_adopted=_is_adopted(record) and _recorded(record, self._by_pid) is ours,
        )

    def _orphans(self, path: str) -> tuple[Process, ...]:
        """The engine's own workers that outlived their main process, the topmost of each tree."""
        left = [self._by_pid[pid].process for pid in self.report.left.get(path, ()) if pid in self._by_pid]
        workers = {one.pid for one in left if _is_worker(one.argv)}
        return tuple(one for one in left if one.pid in workers and one.parent not in workers)


def _is_worker(argv: Sequence[str]) -> bool:
    """By the title that an engine gives its workers, or, where it can't, by how Python spawns them."""
    return argv[:1] != () and (argv[0].startswith(_WORKERS) or any("multiprocessing.spawn" in word for word in argv))


def _choose(candidates: Mapping[int, Running], owner: Running | None, by_pid: Mapping[int, Running]) -> Running | None:
    if owner is not None:
        for pid in _chain(owner, by_pid):
            if pid in candidates:
                return candidates[pid]
    tops = [one for one in candidates.values() if one.process.parent not in candidates]
    return max(tops, key=lambda one: (one.process.started, one.process.pid), default=None)


def _chain(one: Running, by_pid: Mapping[int, Running]) -> list[int]:
    """A process and those above it, as far as they are known."""
    chain = [one.process.pid]
    while len(chain) < _MOST_ANCESTORS:
        parent = by_pid.get(by_pid[chain[-1]].process.parent)
        if parent is None or parent.process.pid in chain:
            break
        chain.append(parent.process.pid)
    return chain


def _listener(on_port: Sequence[Listener], server: Server) -> Listener | None:
    """Who would answer at the server's address: a socket bound to it, or else to all of them."""
    exact = [one for one in on_port if one.address == server.address or _both_loopback(one.address, server.address)]
    anywhere = [one for one in on_port if one.address in _WILDCARDS]
    if not exact and not anywhere and server.address not in _LOOPBACK:
        # A name, or an address that is translated on its way: any socket on that port may be meant.
        exact = list(on_port)
    return next(iter((*exact, *anywhere)), None)


def _both_loopback(bound: str, address: str) -> bool:
    return address == "localhost" and bound in _LOOPBACK


def _owner(listener: Listener | None, owner: Running | None, ours: Running | None) -> Process | None:
    if owner is not None:
        return owner.process if owner is ours else _shown(owner.process)
    if listener is None:
        return None
    # Another user's sockets can't be attributed from this login: its own user's server, when it is the only one
    # that claims this port, is taken for the owner; else all that is known is that somebody has the port.
    if ours is not None and ours.uid == listener.uid:
        return ours.process
    return Process(0, 0, ("unknown: this login may not see it",), user=str(listener.uid))


def _shown(process: Process) -> Process:
    """Somebody else's process as it may be told of: its command line may hold keys that are none of our business."""
    return replace(process, argv=tuple(redact(" ".join(process.argv)).split(" ")))


def _recorded(record: Record, by_pid: Mapping[int, Running]) -> Running | None:
    try:
        value = json.loads(record.start)
        pid, started = value["pid"], value["started"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    one = by_pid.get(pid) if isinstance(pid, int) else None
    return one if one is not None and one.process.started == started else None


def _is_adopted(record: Record) -> bool:
    try:
        value = json.loads(record.start)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("adopted") is True


def _exit_status(record: Record) -> int | None:
    text = record.exit.strip()
    return int(text) if _STATUS.fullmatch(text) else None


def _ended(record: Record) -> tuple[str, str] | None:
    return (record.start, record.exit) if record.exit.strip() else None


def _devices(env: Mapping[str, str]) -> tuple[int, ...] | None:
    text = env.get(ENV[0], "")
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)


def profile_of(fleet: Fleet, server: Server, engine: Engine, argv: Sequence[str]) -> str | None:
    """The profile whose flags this command line runs, the usual one first; "custom" where none fits.

    None when it runs the server's own flags and no profile says the same.
    """
    running = _comparable(engine, argv)
    usual = [one for one in fleet.profiles if one.name == server.usual]
    for profile in (*usual, *fleet.profiles):
        flags = server.launch.flags.merged(profile.flags, profile.without)
        if _comparable(engine, engine.launch_argv(server, flags)) == running:
            return profile.name
    return None if _comparable(engine, engine.launch_argv(server, server.launch.flags)) == running else CUSTOM


def token_of(server: Server, process: Process | None) -> str | None:
    """The key that opens the server's endpoints, from the running command line, else as it is configured."""
    seen = Flags.parse(process.argv).value("api-key") if process is not None else None
    return seen or server.launch.flags.value("api-key")


def _comparable(engine: Engine, argv: Sequence[str]) -> dict[str, tuple[str | float, ...]]:
    return {name: tuple(_plain(word) for word in words) for name, words in engine.flags_of(argv) if name not in _ASIDE}


def _plain(word: str) -> str | float:
    """A value as it is meant: 0.90 is 0.9."""
    try:
        value = float(word)
    except ValueError:
        return word
    return value if isfinite(value) else word
