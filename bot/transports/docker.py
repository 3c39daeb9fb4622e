"""The transport ``docker``: into a running container, ``docker: sglang`` (`docker exec -i sglang …`), or podman's."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.fleet import Hop
from bot.ports import Transport
from bot.transports._local import Local
from bot.transports._wrapping import Way, Wrapped, settings_of

# What the docker client, its daemon and podman say.
_MEANINGS = {
    re.compile(r"no such container|no container with name or ID", re.IGNORECASE): "does not exist",
    re.compile(r"is not running|container state improper|is restarting", re.IGNORECASE): "is not running",
    re.compile(r"is paused", re.IGNORECASE): "is paused",
    re.compile(r"permission denied while trying to connect|docker\.sock.*permission denied", re.IGNORECASE): (
        "can't be entered: the login may not use docker (put it into the group docker, or a sudo hop before this one)"
    ),
    re.compile(
        r"cannot connect to the docker daemon|is the docker daemon running|error during connect", re.IGNORECASE
    ): ("can't be entered: the docker daemon on its host is not running"),
    re.compile(r"unable to find user ([\w-]+)", re.IGNORECASE): r"knows no user \1",
}


class DockerSettings(BaseModel):
    """A container of docker, or of a program with the same command line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    container: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="The container's name or id.")
    user: str | None = Field(None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]*$", description="Who to be in there.")
    command: str = Field("docker", min_length=1, description="The program: docker, podman, or a path.")


class DockerKind:
    """The plug-in."""

    name = "docker"
    settings: type[BaseModel] = DockerSettings
    shorthand = "container"

    def label(self, hop: Hop) -> str:
        return f"container {settings_of(DockerSettings, hop).container}"

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        made = settings_of(DockerSettings, hop)
        user = ["--user", made.user] if made.user else []
        before = [made.command, "exec", "--interactive", *user, made.container]
        way = Way(self.label(hop), made.command, lambda argv: [*before, *argv], _MEANINGS)
        return Wrapped(way, outer or Local())


TRANSPORT = DockerKind()
