"""Who may do what: roles of configured people and teams, in which channel, over which servers; else deny.

A role counts where its grants hold in the channel and cover everything that would be touched; the strongest that
counts is a person's role there. Everybody may look. Touched are servers and jobs, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bot.domain.fleet import Fleet, Grant, Person, Role, Team
from bot.domain.phrases import listing, names

MOST_NAMED = 5
"""Of more people who could be asked only the first are named."""


@dataclass(frozen=True, slots=True)
class Right:
    """A grant that somebody has, and by what: themselves, or a team that they are in."""

    grant: Grant
    owner: Person | Team


def everything(fleet: Fleet) -> frozenset[str]:
    """Every server and every job."""
    return frozenset((*(one.name for one in fleet.servers), *(one.name for one in fleet.jobs)))


def reach(fleet: Fleet, grant: Grant) -> frozenset[str]:
    """The servers and jobs that a grant is over."""
    if not grant.targets:
        return everything(fleet)
    servers = {server.name for word in grant.targets for server in fleet.select(word) or ()}
    jobs = {job.name for word in grant.targets if (job := fleet.job(word)) is not None}
    return frozenset(servers | jobs)


def holds_in(fleet: Fleet, grant: Grant, channel: str | None) -> bool:
    """Whether a grant counts in a channel; None is no channel in particular."""
    if not grant.channels:
        return True
    here = fleet.channel(channel) if channel is not None else None
    return here is not None and here.name in grant.channels


def rights(fleet: Fleet, user: str) -> tuple[Right, ...]:
    """Everything that is granted to a person, by name and by the teams that they are known to be in."""
    person = fleet.person(user)
    ids = {user} if person is None else {user, *person.ids}
    own = () if person is None else tuple(Right(grant, person) for grant in _own(person))
    mine = (team for team in fleet.teams if team.members is not None and ids & team.members)
    return (*own, *(Right(grant, team) for team in mine for grant in team.grants))


def _own(person: Person) -> tuple[Grant, ...]:
    return (Grant(person.role), *person.grants)


def role_of(fleet: Fleet, user: str, channel: str | None = None, touched: Collection[str] | None = None) -> Role:
    """A person's role in a channel (None: wherever it be) over what is touched (None: over everything).

    Nothing touched asks for the strongest role that they have there at all.
    """
    wanted = everything(fleet) if touched is None else frozenset(touched)
    grants = [right.grant for right in rights(fleet, user)]
    for role in (Role.ADMIN, Role.OPERATOR):
        if _suffice(fleet, grants, role, channel, wanted):
            return role
    return Role.VIEWER


def _suffice(fleet: Fleet, grants: Iterable[Grant], needed: Role, channel: str | None, touched: frozenset[str]) -> bool:
    """Whether such grants cover together all that is touched."""
    counting = [one for one in grants if one.role >= needed and holds_in(fleet, one, channel)]
    has_all = any(not one.targets for one in counting)  # also what the fleet file does not know any more
    return has_all or (bool(counting) and touched <= _over(fleet, counting))


def _over(fleet: Fleet, grants: Iterable[Grant]) -> frozenset[str]:
    found = frozenset[str]().union(*(reach(fleet, grant) for grant in grants))
    return everything(fleet) if found.issuperset(one.name for one in fleet.servers) else found


def refusal(  # noqa: PLR0917 - who, what, where and to what
    fleet: Fleet,
    user: str,
    needed: Role,
    what: str,
    channel: str | None = None,
    touched: Collection[str] | None = None,
) -> str | None:
    """Why this person may not do that there, and who may; None when they may. ``what`` completes "you may not …"."""
    if role_of(fleet, user, channel, touched) >= needed:
        return None
    wanted = everything(fleet) if touched is None else frozenset(touched)
    lacks = _lack(fleet, user, needed, what, channel, wanted)
    able = _able(fleet, user, needed, channel, wanted)
    if not able:
        grants = [grant for person in fleet.people for grant in _own(person)]
        is_some = any(
            grant.role >= needed for grant in (*grants, *(one for team in fleet.teams for one in team.grants))
        )
        that = " for that" if is_some else ""
        return f"{lacks}: nobody is set up as {needed.name.lower()}{that} (people: in the fleet file)"
    return f"{lacks}; ask {listing(able, 'or')}"


def _lack(  # noqa: PLR0917 - as above
    fleet: Fleet, user: str, needed: Role, what: str, channel: str | None, touched: frozenset[str]
) -> str:
    """What they may, as far as it is near to what they asked for."""
    strong = [right.grant for right in rights(fleet, user) if right.grant.role >= needed]
    if here := [grant for grant in strong if holds_in(fleet, grant, channel)]:
        over = _over(fleet, here)
        return f"you may {what} {said(fleet, over)} here, but not {said(fleet, touched - over)}"
    if strong:
        places = dict.fromkeys(place for grant in strong for place in grant.channels)
        return f"you may {what} in {listing(places)}, but not here"
    teams = [one.name for one in fleet.teams if one.members is None and any(g.role >= needed for g in one.grants)]
    unknown = f" (who is in team {listing(teams)} is not known: the chat can't be asked)" if teams else ""
    return f"you may look but not {what}{unknown}"


def _able(fleet: Fleet, user: str, needed: Role, channel: str | None, touched: frozenset[str]) -> list[str]:
    """Who could do it there, by the names of the fleet file."""
    asker = fleet.person(user)
    people = (one for one in fleet.people if one is not asker)
    able = [one.name for one in people if _suffice(fleet, _own(one), needed, channel, touched)]
    teams = [f"team {one.name}" for one in fleet.teams if _suffice(fleet, one.grants, needed, channel, touched)]
    more = len(able) - MOST_NAMED
    return [*able[:MOST_NAMED], *([f"{more} more"] if more > 0 else []), *teams[:MOST_NAMED]]


def said(fleet: Fleet, things: Collection[str]) -> str:
    """Servers and jobs as a person says them: "gpu4-gpu7 and job datagen"."""
    order = [server.name for server in fleet.servers]
    servers = [name for name in order if name in things]
    jobs = [f"job {job.name}" for job in fleet.jobs if job.name in things]
    if len(servers) == len(order):
        return "all servers"
    return listing([*([names(servers, order)] if servers else []), *jobs])
