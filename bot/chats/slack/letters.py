"""One message on its way to Slack: what is sent, what is sent instead when Slack refuses it, and its trace.

Slack has no idempotency key for a post. Each one carries a random key in its metadata instead, so that after an
answer was lost the key can be looked for in the channel before anything is said twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bot.chats.slack.render import render, render_plain
from bot.domain.errors import ChatError
from bot.domain.message import Message
from bot.ports import Place, Ref

EVENT_TYPE = "upbot_post"
_MALFORMED = {
    "invalid_blocks", "invalid_blocks_format", "invalid_block", "block_mismatch", "msg_blocks_too_long",
    "msg_too_long", "invalid_attachments", "invalid_arguments", "no_text", "markdown_text_conflict",
    "slack_file_not_found",
}  # fmt: skip
_REMEDIES = {
    "not_in_channel": "invite the bot to the channel: /invite @<its name>",
    "channel_not_found": "the channel's id is wrong, or the bot is not in it: /invite @<its name>",
    "is_archived": "the channel is archived",
    "invalid_auth": "the bot token is not valid any more: reinstall the app and set the new one",
    "token_revoked": "the bot token was revoked: reinstall the app and set the new one",
    "account_inactive": "the app was removed from the workspace: install it again",
    "message_not_found": "that message is gone",
    "missing_scope": "add the scope to the app and reinstall it",
}


@dataclass(slots=True, eq=False)
class Letter:
    """A post that waits for its turn; ``to`` makes it a whisper to one person. ``done`` says where it stands."""

    place: Place
    message: Message
    key: str
    done: asyncio.Future[Ref]
    to: str | None = None
    tried_at: datetime | None = None
    is_doubtful: bool = False
    """Whether Slack may have it although no answer came."""
    is_left: bool = False
    """Whether its caller went on with a provisional Ref."""


@dataclass(slots=True, eq=False)
class Correction:
    """The newest content for a message that stands already, and everybody who waits for it."""

    ref: Ref
    message: Message
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


def is_malformed(error: str) -> bool:
    """Whether Slack refused the form, so that the same words as plain text may pass."""
    return error in _MALFORMED


def body(message: Message, *, is_bare: bool) -> dict[str, Any]:
    """The message's fields: with blocks, or (after Slack refused those) as plain text alone."""
    if is_bare:
        return {"text": render_plain(message), "blocks": []}
    return render(message)


def trace(key: str) -> dict[str, Any]:
    """The metadata that a post is recognised by."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}


def carries(found: dict[str, Any], key: str) -> bool:
    """Whether a message of the channel's history is the one with this key."""
    metadata = found.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    return isinstance(payload, dict) and payload.get("key") == key


def refusal(error: str, why: str) -> ChatError:
    """Slack's refusal, with what to do about it where that is known."""
    remedy = _REMEDIES.get(error)
    return ChatError(f"Slack refused the message: {why}" + (f" ({remedy})" if remedy else ""))
