"""Be told, by name, when something is so: servers up or down, the job done, or the operation that runs over.

tell me when up        tell me when gpu3 down        tell me when done        tell me        tell me nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from bot.domain.command import Command, Decision, Forget, Promise, Reply
from bot.domain.facts import JobState
from bot.domain.message import Lines, Message, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.operation import Operation
from bot.domain.phrases import listing, span
from bot.domain.saying import Grammar, Words
from bot.domain.wishes import MOST, Goal, Until, come_true
from bot.domain.world import World

_UNTIL: Mapping[str, Until] = {
    **dict.fromkeys(("up", "ready", "back"), Until.UP),
    **dict.fromkeys(("down", "dead"), Until.DOWN),
    **dict.fromkeys(("done", "finished", "over"), Until.DONE),
}
_OF_A_JOB = "job"
_FILLING = (
    "me", "when", "once", "if", "is", "are", "the", "it", "it's", "its", "they", "they're", "server", "servers",
    "operation", "restart", "again", "please", _OF_A_JOB,
)  # fmt: skip


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Promise it, say that it is so already, or list what was promised."""
    if "nothing" in words.words:
        return Forget()
    wanted = {_UNTIL[word] for word in words.words if word in _UNTIL}
    if not wanted and not words.named and words.job is None and len(words.words) == 1:
        return _list(world, now)
    if len(wanted) != 1:
        told = says("When what? Say ", code("tell me when gpu3 up"), ", ", code("down"), " or ", code("done"), ".")
        return Reply(told, is_ok=False)
    goal = _done(words, world) if wanted == {Until.DONE} else Goal(wanted.pop(), words.targets)
    if isinstance(goal, Reply):
        return goal
    if (reached := come_true(goal, world.sight, world.operations, _everyone(world))) is not None:
        return Reply(says(bold("It is so already: "), f"{reached}."))
    if any(one.goal == goal and one.where.channel == world.channel for one in world.wishes):
        return Reply(says(f"You will be told when {goal.words(_everyone(world))}; that stands already."))
    if len(world.wishes) >= MOST:
        told = says(f"You wait for {MOST} things already: ", code("tell me nothing"), " takes them back.")
        return Reply(told, is_ok=False)
    return Promise(goal)


def _done(words: Words, world: World) -> Goal | Reply:
    """The job that was named; else the operation that runs, here before elsewhere; else the one job there is."""
    if words.job is not None:
        return Goal(Until.DONE, job=words.job)
    if _OF_A_JOB not in words.words and (op := _operation(world)) is not None:
        return Goal(Until.DONE, operation=op.id, title=op.plan.title)
    jobs = [job.name for job in world.fleet.jobs]
    at_work = [name for name in jobs if (facts := world.job(name)) is not None and facts.state is JobState.RUNNING]
    if len(jobs) == 1 or len(at_work) == 1:
        return Goal(Until.DONE, job=(at_work or jobs)[0])
    if not jobs:
        return Reply(says("Nothing runs here that could be done: no operation, and no job is set up."), is_ok=False)
    return Reply(says(f"Which job? {listing(jobs, 'or')}: ", code(f"tell me when {jobs[0]} done")), is_ok=False)


def _operation(world: World) -> Operation | None:
    live = [op for op in world.operations if op.is_live]
    here = [op for op in live if op.where.channel == world.channel]
    return next(iter(here or live), None)


def _list(world: World, now: datetime) -> Reply:
    if not world.wishes:
        return Reply(says("You wait for nothing. Say ", code("tell me when up"), "."))
    lines = [
        line(f"{one.goal.words(_everyone(world))} · for another {span(one.expires_at - now)}") for one in world.wishes
    ]
    return Reply(Message(line(bold("You will be told when:")), (Lines(tuple(lines)),)))


def _everyone(world: World) -> list[str]:
    return [server.name for server in world.fleet.servers]


COMMAND = Command(
    name="tell",
    summary="mentions you when servers are up or down, the job is done or the operation over; alone: what you wait for",
    usage="tell me [when] [servers] up|down|done|nothing",
    examples=("tell me when up", "tell me when gpu3 down", "tell me when done", "tell me", "tell me nothing"),
    decide=decide,
    aliases=("ping", "notify"),
    grammar=Grammar(targets=True, job=True, words=(*_FILLING, *_UNTIL, "nothing"), first=("me",)),
    needs=Needs(load=True, log=True),
    needs_job=True,
    is_everyday=True,
)
