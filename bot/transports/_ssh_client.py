"""An ssh hop inside another transport: there, OpenSSH's own client is run."""

from __future__ import annotations

from collections.abc import Sequence

from bot.transports._argv import quoted
from bot.transports._ssh_options import SshSettings
from bot.transports._ssh_words import Address, client_meanings
from bot.transports._wrapping import Way


def client_way(settings: SshSettings) -> Way:
    """How to pass the hop with the client; its files are those of the host that it runs on."""
    before = ["ssh", "-T", *_options(settings), "--", settings.host]
    address = Address(settings.label, settings.host, settings.port or 22)

    def enter(argv: Sequence[str]) -> list[str]:
        # The client joins words with spaces and the far login shell parses them: so there is one word, quoted once.
        return [*before, quoted(argv)]

    return Way(settings.label, "ssh", enter, client_meanings(address, settings.span), verb="can't be reached")


def _options(settings: SshSettings) -> list[str]:
    seconds = str(max(1, round(settings.timeout)))
    options = ["BatchMode=yes", f"ConnectTimeout={seconds}", "StrictHostKeyChecking=yes", "LogLevel=ERROR"]
    options += ["ServerAliveInterval=1", "ServerAliveCountMax=3", "ForwardAgent=no", "ForwardX11=no"]
    if settings.known_hosts:
        options.append(f"UserKnownHostsFile={settings.known_hosts}")
    words = [word for option in options for word in ("-o", option)]
    flags = (("-l", settings.user), ("-p", settings.port), ("-i", settings.key), ("-F", settings.config))
    for flag, value in (*flags, ("-J", settings.jump)):
        words += [flag, str(value)] if value else []
    return words
