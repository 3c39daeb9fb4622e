"""Who is in the teams now: asked of the chat in the background, never while somebody waits for an answer.

When the chat can't be asked, those who were last known hold for a while, over restarts too; after that nobody is in
any team, since a right that nobody can check is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from bot.domain.errors import ChatError, NoSuchGroup, StoreError
from bot.domain.fleet import Fleet, Team
from bot.ports import Clock, Groups

_log = structlog.get_logger(__name__)

REFRESH = timedelta(minutes=1)
HOLDS = timedelta(minutes=15)
"""So long those hold who were last known."""
A_ROUND = 10
"""So many groups are asked for in a round, first those that were asked longest ago: Slack allows 20 a minute."""
_KEPT_AS = "members"


class Keep(Protocol):
    """Remembers a few texts by name, over restarts."""

    def get(self, name: str) -> str | None: ...
    def put(self, name: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Known:
    """Who was in a group, and when that was said."""

    members: frozenset[str]
    at: datetime


class Roster:
    """Puts the members of now into the fleet. ``groups`` is None where the chat has none: then nobody is in one."""

    def __init__(self, read: Callable[[], Fleet], groups: Groups | None, keep: Keep, clock: Clock) -> None:
        self._read = read
        self._groups = groups
        self._keep = keep
        self._clock = clock
        self._known: dict[str, Known] = {}
        self._tried: dict[str, datetime] = {}
        self._asked = 0
        self._answered: dict[str, int] = {}
        self._made: tuple[Fleet, Mapping[str, Known], Fleet] | None = None
        self._load()

    def fleet(self) -> Fleet:
        """The fleet as it was read, with who is in its teams at this moment."""
        fleet = self._read()
        if not fleet.teams:
            return fleet
        now = self._clock.now()
        valid = {group: known for group, known in self._known.items() if timedelta() <= now - known.at <= HOLDS}
        if self._made is None or self._made[0] is not fleet or self._made[1] != valid:
            teams = tuple(_with_members(team, valid) for team in fleet.teams)
            self._made = (fleet, valid, replace(fleet, teams=teams))
        return self._made[2]

    async def refresh(self) -> None:
        """Ask for the groups of all teams, some a round; what can't be asked stays as it was known."""
        if self._groups is None:
            return
        wanted = dict.fromkeys(group for team in self._read().teams for group in team.ids)
        self._known = {group: known for group, known in self._known.items() if group in wanted}
        before = dict(self._known)
        never = datetime.min.replace(tzinfo=self._clock.now().tzinfo)
        for group in sorted(wanted, key=lambda one: self._tried.get(one, never))[:A_ROUND]:
            await self._ask(self._groups, group)
        if {group: one.members for group, one in before.items()} != {
            group: one.members for group, one in self._known.items()
        }:
            _log.info("team_members_changed", groups=sorted(self._known))
        self._save()

    async def _ask(self, groups: Groups, group: str) -> None:
        """What is told is as old as its asking, and an answer that comes after that of a later one is none."""
        self._tried[group] = asked_at = self._clock.now()
        self._asked += 1
        number = self._asked
        try:
            members = await groups.members(group)
        except NoSuchGroup:
            _log.warning("no_such_group", group=group)
            members = frozenset()
        except ChatError as error:
            _log.warning("group_not_asked", group=group, why=str(error))
            return
        if number > self._answered.get(group, 0):
            self._answered[group] = number
            self._known[group] = Known(members, asked_at)

    def _load(self) -> None:
        try:
            kept = self._keep.get(_KEPT_AS)
            if kept is not None:
                self._known = {group: _known(*one) for group, one in json.loads(kept).items()}
        except (StoreError, ValueError, TypeError, AttributeError) as error:
            _log.warning("team_members_not_read", error=str(error))

    def _save(self) -> None:
        if not self._known:
            return
        kept = {group: [known.at.isoformat(), sorted(known.members)] for group, known in self._known.items()}
        try:
            self._keep.put(_KEPT_AS, json.dumps(kept))
        except StoreError as error:
            _log.warning("team_members_not_kept", error=str(error))


def _with_members(team: Team, known: Mapping[str, Known]) -> Team:
    """A team of several groups has those who are in any that is known; with none known, nobody knows."""
    mine = [known[group].members for group in team.ids if group in known]
    return replace(team, members=frozenset[str]().union(*mine) if mine else None)


def _known(at: str, members: list[str]) -> Known:
    said_at = datetime.fromisoformat(at)
    if said_at.tzinfo is None:
        raise ValueError("an instant without its time zone")
    return Known(frozenset(str(one) for one in members), said_at)
