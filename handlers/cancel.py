"""Cancel what is open here: a question, or an operation, in whatever step it is.

cancel        cancel op-12
"""

from __future__ import annotations

from datetime import datetime

from bot.domain.command import CancelOpen, Command, Decision, Reply
from bot.domain.fleet import Role
from bot.domain.message import says
from bot.domain.operation import Asked
from bot.domain.saying import Grammar, Words
from bot.domain.world import World


def decide(words: Words, world: World, now: datetime) -> Decision:
    """Name what is to be cancelled, or say that nothing is open."""
    del now
    wanted = words.rest.strip().rstrip("?!.")
    live = [one.id for one in world.operations if one.is_live]
    is_open = any(one.state is Asked.OPEN for one in world.questions)
    if wanted and wanted not in ("it", "that", "all", *live):
        return Reply(says("Nothing called ", wanted[:40], " is open."), is_ok=False)
    if not live and not is_open:
        return Reply(says("Nothing is open here: nothing to cancel."))
    return CancelOpen(wanted if wanted in live else None)


COMMAND = Command(
    name="cancel",
    summary="end the open question or operation; says what was done and what is left",
    usage="cancel [operation]",
    examples=("cancel",),
    decide=decide,
    aliases=("abort",),
    role=Role.OPERATOR,
    grammar=Grammar(rest=1),
    is_everyday=True,
)
