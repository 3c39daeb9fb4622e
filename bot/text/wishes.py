"""What people are told of what they have wished to be told: that it stands, that it is so, that it is given up."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.message import Mention, Message, bold, code, line, says
from bot.domain.phrases import count, span
from bot.domain.wishes import KEPT, Wish


def promised(wish: Wish, everyone: Sequence[str]) -> Message:
    """It will be told."""
    return says("You will be told here when ", bold(wish.goal.words(everyone)), f", within {span(KEPT)}.")


def forgotten(number: int) -> Message:
    """It will not."""
    if not number:
        return says("You waited for nothing.")
    return says(f"You will not be told of {'it' if number == 1 else count(number, 'thing')} any more.")


def came_true(wish: Wish, reached: str) -> Message:
    """The one message that a wish is about."""
    return Message(line(Mention(wish.user), " ", bold(reached)))


def given_up(wish: Wish, everyone: Sequence[str]) -> Message:
    """Nobody waits for it any longer."""
    waited = span(wish.expires_at - wish.asked_at)
    told = f" not so within {waited}: {wish.goal.words(everyone)}. I stop waiting; "
    return Message(line(Mention(wish.user), told, code("tell me when …"), " begins anew."))


def lost(number: int) -> Message:
    """Some can't be read any more, so nobody knows whose they were."""
    told = f"{count(number, 'wish', 'wishes')} to be told can't be read any more: who has said "
    return says(told, code("tell me"), " says it again.")


def gone(wish: Wish, missing: Sequence[str]) -> Message:
    """What it was about is not there any more."""
    verb = "is" if len(missing) == 1 else "are"
    told = f" {', '.join(missing[:8])} {verb} not in the fleet file any more: I stop waiting for it."
    return Message(line(Mention(wish.user), told))
