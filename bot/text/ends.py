"""What is said when an operation has ended: what is up, what rose, what was lost, the way back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime

from bot.domain.message import Block, Button, Buttons, Line, Lines, Message, Says, Small, bold, line, says
from bot.domain.operation import Operation, State, StepState
from bot.domain.phrases import about, names, span
from bot.domain.plan import Before, CompareThroughput, EndServers, ResumeJob, StopJob
from bot.domain.readiness import Readiness
from bot.text.operations import Proof, View, comparison, dotted, healthy, lost_lines, out_blocks, returned, way_back


def finished(op: Operation, proofs: Sequence[Proof], now: datetime) -> Message:
    """The new message at the end: what is up, what rose, what was lost, and the way back."""
    plan, good, all_ = op.plan, op.survivors, op.plan.servers
    took = span(now - op.started_at)
    if op.state is State.FAILED:
        return _failed(op, took)
    blocks: list[Block] = []
    if not all_ or plan.verb in ("kill", "steal"):
        head = line(bold(plan.title), f": {_notes(op)}")
    elif plan.verb == "stop":
        head = line("⚪ " if not op.lost else "🔴 ", bold(f"{len(good)}/{len(all_)} stopped"), f" after {took}")
    else:
        with_profile = f" with {plan.profile}" if plan.profile else ""
        is_good = not op.lost and not op.out
        head = line("🟢 " if is_good else "🔴 ", bold(f"{len(good)}/{len(all_)} up{with_profile}"), f" after {took}")
        told = [*_limits(plan.before, proofs), *_flags(proofs), *_back_note(op), *_job_note(op)]
        if told:
            blocks.append(Lines((dotted(told),)))
    blocks += [*_lost(op), *out_blocks(op)]
    compare = comparison(plan)
    if compare is not None and good:
        what = "throughput" if isinstance(compare, CompareThroughput) else "beside its peers"
        blocks.append(Small((line(f"{what} in {span(compare.after)}, in the thread"),)))
    return Message(head, tuple(blocks))


def _failed(op: Operation, took: str) -> Message:
    """An operation that could not reach its end: why, what was done before, what is left."""
    done = [step.note for step in op.progress if step.state is StepState.DONE and step.note]
    untouched = "no server was touched" if op.plan.servers else "nothing else was touched"
    so_far = f"done before: {' · '.join(done)}" if op.touched and done else untouched
    lines = [line(why) for why in (op.outcome, so_far) if why]
    head = line("🔴 ", bold(f"{op.plan.title}: failed"), f" after {took}")
    blocks: list[Block] = [Lines(tuple(lines)), *_lost(op), *out_blocks(op)]
    if (job := _left_stopped(op)) is not None:
        blocks.append(Small((line(f"job {job} is stopped"),)))
        blocks.append(Buttons((Button(f"Resume job {job}", Says("job start")),)))
    return Message(head, tuple(blocks))


def _left_stopped(op: Operation) -> str | None:
    """The job that this operation has stopped and not resumed."""
    states = list(zip(op.plan.steps, op.progress, strict=True))
    stopped = {step.job for step, one in states if isinstance(step, StopJob) and one.state is StepState.DONE}
    resumed = {step.job for step, one in states if isinstance(step, ResumeJob) and one.state is StepState.DONE}
    wanted = {step.job for step, _ in states if isinstance(step, ResumeJob)}
    return next(iter((stopped & wanted) - resumed), None)


def _lost(op: Operation) -> list[Block]:
    if not op.lost:
        return []
    blocks: list[Block] = [Lines(lost_lines(op))]
    back = way_back(op, [name for name, _ in op.lost])
    return [*blocks, Buttons((back,))] if back is not None else blocks


def _notes(op: Operation) -> str:
    return " · ".join(step.note for step in op.progress if step.note) or op.outcome or op.state.value


def _job_note(op: Operation) -> list[Line]:
    for step, progress in zip(op.plan.steps, op.progress, strict=True):
        if isinstance(step, ResumeJob) and progress.note:
            return [line(progress.note)]
    return []


def _back_note(op: Operation) -> list[Line]:
    told = returned(op)
    return [line(told)] if told is not None else []


def _limits(before: Sequence[Before], proofs: Sequence[Proof]) -> list[Line]:
    old_seats = [one.max_running for one in before if one.max_running is not None]
    old_tokens = [one.max_total_tokens for one in before if one.max_total_tokens is not None]
    result: list[Line] = []
    seats = [one.max_running for one in proofs if one.max_running is not None]
    tokens = [one.max_total_tokens for one in proofs if one.max_total_tokens is not None]
    for word, was, now in (("max_running_requests", old_seats, seats), ("max_total_num_tokens", old_tokens, tokens)):
        if not now:
            continue
        new = about(statistics.median(now)) if min(now) == max(now) else f"{about(min(now))}–{about(max(now))}"
        old = f"{about(statistics.median(was))} → " if was else ""
        result.append(line(f"{word} {old}", bold(new)))
    return result


def _flags(proofs: Sequence[Proof]) -> list[Line]:
    known = [one.has_flags for one in proofs if one.has_flags is not None]
    if not known:
        return []
    if all(known):
        return [line("running flags read back: as asked")]
    odd = [one.server for one in proofs if one.has_flags is False]
    return [line(bold(f"flags differ from what was asked on {', '.join(odd)}"))]


def goes_back(op: Operation, servers: Sequence[str]) -> Message:
    """Said when the profile has it that a failed start goes back by itself."""
    who = names(list(servers), list(op.plan.servers))
    return says(bold(f"Going back to {op.plan.back_to} on {who}"), f", as the profile {op.plan.profile} says.")


def cancelled(op: Operation, views: Mapping[str, View]) -> Message:
    """The end after a cancel: what was done, what runs, what is left as it is."""
    if not op.touched:
        return _untouched(op, views)
    done = [step.note for step in op.progress if step.state is StepState.DONE and step.note]
    done += [
        f"{progress.note}, all of them asked to end"
        for step, progress in zip(op.plan.steps, op.progress, strict=True)
        if isinstance(step, EndServers) and progress.state is StepState.SKIPPED and progress.note
    ]
    ready = [name for name, view in views.items() if view.verdict.readiness is Readiness.READY]
    idle = [name for name in op.plan.servers if name not in ready]
    order = list(op.plan.servers)
    lines = [line("done: ", " · ".join(done) or "nothing yet")]
    lines.append(line(f"running: {names(ready, order) if ready else 'none of them'}"))
    lines += _back_note(op)
    if idle:
        lines.append(line(f"left as they are: {names(idle, order)}"))
    head = line(bold(f"{op.plan.title}: cancelled"), f" by {op.stopper}" if op.stopper else "")
    buttons: list[Button] = []
    if idle and (back := way_back(op, idle)) is not None:
        buttons.append(back)
    job = next((step.job for step in op.plan.steps if isinstance(step, ResumeJob)), None)
    if job is not None and ready:
        buttons.append(Button(f"Resume job {job}", Says("job start")))
    blocks = (Lines(tuple(lines)), *out_blocks(op), *((Buttons(tuple(buttons)),) if buttons else ()))
    return Message(head, blocks)


def _untouched(op: Operation, views: Mapping[str, View]) -> Message:
    """The end after a cancel that came before any server was signalled or started."""
    alive = [view for view in views.values() if view.verdict.readiness is Readiness.READY]
    blocks: list[Block] = [Lines((line(healthy(alive, len(op.plan.servers))),))] if alive else []
    back = f" {told}." if (told := returned(op)) is not None else ""
    if (asked := _job_asked_to_stop(op)) is not None:
        head = line(bold("Stopped before any server was touched."), f" Job {asked} was asked to stop already.{back}")
        blocks += [*out_blocks(op), Buttons((Button(f"Resume job {asked}", Says(f"job start {asked}")),))]
        return Message(head, tuple(blocks))
    what = "any server" if op.taken else "anything"
    return Message(line(bold(f"Stopped before {what} was touched."), back), (*blocks, *out_blocks(op)))


def _job_asked_to_stop(op: Operation) -> str | None:
    """The job that a step has asked to end, whether or not it has ended by now."""
    begun = zip(op.plan.steps, op.progress, strict=True)
    return next((step.job for step, progress in begun if isinstance(step, StopJob) and progress.note), None)
