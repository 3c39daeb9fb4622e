"""Servers that people have started by hand, in a tmux window: what a question about them must say."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.command import Reply
from bot.domain.fleet import Server
from bot.domain.message import Line, Small, line
from bot.domain.plan import Plan
from bot.domain.world import World

MOST_NAMED = 4
DETACHED = "; it will be started detached instead"


def runs_in(world: World, server: Server) -> str | None:
    """Where somebody's server runs that nobody has handed over: "ana's tmux session main:2"; None elsewhere."""
    facts = world.facts(server.name)
    if facts.process is None or facts.session is None or facts.is_adopted:
        return None
    whose = f"{facts.process.user}'s" if facts.process.user else "somebody's"
    return f"{whose} tmux session {facts.session}"


def with_sessions(decided: Reply | Plan, world: World, then: str = "") -> Reply | Plan:
    """The plan whose question says which of its servers somebody started by hand, and what becomes of them."""
    if isinstance(decided, Reply) or decided.question is None:
        return decided
    servers = [server for server in world.fleet.servers if server.name in decided.servers]
    places = [(server.name, place) for server in servers if (place := runs_in(world, server)) is not None]
    if not places:
        return decided
    lines: list[Line] = [line(f"{name} runs in {place}{then}") for name, place in places[:MOST_NAMED]]
    if len(places) > MOST_NAMED:
        lines.append(line(f"and {len(places) - MOST_NAMED} more of them{then}"))
    question = decided.question
    return replace(decided, question=replace(question, blocks=(*question.blocks, Small(tuple(lines)))))
