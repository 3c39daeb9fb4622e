"""The transport ``local``: commands on the machine that the bot runs on. It is what no hop at all means, too."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from bot.domain.fleet import Hop
from bot.ports import Transport
from bot.transports._local import LABEL, Local


class LocalSettings(BaseModel):
    """``local`` has nothing to set; ``local: true`` says that it is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True


class LocalKind:
    """The plug-in."""

    name = "local"
    settings: type[BaseModel] = LocalSettings
    shorthand = "enabled"

    def label(self, hop: Hop) -> str:  # noqa: ARG002 - the port's signature; there is one such machine
        return LABEL

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:  # noqa: ARG002 - as above
        return outer or Local()


TRANSPORT = LocalKind()
