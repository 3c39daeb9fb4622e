"""What came of the last day, or of another span: tokens, who was not up, alerts, and how far the job is.

report        report 7d        report gpu3 8h
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.facts import JobFacts
from bot.domain.fleet import Fleet
from bot.domain.message import says
from bot.domain.reporting import report
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Tell what was recorded since then."""
    if world.tally is None:
        return Reply(says("Nothing is watched here."), is_ok=False)
    everyone = [server.name for server in world.fleet.servers]
    jobs = [] if words.named else [world.job(job.name) or JobFacts(job.name, now) for job in world.fleet.jobs]
    return Reply(report(world.tally, everyone, wanted_rate(world.fleet, words.targets), jobs, now))


def wanted_rate(fleet: Fleet, servers: tuple[str, ...]) -> float | None:
    """The target of these servers: the fleet's own for all of them, else the sum of theirs where each has one."""
    if set(servers) >= {server.name for server in fleet.servers}:
        return fleet.target
    targets = [server.target for server in fleet.servers if server.name in servers]
    known = [one for one in targets if one is not None]
    return sum(known) if known and len(known) == len(targets) else None


COMMAND = Command(
    name="report",
    summary="tokens made, who was not up, alerts, the job's progress",
    usage="report [servers] [span]",
    examples=("report", "report 7d"),
    decide=decide,
    aliases=("summary",),
    grammar=Grammar(targets=True, when=True),
    needs_job=True,
    needs_samples=True,
    is_everyday=True,
)
