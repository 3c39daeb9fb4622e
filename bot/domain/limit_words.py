"""What holds servers back, in one sentence with its numbers, and the lever: said by `why`, `diagnose` and questions.

Levers are those of SGLang's and vLLM's own tuning guides.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain import mamba
from bot.domain.limiting import FULL, Gain, Group, Limit, Work, memory_flag, seats_flag
from bot.domain.phrases import about, percent


def sentence(group: Group, client: str = "the client") -> str:
    """The whole of it: "Concurrency is capped by Mamba state memory: 37 of at most 37 requests run, 118 wait, …"."""
    return f"{_cause(group, client)}: {', '.join(_numbers(group))}."


def brief(group: Group) -> str:
    """As a question's reason: "32 of 37 seats taken, Mamba state holds the cap (61 %), queue empty"; "" for no cap."""
    most, queued = _most(group), group.queued
    waiting = "queue empty" if not queued else f"{about(queued)} queued"
    kv, states = _kv(group), group.middle(lambda work: work.load.mamba_usage)
    if group.limit is Limit.KV and kv is not None:
        return f"KV cache {percent(kv)} used, {waiting}"
    if not group.limit.is_cap or most is None:
        return ""
    parts = [f"{_running(group)} of {about(most)} seats taken"]
    if group.limit is Limit.MAMBA and states is not None:
        parts.append(f"Mamba state holds the cap ({percent(states)})")
    elif group.limit is Limit.ASKED:
        parts.append(f"--{seats_flag(group.first.engine)} holds the cap")
    elif kv is not None:
        parts.append(f"KV cache {percent(kv)} used")
    return ", ".join([*parts, waiting])


def _cause(group: Group, client: str) -> str:
    word, most = seats_flag(group.first.engine), _most(group)
    flag = f"--{word}" + (f" {group.first.asked}" if group.first.asked is not None else "")
    not_set = f" (--{word} was not set)" if group.first.flags.items else ""
    words = {
        Limit.MAMBA: "Concurrency is capped by Mamba state memory",
        Limit.ASKED: f"Concurrency is capped by {flag}",
        Limit.MEMORY: "Concurrency is capped by the memory of its caches, below what was asked for",
        Limit.CAP: f"Concurrency is capped by the server's own number of seats{not_set}",
        Limit.KV: "The KV cache is full",
        Limit.WINDOW: "The cache of the sliding windows is full",
        Limit.SCHEDULER: "The scheduler lets requests in too carefully, since some wait although seats are free",
        Limit.DEMAND: f"Demand is missing, since {client} does not push more",
        Limit.IDLE: "Nobody asks",
        Limit.UNKNOWN: "What limits it can't be told",
    }[group.limit]
    if group.limit is Limit.KV and (group.middle(lambda work: work.load.kv_usage) or 0.0) < FULL:
        words = "The KV cache is too small for what runs"
    if group.is_client_slow:
        rest = "and" if most is not None and group.running[1] < most else "though"
        words += f", {rest} {client} does not push more"
    return words


def _numbers(group: Group) -> list[str]:
    if group.limit is Limit.UNKNOWN:
        return [f"{_whom(group, 'it')} told no numbers"]
    parts = [_seats(group)]
    waits = f"{about(group.queued)} wait{'s' if group.queued == 1 else ''}{_in_all(group)}"
    parts.append(waits if group.queued else "none wait")
    if (kv := _kv(group)) is not None:
        parts.append(f"KV cache {percent(kv)} used")
    if (window := group.middle(lambda work: work.load.swa_usage)) is not None:
        parts.append(f"windows {percent(window)}")
    if (states := group.middle(lambda work: work.load.mamba_usage)) is not None:
        parts.append(f"Mamba {percent(states)}{_plateau(group)}")
    put_back = group.middle(lambda work: work.put_back)
    if group.limit is Limit.KV and put_back is not None and put_back > 0:
        parts.append(f"{put_back:.1f} requests a minute put back")
    if tokens := group.middle(lambda work: work.tokens):
        parts.append(f"{about(tokens)} tok/s" + (" each" if len(group.works) > 1 else ""))
    return parts


def _seats(group: Group) -> str:
    most = _most(group)
    of = f" of at most {about(most)}" if most is not None else ""
    on = f" on each of {len(group.works)} servers" if len(group.works) > 1 else ""
    return f"{_running(group)}{of} requests run{on}"


def _running(group: Group) -> str:
    low, high = group.running
    return str(low) if low == high else f"{low}–{high}"


def _most(group: Group) -> float | None:
    return group.middle(lambda work: work.most)


def _kv(group: Group) -> float | None:
    return group.middle(lambda work: work.load.kv_usage)


def _in_all(group: Group) -> str:
    return " in all" if len(group.works) > 1 else ""


def _whom(group: Group, one: str) -> str:
    return one if len(group.works) == 1 else f"{len(group.works)} servers"


def _plateau(group: Group) -> str:
    """Why a pool that is not used up is full all the same."""
    held, slots = group.held, group.first.slots
    if not group.limit.is_cap or held is None or not slots:
        return ""
    return f" (a request holds {held} of {slots} slots: {percent(held / slots)} is full)"


def gain(found: Gain, group: Group) -> str:
    """What a profile would lift: "… would raise the cap to about 62, with its memory fraction of 0.90 to 72."."""
    name, share = found.profile.name, found.memory
    if found.seats is None:
        return f"{name} would give its caches more memory ({_memory_before(group)}{share})."
    memory = f"with its memory fraction of {share} " if share is not None else ""
    if found.is_known and found.by_strategy is not None and memory and found.seats > found.by_strategy:
        return f"{name} would raise the cap to about {found.by_strategy}, {memory}to {found.seats}."
    if found.is_known:
        return f"{name} would raise the cap to {found.seats}."
    more = f", and further with its memory fraction of {share}" if _is_raised(share, group) else ""
    return f"{name} would raise the cap to about {found.seats}{more}."


def _is_raised(share: str | None, group: Group) -> bool:
    before = group.first.flags.value(memory_flag(group.first.engine))
    return share is not None and before is not None and share > before


def _memory_before(group: Group) -> str:
    before = group.first.flags.value(memory_flag(group.first.engine))
    return f"{before} → " if before is not None else ""


def lever(group: Group) -> str:
    """What to turn when no configured profile does it; "" where nothing is to be turned on the server."""
    work = group.first
    seats, memory, is_vllm = seats_flag(work.engine), memory_flag(work.engine), work.engine == "vllm"
    match group.limit:
        case Limit.MAMBA:
            return _mamba_lever(group)
        case Limit.ASKED | Limit.CAP:
            return f"Raise --{seats}{_room(group)}."
        case Limit.MEMORY:
            return f"Raise --{memory} if GPU memory is free, or use a smaller cache type (--kv-cache-dtype)."
        case Limit.KV if is_vllm:
            return f"Raise --{memory}, or set --kv-cache-dtype fp8; fewer requests at once (--{seats}) stop the churn."
        case Limit.KV:
            calm = "" if not work.put_back else "--schedule-conservativeness 1.3 stops the churn; "
            return f"{calm}more room: a higher --{memory}, or --kv-cache-dtype fp8_e5m2."
        case Limit.WINDOW:
            return f"Raise --swa-full-tokens-ratio, which takes from the full cache, or --{memory}."
        case Limit.SCHEDULER if is_vllm:
            return "Raise --max-num-batched-tokens, so that more prompts fit a step."
        case Limit.SCHEDULER:
            return "Set --schedule-conservativeness 0.3, so that it lets more in at once."
        case Limit.UNKNOWN:
            return "" if is_vllm else "Start it with --enable-metrics."
        case _:
            return ""


def _room(group: Group) -> str:
    kv = _kv(group)
    return f": the KV cache has room ({percent(kv)} used)" if kv is not None and kv < FULL else ""


def _mamba_lever(group: Group) -> str:
    work = group.first
    if work.slots in (4, 5) and work.most:
        seats = mamba.seats(mamba.pool(work.most, work.slots, work.pool), 3)
        flags = mamba.no_buffer_flags(work.version)
        return f"{flags} would raise the cap to about {seats}, at the price of overlap scheduling."
    kv = _kv(group)
    takes = f", which takes from the KV cache ({percent(kv)} used)" if kv is not None else ", which takes from KV cache"
    return f"Raise --mamba-full-memory-ratio{takes}, or halve the states by --mamba-ssm-dtype bfloat16."


CLOCKS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "thermal slowdown",
    "sw_thermal_slowdown": "thermal slowdown by the driver",
    "hw_power_brake_slowdown": "power brake, the supply asks for less",
    "sync_boost": "held to the slowest of its boost group",
}
"""What slows a GPU's clock, under the names of its driver."""


def clocks(reasons: Sequence[str]) -> str:
    """What slows a GPU: "thermal slowdown"; the hardware's bit says no more where a reason of its own is set."""
    named = [one for one in reasons if one != "hw_slowdown"] or list(reasons)
    return ", ".join(CLOCKS.get(one, one.replace("_", " ")) for one in named)


def client_lever(works: tuple[Work, ...], client: str) -> str:
    """What the client would have to do."""
    free = sum(max(0, (work.most or 0) - (work.load.running or 0)) for work in works)
    return f"{about(free)} seats are free: raise the concurrency of {client}." if free else ""
