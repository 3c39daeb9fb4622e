"""What the app may say: text and blocks that Slack would take, wherever the app hands them in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from bot.demo.workspace.blocks import TOO_LONG, mark_problems, problems
from bot.demo.workspace.room import Refused, Room

MOST_TEXT = 40_000
Blocks = tuple[Mapping[str, Any], ...]


def checked(room: Room, text: str, blocks: Any, *, most: int = MOST_TEXT) -> tuple[str, Blocks]:
    """The text and the blocks, with the ids that Slack makes up where there are none; Refused when they are wrong."""
    good = _checked_blocks(room, blocks)
    if not text.strip() and not good:
        raise Refused("no_text")
    if len(text) > most:
        raise Refused("msg_too_long")
    if wrong := mark_problems(text, room.people):
        raise Refused("invalid_arguments", [f"[ERROR] text: {one}" for one in wrong[:20]])
    return text, good


def _checked_blocks(room: Room, blocks: Any) -> Blocks:
    if blocks is None:
        return ()
    wrong = problems(blocks, people=room.people, files=room.complete_files())
    if wrong:
        raise Refused(TOO_LONG if TOO_LONG in wrong[0] else "invalid_blocks", wrong[:20])
    return tuple(_with_ids(block) for block in blocks)


def _with_ids(block: Mapping[str, Any]) -> Mapping[str, Any]:
    named = {"block_id": secrets.token_hex(3), **block}
    if block["type"] == "actions":
        named["elements"] = [{"action_id": secrets.token_hex(3), **one} for one in block["elements"]]
    if block.get("accessory", {}).get("type") == "button":
        named["accessory"] = {"action_id": secrets.token_hex(3), **block["accessory"]}
    return named
