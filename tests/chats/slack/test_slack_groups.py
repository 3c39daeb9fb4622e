"""Who is in a user group, asked of the workspace; each way in which it can fail is one of two errors."""

import asyncio

import pytest

from bot.chats.slack import Slack, SlackSettings
from bot.demo.workspace import Group
from bot.domain.errors import ChatError, NoSuchGroup
from bot.domain.fleet import Fleet, Grant, Role, Team
from bot.runtime.doctor import look_at_teams
from tests.chats.slack.conftest import Memory, RealClock, s

METHOD = "usergroups.users.list"


def with_group(at):
    at.workspace.room.groups = {"S0EVAL": Group("S0EVAL", ("U0ANA", "U0BO")), "S0EMPTY": Group("S0EMPTY")}


def test_the_members_of_a_group_follow_the_workspace(stage):
    async def scenario():
        async with stage() as at:
            with_group(at)
            assert await at.slack.members("S0EVAL") == {"U0ANA", "U0BO"}
            assert await at.slack.members("S0EMPTY") == frozenset()
            at.workspace.room.groups["S0EVAL"] = Group("S0EVAL", ("U0BO",))
            assert await at.slack.members("S0EVAL") == {"U0BO"}

    asyncio.run(scenario())


def test_a_group_that_is_not_there_is_told_from_a_slack_that_can_not_be_asked(stage):
    async def scenario():
        async with stage(call=s(0.3)) as at:
            with_group(at)
            with pytest.raises(NoSuchGroup, match="Slack has no user group S0GONE"):
                await at.slack.members("S0GONE")
            faults = at.workspace.faults
            for fail, said in (
                (lambda: faults.refuse(METHOD, "missing_scope"), "does not tell who is in S0EVAL: missing_scope"),
                (lambda: faults.refuse(METHOD, "plan_upgrade_required"), "plan_upgrade_required"),
                (lambda: faults.rate_limit(METHOD), "can't be asked who is in S0EVAL: too many requests"),
                (lambda: faults.fail(METHOD), "Slack is in trouble"),
                (lambda: faults.drop(METHOD, times=2), "no answer"),
                (lambda: faults.stall(METHOD, span=s(1)), "no answer"),
            ):
                fail()
                with pytest.raises(ChatError, match=said) as caught:
                    await at.slack.members("S0EVAL")
                assert not isinstance(caught.value, NoSuchGroup)
            assert await at.slack.members("S0EVAL") == {"U0ANA", "U0BO"}

    asyncio.run(scenario())


def test_the_doctor_verifies_each_group(stage):
    async def scenario():
        async with stage() as at:
            with_group(at)
            teams = (Team("eval", ("S0EVAL", "S0GONE"), (Grant(Role.OPERATOR),)), Team("night", ("S0EMPTY",)))
            settings = SlackSettings(at.workspace.bot_token, "xapp-1", base_url=at.workspace.api_url)
            slack = Slack(settings, Memory(), RealClock())
            await slack.introduce()
            found = await look_at_teams(Fleet(teams=teams), slack)
            assert [(one.is_ok, one.what) for one in found] == [
                (True, "team eval: S0EVAL, 2 members"),
                (False, "team eval: Slack has no user group S0GONE"),
                (True, "team night: S0EMPTY, 0 members"),
            ]
            assert found[1].advice == "teams: eval: slack: takes a group's id (its profile in Slack > Copy group ID)"
            at.workspace.faults.refuse(METHOD, "missing_scope")
            found = await look_at_teams(Fleet(teams=teams[1:]), slack)
            what = "team night: Slack does not tell who is in S0EMPTY: missing_scope"
            assert [(one.is_ok, one.what) for one in found] == [(False, what)]
            assert found[0].advice == "docs/slack.md: teams need the scope usergroups:read"

    asyncio.run(scenario())
