"""When a wish has come true: of servers, jobs and operations, as a look shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.facts import Answer, JobFacts, JobState, Outcome, Process, ServerFacts, Sight
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet, Person
from bot.domain.operation import Operation, State, Where, begin
from bot.domain.plan import Plan, StartOrder, StartServers
from bot.domain.wishes import Goal, Until, Wish, come_true, mine
from tests.jumping import START

EVERYONE = [f"gpu{n}" for n in range(4)]
UP = ServerFacts(
    "", START, process=Process(7, 700, ("x",), "root", timedelta(hours=1)), instant=Answer(Outcome.ANSWERED, START, 200)
)
DOWN = ServerFacts("", START)
AWAY = ServerFacts("", START, unreachable="ssh h1 timed out after 3 s")
PENDING = ServerFacts("", START, is_pending=True)


def sight(*facts: ServerFacts, job: JobFacts | None = None) -> Sight:
    """gpu0, gpu1, … as they are given."""
    servers = {f"gpu{n}": replace(one, server=f"gpu{n}") for n, one in enumerate(facts)}
    return Sight(START, servers, {job.job: job} if job is not None else {})


def restart(*servers: str, launched: tuple[str, ...] = (), state: State = State.RUNNING) -> Operation:
    """An operation on these servers."""
    plan = Plan("restart", "Restart", servers, (StartServers(tuple(StartOrder(one, Flags()) for one in servers)),))
    op = begin(plan, id="op-3", by="ana", at=START, where=Where("C1"), pace=None)
    ended = START + timedelta(minutes=3) if state is not State.RUNNING else None
    return replace(op, launched=launched, state=state, ended_at=ended)


@pytest.mark.parametrize(
    ("until", "servers", "seen", "operations", "said"),
    [
        (Until.UP, ("gpu0",), (UP,), (), "gpu0 is up"),
        (Until.UP, ("gpu0", "gpu1"), (UP, UP), (), "gpu0, gpu1 are up"),
        (Until.UP, ("gpu0", "gpu1"), (UP, DOWN), (), None),
        (Until.UP, ("gpu0", "gpu1"), (UP, PENDING), (), None),
        (Until.UP, ("gpu0", "gpu1"), (UP,), (), None),  # gpu1 was not looked at
        (Until.UP, tuple(EVERYONE), (UP,) * 4, (), "all 4 are up"),
        (Until.UP, ("gpu0",), (UP,), (restart("gpu0", "gpu1"),), None),  # it is the old one
        (Until.UP, ("gpu0",), (UP,), (restart("gpu0", "gpu1", launched=("gpu0",)),), "gpu0 is up"),
        (Until.UP, ("gpu0",), (UP,), (restart("gpu1"),), "gpu0 is up"),
        (Until.UP, ("gpu0",), (UP,), (restart("gpu0", state=State.FAILED),), "gpu0 is up"),
        (Until.DOWN, ("gpu0",), (UP,), (), None),
        (Until.DOWN, ("gpu0",), (DOWN,), (), "gpu0 is down: no process"),
        (Until.DOWN, ("gpu0",), (AWAY,), (), None),  # unreachable is not down
        (Until.DOWN, ("gpu0",), (PENDING,), (), None),
        (Until.DOWN, ("gpu0", "gpu1"), (UP, replace(DOWN, exit_status=1)), (), "gpu1 is crashed: exit status 1"),
    ],
)
def test_servers_are_up_when_all_are_and_down_when_one_is(
    until: Until,
    servers: tuple[str, ...],
    seen: Sequence[ServerFacts],
    operations: Sequence[Operation],
    said: str | None,
) -> None:
    assert come_true(Goal(until, servers), sight(*seen), operations, EVERYONE) == said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (None, None),
        (JobFacts("gen", START, JobState.UNKNOWN), None),
        (JobFacts("gen", START, JobState.STOPPED, 100, 1000), None),
        (JobFacts("gen", START, JobState.RUNNING, 100, 1000), None),
        (JobFacts("gen", START, JobState.DONE, 193_000, 193_000), "job gen is done: 193,000"),
        (JobFacts("gen", START, JobState.DONE), "job gen is done"),
    ],
)
def test_a_job_is_done_when_it_is_seen_to_be(facts: JobFacts | None, said: str | None) -> None:
    assert come_true(Goal(Until.DONE, job="gen"), sight(job=facts), (), EVERYONE) == said


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ((restart("gpu0"),), None),
        ((restart("gpu0", state=State.CANCELLING),), None),
        ((restart("gpu0", state=State.DONE),), "Restart (op-3): done after 3 m"),
        ((restart("gpu0", state=State.FAILED),), "Restart (op-3): failed after 3 m"),
        ((restart("gpu0", state=State.CANCELLED),), "Restart (op-3): cancelled after 3 m"),
        ((), "Restart (op-3) is over"),  # so long ago that nobody remembers how
    ],
)
def test_an_operation_is_over_however_it_ended(operations: Sequence[Operation], said: str | None) -> None:
    goal = Goal(Until.DONE, operation="op-3", title="Restart")
    assert come_true(goal, sight(), operations, EVERYONE) == said


def test_a_persons_wishes_are_theirs_by_whichever_id() -> None:
    fleet = Fleet(people=(Person("ana", ids=("U1", "U2")),))
    wishes = [
        Wish(user, Where("C1"), Goal(Until.UP, ("gpu0",)), START, START, number)
        for number, user in enumerate(("U1", "U2", "ana", "U3", "U4"))
    ]
    assert [one.number for one in mine(wishes, fleet, "U2")] == [0, 1, 2]
    assert [one.number for one in mine(wishes, fleet, "ana")] == [0, 1, 2]
    assert [one.number for one in mine(wishes, fleet, "U3")] == [3]
    assert mine(wishes, fleet, "U5") == ()
