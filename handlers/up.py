"""Are they up? One line a server, from the application layer, with each HTTP status as it comes.

up?        up? gpu3        up? 30003        up? ct200
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from bot.domain.behind import standing_lines
from bot.domain.command import Command, Reply
from bot.domain.facts import Answer, Outcome, ServerFacts
from bot.domain.fleet import Server
from bot.domain.message import Line, Lines, Message, Small, bold, code, line
from bot.domain.needs import Needs
from bot.domain.phrases import names, span
from bot.domain.readiness import Readiness, Verdict
from bot.domain.saying import Grammar, Words
from bot.domain.views import DOTS, MANY, footer, hosts_of
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Say of each server whether it answers, and what the others are doing."""
    del words, now
    verdicts = {server.name: world.verdict(server.name) for server in world.targets}
    ready = sum(one.readiness is Readiness.READY for one in verdicts.values())
    is_starting = any(one.readiness is Readiness.STARTING for one in verdicts.values())
    word = "up" if is_starting else "answering"
    head = line(bold(f"{ready}/{len(verdicts)} {word}"), f" · {hosts_of(world.targets)}")
    lines = _each(world, verdicts) if len(verdicts) <= MANY else _alike(world, verdicts)
    lines = (*lines, *standing_lines(world, world.targets))
    return Reply(Message(head, (Lines(lines), Small(footer(world)))), is_ok=ready == len(verdicts))


def _each(world: World, verdicts: dict[str, Verdict]) -> tuple[Line, ...]:
    return tuple(_server(server, world.facts(server.name), verdicts[server.name]) for server in world.targets)


def _server(server: Server, facts: ServerFacts, verdict: Verdict) -> Line:
    head = line(f"{DOTS[verdict.readiness]} ", code(str(server.port)), f" {server.name}  ")
    if verdict.readiness in (Readiness.UNREACHABLE, Readiness.UNKNOWN):
        return line(head, bold(verdict.readiness.value), f"  {verdict.reason}" if verdict.reason else "")
    if verdict.readiness is Readiness.READY:
        running = facts.load.running
        return line(head, _status(facts), f"  {running} running" if running is not None else "")
    if verdict.readiness is Readiness.STARTING:
        age = f", {span(facts.process.age)}" if facts.process is not None and "alive" not in verdict.reason else ""
        return line(head, bold(_status(facts)), f"  {verdict.reason}{age}")
    return line(head, bold(verdict.readiness.value), f"  {verdict.reason}", _http(facts))


def _status(facts: ServerFacts) -> str:
    if facts.health is not None and facts.health.outcome is not Outcome.PENDING:
        return _outcome(facts.health)
    if facts.instant is not None and facts.instant.is_ok:
        return "answers, health check under way" if facts.health is not None else _outcome(facts.instant)
    if facts.instant is not None and facts.instant.outcome is not Outcome.PENDING:
        return _outcome(facts.instant)
    return "refused" if facts.port_owner is None else "no answer yet"


def _outcome(answer: Answer) -> str:
    if answer.outcome is Outcome.ANSWERED:
        return f"HTTP {answer.status}"
    if answer.outcome is Outcome.TIMED_OUT:
        return f"no answer in {span(answer.took)}"
    return str(answer.outcome.value)


def _http(facts: ServerFacts) -> str:
    answer = facts.health or facts.instant
    return f"  (HTTP {answer.status})" if answer is not None and answer.status is not None else ""


def _alike(world: World, verdicts: dict[str, Verdict]) -> tuple[Line, ...]:
    """Beyond ten servers: what is alike is one line, what needs a person has its own."""
    order = [server.name for server in world.targets]
    total = len(verdicts)
    counts = Counter(one.readiness for one in verdicts.values())
    lines: list[Line] = [line(f"{DOTS[Readiness.READY]} {counts[Readiness.READY]:,} of {total:,} ready")]
    groups: dict[tuple[Readiness, str], list[str]] = {}
    for name, verdict in verdicts.items():
        if verdict.readiness is not Readiness.READY:
            groups.setdefault((verdict.readiness, verdict.reason), []).append(name)
    ranked = sorted(groups.items(), key=lambda item: (DOTS[item[0][0]] != "🔴", -len(item[1])))
    for (readiness, reason), members in ranked[:20]:
        shown = names(members, order)
        shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
        lines.append(line(f"{DOTS[readiness]} {shown}  ", bold(readiness.value), f"  {reason}" if reason else ""))
    if len(ranked) > 20:
        lines.append(line(f"… and {sum(len(members) for _, members in ranked[20:])} more"))
    return tuple(lines)


COMMAND = Command(
    name="up",
    summary="whether each server answers, now",
    usage="up [servers]",
    examples=("up?", "up? gpu3", "up? ct200"),
    decide=decide,
    aliases=("u", "alive", "ping"),
    grammar=Grammar(targets=True),
    needs=Needs(health=True, load=True, log=True, movement=True, router=True),
    needs_job=True,
    is_everyday=True,
)
