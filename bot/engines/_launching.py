"""Composes a server's command line: its command, its flags, and the port and host that the fleet says."""

from __future__ import annotations

from bot.domain.flags import Flags
from bot.domain.fleet import Server
from bot.engines._secrets import HIDDEN

_LOOPBACK = frozenset({"", "127.0.0.1", "localhost", "::1"})


def command_line(server: Server, flags: Flags) -> tuple[str, ...]:
    """The argv that launches a server.

    The port is always the fleet's; the host is the address where the fleet reaches the server, unless the flags
    name one or it is this machine's own. A secret that was hidden when the flags were read is put back from the
    server's own flags.
    """
    chosen = _with_secrets(server, flags).merged(Flags(), without=("port",))
    if chosen.get("host") is None and server.address not in _LOOPBACK:
        chosen = chosen.merged(Flags((("host", (server.address,)),)))
    return (*server.launch.command, *chosen.argv(), "--port", str(server.port))


def _with_secrets(server: Server, flags: Flags) -> Flags:
    result: list[tuple[str, tuple[str, ...]]] = []
    for name, values in flags:
        if HIDDEN not in values:
            result.append((name, values))
            continue
        own = server.launch.flags.get(name)
        if own is not None:
            result.append((name, own))
    return Flags(tuple(result))
