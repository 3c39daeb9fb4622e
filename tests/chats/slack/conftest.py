"""A stage for the Slack adapter: the embedded workspace on the other side, and a listener that writes down."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.chats.slack import Pace, Slack, SlackSettings
from bot.demo.workspace import Pace as WorkspacePace
from bot.demo.workspace import Workspace
from bot.domain.errors import StoreError

CHANNEL = "C0FLEET"


def s(seconds):
    return timedelta(seconds=seconds)


QUICK = Pace(
    patience=s(10), call=s(1), retry=s(0.02), retry_most=s(0.1), edits_a_minute=60_000, edits_at_once=50,
    check=s(0.02), connect=s(2), close=s(0.5), ping=s(0.05), pong=s(0.4), hello=s(2), echo=s(0.4),
)  # fmt: skip


class RealClock:
    """The machine's own time, and how long was slept."""

    def __init__(self):
        self.slept = []

    def now(self):
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, span):
        self.slept.append(span)
        await asyncio.sleep(span.total_seconds())


@dataclass
class Memory:
    """What was seen; ``is_broken`` as with a full disk."""

    keys: set = field(default_factory=set)
    is_broken: bool = False

    def seen(self, key, at):
        assert at.tzinfo is not None
        if self.is_broken:
            raise StoreError("state.db: no space left")
        is_known = key in self.keys
        self.keys.add(key)
        return is_known


@dataclass
class Recorder:
    """A listener."""

    heard_: list = field(default_factory=list)
    pressed_: list = field(default_factory=list)

    def heard(self, event):
        self.heard_.append(event)

    def pressed(self, event):
        self.pressed_.append(event)

    @property
    def words(self):
        return [event.text for event in self.heard_]


@dataclass
class Stage:
    workspace: Workspace
    slack: Slack
    listener: Recorder
    memory: Memory
    clock: RealClock

    def say(self, text, user="ana", thread=None):
        return self.workspace.people.say("fleet", user, text, thread).ts

    @property
    def posts(self):
        return [post for post in self.workspace.room.posts(CHANNEL) if post.user == "U0UPBOT"]

    @property
    def texts(self):
        return [post.text for post in self.posts]

    @property
    def unacknowledged(self):
        return [one for one in self.workspace.deliveries if not one.is_acked and one.connection is not None]

    async def until(self, true: Callable[[], object], within=10.0):
        deadline = time.monotonic() + within
        while not true():
            assert time.monotonic() < deadline, "it did not come to be"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _stage(*, memory=None, is_away=False, **pace) -> AsyncIterator[Stage]:
    clock = RealClock()
    quick = WorkspacePace(ack_within=s(1), again=(s(0), s(0.1), s(0.1)), ping_every=s(60))
    workspace = Workspace(clock=clock, port=0, pace=quick)
    await workspace.start()
    if is_away:
        workspace.faults.outage(s(60))
    memory = memory or Memory()
    settings = SlackSettings(workspace.bot_token, workspace.app_token, base_url=workspace.api_url)
    slack = Slack(settings, memory, clock, replace(QUICK, **pace))
    stage = Stage(workspace, slack, Recorder(), memory, clock)
    try:
        await slack.start(stage.listener)
        if not is_away:
            await stage.until(lambda: slack.is_connected)
        yield stage
    finally:
        await slack.stop()
        await workspace.stop()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        left = [task for task in left if not task.done()]
    assert left == [], "tasks were left behind"


@pytest.fixture
def stage():
    """Makes a workspace with the adapter connected to it, as an async context."""
    return _stage
