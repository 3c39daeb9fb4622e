"""Restart servers, with another profile if one is named: looked at, asked, proved.

restart no_buffer        restart gpu3        restart --rolling no_buffer        restart no_buffer?
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.by_hand import DETACHED, with_sessions
from bot.domain.command import Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import Lines, Message, bold, code, line
from bot.domain.needs import Needs
from bot.domain.phrases import listing
from bot.domain.procedure import restart
from bot.domain.saying import Grammar, Words
from bot.domain.world import World

TYPED = (
    "chunked-prefill-size",
    "context-length",
    "cuda-graph-max-bs",
    "gpu-memory-utilization",
    "mamba-full-memory-ratio",
    "max-mamba-cache-size",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "max-prefill-tokens",
    "max-running-requests",
    "max-total-tokens",
    "mem-fraction-static",
    "schedule-conservativeness",
)
"""Flags that may be typed along: numbers that size a server. Whatever else a server needs stands in the fleet file."""


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the restart, or ask which servers are meant."""
    del now
    if not world.targets:
        return _which(world)
    return with_sessions(restart(words, world), world, DETACHED)


def _which(world: World) -> Reply:
    server = world.fleet.servers[0].name if world.fleet.servers else "gpu0"
    profiles = [profile.name for profile in world.fleet.profiles]
    lines = [line(code(f"restart {server}"), " · ", code("restart all"))]
    if profiles:
        shown = listing(profiles[:6], "or")
        lines.append(line(code(f"restart {profiles[0]}"), f" for this channel's servers; profiles: {shown}"))
    return Reply(Message(line(bold("Restart which? "), "Nothing was done."), (Lines(tuple(lines)),)), is_ok=False)


COMMAND = Command(
    name="restart",
    summary="stop, start and prove servers, with a profile if one is named; asks before anything healthy dies",
    usage="restart [servers] [profile] [flag=value] [--rolling] [--again]",
    examples=(
        "restart no_buffer",
        "restart gpu3",
        "restart --rolling no_buffer",
        "restart no_buffer?",
        "restart gpu3 mem-fraction-static=0.88",
    ),
    decide=decide,
    aliases=("r", "reboot"),
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, profile=True, options=("--rolling", "--again"), flags=TYPED),
    needs=Needs(load=True, config=True, log=True, gpu=True, caches=True, router=True),
    needs_job=True,
    changes=True,
    asks_installed=True,
)
