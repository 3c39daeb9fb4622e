"""One object a server for programs: what `upbot ask --json` prints."""

from __future__ import annotations

from typing import Any

from bot.domain.fleet import Server
from bot.domain.guard import rate
from bot.domain.world import World


def servers(world: World) -> list[dict[str, Any]]:
    """The targets of a decision as plain values; what was not seen is None. Usages are fractions of 1."""
    return [_server(world, server) for server in world.targets]


def _server(world: World, server: Server) -> dict[str, Any]:
    facts, verdict = world.facts(server.name), world.verdict(server.name)
    answer = facts.health if facts.health is not None and facts.health.status is not None else facts.instant
    diagnosis = facts.diagnosis
    tokens = rate(facts)
    return {
        "name": server.name,
        "host": server.host,
        "port": server.port,
        "readiness": verdict.readiness.value,
        "http_status": answer.status if answer is not None else None,
        "phase": diagnosis.phase.value if diagnosis is not None and diagnosis.phase is not None else None,
        "progress_percent": diagnosis.progress_percent if diagnosis is not None else None,
        "profile": facts.profile,
        "running": facts.load.running,
        "max_running": facts.load.max_running or facts.running.max_running,
        "queued": facts.load.queued,
        "tokens_per_second": round(tokens, 1) if tokens is not None else None,
        "kv_usage": facts.load.kv_usage,
        "mamba_usage": facts.load.mamba_usage,
        "reason": verdict.reason or None,
    }
