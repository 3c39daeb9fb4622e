"""Servers behind a router: the steps that take them out and put them back, and what is said of how they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from bot.domain.fleet import Server
from bot.domain.message import Line, bold, line
from bot.domain.phrases import listing, names, span
from bot.domain.plan import PutBack, Step, TakeOut
from bot.domain.readiness import Readiness
from bot.domain.routing import Routed, Standing
from bot.domain.world import World

MOST_TOLD = 6


def routers_of(servers: Sequence[Server]) -> tuple[str, ...]:
    """The routers that are to know any of these servers."""
    return tuple(dict.fromkeys(member.router for server in servers for member in server.routers))


def named(routers: Sequence[str]) -> str:
    """Routers as they are said: "router front", "routers front and back", "3 routers"."""
    if len(routers) == 1:
        return f"router {routers[0]}"
    return f"routers {listing(routers)}" if len(routers) == 2 else f"{len(routers)} routers"


def taking_out(world: World, servers: Sequence[Server]) -> tuple[Step, ...]:
    """The step that takes those of them that have a router out of it; none where none has."""
    mine = [server for server in servers if server.routers]
    routers = routers_of(mine)
    if not routers:
        return ()
    return (TakeOut(tuple(server.name for server in mine), routers, _limit(world, routers)),)


def putting_back(servers: Sequence[Server]) -> tuple[Step, ...]:
    """The step that puts them back."""
    mine = [server for server in servers if server.routers]
    return (PutBack(tuple(server.name for server in mine), routers_of(mine)),) if mine else ()


def unlisted(world: World, servers: Sequence[Server]) -> tuple[Server, ...]:
    """Those that are ready while one of their routers does not list them."""
    return tuple(
        server
        for server in servers
        if world.verdict(server.name).readiness is Readiness.READY
        and any(one.standing is Standing.ABSENT for one in world.facts(server.name).routed)
    )


def asked_lines(
    world: World, servers: Sequence[Server], *, comes_back: bool, is_rolling: bool = False
) -> tuple[Line, ...]:
    """What a question says of routers: "router front: taken out first, requests may end for up to 2 m"."""
    routers = routers_of(servers)
    if not routers:
        return ()
    limit = span(_limit(world, routers))
    told = [line(f"{named(routers)}: taken out first, requests may end for up to {limit}")]
    for router in routers:
        seen = [(server.name, one) for server, one in _seen(world, servers) if one.router == router]
        if why := next((one.why for _, one in seen if one.standing is Standing.UNKNOWN), None):
            then = "nothing is restarted until it answers" if is_rolling else "requests may be lost"
            told.append(line(bold(f"{why}: "), then))
        absent = [name for name, one in seen if one.standing is Standing.ABSENT]
        if absent and comes_back:
            told.append(line(f"not in router {router} now, put in at the end: {_who(world, absent)}"))
    return tuple(told)


def standing_lines(world: World, servers: Sequence[Server]) -> tuple[Line, ...]:
    """What a look says of routers, only where something is not as it should be, a line for each kind."""
    groups: dict[str, list[str]] = {}
    for server, one in _seen(world, servers):
        if word := _odd(world, server, one):
            groups.setdefault(word, []).append(server.name)
    return tuple(line("🟡 ", bold(word), f": {_who(world, who)}") for word, who in list(groups.items())[:MOST_TOLD])


def _odd(world: World, server: Server, one: Routed) -> str | None:
    readiness = world.verdict(server.name).readiness
    if one.standing is Standing.UNKNOWN:
        return one.why
    live = [op for op in world.operations if op.is_live]
    taken = next((op for op in live if any(each.pair == (server.name, one.router) for each in op.out)), None)
    if taken is not None:
        is_out = readiness is Readiness.READY and one.standing is not Standing.HEALTHY
        return f"taken out of router {one.router} by {taken.plan.verb}" if is_out else None
    if readiness is Readiness.READY and one.standing is Standing.ABSENT:
        return f"not in router {one.router}"
    if readiness is Readiness.READY and one.standing is Standing.UNHEALTHY:
        return f"router {one.router} takes it for unhealthy"
    if not readiness.is_alive and one.standing is Standing.HEALTHY:
        return f"router {one.router} still sends to it"
    return None


def _seen(world: World, servers: Iterable[Server]) -> list[tuple[Server, Routed]]:
    return [(server, one) for server in servers for one in world.facts(server.name).routed]


def _limit(world: World, routers: Sequence[str]) -> timedelta:
    return max(world.fleet.router(name).drain for name in routers)


def _who(world: World, some: Sequence[str]) -> str:
    return names(some, [server.name for server in world.fleet.servers])
