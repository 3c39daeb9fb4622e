"""What the machine says by itself: questions, progress, crashes, ends, refusals. Values in, messages out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.domain.diagnosis import Diagnosis, Phase, said_cause
from bot.domain.eta import Outlook
from bot.domain.facts import ServerFacts, Sight
from bot.domain.guard import rate
from bot.domain.launching import CUSTOM
from bot.domain.message import (
    UNBROKEN,
    Answers,
    Block,
    Button,
    Buttons,
    Line,
    Lines,
    LogPiece,
    Look,
    Message,
    Says,
    Small,
    bold,
    code,
    line,
    says,
)
from bot.domain.operation import Asked, Operation, Question, State, StepState
from bot.domain.phrases import about, count, names, percent, span, stopwatch
from bot.domain.plan import (
    AwaitFree,
    Before,
    ComparePeers,
    CompareThroughput,
    EndForeign,
    EndServers,
    Plan,
    Prove,
    ResumeJob,
    StartServers,
    Step,
    StopJob,
)
from bot.domain.readiness import Readiness, Verdict, judge
from bot.domain.views import DOTS

CONFIRM, CANCEL = "confirm", "cancel"


@dataclass(frozen=True, slots=True)
class View:
    """One server as an operation sees it now."""

    server: str
    verdict: Verdict
    facts: ServerFacts

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What its log says."""
        return self.facts.diagnosis


@dataclass(frozen=True, slots=True)
class Proof:
    """What a server said of itself once it was ready again."""

    server: str
    max_running: int | None = None
    max_total_tokens: int | None = None
    has_flags: bool | None = None
    first_token: timedelta | None = None


# Questions


def question(asked: Question, who_may: str, now: datetime) -> Message:
    """A plan with its buttons and who may press them; the one red button is first."""
    plan = asked.plan
    assert plan.question is not None  # noqa: S101 - only plans with a question are asked; for the type checker
    buttons = [Button(plan.confirm_label, Answers(asked.nonce, CONFIRM), Look.DANGER)]
    if plan.has_alternative is not None:
        buttons.append(Button(plan.has_alternative[0], Says(plan.has_alternative[1])))
    buttons.append(Button("Cancel", Answers(asked.nonce, CANCEL)))
    left = span(asked.expires_at - now)
    small = line(f"asked by {asked.asker} · {who_may}, or ", code(f"yes {asked.code}"), f" · {left} left")
    return Message(plan.question.headline, (*plan.question.blocks, Buttons(tuple(buttons)), Small((small,))))


def preview(plan: Plan) -> Message:
    """A plan that was only asked about: its text, checks and steps, with nothing to press."""
    head = plan.question.headline if plan.question is not None else line(bold(f"{plan.title}?"))
    blocks = plan.question.blocks if plan.question is not None else ()
    steps = line("steps: ", " → ".join(step_words(step) for step in plan.steps))
    return Message(head, (*blocks, Small((steps, line("only looked at: nothing was done")))))


def closed(asked: Question, state: Asked, by: str | None, why: str = "") -> Message:
    """A question that is over: its text without buttons, and how it ended."""
    assert asked.plan.question is not None  # noqa: S101 - as above
    note = {
        Asked.PRESSED: f"by {by}",
        Asked.CANCELLED: f"cancelled by {by}: nothing was done" if by else "cancelled: nothing was done",
        Asked.EXPIRED: "expired: nothing was done",
        Asked.VOID: f"pressed by {by}, but {why}: nothing was done",
        Asked.OPEN: "",
    }[state]
    base = asked.plan.question
    return Message(base.headline, (*base.blocks, Small((line(note),))))


def too_late(asked: Question | None, now: datetime) -> Message:
    """The answer to a press on a question that is over, for the presser alone."""
    if asked is None:
        return says("This question is not known any more: nothing was done. Ask again.")
    ago = span(now - asked.ended_at) if asked.ended_at is not None else "a while"
    words = {
        Asked.PRESSED: f"{asked.by} pressed it {ago} ago: it is not done twice.",
        Asked.CANCELLED: f"It was cancelled {ago} ago: nothing was done.",
        Asked.EXPIRED: f"It expired {ago} ago: nothing was done. Ask again.",
        Asked.VOID: "It is void, since things had changed: nothing was done. Ask again.",
        Asked.OPEN: "It is being looked at.",
    }
    return says(words[asked.state])


def lost_press(by: str, title: str, ago: timedelta) -> Message:
    """What is said when the bot comes back and a press had counted that nothing came of."""
    told = f" {by} pressed {span(ago)} ago, but I was restarted before anything was done. Ask again."
    return says(bold(f"Not done: {title}."), told)


def called_off(words: str, by: str) -> Message:
    """A command that was still being looked at when somebody said no."""
    return says(bold("Called off"), f" by {by} before anything was touched: ", code(words[:80]))


def nothing_cancelled(live: Sequence[Operation], target: str | None, channel: str) -> Message:
    """A cancel that ended nothing: what is being ended already, or what is at work elsewhere."""
    meant = [op for op in live if op.id == target or (target is None and op.where.channel == channel)]
    if meant:
        return says(bold(f"It is being cancelled already: {meant[0].plan.title}"), f", by {meant[0].stopper}.")
    if not live:
        return says("Nothing is open: nothing to cancel.")
    one = live[0]
    return says(bold("Nothing is open here. "), f"Elsewhere: {one.plan.title}; ", code(f"cancel {one.id}"), " ends it.")


def void(why: str) -> Message:
    """What stands above the new question when the old one no longer held."""
    return says(bold("Not done: "), f"{why}.")


def stopped_before(plan: Plan, sight: Sight, now: datetime) -> Message:
    """Ended before anything was touched, and what is there: how long it has been up, what runs."""
    return Message(line(bold("Stopped before anything was touched. "), _still_running(plan, sight, now)))


def looked_again(plan: Plan, sight: Sight, now: datetime) -> Message:
    """Looked again on somebody's word; the question still stands."""
    return says("Looked again. ", _still_running(plan, sight, now), " The question above still stands.")


def _still_running(plan: Plan, sight: Sight, now: datetime) -> str:
    views = [View(name, judge(facts, now), facts) for name, facts in sight.servers.items() if name in plan.servers]
    ready = [view for view in views if view.verdict.readiness is Readiness.READY]
    if ready:
        return _healthy(ready, len(plan.servers))
    return ", ".join(f"{view.server} is {view.verdict.readiness.value}" for view in views[:4])


# Progress


def step_words(step: Step) -> str:
    """A step in two or three words."""
    match step:
        case StopJob(job):
            return f"stop job {job}"
        case EndServers(victims):
            return f"stop {count(len(victims), 'server')}"
        case AwaitFree():
            return "memory and ports free"
        case StartServers():
            return "start"
        case Prove():
            return "prove"
        case ResumeJob(job):
            return f"resume job {job}"
        case CompareThroughput():
            return "compare throughput"
        case ComparePeers():
            return "compare with its peers"
        case EndForeign(pid=pid):
            return f"end pid {pid}"


def progress_head(op: Operation, views: Mapping[str, View], now: datetime, outlook: Outlook) -> Message:
    """The message that is kept current: where it stands, the steps, the servers."""
    head = line(bold(op.plan.title), f" · {_standing(op, views, now, outlook)}")
    blocks: list[Block] = [Lines((_steps_line(op),))]
    if servers := _servers(op, views):
        blocks.append(Lines(servers))
    if op.is_live and op.state is State.RUNNING:
        blocks.append(Buttons((Button("Cancel", Says(f"cancel {op.id}")),)))
    every = f"notes each {span(op.pace)} in the thread" if op.pace is not None else "quiet: only a crash and the end"
    small = f"by {op.by}, {span(now - op.started_at)} ago · {every if op.is_live else op.outcome}"
    if outlook.first_with is not None and op.is_live:
        small += f" · first start {_with(outlook.first_with)} here: kernels may be compiled"
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
            groups.setdefault((DOTS[view.verdict.readiness], _doing_word(view)), []).append(view)
    lines: list[Line] = []
    for (dot, word), members in sorted(groups.items(), key=lambda item: item[0][0] != "🟢"):
        shown = names([view.server for view in members], order)
        told = bold(word) if dot == "🟢" else f"{word}{_range(members)}"
        lines.append(line(f"{dot} {shown}   ", told))
    lines.extend(_lost_lines(op))
    return tuple(lines)


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


def progress_note(op: Operation, views: Mapping[str, View], now: datetime, outlook: Outlook) -> Message:
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
    first, second, *rest = [*parts, *_outlook(outlook)]
    return says(f"{first} · ", bold(second), "".join(f" · {one}" for one in rest))


def all_ready(op: Operation, now: datetime) -> Message:
    """Said at once when the last server is ready."""
    ready = len(op.survivors)
    return says(f"{stopwatch(now - op.started_at)} · ", bold(f"{ready}/{len(op.plan.servers)} up"), " · proving it")


def crashed(op: Operation, server: str, why: str, facts: ServerFacts) -> Message:
    """A crash during a start: cause, decisive line, remedy, the last lines, and the way back."""
    diagnosis = facts.diagnosis
    head = line("🔴 ", bold(f"{server} crashed during its start: {why}"))
    blocks: list[Block] = []
    if diagnosis is not None and diagnosis.decisive_line:
        blocks.append(Lines((line(code(diagnosis.decisive_line.strip()[:300])),)))
    if diagnosis is not None and diagnosis.remedy:
        blocks.append(Lines((line(diagnosis.remedy),)))
    if facts.log_tail:
        blocks.append(LogPiece("\n".join(facts.log_tail[-20:]), title=f"the last lines of {server}"))
    if (back := _way_back(op, [server])) is not None:
        blocks.append(Buttons((back,)))
    return Message(head, tuple(blocks))


def _way_back(op: Operation, servers: Sequence[str]) -> Button | None:
    if op.plan.back_to is None or not servers:
        return None
    return Button(f"Back to {op.plan.back_to}", Says(f"restart {' '.join(servers)} {op.plan.back_to}"))


# Ends


def finished(op: Operation, proofs: Sequence[Proof], now: datetime) -> Message:
    """The new message at the end: what is up, what rose, what was lost, and the way back."""
    plan, good, all_ = op.plan, op.survivors, op.plan.servers
    took = span(now - op.started_at)
    if op.state is State.FAILED:
        return _failed(op, took)
    blocks: list[Block] = []
    if not all_ or plan.verb == "kill":
        head = line(bold(plan.title), f": {_notes(op)}")
    elif plan.verb == "stop":
        head = line("⚪ " if not op.lost else "🔴 ", bold(f"{len(good)}/{len(all_)} stopped"), f" after {took}")
    else:
        with_profile = f" with {plan.profile}" if plan.profile else ""
        head = line("🔴 " if op.lost else "🟢 ", bold(f"{len(good)}/{len(all_)} up{with_profile}"), f" after {took}")
        told = [*_limits(plan.before, proofs), *_flags(proofs), *_job_note(op)]
        if told:
            blocks.append(Lines((_dotted(told),)))
    blocks += _lost(op)
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
    blocks: list[Block] = [Lines(tuple(lines)), *_lost(op)]
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
    blocks: list[Block] = [Lines(_lost_lines(op))]
    back = _way_back(op, [name for name, _ in op.lost])
    return [*blocks, Buttons((back,))] if back is not None else blocks


def _lost_lines(op: Operation) -> tuple[Line, ...]:
    """Those that dropped out, a line for each reason."""
    reasons = dict.fromkeys(why for _, why in op.lost)
    order = list(op.plan.servers)
    return tuple(
        line(f"🔴 {names([name for name, own in op.lost if own == why], order)}   ", bold(why)) for why in reasons
    )


def _dotted(parts: Sequence[Line]) -> Line:
    joined = [one for part in parts for one in (part, line(" · "))]
    return line(*joined[:-1])


def _notes(op: Operation) -> str:
    return " · ".join(step.note for step in op.progress if step.note) or op.outcome or op.state.value


def _job_note(op: Operation) -> list[Line]:
    for step, progress in zip(op.plan.steps, op.progress, strict=True):
        if isinstance(step, ResumeJob) and progress.note:
            return [line(progress.note)]
    return []


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
    joined = _dotted(parts)
    back = op.plan.back_to
    blocks: tuple[Block, ...] = ()
    if back is not None:
        blocks = (Buttons((Button("Roll back", Says(f"restart {' '.join(op.survivors)} {back}")),)),)
    return Message(joined, blocks)


def comparison(plan: Plan) -> CompareThroughput | ComparePeers | None:
    """What a plan compares after its end."""
    return next((step for step in plan.steps if isinstance(step, (CompareThroughput, ComparePeers))), None)


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
    return Message(_dotted(parts), (Buttons(tuple(buttons)),))


def _each(facts: ServerFacts) -> float | None:
    tokens, running = rate(facts), facts.load.running
    return tokens / running if tokens is not None and running else None


_PEER_FIGURES: tuple[tuple[str, Callable[[ServerFacts], float | None]], ...] = (
    ("seats", lambda facts: facts.load.max_running),
    ("tok/s", rate),
    ("running", lambda facts: facts.load.running),
    ("tok/s a request", _each),
)


def goes_back(op: Operation, servers: Sequence[str]) -> Message:
    """Said when the profile has it that a failed start goes back by itself."""
    who = names(list(servers), list(op.plan.servers))
    return says(bold(f"Going back to {op.plan.back_to} on {who}"), f", as the profile {op.plan.profile} says.")


def cancelled(op: Operation, views: Mapping[str, View]) -> Message:
    """The end after a cancel: what was done, what runs, what is left as it is."""
    if not op.touched:
        head = line(bold("Stopped before anything was touched."))
        alive = [view for view in views.values() if view.verdict.readiness is Readiness.READY]
        rest = (Lines((line(_healthy(alive, len(op.plan.servers))),)),) if alive else ()
        if (asked := _job_asked_to_stop(op)) is not None:
            head = line(bold("Stopped before any server was touched. "), f"Job {asked} was asked to stop already.")
            return Message(head, (*rest, Buttons((Button(f"Resume job {asked}", Says(f"job start {asked}")),))))
        return Message(head, rest)
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
    if idle:
        lines.append(line(f"left as they are: {names(idle, order)}"))
    head = line(bold(f"{op.plan.title}: cancelled"), f" by {op.stopper}" if op.stopper else "")
    buttons: list[Button] = []
    if idle and (back := _way_back(op, idle)) is not None:
        buttons.append(back)
    job = next((step.job for step in op.plan.steps if isinstance(step, ResumeJob)), None)
    if job is not None and ready:
        buttons.append(Button(f"Resume job {job}", Says("job start")))
    return Message(head, (Lines(tuple(lines)), *((Buttons(tuple(buttons)),) if buttons else ())))


def _job_asked_to_stop(op: Operation) -> str | None:
    """The job that a step has asked to end, whether or not it has ended by now."""
    begun = zip(op.plan.steps, op.progress, strict=True)
    return next((step.job for step, progress in begun if isinstance(step, StopJob) and progress.note), None)


def _healthy(views: Sequence[View], total: int) -> str:
    ages = [view.facts.process.age for view in views if view.facts.process is not None]
    running = sum(view.facts.load.running or 0 for view in views)
    who = "The server is healthy" if total == 1 else f"{len(views)} of {total} servers are healthy"
    since = f": up {span(max(ages))}, " if ages else ": "
    return f"{who}{since}{count(running, 'request')} running."


def still_open(op: Operation) -> Message:
    """Asked when a sentence may have meant the operation."""
    return Message(
        line(bold("Cancel it? "), op.plan.title),
        (Buttons((Button("Cancel", Says(f"cancel {op.id}"), Look.DANGER), Button("Go on", Says("status")))),),
    )


def came_back(op: Operation, now: datetime) -> Message:
    """Said in the thread when the bot itself was away."""
    number, step = op.current, ""
    if number is not None:
        step = f" at step {number + 1} of {len(op.plan.steps)} ({step_words(op.plan.steps[number])})"
    return says(f"I was restarted{step}; looking, and going on. {stopwatch(now - op.started_at)} since the start.")
