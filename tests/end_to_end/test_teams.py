"""A whole bot in a workspace with a user group: who is in it may, who has left it may not, and a wish is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bot.app.machine import App, FleetSource, Plugins, running
from bot.chats.slack import Slack, SlackSettings
from bot.demo.workspace import Group, Workspace
from bot.runtime.clock import SystemClock
from bot.settings import load_fleet
from bot.stores.sql import Database, SqlSeen
from tests.transports.servers import free_port

FLEET = """\
hosts: {here: {state_dir: STATE}}
servers: {gpu0: {host: here, port: PORT, launch: "python3 -c pass", log: STATE/gpu0.log}}
people: {vic: {slack: U0VIC}}
teams: {night: {slack: S0NIGHT, role: operator, channels: fleet}}
channels: {fleet: {slack: C0FLEET, alerts: false}}
"""


class Channel:
    """What stands in the channel."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @property
    def texts(self) -> list[str]:
        return [post.text for post in self.workspace.room.posts("C0FLEET")]

    async def answer(self, user: str, words: str) -> str:
        """Say something and wait for what the bot says next."""
        before = len(self.texts) + 1
        self.workspace.people.say("fleet", user, words)
        await self.until(lambda: len(self.texts) > before)
        return self.texts[before]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - what is waited for is the workspace's, and has no event
                await asyncio.sleep(0.02)


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[tuple[App, Channel]]:
    """The bot in its workspace."""
    file, clock, known = folder / "fleet.yaml", SystemClock(), Plugins.scan()
    file.write_text(FLEET.replace("PORT", str(free_port())).replace("STATE", str(folder / "host")))
    workspace = Workspace(clock=clock, port=0, groups=(Group("S0NIGHT", ("U0BO",)),))
    await workspace.start()
    database = Database.file(folder / "upbot.db")
    settings = SlackSettings(workspace.bot_token, workspace.app_token, base_url=workspace.api_url)
    slack = Slack(settings, SqlSeen(database), clock)
    source = FleetSource(
        lambda: load_fleet(
            file, transports=known.transports, engines=tuple(known.engines), launchers=tuple(known.launchers)
        )
    )
    app = App(source, known, database, slack, clock, slack)
    await slack.start(app.dispatcher)
    try:
        async with running(app, folder / "ask.sock"):
            channel = Channel(workspace)
            await channel.until(lambda: slack.is_connected and app.roster.fleet().teams[0].members is not None)
            yield app, channel
    finally:
        await slack.stop()
        await workspace.stop()
        database.close()


def test_a_group_of_the_workspace_gives_its_people_a_role_as_long_as_they_are_in_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with at_work(tmp_path) as (app, channel):
            assert await channel.answer("bo", "whoami") == "You are nobody in the fleet file (U0BO)"
            blocks = str(channel.workspace.room.posts("C0FLEET")[-1].blocks)
            assert "here: *operator* over all servers in fleet, by team night" in blocks
            assert await channel.answer("bo", "silence gpu0 1h") == "Silent about gpu0 for 1 h."
            channel.workspace.room.groups["S0NIGHT"] = Group("S0NIGHT")
            await app.roster.refresh()
            assert await channel.answer("bo", "unsilence gpu0") == "you may look but not unsilence; ask team night"
            told = channel.workspace.room.posts("C0FLEET")[-1]
            assert told.ephemeral_to == "U0BO"

    asyncio.run(scenario())


def test_a_wish_is_told_with_the_chats_own_mention(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with at_work(tmp_path) as (app, channel):
            assert (
                await channel.answer("vic", "tell me when gpu0 down") == "It is so already: gpu0 is down: no process."
            )
            told = await channel.answer("vic", "tell me when up")
            assert told == "You will be told here when gpu0 is up, within 1 d."
            file = tmp_path / "fleet.yaml"
            file.write_text(file.read_text().replace("gpu0:", "gpu1:"))
            await app.reload()
            gone = "<@U0VIC> gpu0 is not in the fleet file any more: I stop waiting for it."
            await channel.until(lambda: gone in channel.texts)

    asyncio.run(scenario())
