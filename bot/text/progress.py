"""What is said while an operation is at work: the message that is kept current, the notes, a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from bot.domain.diagnosis import Phase, said_cause
from bot.domain.eta import Outlook
from bot.domain.facts import ServerFacts
from bot.domain.gpu_faults import beside, reason
from bot.domain.kernel_caches import said
from bot.domain.launching import CUSTOM
from bot.domain.message import (
    UNBROKEN,
    Block,
    Button,
    Buttons,
    Line,
    Lines,
    LogPiece,
    Message,
    Says,
    Small,
    bold,
    code,
    line,
    says,
)
from bot.domain.operation import Operation, State, StepState
from bot.domain.phrases import names, span, stopwatch
from bot.domain.plan import StartServers
from bot.domain.readiness import Readiness
from bot.domain.views import DOTS
from bot.text.operations import View, lost_lines, step_words, way_back


def head(op: Operation, views: Mapping[str, View], now: datetime, outlook: Outlook) -> Message:
    """The message that is kept current: where it stands, the steps, the servers."""
    head = line(bold(op.plan.title), f" · {_standing(op, views, now, outlook)}")
    blocks: list[Block] = [Lines((_steps_line(op),))]
    if servers := _servers(op, views):
        blocks.append(Lines(servers))
    if op.is_live and op.state is State.RUNNING:
        blocks.append(Buttons((Button("Cancel", Says(f"cancel {op.id}")),)))
    every = f"notes each {span(op.pace)} in the thread" if op.pace is not None else "quiet: only a crash and the end"
    small = f"by {op.by}, {span(now - op.started_at)} ago · {every if op.is_live else op.outcome}"
    if op.is_live and (told := _compiling(outlook)) is not None:
        small += f" · {told}"
    blocks.append(Small((line(small),)))
    return Message(head, tuple(blocks))


def _standing(op: Operation, views: Mapping[str, View], now: datetime, outlook: Outlook) -> str:
    end = op.ended_at or now
    parts = [stopwatch(end - op.started_at)]
    if op.state is State.CANCELLING:
        parts.append("cancelling")
    if any(isinstance(step, StartServers) for step in op.plan.steps) and views:
        up = sum(view.verdict.readiness is Readiness.READY for view in views.values())
        parts.append(f"{up}/{len(op.plan.servers)} up")
    return " · ".join([*parts, *(_outlook(outlook) if op.is_live else ())])


def _with(profile: str) -> str:
    return "with these flags" if profile == CUSTOM else f"with {profile}"


def _compiling(outlook: Outlook) -> str | None:
    """Why kernels may be compiled, which takes minutes: a first start with these flags, or caches that lie empty."""
    if outlook.first_with is None:
        return said(outlook.caches)
    cold = f" (cold: {', '.join(outlook.caches.cold)})" if outlook.caches.cold else ""
    return f"first start {_with(outlook.first_with)} here: kernels may be compiled{cold}"


def _outlook(outlook: Outlook) -> list[str]:
    """What history says: "about 1 m 20 s to go", or who takes longer than ever before, and where."""
    if not outlook.overdue:
        return [f"about {span(outlook.to_go)} to go"] if outlook.to_go is not None else []
    worst = max(outlook.overdue, key=lambda one: one.in_phase)
    who = worst.server + (f" and {len(outlook.overdue) - 1} more" if len(outlook.overdue) > 1 else "")
    where = "before loading its weights" if worst.phase is Phase.SPAWNED else f"in {worst.phase.words}"
    stuck = f"stuck {where} since {span(worst.in_phase)}"
    return [f"longer than ever before: {who} {stuck} (it took {span(worst.longest)} at most)"]


def _steps_line(op: Operation) -> Line:
    signs = {
        StepState.DONE: "✓",
        StepState.RUNNING: "●",
        StepState.WAITING: "○",
        StepState.FAILED: "✗",
        StepState.SKIPPED: "–",
    }
    if len(op.plan.steps) > 10:
        done = sum(step.state is StepState.DONE for step in op.progress)
        number = op.current
        here = step_words(op.plan.steps[number]) if number is not None else "all done"
        return line(f"✓ {done} of {len(op.plan.steps)} steps   ", bold(f"● {here}") if number is not None else here)
    parts: list[Line] = []
    for step, progress in zip(op.plan.steps, op.progress, strict=True):
        words = f"{signs[progress.state]} {progress.note or step_words(step)}".replace(" ", UNBROKEN)
        parts.append(line(bold(words) if progress.state is StepState.RUNNING else words))
    joined: list[Line] = [part for one in parts for part in (one, line("   "))][:-1]
    return line(*joined)


def _servers(op: Operation, views: Mapping[str, View]) -> tuple[Line, ...]:
    """What is alike is one line: "🟡 gpu1, gpu2  capturing graphs 12–19/23"."""
    order = list(op.plan.servers)
    groups: dict[tuple[str, str], list[View]] = {}
    lost = dict(op.lost)
    for name in order:
        if name in views and name not in lost:
            view = views[name]
            groups.setdefault(_dot_and_word(op, view), []).append(view)
    lines: list[Line] = []
    for (dot, word), members in sorted(groups.items(), key=lambda item: item[0][0] != "🟢"):
        shown = names([view.server for view in members], order)
        told = bold(word) if dot == "🟢" else f"{word}{_range(members)}"
        lines.append(line(f"{dot} {shown}   ", told))
    lines.extend(lost_lines(op))
    return tuple(lines)


def _dot_and_word(op: Operation, view: View) -> tuple[str, str]:
    """Between its end and its start a server is off on purpose: nobody is needed, and nobody should be alarmed."""
    is_meant = op.is_live or not any(isinstance(step, StartServers) for step in op.plan.steps)
    if view.verdict.readiness is Readiness.DOWN and is_meant:
        return "⚪", "not running"
    return DOTS[view.verdict.readiness], _doing_word(view)


def _doing_word(view: View) -> str:
    if view.verdict.readiness is not Readiness.STARTING:
        return str(view.verdict.readiness.value)
    diagnosis = view.diagnosis
    if diagnosis is not None and diagnosis.is_crashed:
        return f"{said_cause(diagnosis.cause)} in the log, still alive"
    is_telling = diagnosis is not None and diagnosis.is_starting
    return diagnosis.phase.words if is_telling and diagnosis and diagnosis.phase else "starting"


def _range(members: Sequence[View]) -> str:
    """The range of a group's bars: " 35–60 %", " 12–19/23"."""
    seen = [view.diagnosis for view in members if view.diagnosis is not None]
    steps = [one.step.split("/") for one in seen if one.step is not None and one.phase is Phase.CAPTURING_GRAPHS]
    if steps and len({total for _, total in steps}) == 1:
        low, high = min(int(done) for done, _ in steps), max(int(done) for done, _ in steps)
        return f" {low if low == high else f'{low}–{high}'}/{steps[0][1]}"
    bars = [one.progress_percent for one in seen if one.progress_percent is not None]
    if not bars:
        return ""
    low, high = min(bars), max(bars)
    return f" {low}{UNBROKEN}%" if low == high else f" {low}–{high}{UNBROKEN}%"


def note(op: Operation, views: Mapping[str, View], now: datetime, outlook: Outlook) -> Message:
    """The note of every 30 seconds: "1:30 · 2/8 up · gpu5 capturing graphs 12/23 · about 1 m 20 s to go"."""
    parts = [stopwatch(now - op.started_at)]
    number = op.current
    step = op.plan.steps[number] if number is not None else None
    if isinstance(step, StartServers) and views:
        up = sum(view.verdict.readiness is Readiness.READY for view in views.values())
        parts.append(f"{up}/{len(op.plan.servers)} up")
        waiting = [one for one in views.values() if one.verdict.readiness is Readiness.STARTING]
        groups: dict[str, list[View]] = {}
        for view in waiting:
            groups.setdefault(_doing_word(view), []).append(view)
        for word, members in groups.items():
            whose = f"{members[0].server} " if len(members) == 1 and len(op.plan.servers) > 1 else ""
            whose = whose or (f"{len(members)} " if len(groups) > 1 else "")
            parts.append(f"{whose}{word}{_range(members)}")
    else:
        done = [one.note for one in op.progress if one.state is StepState.DONE and one.note]
        parts.extend(done[-2:])
        if step is not None and number is not None:
            parts.append(op.progress[number].note or step_words(step))
    parts.extend([f"{len(op.lost)} lost"] if op.lost else [])
    if outlook.to_go is None and (told := said(outlook.caches)) is not None:
        parts.append(told)
    first, second, *rest = [*parts, *_outlook(outlook)]
    return says(f"{first} · ", bold(second), "".join(f" · {one}" for one in rest))


def all_ready(op: Operation, now: datetime) -> Message:
    """Said at once when the last server is ready."""
    ready = len(op.survivors)
    return says(f"{stopwatch(now - op.started_at)} · ", bold(f"{ready}/{len(op.plan.servers)} up"), " · proving it")


def crashed(op: Operation, server: str, why: str, facts: ServerFacts) -> Message:
    """A crash during a start: cause, decisive line, the kernel's word, remedy, the last lines, and the way back."""
    diagnosis = facts.diagnosis
    head = line("🔴 ", bold(f"{server} crashed during its start: {why}"))
    blocks: list[Block] = []
    if diagnosis is not None and diagnosis.decisive_line:
        blocks.append(Lines((line(code(diagnosis.decisive_line.strip()[:300])),)))
    if (fault := reason(facts.faults, facts.at, facts.at)) is not None:
        blocks.append(Lines((line(bold(beside(fault, facts.at))),)))
    if diagnosis is not None and diagnosis.remedy:
        blocks.append(Lines((line(diagnosis.remedy),)))
    if facts.log_tail:
        blocks.append(LogPiece("\n".join(facts.log_tail[-20:]), title=f"the last lines of {server}"))
    if (back := way_back(op, [server])) is not None:
        blocks.append(Buttons((back,)))
    return Message(head, tuple(blocks))


def came_back(op: Operation, now: datetime) -> Message:
    """Said in the thread when the bot itself was away."""
    number, step = op.current, ""
    if number is not None:
        step = f" at step {number + 1} of {len(op.plan.steps)} ({step_words(op.plan.steps[number])})"
    return says(f"I was restarted{step}; looking, and going on. {stopwatch(now - op.started_at)} since the start.")
