"""The job that feeds the servers: its state, and stopping and starting it gracefully.

job        job stop        job start
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Decision, Reply
from bot.domain.facts import JobFacts, JobState
from bot.domain.fleet import Job
from bot.domain.message import Lines, Message, bold, line, says
from bot.domain.plan import Plan, ResumeJob, StopJob
from bot.domain.saying import Grammar, Words
from bot.domain.views import job_line
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Show all jobs, or plan what was asked of one."""
    del now
    jobs = [job for job in world.fleet.jobs if words.job in (None, job.name)]
    if not jobs:
        return Reply(says("No job is set up: add ", bold("jobs:"), " to the fleet file."), is_ok=False)
    if not words.words:
        return _show(jobs, world)
    if len(jobs) > 1:
        return Reply(says(f"Which job? {', '.join(job.name for job in jobs)}. Nothing was done."), is_ok=False)
    return _act(words, jobs[0], world)


def _show(jobs: list[Job], world: World) -> Reply:
    lines = [job_line(world.job(job.name) or JobFacts(job.name, world.now)) for job in jobs]
    is_ok = all(facts.state in (JobState.RUNNING, JobState.DONE) for job in jobs if (facts := world.job(job.name)))
    return Reply(
        Message(line(bold(lines[0])), (Lines(tuple(line(one) for one in lines[1:])),) if lines[1:] else ()), is_ok=is_ok
    )


def _act(words: Words, job: Job, world: World) -> Decision:
    facts = world.job(job.name)
    state = facts.state if facts is not None else JobState.UNKNOWN
    if words.words[-1] == "stop":
        if state in (JobState.STOPPED, JobState.DONE):
            return Reply(says(bold(f"job {job.name} does not run: "), "nothing to stop."))
        return Plan("job stop", f"Stop job {job.name}", (), (StopJob(job.name),), is_preview=words.is_question)
    if state is JobState.RUNNING:
        return Reply(says(bold(f"job {job.name} runs already: "), "nothing to start."))
    if state is JobState.DONE:
        return Reply(says(bold(f"job {job.name} is done: "), "nothing to start."))
    return Plan("job start", f"Start job {job.name}", (), (ResumeJob(job.name, None, 0),), is_preview=words.is_question)


COMMAND = Command(
    name="job",
    summary="the job's state, progress and time to go; stop and start it",
    usage="job [stop|start] [job]",
    examples=("job", "job stop", "job start"),
    decide=decide,
    aliases=("jobs",),
    grammar=Grammar(job=True, words=("stop", "start")),
    needs_job=True,
    acting=frozenset({"stop", "start"}),
    is_everyday=True,
)
