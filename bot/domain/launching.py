"""Which command line a server is to be launched with: its own flags, a profile's on top, and what would stop them."""

from __future__ import annotations

from bot.domain.engine import FlagProblem
from bot.domain.flags import FlagChange, Flags
from bot.domain.fleet import Profile, Server
from bot.domain.plan import StartOrder
from bot.domain.world import Installed, World

CUSTOM = "custom"


def profile_for(world: World, server: Server, asked: str | None) -> Profile | None:
    """The profile that a start would use: the one asked for, else the one it runs, ran last, or usually runs."""
    facts = world.facts(server.name)
    last = next((one.profile for one in reversed(world.starts) if one.server == server.name and one.is_ready), None)
    for name in (asked, facts.profile, last, server.usual):
        if name and name != CUSTOM and (profile := world.fleet.profile(name)) is not None:
            return profile
    return None


def flags_for(server: Server, profile: Profile | None) -> Flags:
    """The server's own flags with the profile's on top."""
    if profile is None:
        return server.launch.flags
    return server.launch.flags.merged(profile.flags, profile.without)


def order(world: World, server: Server, asked: str | None) -> StartOrder:
    """The launch of one server.

    Without a profile asked for, a process that runs flags of its own ("custom") is launched with just those
    again: who restarts a server wants what was there.
    """
    engine = world.engines[server.engine]
    facts = world.facts(server.name)
    env = dict(server.launch.env)
    if server.gpus:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in server.gpus))
    if asked is None and facts.process is not None and facts.profile == CUSTOM:
        return StartOrder(server.name, facts.process.argv, tuple(env.items()), CUSTOM)
    profile = profile_for(world, server, asked)
    env.update(profile.env if profile is not None else ())
    argv = engine.launch_argv(server, flags_for(server, profile))
    return StartOrder(server.name, argv, tuple(env.items()), profile.name if profile is not None else CUSTOM)


def changes(world: World, server: Server, new: StartOrder) -> tuple[FlagChange, ...]:
    """What the launch would change against what runs now; empty where nothing runs."""
    facts = world.facts(server.name)
    if facts.process is None:
        return ()
    engine = world.engines[server.engine]
    return engine.flags_of(facts.process.argv).changes_to(engine.flags_of(new.argv))


def flag_problems(world: World, server: Server, new: StartOrder) -> tuple[str, tuple[FlagProblem, ...]] | None:
    """The installed version and what it would refuse; None where it could not be asked."""
    installed = world.installed.get(server.name)
    if not isinstance(installed, Installed):
        return None
    engine = world.engines[server.engine]
    return installed.version, engine.check(installed.version, installed.flags, engine.flags_of(new.argv))
