"""What is said when ssh fails: one wording for asyncssh's exceptions and for the messages of OpenSSH's client."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

import asyncssh

from bot.domain.errors import HopError
from bot.transports._wrapping import last_line

REFUSED_LOGIN = "refused the login"
_KEY_CHANGED = (
    "is refused: the host key has changed. If the machine was set up anew, remove the old key with "
    "`ssh-keygen -R {0}` and accept the new one with a first login by hand"
)
_KEY_UNKNOWN = (
    "is not trusted yet: there is no host key of it in known_hosts; log in once by hand with `ssh {0}` "
    "and compare the fingerprint"
)
_KEY_REVOKED = "is refused: its host key is marked as revoked in known_hosts"
_NO_NAME = "is not a known name"
_LOST = "closed the connection before the login was done"
_ERRNO = {
    errno.ECONNREFUSED: "refused the connection: nothing listens on port {port}",
    errno.EHOSTUNREACH: "can't be reached: no route to it",
    errno.ENETUNREACH: "can't be reached: no route to its network",
    errno.ECONNRESET: _LOST,
}


class Known(Enum):
    """What known_hosts has for a host."""

    NOT = "nothing"
    SO = "a key, or an authority"
    REVOKED = "only keys that are not to be trusted"


@dataclass(frozen=True, slots=True)
class Address:
    """Whom the words are about: the hop's label, the name and port that were asked for."""

    label: str
    host: str
    port: int = 22

    @property
    def in_known_hosts(self) -> str:
        """How known_hosts and `ssh-keygen -R` call it."""
        return self.host if self.port == 22 else f"'[{self.host}]:{self.port}'"

    @property
    def by_hand(self) -> str:
        """What one types to log in."""
        return self.host if self.port == 22 else f"-p {self.port} {self.host}"


def timed_out(address: Address, span: timedelta) -> HopError:
    """No answer within the span."""
    return HopError(address.label, f"timed out after {span.total_seconds():g} s")


def key_error(address: Address, text: str, known: Known) -> HopError:
    """The host key is not the one that is known, or none is known."""
    if "revoked" in text.lower() or known is Known.REVOKED:
        return HopError(address.label, _KEY_REVOKED)
    if known is Known.SO:
        return HopError(address.label, _KEY_CHANGED.format(address.in_known_hosts))
    return HopError(address.label, _KEY_UNKNOWN.format(address.by_hand))


def of_exception(address: Address, exc: Exception, span: timedelta, known: Known) -> HopError:
    """A failed connect of asyncssh, in a person's words. Texts of the far side are cut to one line."""
    if isinstance(exc, TimeoutError):
        return timed_out(address, span)
    if isinstance(exc, asyncssh.HostKeyNotVerifiable):
        return key_error(address, str(exc), known)
    # With a known key of another kind only that kind is asked for, as OpenSSH's client does.
    if isinstance(exc, asyncssh.KeyExchangeFailed) and known is not Known.NOT and "host key" in str(exc).lower():
        return key_error(address, "", known)
    if isinstance(exc, socket.gaierror):
        return HopError(address.host, _NO_NAME)
    for kind, why in _WHYS:
        if isinstance(exc, kind):
            return HopError(address.label, why.format(last_line(getattr(exc, "reason", "") or str(exc))))
    return HopError(address.label, _of_os_error(address, exc))


# Most specific first; the braces take the last line of what the exception says.
_WHYS: tuple[tuple[type[Exception], str], ...] = (
    (asyncssh.PermissionDenied, REFUSED_LOGIN),
    (asyncssh.KeyExchangeFailed, "has no algorithm in common with us: {0}"),
    (asyncssh.ChannelOpenError, "can't be reached from its jump host: {0}"),
    (asyncssh.ConnectionLost, _LOST),
    (asyncssh.KeyImportError, "can't be tried: its private key can't be read (is it a key?)"),
    (asyncssh.KeyEncryptionError, "can't be tried: its private key is encrypted; add it to an agent"),
    (asyncssh.ConfigParseError, "can't be tried: the ssh config is wrong: {0}"),
    (asyncssh.DisconnectError, "ended the connection: {0}"),
)


def _of_os_error(address: Address, exc: Exception) -> str:
    if isinstance(exc, FileNotFoundError | PermissionError) and exc.filename:
        return f"can't be tried: {exc.filename}: {exc.strerror}"
    number = exc.errno if isinstance(exc, OSError) else None
    # asyncio joins the errors of several addresses to one without a number.
    if number is None and "refused" in str(exc).lower():
        number = errno.ECONNREFUSED
    if number in _ERRNO:
        return _ERRNO[number].format(port=address.port)
    return f"can't be reached: {last_line(str(exc)) or type(exc).__name__}"


def client_meanings(address: Address, span: timedelta) -> dict[re.Pattern[str], str]:
    """The messages of OpenSSH's client, as patterns for a hop inside another one."""
    changed = _KEY_CHANGED.format(address.in_known_hosts)
    unknown = _KEY_UNKNOWN.format(address.by_hand)
    patterns = {
        "REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed": changed,
        "host key .* revoked|revoked host key": _KEY_REVOKED,
        "Host key verification failed|No .* host key is known": unknown,
        "Could not resolve hostname": _NO_NAME,
        "Permission denied|Too many authentication failures|No more authentication methods": REFUSED_LOGIN,
        "timed out": f"timed out after {span.total_seconds():g} s",
        "Connection refused": _ERRNO[errno.ECONNREFUSED].format(port=address.port),
        "No route to host": _ERRNO[errno.EHOSTUNREACH],
        "Network is unreachable": _ERRNO[errno.ENETUNREACH],
        "Connection reset|Connection closed by|kex_exchange_identification": _LOST,
    }
    return {re.compile(pattern, re.IGNORECASE): why.replace("\\", "\\\\") for pattern, why in patterns.items()}
