"""Which command line a server is to be launched with: its own flags, a profile's on top, and what would stop them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.domain.engine import Engine, FlagProblem
from bot.domain.flags import FlagChange, Flags
from bot.domain.fleet import Fleet, Profile, Server
from bot.domain.kernel_caches import NOT_SEEN, CacheState, state_of
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


def order(world: World, server: Server, asked: str | None, typed: Flags = Flags()) -> StartOrder:
    """The launch of one server, with every secret hidden, since an order is shown and stored.

    Without a profile asked for, a process that runs flags of its own ("custom") is launched with just those
    again: who restarts a server wants what was there.
    """
    engine, facts = world.engines[server.engine], world.facts(server.name)
    if asked is None and facts.process is not None and facts.profile == CUSTOM:
        return StartOrder(server.name, engine.flags_of(facts.process.argv).merged(typed), CUSTOM, typed)
    profile = profile_for(world, server, asked)
    flags = engine.flags_of(engine.launch_argv(server, flags_for(server, profile))).merged(typed)
    return StartOrder(server.name, flags, profile.name if profile is not None else CUSTOM, typed)


def command(fleet: Fleet, engine: Engine, server: Server, new: StartOrder) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """An order's whole command line and environment, with the secrets that the fleet file knows put back."""
    profile = fleet.profile(new.profile)
    whole = replace(server, launch=replace(server.launch, flags=flags_for(server, profile)))
    env = dict(server.launch.env)
    if server.gpus:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in server.gpus))
    env.update(profile.env if profile is not None else ())
    return engine.launch_argv(whole, new.flags), env


def changes(world: World, server: Server, new: StartOrder) -> tuple[FlagChange, ...]:
    """What the launch would change against what runs now; empty where nothing runs."""
    facts = world.facts(server.name)
    if facts.process is None:
        return ()
    return world.engines[server.engine].flags_of(facts.process.argv).changes_to(new.flags)


def flag_problems(world: World, server: Server, new: StartOrder) -> tuple[str, tuple[FlagProblem, ...]] | None:
    """The installed version and what it would refuse; None where it could not be asked."""
    installed = world.installed.get(server.name)
    if not isinstance(installed, Installed):
        return None
    return installed.version, world.engines[server.engine].check(installed.version, installed.flags, new.flags)


def as_launched(fleet: Fleet, server: Server, new: StartOrder) -> Server:
    """The server with the environment that this launch gives it: a profile may put its caches elsewhere."""
    profile = fleet.profile(new.profile)
    if profile is None or not profile.env:
        return server
    env = {**dict(server.launch.env), **dict(profile.env)}
    return replace(server, launch=replace(server.launch, env=tuple(env.items())))


def caches_found(world: World, server: Server, new: StartOrder) -> CacheState:
    """Whether this launch would find its kernels compiled; not known where it looks elsewhere than the server now."""
    profile, engine = world.fleet.profile(new.profile), world.engines[server.engine]
    installed = world.installed.get(server.name)
    version = installed.version if isinstance(installed, Installed) else None
    used = engine.caches_used(version, new.flags)
    names = {place.partition("/")[0] for one in used for place in one.place}
    if profile is not None and any(f"${name}" in names or name == "HOME" for name, _ in profile.env):
        return NOT_SEEN
    return state_of(world.facts(server.name).caches, used, world.starts, server.name, version)
