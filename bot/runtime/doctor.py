"""The doctor: looks at everything that must be right, names what is wrong, and says what to do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.errors import ChatError, FleetError, NoSuchGroup
from bot.domain.facts import Sight
from bot.domain.fleet import Fleet, Role, Server
from bot.domain.needs import Needs
from bot.domain.phrases import count, span
from bot.domain.routing import Standing, of_server, standing
from bot.ports import Clock, Eyes, Groups, Hands, Metrics, Routers, Silencer


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do when it is wrong."""

    is_ok: bool
    what: str
    advice: str = ""

    @property
    def line(self) -> str:
        """As a person reads it."""
        return f"{'ok ' if self.is_ok else 'NOT'}  {self.what}" + (f"\n     → {self.advice}" if self.advice else "")


def good(what: str) -> Finding:
    """Something that is right."""
    return Finding(is_ok=True, what=what)


def bad(what: str, advice: str) -> Finding:
    """Something that is wrong."""
    return Finding(is_ok=False, what=what, advice=advice)


def look_at_people(fleet: Fleet) -> Finding:
    """Whether anybody may act."""
    able = [one.name for one in fleet.people if max((one.role, *(g.role for g in one.grants))) >= Role.OPERATOR]
    able += [f"team {team.name}" for team in fleet.teams]
    if able:
        return good(f"may change things: {', '.join(able)}")
    return bad("nobody may change anything", "add people: with role: operator to the fleet file")


async def look_at_teams(fleet: Fleet, groups: Groups) -> list[Finding]:
    """Each user group is there, and the bot may see who is in it."""
    findings = []
    for team in fleet.teams:
        for group in team.ids:
            try:
                members = await groups.members(group)
            except NoSuchGroup as error:
                advice = f"teams: {team.name}: slack: takes a group's id (its profile in Slack > Copy group ID)"
                findings.append(bad(f"team {team.name}: {error}", advice))
            except ChatError as error:
                findings.append(
                    bad(f"team {team.name}: {error}", "docs/slack.md: teams need the scope usergroups:read")
                )
            else:
                findings.append(good(f"team {team.name}: {group}, {count(len(members), 'member')}"))
    return findings


async def look_at_hosts(fleet: Fleet, eyes: Eyes, hands: Hands, clock: Clock) -> list[Finding]:
    """Each host is reached, and each program there asked for its flags."""
    sight = Sight(clock.now())
    async for sight in eyes.look(fleet.servers, needs=Needs(gpu=True)):  # noqa: B007 - the last one counts
        pass
    findings = []
    for host in fleet.hosts:
        mine = [server for server in fleet.servers if server.host == host.name]
        why = next((facts.unreachable for one in mine if (facts := sight.servers[one.name]).unreachable), None)
        if why is not None:
            findings.append(bad(f"{host.name}: {why}", "try the same hop by hand; docs/fleet-file.md: hosts"))
            continue
        running = sum(sight.servers[one.name].process is not None for one in mine)
        findings.append(good(f"{host.name}: reached; {running} of {count(len(mine), 'server')} running"))
        findings += await _look_at_programs(mine, hands)
    return findings


async def look_at_routers(fleet: Fleet, routers: Routers) -> list[Finding]:
    """Each router lets the bot read its list, and how many of its servers stand there."""
    findings = []
    for router in fleet.routers:
        mine = [one.url for server in fleet.servers for one in server.routers if one.router == router.name]
        try:
            workers = await routers.workers(router)
        except FleetError as error:
            findings.append(bad(str(error), f"it must answer {router.host} at {router.address}:{router.port}"))
            continue
        listed = sum(standing(of_server(workers, url)) is not Standing.ABSENT for url in mine)
        findings.append(good(f"router {router.name}: lists {listed} of its {count(len(mine), 'server')}"))
    return findings


async def _look_at_programs(servers: Sequence[Server], hands: Hands) -> list[Finding]:
    findings = []
    for command in dict.fromkeys(server.launch.command for server in servers):
        server = next(one for one in servers if one.launch.command == command)
        try:
            version, flags = await hands.flags_known(server)
        except FleetError as error:
            findings.append(bad(str(error), f"launch: {' '.join(command)} must work on {server.host}"))
        else:
            names = sum("=" not in one for one in flags)
            findings.append(good(f"{server.host}: {server.engine} {version}, {count(names, 'flag')}"))
    return findings


async def look_at_prometheus(fleet: Fleet, metrics: Metrics) -> list[Finding]:
    """Whether Prometheus answers, and has every server among its targets, with its metrics."""
    source, advice = fleet.prometheus, "docs/prometheus.md; the fleet file's prometheus: label and value must fit"
    if source is None:
        return []
    named = fleet.labelled(source.labelling)
    try:
        found = await metrics.scraped(source, tuple(named), frozenset())
    except FleetError as error:
        return [bad(str(error), "docs/prometheus.md")]
    missing = [f'{source.labelling.label}="{value}"' for value in named if value not in found]
    if missing:
        return [bad(f"Prometheus has no target {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}", advice)]
    spans = [one.every for one in found.values() if one.every is not None]
    every = statistics.median_low(spans) if spans else source.scrape_interval
    if abs(every - source.scrape_interval) > source.scrape_interval / 5:
        said = f"Prometheus scrapes each {span(every)}, the fleet file says each {span(source.scrape_interval)}"
        return [bad(said, f"prometheus: scrape_interval: {span(every)}")]
    up = sum(one.is_up for one in found.values())
    return [good(f"Prometheus at {source.url.partition('//')[2]}: {up} of {count(len(named), 'target')} up")]


async def look_at_alertmanager(fleet: Fleet, remote: Silencer, *, has_secret: bool) -> list[Finding]:
    """Whether Alertmanager answers, and the webhook has its secret."""
    peer = fleet.alertmanager
    if peer is None:
        return []
    findings = []
    if peer.listen is not None and not has_secret:
        findings.append(bad("UPBOT_WEBHOOK_SECRET is not set", "docs/prometheus.md says what it is for"))
    try:
        await remote.silences(peer)
    except FleetError as error:
        return [*findings, bad(str(error), "docs/prometheus.md")]
    return [*findings, good(f"Alertmanager at {peer.url.partition('//')[2]} answers")]
