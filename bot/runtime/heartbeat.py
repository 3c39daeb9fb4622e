"""The heartbeat: a small file that says when the bot last looked, saw anything, and was in touch with the chat.

Whoever watches the watcher reads it from outside: by its age, or by `upbot heartbeat`, which says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from bot.domain.phrases import span
from bot.ports import Clock

_log = structlog.get_logger(__name__)

NAME = "heartbeat"
ROUND_WITHIN = timedelta(minutes=1)
SIGHT_WITHIN = timedelta(minutes=2)
CHAT_WITHIN = timedelta(minutes=5)


class Heart:
    """Beats with every round of the watcher."""

    def __init__(self, path: Path, clock: Clock, is_connected: Callable[[], bool]) -> None:
        self._path = path
        self._clock = clock
        self._is_connected = is_connected
        self._chat_at: datetime | None = None

    def beat(self, seen_at: datetime | None) -> None:
        """Write the file anew, whole; a disk that is full stops the heart and nothing else."""
        now = self._clock.now()
        if self._is_connected():
            self._chat_at = now
        text = json.dumps({"at": _said(now), "seen": _said(seen_at), "chat": _said(self._chat_at)})
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            _log.warning("no_heartbeat", error=error.strerror)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether all is well, and why."""

    is_ok: bool
    why: str


def health(path: Path, now: datetime, round_within: timedelta = ROUND_WITHIN) -> Health:
    """What a heartbeat says."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        at, seen, chat = (_instant(plain.get(key)) for key in ("at", "seen", "chat"))
    except FileNotFoundError:
        return Health(is_ok=False, why=f"there is no {path}: no bot has run on this state")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return Health(is_ok=False, why=f"{path} can't be read: {error}")
    if at is None or now - at > round_within:
        return Health(is_ok=False, why=f"the last round was {_ago(at, now)} ago: the bot does not run, or stands still")
    if seen is None or now - seen > SIGHT_WITHIN:
        return Health(is_ok=False, why=f"the bot is blind: nothing was seen since {_ago(seen, now)}")
    if chat is None or now - chat > CHAT_WITHIN:
        return Health(is_ok=False, why=f"no contact with the chat since {_ago(chat, now)}")
    return Health(is_ok=True, why=f"looked {span(now - at)} ago, in touch with the chat")


def _said(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _ago(at: datetime | None, now: datetime) -> str:
    return "the start" if at is None else span(now - at)
