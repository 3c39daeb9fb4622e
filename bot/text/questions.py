"""What is said around a question: its plan and buttons, how it ended, why a press came to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.domain.facts import Sight
from bot.domain.message import Answers, Button, Buttons, Look, Message, Says, Small, bold, code, line, says
from bot.domain.operation import Asked, Operation, Question
from bot.domain.phrases import span
from bot.domain.plan import Plan
from bot.domain.readiness import Readiness, judge
from bot.text.operations import View, healthy, step_words

CONFIRM, CANCEL = "confirm", "cancel"


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
        return healthy(ready, len(plan.servers))
    return ", ".join(f"{view.server} is {view.verdict.readiness.value}" for view in views[:4])


def still_open(op: Operation) -> Message:
    """Asked when a sentence may have meant the operation."""
    return Message(
        line(bold("Cancel it? "), op.plan.title),
        (Buttons((Button("Cancel", Says(f"cancel {op.id}"), Look.DANGER), Button("Go on", Says("status")))),),
    )
