"""What a button carries, as the one string that every chat hands back when it is pressed.

``say:<text>`` does what typing the text would do; ``<nonce>:<choice>`` answers an open question. Only the nonce
travels: what was asked stands in the bot's own state.
"""

from __future__ import annotations

from bot.domain.message import Answers, Says


def carried(does: Says | Answers) -> str:
    """The string for ``Pressed.does``; a nonce is never the word "say"."""
    if isinstance(does, Says):
        return f"say:{does.text}"
    return f"{does.nonce}:{does.choice}"
