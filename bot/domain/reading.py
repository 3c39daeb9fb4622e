"""What a log that was read says: five lines for people, one object for programs."""

from __future__ import annotations

import re
from typing import Any

from bot.domain import limit_words, limiting
from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import Load
from bot.domain.limiting import Group, Limit, Work
from bot.domain.phrases import about, count, exact, percent

LONGEST = 300
"""Characters of a foreign line that people are shown."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_SLOTS = (1, 3, 4, 5)


def as_object(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis under the names of docs/reading-logs.md; what is not known is None."""
    return {
        "engine": found.engine,
        "version": found.version,
        "phase": found.phase.value if found.phase is not None else None,
        "ready": found.is_ready,
        "crashed": found.is_crashed,
        "cause": found.cause,
        "decisive_line": found.decisive_line,
        "remedy": found.remedy,
        "progress_percent": found.progress_percent,
        "numbers": {name: int(value) if value.is_integer() else value for name, value in found.numbers.items()},
    }


def five_lines(found: Diagnosis) -> tuple[str, ...]:
    """Its state, why, what to do, its numbers, and what else is worth telling."""
    group = _group(found)
    return (
        f"state     {headline(found)}",
        f"because   {_because(found, group)}",
        f"to do     {_to_do(found, group)}",
        f"numbers   {' · '.join(_numbers(found)) or 'none told'}",
        f"noted     {' · '.join(_noted(found)) or 'nothing else'}",
    )


def headline(found: Diagnosis) -> str:
    """Where it stands: "sglang 0.5.13: crashed, cuda_oom", "vllm: loading weights 45 %"."""
    name = " ".join(part for part in (found.engine or "an unknown engine", found.version) if part)
    if found.phase is None:
        return "nothing is in the log yet"
    if found.is_crashed:
        return f"{name}: crashed, {cause_words(found.cause)}"
    if found.phase is Phase.STOPPED:
        return f"{name}: stopped, {cause_words(found.cause)}"
    return f"{name}: {found.doing}"


def news(found: Diagnosis, *, is_held: bool) -> str:
    """A line for those who follow: where it stands, and in service what speaks against it or holds it back."""
    if found.phase is Phase.SERVING and found.decisive_line:
        return f"{headline(found)} · {shown(found.decisive_line.strip())}"
    group = _group(found) if is_held else None
    return f"{headline(found)} · {limit_words.sentence(group)}" if group is not None else headline(found)


def held_back(found: Diagnosis) -> Limit | None:
    """What holds it back while more is asked of it; None where nothing does."""
    group = _group(found)
    return group.limit if group is not None and group.limit not in (Limit.DEMAND, Limit.IDLE) else None


def cause_words(cause: str | None) -> str:
    """A cause as people read it: "cuda_oom", "gpu occupied"."""
    if cause is None:
        return "cause not known"
    return cause.removeprefix("other:").replace("_", " ") if cause.startswith("other:") else cause


def shown(text: str, longest: int = LONGEST) -> str:
    """A foreign line made fit for a terminal: no escapes, nothing that moves the cursor, not too long."""
    plain = _ESCAPES.sub("", text[: 8 * longest])
    plain = "".join(char if char.isprintable() else " " for char in plain.replace("\t", "    ")).rstrip()
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def _because(found: Diagnosis, group: Group | None) -> str:
    if found.decisive_line:
        return shown(found.decisive_line.strip())
    if group is not None:
        return limit_words.sentence(group)
    if found.is_ready:
        return "it says that it is ready, and nothing after that speaks against it"
    if found.is_starting:
        return "it is starting, and nothing in the log speaks against it"
    return "the log does not tell"


def _to_do(found: Diagnosis, group: Group | None) -> str:
    if found.remedy:
        return found.remedy
    if found.is_starting:
        return "wait; a start that writes nothing for minutes may be compiling"
    if group is not None and not found.decisive_line:
        return limit_words.lever(group) or "nothing on the server"
    return "nothing"


def _numbers(found: Diagnosis) -> list[str]:
    get = found.numbers.get
    parts: list[str] = []
    running, most = get("running_req"), get("max_running_requests")
    if running is not None:
        parts.append(f"{running:.0f}{f' of {exact(int(most))}' if most else ''} running")
    elif most is not None:
        parts.append(f"{exact(int(most))} seats")
    if (queued := get("queue_req")) is not None:
        parts.append(f"queue {about(queued)}")
    if (tokens := get("gen_throughput")) is not None:
        parts.append(f"{about(tokens)} tok/s")
    load = _load(found)
    usages = (("KV", load.kv_usage), ("windows", load.swa_usage), ("Mamba", load.mamba_usage))
    parts += [f"{name} {percent(value)}" for name, value in usages if value is not None]
    if load.accept_length:
        parts.append(f"{load.accept_length:.2f} tokens accepted a step")
    capacity = get("max_total_num_tokens") or get("kv_tokens")
    if capacity is not None:
        parts.append(f"{exact(int(capacity))} tokens of cache")
    if (memory := get("available_gpu_mem_gb")) is not None:
        parts.append(f"{memory:g} GB left")
    return parts


def _noted(found: Diagnosis) -> list[str]:
    parts = [shown(one, 160) for one in found.warnings[:5]]
    phases = {phase for phase in found.ranks.values() if phase is not found.phase}
    if phases and found.is_starting:
        behind = sum(phase is found.phase for phase in found.ranks.values())
        parts.append(
            f"{behind} of {count(len(found.ranks), 'rank')} are still {found.phase.words}" if found.phase else ""
        )
    if found.is_ready and found.cause is None and found.decisive_line:
        parts.append("it went on after that")
    return [part for part in parts if part]


def _load(found: Diagnosis) -> Load:
    """The last numbers of the log as an engine would tell them."""
    get = found.numbers.get
    kv = get("full_token_usage", get("token_usage"))
    percents = get("kv_cache_usage_percent")
    return Load(
        running=_whole(get("running_req")),
        queued=_whole(get("queue_req")),
        max_running=_whole(get("max_running_requests")),
        tokens_per_second=get("gen_throughput"),
        kv_usage=percents / 100 if percents is not None else kv,
        swa_usage=get("swa_token_usage"),
        mamba_usage=get("mamba_usage"),
        accept_length=get("accept_len"),
    )


def _group(found: Diagnosis) -> Group | None:
    """What held it when the log was written; None where it did not serve."""
    load = _load(found)
    if found.phase is not Phase.SERVING or load.running is None or found.engine is None:
        return None
    pool = found.numbers.get("max_mamba_cache_size")
    slots = int(pool // load.max_running) if pool and load.max_running else None
    work = Work(
        "",
        found.engine,
        load,
        load.max_running or found.seats_asked,
        found.seats_asked,
        slots=slots if slots in _SLOTS else None,
        pool=pool,
        tokens=load.tokens_per_second,
        version=found.version,
    )
    group = limiting.grouped([work])[0]
    return None if group.limit is Limit.UNKNOWN else group


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
