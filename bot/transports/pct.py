"""The transport ``pct``: into a container of the Proxmox host outside of it, ``pct: 200`` (`pct exec 200 -- …`)."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.fleet import Hop
from bot.ports import Transport
from bot.transports._local import Local
from bot.transports._wrapping import Way, Wrapped, settings_of

# What pct and the lxc tools under it say, from pve-container's sources and lxc-attach's.
_MEANINGS = {
    re.compile(r"CT is locked \(([\w-]+)\)", re.IGNORECASE): r"is locked (\1): look at it with `pct unlock`",
    re.compile(r"lxc/[^/\s]*\.conf' does not exist|no such (?:CT|container)", re.IGNORECASE): "does not exist",
    re.compile(r"not running|is stopped|failed to get init pid|is not in RUNNING", re.IGNORECASE): "is stopped",
    re.compile(r"frozen", re.IGNORECASE): "is frozen",
    re.compile(r"run as root|permission denied|operation not permitted", re.IGNORECASE): (
        "can't be entered: pct needs root (log in as root, or put a sudo hop before it)"
    ),
    re.compile(r"ipcc_send_rec|cluster file ?system|pve-cluster", re.IGNORECASE): (
        "can't be entered: the Proxmox cluster service on its host is not running"
    ),
}


class PctSettings(BaseModel):
    """A container of a Proxmox host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: int = Field(gt=0, description="The container's number, as in `pct list`.")
    command: str = Field("pct", min_length=1, description="The program, when it is not on the host's PATH.")


class PctKind:
    """The plug-in."""

    name = "pct"
    settings: type[BaseModel] = PctSettings
    shorthand = "id"

    def label(self, hop: Hop) -> str:
        return f"container {settings_of(PctSettings, hop).id}"

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        made = settings_of(PctSettings, hop)
        before = [made.command, "exec", str(made.id), "--"]
        way = Way(self.label(hop), made.command, lambda argv: [*before, *argv], _MEANINGS)
        return Wrapped(way, outer or Local())


TRANSPORT = PctKind()
