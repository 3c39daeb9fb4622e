"""Try a profile on one server, beside its peers, before the whole fleet is bet on it.

canary no_buffer gpu7        canary no_buffer
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bot.domain.by_hand import DETACHED, with_sessions
from bot.domain.command import Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import bold, code, says
from bot.domain.needs import Needs
from bot.domain.procedure import canary
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Plan the canary; without a server it is the last of the channel's."""
    del now
    if words.profile is None:
        told = says(bold("Which profile? "), code("canary no_buffer gpu7"), ". Nothing was done.")
        return Reply(told, is_ok=False)
    if words.named and len(world.targets) > 1:
        return Reply(says(bold("One server is the canary: "), "name one. Nothing was done."), is_ok=False)
    return with_sessions(canary(words, replace(world, targets=world.targets[-1:])), world, DETACHED)


COMMAND = Command(
    name="canary",
    summary="try a profile on one server, compare it with its peers, then roll on or back",
    usage="canary <profile> [server]",
    examples=("canary no_buffer gpu7",),
    decide=decide,
    role=Role.OPERATOR,
    grammar=Grammar(targets=True, profile=True),
    needs=Needs(load=True, config=True, log=True, gpu=True, caches=True, router=True),
    needs_job=True,
    changes=True,
    asks_installed=True,
)
