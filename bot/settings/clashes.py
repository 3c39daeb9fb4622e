"""Refuses what can't be twice: names, ids of people and channels, and the ports and GPUs of a host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bot.domain.fleet import Fleet, Server, unit_name
from bot.domain.routing import place
from bot.settings.document import Document, Path_
from bot.settings.servers import Made


@dataclass(frozen=True, slots=True)
class _Use:
    """Something that one alone may have: what it is, who has it, and where that stands."""

    what: tuple[str, ...]
    path: Path_
    owner: str
    why: str


def refuse(document: Document, fleet: Fleet, made: Iterable[Made]) -> None:
    """ConfigError for the first thing that two share, by the place of the second."""
    uses = [*_names(fleet), *_ids(fleet)]
    for path, server in made:
        uses.extend(_server_uses(path, server))
    for profile in fleet.profiles:
        path = ("profiles", profile.name)
        uses.append(_Use(("word", profile.name.lower()), path, "a server", f"{profile.name} is the name of"))
    seen: dict[tuple[str, ...], str] = {}
    for use in uses:
        if use.what in seen:
            raise document.error(use.path, f"{use.why} {seen[use.what]}")
        seen[use.what] = use.owner


def _names(fleet: Fleet) -> Iterator[_Use]:
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        ("hosts", (one.name for one in fleet.hosts)),
        ("routers", (one.name for one in fleet.routers)),
        ("profiles", (one.name for one in fleet.profiles)),
        ("jobs", (one.name for one in fleet.jobs)),
        ("people", (one.name for one in fleet.people)),
        ("teams", (one.name for one in fleet.teams)),
        ("channels", (one.name for one in fleet.channels)),
    )
    for kind, names in kinds:
        for name in names:
            yield _Use((kind, name.lower()), (kind, name), name, "is the same name as")


def _ids(fleet: Fleet) -> Iterator[_Use]:
    for person in fleet.people:
        path: Path_ = ("people", person.name)
        for one in person.ids:
            yield _Use(("id", one), (*path, "slack"), person.name, f"{one} is the id of")
        if person.login is not None:
            yield _Use(("login", person.login), (*path, "login"), person.name, f"{person.login} is the login of")
    for team in fleet.teams:
        for one in team.ids:
            yield _Use(("group", one), ("teams", team.name, "slack"), team.name, f"{one} is the id of")
    for channel in fleet.channels:
        for one in channel.ids:
            yield _Use(("place", one), ("channels", channel.name, "slack"), channel.name, f"{one} is the id of")


def _server_uses(path: Path_, server: Server) -> Iterator[_Use]:
    name, host = server.name, server.host
    yield _Use(("word", name.lower()), path, f"server {name}", f"{name} is the same name as")
    port = str(server.port)
    yield _Use(("port", host, port), (*path, "port"), name, f"port {port} of {host} (for {name}) belongs to")
    if server.launcher == "systemd":
        manager, configured = server.launcher_setting("manager"), server.launcher_setting("unit")
        unit = unit_name(name, configured)
        why = f"the unit {unit} of {host} (for {name}) belongs to"
        yield _Use(("unit", host, manager, unit), (*path, "launcher"), name, why)
    for member in server.routers:
        at = place(member.url)
        why = f"{member.url} at router {member.router} (for {name}) is the worker of"
        yield _Use(("worker", member.router, f"{at[0]} {at[1]}"), (*path, "router"), name, why)
    for gpu in server.gpus:
        yield _Use(("gpu", host, str(gpu)), (*path, "gpus"), name, f"GPU {gpu} of {host} (for {name}) belongs to")
