"""Builds the fleet out of a fleet file's values, and looks up every name that it refers to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from bot.domain.fleet import (
    Channel,
    Fallback,
    Fleet,
    Grant,
    Host,
    Job,
    Limits,
    Person,
    Profile,
    Progress,
    Role,
    Router,
    Team,
)
from bot.ports import TransportKind
from bot.settings import clashes, monitors, naming, servers
from bot.settings.blame import blamed
from bot.settings.document import Document, Path_, nearest
from bot.settings.hops import hops
from bot.settings.models import FleetFile, GrantSection, JobSection, PersonSection, ProfileSection, TeamSection
from bot.settings.words import shown


@dataclass(frozen=True, slots=True)
class Known:
    """What the program has: the transports, and the names of its engines and launchers."""

    transports: Mapping[str, TransportKind]
    engines: Collection[str]
    launchers: Collection[str]


def build(document: Document, known: Known) -> Fleet:
    """The fleet that a document describes; ConfigError for the first thing that is wrong."""
    try:
        file = FleetFile.model_validate(document.values)
    except ValidationError as exc:
        raise blamed(exc, document) from exc
    hosts = tuple(_host(document, name, file, known) for name in file.hosts)
    routers = tuple(_router(document, name, file) for name in file.routers)
    made = list(servers.servers(document, file, known.engines, known.launchers))
    fleet = Fleet(
        hosts=hosts,
        routers=routers,
        servers=tuple(server for _path, server in made),
        profiles=tuple(_profile(document, name, one) for name, one in file.profiles.items()),
        jobs=tuple(_job(document, name, one, file) for name, one in file.jobs.items()),
        target=file.target,
        limits=Limits(**{key: getattr(file.limits, key) for key in type(file.limits).model_fields}),
    )
    fleet = replace(
        fleet,
        prometheus=monitors.prometheus(document, file, fleet),
        alertmanager=monitors.alertmanager(document, file, fleet),
    )
    fleet = replace(fleet, channels=tuple(_channel(document, name, file, fleet) for name in file.channels))
    granting = _Granting(document, fleet)
    people = tuple(granting.person(name, one) for name, one in file.people.items())
    fleet = replace(fleet, people=people, teams=tuple(granting.team(name, one) for name, one in file.teams.items()))
    clashes.refuse(document, fleet, made)
    return fleet


def _host(document: Document, name: str, file: FleetFile, known: Known) -> Host:
    section = file.hosts[name]
    reach = hops(document, ("hosts", name, "reach"), section.reach, known.transports)
    checked = naming.checked(document, ("hosts", name), name)
    return Host(checked, reach, section.gpu_query, section.state_dir, section.kernel_log or ())


def _router(document: Document, name: str, file: FleetFile) -> Router:
    path, one = ("routers", name), file.routers[name]
    host = naming.referred(document, (*path, "host"), one.host, file.hosts, "host")
    return Router(naming.checked(document, path, name), host, one.port, one.address, one.key_variable, one.drain)


def _profile(document: Document, name: str, one: ProfileSection) -> Profile:
    path: Path_ = ("profiles", name)
    flags = naming.without_port(document, (*path, "flags"), one.flags)
    return Profile(
        name=naming.checked(document, path, name),
        flags=flags.on,
        without=tuple(dict.fromkeys((*one.without, *flags.off))),
        env=tuple(one.env.items()),
        job_concurrency=one.job_concurrency,
        fallback=Fallback(one.fallback),
        price=one.price,
        gain=one.gain,
        seats=one.seats,
    )


def _job(document: Document, name: str, one: JobSection, file: FleetFile) -> Job:
    path: Path_ = ("jobs", name)
    if one.session and one.pid_file:
        raise document.error((*path, "pid_file"), "a job has a tmux session or a pid_file, not both")
    progress = one.progress
    return Job(
        name=naming.checked(document, path, name),
        host=naming.referred(document, (*path, "host"), one.host, file.hosts, "host"),
        command=one.command,
        session=one.session,
        pid_file=one.pid_file,
        log=one.log,
        env=tuple(one.env.items()),
        directory=one.directory,
        stop_keys=one.stop_keys,
        stop_limit=one.stop_limit,
        concurrency_flag=one.concurrency_flag,
        minimum_servers=one.minimum_servers,
        progress=None if progress is None else Progress(progress.file, progress.done, progress.total, progress.rate),
    )


@dataclass(frozen=True, slots=True)
class _Granting:
    """People and teams with their roles, in a fleet whose servers, jobs and channels are known."""

    document: Document
    fleet: Fleet

    def person(self, name: str, one: PersonSection) -> Person:
        path: Path_ = ("people", name)
        grants = self._grants(path, one)
        everywhere, far = (grants[0].role, grants[1:]) if _is_everywhere(one) else (Role.VIEWER, grants)
        return Person(naming.checked(self.document, path, name), everywhere, one.slack, one.login, far)

    def team(self, name: str, one: TeamSection) -> Team:
        path: Path_ = ("teams", name)
        grants = self._grants(path, one)
        if all(grant.role is Role.VIEWER for grant in grants):
            raise self.document.error((*path, "role"), "gives nothing: everybody may look; make it operator or admin")
        return Team(naming.checked(self.document, path, name), one.slack, grants)

    def _grants(self, path: Path_, one: PersonSection | TeamSection) -> tuple[Grant, ...]:
        more = (self._grant((*path, "also", place), each) for place, each in enumerate(one.also))
        return (self._grant(path, one), *more)

    def _grant(self, path: Path_, one: GrantSection) -> Grant:
        role = Role[one.role.upper()]
        if role is Role.VIEWER and not _is_everywhere(one):
            key = "targets" if one.targets else "channels"
            raise self.document.error((*path, key), "limits nothing: everybody may look everywhere; name a `role`")
        for channel in one.channels:
            known = [each.name for each in self.fleet.channels]
            naming.referred(self.document, (*path, "channels"), channel, known, "channel")
        _refuse_unknown(
            self.document, (*path, "targets"), one.targets, self.fleet, [job.name for job in self.fleet.jobs]
        )
        return Grant(role, one.channels, one.targets)


def _is_everywhere(one: GrantSection) -> bool:
    return not one.channels and not one.targets


def _channel(document: Document, name: str, file: FleetFile, fleet: Fleet) -> Channel:
    path: Path_ = ("channels", name)
    section = file.channels[name]
    if name.startswith("#"):
        raise document.error(path, "is a channel's name with its #; leave it away")
    _refuse_unknown(document, (*path, "targets"), section.targets, fleet)
    return Channel(name, section.slack, section.targets, section.alerts)


def _refuse_unknown(
    document: Document, path: Path_, tokens: Sequence[str], fleet: Fleet, jobs: Sequence[str] = ()
) -> None:
    """ConfigError for the first word that names nothing."""
    groups = {group for server in fleet.servers for group in server.groups}
    known = {"all", *(server.name for server in fleet.servers), *(host.name for host in fleet.hosts), *groups, *jobs}
    for place, token in enumerate(tokens):
        if fleet.select(token) is None and token not in jobs:
            at: Path_ = (*path, place)
            what = "server, host, port, group or job" if jobs else "server, host, port or group"
            why = f"no {what} is called {shown(token)}{nearest(token, known)}"
            raise document.error(at if at in document.lines else path, why)
