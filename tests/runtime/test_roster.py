"""Who is in a team: asked in the background, held for a while when the chat is away, and then nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from bot.domain.errors import StoreError
from bot.domain.fleet import Fleet, Grant, Role, Team
from bot.runtime.roster import A_ROUND, HOLDS, Roster
from bot.stores.kept import SqlKept
from bot.stores.sql import Database
from tests.jumping import JumpingClock, run
from tests.tester import PretendGroups, first_night

NIGHT = Team("night", ("S1",), (Grant(Role.OPERATOR),))


class Stage:
    """A roster over pretend groups, and what it keeps."""

    def __init__(self, *teams: Team) -> None:
        self.fleet = first_night(teams=teams or (NIGHT,))
        self.groups = PretendGroups({"S1": {"U7"}})
        self.keep: SqlKept = SqlKept(Database("sqlite://"))
        self.clock = JumpingClock()
        self.roster = self.again()

    def again(self, *, has_groups: bool = True) -> Roster:
        """A roster of a bot that was started again."""
        return Roster(self.read, self.groups if has_groups else None, self.keep, self.clock)

    def read(self) -> Fleet:
        return self.fleet

    @property
    def members(self) -> frozenset[str] | None:
        return self.roster.fleet().teams[0].members


def stage(scenario: Callable[[Stage], Awaitable[None]], *teams: Team) -> None:
    async def whole() -> None:
        await scenario(Stage(*teams))

    run(whole())


def test_members_are_known_once_the_chat_was_asked_and_follow_it() -> None:
    async def scenario(at: Stage) -> None:
        assert at.members is None
        await at.roster.refresh()
        assert at.members == {"U7"}
        at.groups.groups["S1"] = {"U8"}
        assert at.members == {"U7"}
        await at.roster.refresh()
        assert at.members == {"U8"}

    stage(scenario)


def test_the_fleet_is_never_waited_for_and_is_the_same_until_something_changes() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        before = len(at.groups.asked)
        assert at.roster.fleet() is at.roster.fleet()
        assert len(at.groups.asked) == before
        at.fleet = replace(at.fleet, teams=())
        assert at.roster.fleet() is at.fleet

    stage(scenario)


def test_when_the_chat_is_away_those_last_known_hold_for_a_while_and_then_nobody() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        at.groups.is_away = True
        await at.clock.sleep(HOLDS - HOLDS / 10)
        await at.roster.refresh()
        assert at.members == {"U7"}
        await at.clock.sleep(HOLDS / 5)
        assert at.members is None
        at.groups.is_away = False
        await at.roster.refresh()
        assert at.members == {"U7"}

    stage(scenario)


def test_a_group_that_is_gone_has_nobody_at_once() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        del at.groups.groups["S1"]
        await at.roster.refresh()
        assert at.members == frozenset()

    stage(scenario)


def test_members_hold_over_a_restart_also_of_a_bot_without_the_chat_but_no_longer() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        at.groups.is_away = True
        at.roster = at.again(has_groups=False)
        await at.roster.refresh()
        assert at.members == {"U7"}
        await at.clock.sleep(HOLDS * 1.1)
        at.roster = at.again()
        assert at.members is None

    stage(scenario)


@pytest.mark.parametrize(
    "kept", ["", "{", "[]", '{"S1": 3}', '{"S1": ["yesterday", ["U7"]]}', '{"S1": ["2026-11-30", ["U7"]]}']
)
def test_what_was_kept_and_can_not_be_read_is_nobody(kept: str) -> None:
    async def scenario(at: Stage) -> None:
        at.keep.put("members", kept)
        at.roster = at.again()
        assert at.members is None

    stage(scenario)


class FullDisk(SqlKept):
    """What is kept, on a disk that is full."""

    def put(self, name: str, text: str) -> None:
        raise StoreError("database or disk is full")


def test_a_full_disk_keeps_nobody_from_what_they_may() -> None:
    async def scenario(at: Stage) -> None:
        at.keep = FullDisk(Database("sqlite://"))
        at.roster = at.again()
        await at.roster.refresh()
        assert at.members == {"U7"}

    stage(scenario)


def test_a_team_of_two_groups_has_those_of_either_that_is_known() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        assert at.members == {"U7"}
        at.groups.groups["S2"] = {"U9"}
        await at.roster.refresh()
        assert at.members == {"U7", "U9"}

    stage(scenario, replace(NIGHT, ids=("S1", "S2")))


def test_many_groups_are_asked_for_in_turn() -> None:
    async def scenario(at: Stage) -> None:
        await at.roster.refresh()
        assert len(at.groups.asked) == A_ROUND
        await at.clock.sleep(HOLDS / 15)
        await at.roster.refresh()
        await at.clock.sleep(HOLDS / 15)
        await at.roster.refresh()
        assert set(at.groups.asked) == {f"S{n}" for n in range(3 * A_ROUND)}

    stage(scenario, replace(NIGHT, ids=tuple(f"S{n}" for n in range(3 * A_ROUND))))
