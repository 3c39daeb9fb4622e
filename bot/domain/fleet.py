"""The fleet as it is configured: hosts, servers, profiles, jobs, people, teams and channels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import time, timedelta
from enum import Enum, IntEnum
from typing import TypeVar

from bot.domain.flags import Flags
from bot.domain.monitors import AlertmanagerPeer, Labelling, PrometheusSource

_RANGE = re.compile(r"(?P<stem>[a-z_.-]*?)(?P<first>\d+)-(?:(?P=stem))?(?P<last>\d+)", re.IGNORECASE)


class Role(IntEnum):
    """What a person may do; each role may what the ones before it may."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class Fallback(Enum):
    """What happens when a start with a profile fails after the old server is gone."""

    OFFER = "offer"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop on the way to a host: a transport's name and its settings."""

    transport: str
    settings: tuple[tuple[str, str], ...] = ()

    def get(self, key: str, default: str = "") -> str:
        """A setting, or the default."""
        return dict(self.settings).get(key, default)


@dataclass(frozen=True, slots=True)
class Host:
    """A machine or container, reached through its hops in order (none: this machine).

    ``gpu_query`` is the command that stands for nvidia-smi there, ``kernel_log`` one that prints the kernel's log
    (empty: /dev/kmsg, the journal or dmesg, whichever may be read). ``state_dir`` is where launchers keep
    pid and exit status; a leading ``~`` is the login's home on that host.
    """

    name: str
    hops: tuple[Hop, ...] = ()
    gpu_query: tuple[str, ...] = ("nvidia-smi",)
    state_dir: str = "~/.local/state/upbot"
    kernel_log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Router:
    """What spreads requests over servers: sglang-router or SMG. It is reached from its host, at ``address``.

    ``key_variable`` is the variable in the bot's environment that holds its key, "" where it asks for none. ``drain``
    is how long requests may go on to their end once a server was taken out.
    """

    name: str
    host: str
    port: int
    address: str = "127.0.0.1"
    key_variable: str = ""
    drain: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Membership:
    """A router that is to know a server, and the URL by which it does."""

    router: str
    url: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A named set of launch flags, with what it is known to cost and to give."""

    name: str
    flags: Flags = Flags()
    without: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    job_concurrency: int | None = None
    fallback: Fallback = Fallback.OFFER
    price: str = ""
    gain: str = ""
    seats: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is launched: the command up to its flags, its flags, its environment."""

    command: tuple[str, ...]
    flags: Flags = Flags()
    env: tuple[tuple[str, str], ...] = ()
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """One inference server process at one host and port.

    ``usual`` is the profile that it runs when nobody named another. ``log`` may hold a leading ``~``.
    ``grace`` is how long it may take to end after SIGTERM; ``start_limit`` how long a start may take.
    ``launcher_settings`` is what stands in the fleet file beside the launcher's name.
    """

    name: str
    host: str
    port: int
    engine: str
    launch: Launch
    launcher: str = "process"
    gpus: tuple[int, ...] = ()
    log: str = ""
    log_rotates: bool = True
    groups: tuple[str, ...] = ()
    usual: str | None = None
    address: str = "127.0.0.1"
    grace: timedelta = timedelta(seconds=30)
    start_limit: timedelta = timedelta(minutes=30)
    target: float | None = None
    launcher_settings: tuple[tuple[str, str], ...] = ()
    routers: tuple[Membership, ...] = ()

    def launcher_setting(self, key: str, default: str = "") -> str:
        """A setting of its launcher, or the default."""
        return dict(self.launcher_settings).get(key, default)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a job's progress stands: a file, and how done, total and rate are found in it.

    Each of ``done``, ``total`` and ``rate`` is a path of keys into JSON ("stats.done") or, when it holds
    a group, a regular expression whose last match counts. The rate is in tokens a second.
    """

    file: str
    done: str = "done"
    total: str = "total"
    rate: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """The client that feeds the servers, in a tmux session or as a plain process.

    ``stop_keys`` go to the tmux session, one after the other, as tmux names them ("C-c"); a plain process
    gets SIGINT. ``concurrency_flag`` is the flag that carries a profile's concurrency. The job resumes only
    when at least ``minimum_servers`` are ready.
    """

    name: str
    host: str
    command: tuple[str, ...]
    session: str | None = None
    pid_file: str | None = None
    log: str = ""
    env: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    stop_keys: tuple[str, ...] = ("C-c",)
    stop_limit: timedelta = timedelta(minutes=2)
    concurrency_flag: str | None = None
    minimum_servers: int = 1
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A role and how far it reaches: in these channels (none: everywhere), over what these words name (none: all).

    A word is a server, a group, a host or a job. Whoever may act on every server may act on every job.
    """

    role: Role
    channels: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may say things: a name, roles, and by what chats and this machine know them.

    ``role`` holds everywhere; ``grants`` are roles that reach only so far.
    """

    name: str
    role: Role = Role.VIEWER
    ids: tuple[str, ...] = ()
    login: str | None = None
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class Team:
    """The people of a chat's user groups, by the groups' ids. ``members`` are those of now; None: nobody knows."""

    name: str
    ids: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    members: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """A place where the bot listens; ``targets`` are what a command without a target means there."""

    name: str
    ids: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    gets_alerts: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """The fleet's own settings that are spans and yes-or-no; ``report_at`` is a time of day in UTC, None: never."""

    confirm_within: timedelta = timedelta(minutes=5)
    answer_within: timedelta = timedelta(milliseconds=900)
    host_timeout: timedelta = timedelta(seconds=3)
    progress_every: timedelta = timedelta(seconds=30)
    compare_after: timedelta = timedelta(minutes=5)
    ask_may_confirm: bool = False
    two_persons: tuple[str, ...] = ()
    report_at: time | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that is configured, in the order of the file."""

    hosts: tuple[Host, ...] = ()
    servers: tuple[Server, ...] = ()
    profiles: tuple[Profile, ...] = ()
    jobs: tuple[Job, ...] = ()
    people: tuple[Person, ...] = ()
    channels: tuple[Channel, ...] = ()
    target: float | None = None
    limits: Limits = field(default_factory=Limits)
    routers: tuple[Router, ...] = ()
    prometheus: PrometheusSource | None = None
    alertmanager: AlertmanagerPeer | None = None
    teams: tuple[Team, ...] = ()

    def server(self, name: str) -> Server:
        """The server of that name; KeyError when there is none."""
        return _named(self.servers, name)

    def host(self, name: str) -> Host:
        """The host of that name; KeyError when there is none."""
        return _named(self.hosts, name)

    def router(self, name: str) -> Router:
        """The router of that name; KeyError when there is none."""
        return _named(self.routers, name)

    def labelled(self, labelling: Labelling) -> dict[str, str]:
        """The servers' names by the values of the label that tells them apart."""
        return {
            labelling.value(name=one.name, host=one.host, port=one.port, address=one.address): one.name
            for one in self.servers
        }

    def profile(self, name: str) -> Profile | None:
        """The profile of that name, whatever its case."""
        return next((one for one in self.profiles if one.name.lower() == name.lower()), None)

    def job(self, name: str) -> Job | None:
        """The job of that name."""
        return next((one for one in self.jobs if one.name.lower() == name.lower()), None)

    def person(self, user: str) -> Person | None:
        """The person behind a chat's user id."""
        return next((one for one in self.people if user in one.ids or user == one.name), None)

    def name_of(self, user: str) -> str:
        """What a person is called: the name that is configured, else the chat's user id."""
        person = self.person(user)
        return person.name if person is not None else user

    def channel(self, place: str) -> Channel | None:
        """The channel behind a chat's channel id or name."""
        return next((one for one in self.channels if place in one.ids or place == one.name), None)

    def defaults(self, place: str) -> tuple[Server, ...]:
        """What a command without a target means in a channel: its targets, or the whole fleet."""
        channel = self.channel(place)
        if channel is None or not channel.targets:
            return self.servers
        chosen = {server.name for token in channel.targets for server in self.select(token) or ()}
        return tuple(server for server in self.servers if server.name in chosen)

    def select(self, token: str) -> tuple[Server, ...] | None:
        """The servers that a word names, in the fleet's order; None when it names nothing.

        A word is a server, a port, a host, a group, ``all``, a range (``gpu2-5``, ``30002-30005``), or
        several of these with commas.
        """
        if "," in token:
            parts = [self.select(part) for part in token.split(",") if part]
            if not parts or any(part is None for part in parts):
                return None
            chosen = {server.name for part in parts for server in part or ()}
            return tuple(server for server in self.servers if server.name in chosen)
        word = token.lower().lstrip(":")
        if word in ("all", "fleet", "everything"):
            return self.servers
        found = tuple(
            server
            for server in self.servers
            if word in (server.name.lower(), str(server.port), server.host.lower())
            or word in (group.lower() for group in server.groups)
        )
        return found or self._select_range(word)

    def _select_range(self, word: str) -> tuple[Server, ...] | None:
        match = _RANGE.fullmatch(word)
        if match is None:
            return None
        first, last = int(match["first"]), int(match["last"])
        if last < first or last - first > len(self.servers) + 1:
            return None
        names = {f"{match['stem']}{number}" for number in range(first, last + 1)}
        found = tuple(one for one in self.servers if one.name.lower() in names or str(one.port) in names)
        return found if len({one.name for one in found}) >= len(names) else None

    def words(self) -> tuple[str, ...]:
        """Every word that names something, for suggestions."""
        groups = {group for server in self.servers for group in server.groups}
        return (
            *(server.name for server in self.servers),
            *(host.name for host in self.hosts),
            *(profile.name for profile in self.profiles),
            *(job.name for job in self.jobs),
            *sorted(groups),
        )


def unit_name(server: str, configured: str = "") -> str:
    """The systemd unit of a server: the one that is configured, else one of its own."""
    name = configured or f"upbot-{server}"
    return name if name.endswith(".service") else f"{name}.service"


_Named = TypeVar("_Named", Host, Server, Router)


def _named(things: tuple[_Named, ...], name: str) -> _Named:
    for one in things:
        if one.name == name:
            return one
    raise KeyError(name)
