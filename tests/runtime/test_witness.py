"""Every whole look is compared with what was kept, whoever asked for it, and keeping it never fails the look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.errors import StoreError
from bot.domain.facts import JobState
from bot.domain.needs import Needs
from bot.runtime.witness import Witness
from bot.stores.changes import SqlChanges
from bot.stores.sql import Database
from tests.jumping import START, JumpingClock, run
from tests.pretend import PretendFleet
from tests.tester import first_night

LONG_AGO = START - timedelta(days=1)


class PretendChanges(SqlChanges):
    """The store, counting, on a disk that can be full."""

    is_full = False
    written = 0

    def add(self, changes: Sequence[ReadinessChange], marks: Sequence[JobMark]) -> None:
        if self.is_full:
            raise StoreError("the disk is full")
        self.written += 1
        super().add(changes, marks)


class Stage:
    """A witness before a pretend fleet."""

    def __init__(self) -> None:
        self.fleet_value = first_night()
        self.clock = JumpingClock()
        self.fleet = PretendFleet(self.fleet_value, self.clock)
        self.store = PretendChanges(Database("sqlite://"))
        self.witness = self.again()
        self.fleet.run_all()

    def again(self) -> Witness:
        """A witness after a restart."""
        return Witness(self.fleet, self.store, self.clock)

    async def look(self) -> int:
        """Look at everything; how many sights there were."""
        needs = Needs(log=True, load=True, health=True)
        seen = [
            one async for one in self.witness.look(self.fleet_value.servers, jobs=self.fleet_value.jobs, needs=needs)
        ]
        return len(seen)

    def kept(self, server: str) -> list[tuple[str, str]]:
        """What was kept of one server."""
        changes, _ = self.store.since(LONG_AGO)
        return [(one.readiness.value, one.reason) for one in changes if one.server == server]


def test_a_change_is_kept_once_and_only_from_a_whole_look() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert await stage.look() == 3
        await stage.look()
        assert stage.store.written == 1
        stage.fleet.die("gpu3")
        await stage.look()
        await stage.look()
        assert stage.store.written == 2
        assert stage.kept("gpu3") == [("ready", ""), ("down", "no process")]
        assert stage.kept("gpu4") == [("ready", "")]

    run(scenario())


def test_after_a_restart_of_the_bot_what_was_kept_is_known() -> None:
    async def scenario() -> None:
        stage = Stage()
        await stage.look()
        stage.witness = stage.again()
        await stage.look()
        assert stage.store.written == 1
        stage.fleet.servers["gpu3"].unreachable = "container 200 is stopped"
        await stage.look()
        assert stage.kept("gpu3") == [("ready", ""), ("unreachable", "container 200 is stopped")]

    run(scenario())


def test_a_full_disk_never_fails_the_look_and_the_change_is_kept_later() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.store.is_full = True
        assert await stage.look() == 3
        assert stage.kept("gpu3") == []
        stage.store.is_full = False
        await stage.look()
        assert stage.kept("gpu3") == [("ready", "")]

    run(scenario())


def test_a_jobs_progress_is_marked_now_and_then() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.fleet.job_state = JobState.RUNNING
        for _ in range(20):
            await stage.look()
            stage.fleet.job_done += 100
            await stage.clock.sleep(timedelta(minutes=1))
        stage.fleet.job_state = JobState.STOPPED
        await stage.look()
        _, marks = stage.store.since(LONG_AGO)
        assert [(one.state, one.done) for one in marks] == [
            (JobState.RUNNING, 61_204),
            (JobState.RUNNING, 61_704),
            (JobState.RUNNING, 62_204),
            (JobState.RUNNING, 62_704),
            (JobState.STOPPED, 63_204),
        ]

    run(scenario())
