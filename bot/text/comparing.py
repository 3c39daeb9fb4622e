"""What is said minutes after the end: throughput beside before, a canary beside its peers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from bot.domain.facts import ServerFacts
from bot.domain.guard import rate
from bot.domain.message import Block, Button, Buttons, Line, Message, Says, bold, line, says
from bot.domain.operation import Operation
from bot.domain.phrases import about, percent
from bot.domain.plan import ComparePeers
from bot.text.operations import dotted


def throughput(op: Operation, after: Mapping[str, ServerFacts], total: float | None) -> Message:
    """Five minutes later: what the change has brought, and the way back."""
    was = sum(one.tokens_per_second or 0.0 for one in op.plan.before)
    old = [one for one in op.plan.before if one.tokens_per_second and one.running]
    if total is None:
        return says("Throughput can't be compared: no server told its tokens.")
    change = f", was {about(was)} ({(total - was) / was * 100:+.0f} %)" if was else ""
    parts = [line(bold(f"{about(total)} tok/s"), change)]
    running = sum(facts.load.running or 0 for facts in after.values())
    if running and total:
        before = statistics.median((one.tokens_per_second or 0) / (one.running or 1) for one in old) if old else None
        each = f"a request decodes at {about(total / running)} tok/s"
        parts.append(line(each + (f", was {about(before)}" if before else "")))
    kv = [facts.load.kv_usage for facts in after.values() if facts.load.kv_usage is not None]
    if kv:
        parts.append(line(f"KV cache {percent(statistics.median(kv))}"))
    if not running:
        parts.append(line("no requests run, so this says little"))
    joined = dotted(parts)
    back = op.plan.back_to
    blocks: tuple[Block, ...] = ()
    if back is not None:
        blocks = (Buttons((Button("Roll back", Says(f"restart {' '.join(op.survivors)} {back}")),)),)
    return Message(joined, blocks)


def beside_its_peers(op: Operation, step: ComparePeers, seen: Mapping[str, ServerFacts]) -> Message:
    """A canary after its minutes: seats, tok/s and tok/s a request beside the median of the others, and what now."""
    mine = seen.get(step.server)
    peers = [seen[name] for name in step.peers if name in seen]
    parts: list[Line] = [line(bold(f"{step.server} with {op.plan.profile}"))]
    for word, get in _PEER_FIGURES:
        own = get(mine) if mine is not None else None
        others = [value for facts in peers if (value := get(facts)) is not None]
        if own is not None:
            beside = f" (the others {about(statistics.median(others))})" if others else ""
            parts.append(line(bold(about(own)), f" {word}{beside}"))
    if len(parts) == 1:
        parts.append(line("nothing could be measured"))
    others_names = " ".join(step.peers)
    buttons = [Button(f"Roll to the other {len(step.peers)}", Says(f"restart {op.plan.profile} {others_names}"))]
    if op.plan.back_to is not None:
        buttons.append(Button("Roll back", Says(f"restart {step.server} {op.plan.back_to}")))
    return Message(dotted(parts), (Buttons(tuple(buttons)),))


def _each(facts: ServerFacts) -> float | None:
    tokens, running = rate(facts), facts.load.running
    return tokens / running if tokens is not None and running else None


_PEER_FIGURES: tuple[tuple[str, Callable[[ServerFacts], float | None]], ...] = (
    ("seats", lambda facts: facts.load.max_running),
    ("tok/s", rate),
    ("running", lambda facts: facts.load.running),
    ("tok/s a request", _each),
)
