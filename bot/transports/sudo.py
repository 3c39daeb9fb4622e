"""The transport ``sudo``: as another user of the same host, ``sudo: root`` (`sudo -n -H -u root -- …`)."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.fleet import Hop
from bot.ports import Transport
from bot.transports._local import Local
from bot.transports._wrapping import Way, Wrapped, settings_of

_MEANINGS = {
    re.compile(r"password is required|terminal is required|no tty present|must have a tty", re.IGNORECASE): (
        "needs a password: allow it in sudoers with NOPASSWD"
    ),
    re.compile(r"not in the sudoers file|is not allowed to (?:execute|run)|may not run sudo", re.IGNORECASE): (
        "does not let this login run commands: sudoers must allow /bin/sh"
    ),
    re.compile(r"unknown user:? '?([\w.-]+)", re.IGNORECASE): r"knows no user \1",
    re.compile(r"must be owned by uid 0|effective uid is not 0|no new privileges", re.IGNORECASE): (
        "can't become another user here (no setuid, or no_new_privs is set)"
    ),
}


class SudoSettings(BaseModel):
    """Another user of the same host; sudo must not ask for a password."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str = Field("root", pattern=r"^[A-Za-z0-9_#][A-Za-z0-9_.@-]*$", description="Who to become.")
    command: str = Field("sudo", min_length=1, description="The program, when it is not on the host's PATH.")


class SudoKind:
    """The plug-in."""

    name = "sudo"
    settings: type[BaseModel] = SudoSettings
    shorthand = "user"

    def label(self, hop: Hop) -> str:
        user = settings_of(SudoSettings, hop).user
        return "sudo" if user == "root" else f"sudo as {user}"

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        made = settings_of(SudoSettings, hop)
        before = [made.command, "-n", "-H", "-u", made.user, "--"]
        way = Way(self.label(hop), made.command, lambda argv: [*before, *argv], _MEANINGS)
        return Wrapped(way, outer or Local())


TRANSPORT = SudoKind()
