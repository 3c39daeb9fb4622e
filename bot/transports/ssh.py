"""The transport ``ssh``: another machine, ``ssh: root@h1``.

From this machine it is one warm asyncssh connection a host; inside another transport, where no connection of ours
can start, it is OpenSSH's client. The login shell of the account must be a POSIX one (sh, bash, dash, zsh, ksh).
"""

from __future__ import annotations

import logging

import asyncssh
from pydantic import BaseModel

from bot.domain.fleet import Hop
from bot.ports import Transport
from bot.transports._local import Local
from bot.transports._ssh import Gate, Ssh
from bot.transports._ssh_client import client_way
from bot.transports._ssh_options import Files, SshSettings
from bot.transports._wrapping import Wrapped, settings_of

# At INFO it writes each command into the log, and commands may hold secrets.
asyncssh.set_log_level(logging.WARNING)


class SshKind:
    """The plug-in."""

    name = "ssh"
    settings: type[BaseModel] = SshSettings
    shorthand = "host"

    def __init__(self) -> None:
        self._files = Files()
        self._gate = Gate()

    def label(self, hop: Hop) -> str:
        return settings_of(SshSettings, hop).label

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        made = settings_of(SshSettings, hop)
        if outer is None or isinstance(outer, Local):
            return Ssh(made, self._files, self._gate)
        return Wrapped(client_way(made), outer)


TRANSPORT = SshKind()
