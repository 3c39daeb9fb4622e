"""How patient the Slack adapter is: every span and rate in one place, so that tests can be quick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


def _s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Pace:
    """Spans of the adapter. What Slack allows is in brackets."""

    patience: timedelta = _s(5)
    """How long post, edit and whisper wait for Slack before they leave it to the outbox."""
    call: timedelta = _s(10)
    """How long one request to the Web API may take."""
    retry: timedelta = _s(1)
    """The first wait after a failure; it doubles up to ``retry_most``."""
    retry_most: timedelta = _s(10)
    edits_a_minute: int = 45
    """[chat.update: some 50 a minute for the whole workspace]"""
    edits_at_once: int = 8
    outbox: int = 200
    """Messages that may wait, a channel; the oldest is given up first."""
    check: timedelta = _s(1)
    """How often the connection is looked at."""
    connect: timedelta = _s(15)
    close: timedelta = _s(3)
    ping: timedelta = _s(5)
    pong: timedelta = _s(5)
    hello: timedelta = _s(10)
    """How long an open socket may be silent before Slack's hello."""
    echo: timedelta = _s(60)
    """How long our own posts may take to come back as events."""
