"""An ssh hop's settings, and what they and the files that people keep for ssh add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import asyncssh
from asyncssh.public_key import load_default_keypairs
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bot.transports._ssh_words import Address, Known

_NAME = r"^[A-Za-z0-9_:%][A-Za-z0-9_.:%-]*$"
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_CONFIG = "~/.ssh/config"
# Half-open connections are noticed after four of these: 4 s.
_KEEPALIVE_SECONDS = 1
_KEEPALIVE_COUNT = 3
# A packet costs asyncssh half as much in one of these as in ChaCha20, its own first choice; the others stay after them.
_CIPHERS = "^aes*-gcm@openssh.com"

_T = TypeVar("_T")


class SshSettings(BaseModel):
    """A machine behind ssh. What is not set here comes from the ssh config, as with the ``ssh`` command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(pattern=_NAME, description="A name, an address, an alias of the ssh config, or user@host:port.")
    user: str | None = Field(None, pattern=r"^[^\s\x00-][^\s\x00]*$", description="Who to log in as.")
    port: int | None = Field(None, gt=0, lt=65536)
    key: str | None = Field(None, description="A private key file, before the agent's keys.")
    config: str | None = Field(None, description="The ssh config to read; ~/.ssh/config by default.")
    known_hosts: str | None = Field(None, description="The known_hosts file; those of ssh by default.")
    jump: str | None = Field(
        None, pattern=r"^[^\s-][^\s]*$", description="Hosts to go through: user@host:port, parted by commas."
    )
    timeout: float = Field(3, gt=0, le=60, description="Seconds until a connection must stand.")

    @model_validator(mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        """``user@host:port`` in ``host``; what is set on its own counts more."""
        if not isinstance(given, dict) or not isinstance(given.get("host"), str):
            return given
        user, host, port = split(given["host"])
        parts = {"user": user, "port": port}
        return {**{key: value for key, value in parts.items() if value}, **given, "host": host}

    @property
    def label(self) -> str:
        """How a person names this hop."""
        login = f"{self.user}@{self.host}" if self.user else self.host
        return f"ssh {login}:{self.port}" if self.port and self.port != 22 else f"ssh {login}"

    @property
    def span(self) -> timedelta:
        """How long a connect may take."""
        return timedelta(seconds=self.timeout)

    def through(self, jump: str) -> SshSettings:
        """A jump host of this one: the same files, its own name."""
        return SshSettings(**{**self.model_dump(include={"key", "config", "known_hosts", "timeout"}), "host": jump})


def split(text: str) -> tuple[str, str, str]:
    """The user, host and port of ``[user@]host[:port]``; an IPv6 address with a port stands in brackets."""
    user, _, rest = text.rpartition("@")
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        return user, host, port.removeprefix(":")
    if rest.count(":") == 1:
        host, _, port = rest.partition(":")
        return user, host, port
    return user, rest, ""


class Files:
    """Keys and known hosts, read once and again only when the file has changed; 256 hosts share them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], tuple[tuple[float, ...], Any]] = {}

    def keys(self, path: str | None, config: Path | None) -> Sequence[asyncssh.SSHKeyPair] | tuple[()]:
        """The pairs of a key file, or of ssh's usual ones; () where the ssh config has a say in it."""
        if path:
            return self._read("key", [path], lambda: asyncssh.load_keypairs([path_of(path)], ignore_encrypted=True))
        if config and self._read("config", [str(config)], lambda: _names_keys(config)):
            return ()
        usual = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa", "ed25519_sk", "ecdsa_sk")]
        return self._read("usual", usual, load_default_keypairs)

    def known_hosts(self, paths: Iterable[str]) -> asyncssh.SSHKnownHosts:
        """The hosts of those of the files that exist; lines that can't be read are passed over, as ssh does."""
        some = list(paths)
        return self._read("known", some, lambda: _known_hosts(some))

    def _read(self, what: str, paths: Sequence[str], read: Callable[[], _T]) -> _T:
        stamp = tuple(_changed(path) for path in paths)
        kept = self._kept.get((what, *paths))
        if kept is None or kept[0] != stamp:
            kept = self._kept[(what, *paths)] = (stamp, read())
        value: _T = kept[1]
        return value


@dataclass(frozen=True, slots=True)
class Target:
    """Everything that a connect needs, the ssh config's share included."""

    address: Address
    options: dict[str, Any]
    jumps: tuple[str, ...]
    known: Known


def target(settings: SshSettings, files: Files) -> Target:
    """Read the files and settle what to connect to; raises what asyncssh raises for files that are wrong."""
    config = _config(settings)
    options: dict[str, Any] = {
        "host": settings.host,
        "config": [str(config)] if config else None,
        "client_keys": files.keys(settings.key, config),
        "ignore_encrypted": True,
        "connect_timeout": settings.timeout,
        "keepalive_interval": _KEEPALIVE_SECONDS,
        "keepalive_count_max": _KEEPALIVE_COUNT,
        # Nobody is there to type anything, and the far side gets nothing of ours.
        "password_auth": False,
        "kbdint_auth": False,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "request_pty": False,
        "encoding": None,
    }
    options |= {key: value for key, value in (("username", settings.user), ("port", settings.port)) if value}
    read = asyncssh.SSHClientConnectionOptions(**options)
    if not read.config.get("Ciphers"):
        options["encryption_algs"] = _CIPHERS
    known = files.known_hosts([settings.known_hosts] if settings.known_hosts else _usual_known_hosts(read))
    port = read.port or 22
    name = read.host_key_alias or read.host
    found = known.match(name, "", None if port == 22 else port)
    jumps = settings.jump if settings.jump is not None else read.tunnel
    return Target(
        Address(settings.label, settings.host, port),
        {**options, "known_hosts": known},
        tuple(jumps.split(",")) if isinstance(jumps, str) and jumps.lower() != "none" else (),
        Known.SO if found[0] or found[1] else Known.REVOKED if found[2] else Known.NOT,
    )


def path_of(path: str) -> Path:
    """A path as a person writes it."""
    return Path(path).expanduser()


def _config(settings: SshSettings) -> Path | None:
    if settings.config:
        return path_of(settings.config)
    usual = path_of(_CONFIG)
    return usual if usual.is_file() else None


def _usual_known_hosts(options: asyncssh.SSHClientConnectionOptions) -> Sequence[str]:
    """The files that the ssh config names, else ssh's own; never none at all: the check is not to be switched off."""
    named = options.known_hosts
    return [str(path) for path in named] if isinstance(named, list) and named else _KNOWN_HOSTS


def _names_keys(config: Path) -> bool:
    text = config.read_text("utf-8", "replace").lower()
    return any(word in text for word in ("identityfile", "identitiesonly", "certificatefile", "include"))


def _known_hosts(paths: Iterable[str]) -> asyncssh.SSHKnownHosts:
    lines: list[str] = []
    for path in map(path_of, paths):
        if path.is_file():
            lines += path.read_text("utf-8", "replace").splitlines()
    try:
        return asyncssh.import_known_hosts("\n".join(lines))
    except ValueError:
        return asyncssh.import_known_hosts("\n".join(filter(_is_readable, lines)))


def _is_readable(line: str) -> bool:
    try:
        asyncssh.import_known_hosts(line)
    except ValueError:
        return False
    return True


def _changed(path: str) -> float:
    try:
        return path_of(path).stat().st_mtime_ns
    except OSError:
        return 0.0
