"""The named sets of launch flags, what they change, and what is known of them here.

profiles
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import Command, Reply
from bot.domain.message import Line, Lines, Message, bold, code, line, says
from bot.domain.needs import Needs
from bot.domain.phrases import count
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Reply:
    """Show each profile in two lines: its flags, and its record."""
    del words, now
    if not world.fleet.profiles:
        return Reply(says("No profile is set up: add ", bold("profiles:"), " to the fleet file."), is_ok=False)
    running = [world.facts(server.name).profile for server in world.fleet.servers]
    lines: list[Line] = []
    for profile in world.fleet.profiles:
        now_running = running.count(profile.name)
        where = f"  runs on {count(now_running, 'server')}" if now_running else ""
        lines.append(line(bold(profile.name), where))
        flags = [*profile.flags.argv(), *(f"(without --{name})" for name in profile.without)]
        lines.append(line(code(" ".join(flags) or "no flags of its own")))
        known = [
            f"{profile.seats} seats" if profile.seats else "",
            profile.gain,
            f"price: {profile.price}" if profile.price else "",
        ]
        ran = [one for one in world.starts if one.profile == profile.name]
        good = sum(one.is_ready for one in ran)
        known.append(f"started {count(good, 'time')}, failed {len(ran) - good}" if ran else "never started by me here")
        lines.append(line(" · ".join(one for one in known if one)))
    return Reply(Message(line(bold(count(len(world.fleet.profiles), "profile"))), (Lines(tuple(lines)),)))


COMMAND = Command(
    name="profiles",
    summary="the profiles, their flags and their record here",
    usage="profiles",
    examples=("profiles",),
    decide=decide,
    aliases=("profile",),
    grammar=Grammar(),
    needs=Needs(),
)
