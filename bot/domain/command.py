"""What a command is: its words, who may say it, what it needs to know, and how it decides.

A command module exports ``COMMAND``. ``decide`` is pure: the words, the world and the time go in, and what is to
be done comes out as a value. Help, usage errors and docs/commands.md are made from these fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.domain.facts import Process
from bot.domain.message import Message
from bot.domain.needs import Needs
from bot.domain.plan import Plan
from bot.domain.saying import Card, Grammar, Words
from bot.domain.wishes import Goal
from bot.domain.world import World


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and nothing else happens. ``is_ok`` is what `upbot ask` exits with; of a look no entry is made."""

    message: Message
    is_ok: bool = True
    is_look: bool = False


@dataclass(frozen=True, slots=True)
class CancelOpen:
    """End what is open: the question or the operation of that id, or all in this channel (None)."""

    target: str | None = None


@dataclass(frozen=True, slots=True)
class ReloadFleet:
    """Read the fleet file again."""


@dataclass(frozen=True, slots=True)
class SetPace:
    """How often the operation in this thread reports: every so often, or only at its end (None)."""

    every: timedelta | None


@dataclass(frozen=True, slots=True)
class AckAlert:
    """Somebody has seen an alert: the one of that id, or the newest that fires (None)."""

    alert: str | None


@dataclass(frozen=True, slots=True)
class SilenceAlerts:
    """Say nothing of these servers, or of the alerts of these ids, for so long."""

    servers: tuple[str, ...]
    length: timedelta
    because: str
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsilenceAlerts:
    """End the silences about these servers and alerts; none named: all."""

    servers: tuple[str, ...]
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adopt:
    """Put these servers' processes on record as ours, though somebody started them by hand."""

    processes: tuple[tuple[str, Process], ...]


@dataclass(frozen=True, slots=True)
class DrawChart:
    """Show how these servers have been over so long."""

    servers: tuple[str, ...]
    span: timedelta


@dataclass(frozen=True, slots=True)
class PutHold:
    """Hold these servers for whoever says it."""

    servers: tuple[str, ...]
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class EndHold:
    """End these holds on these servers; none named: all of them."""

    holds: tuple[str, ...]
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """Tell whoever asks when something is so."""

    goal: Goal


@dataclass(frozen=True, slots=True)
class Forget:
    """Whoever asks does not want to be told of anything any more."""


Change = (
    DrawChart | AckAlert | Adopt | CancelOpen | EndHold | Forget | Promise | PutHold | ReloadFleet | SetPace
    | SilenceAlerts | UnsilenceAlerts
)  # fmt: skip
Decision = Reply | Plan | Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Card):
    """One thing that people may say.

    ``is_everyday`` marks a word that people also use among themselves: followed by what is no target it is talk,
    and the bot keeps silent. ``changes`` marks a command that acts: it never guesses, and with a question mark
    at its end it only shows its plan; ``acting`` are the sub-commands that do so of one that otherwise looks.
    ``asks_installed`` has the installed version's own flags read before it decides,
    ``needs_history`` what is kept of the past, ``needs_samples`` what the watcher has read.
    """

    decide: Callable[[Words, World, datetime], Decision]
    grammar: Grammar = field(default_factory=Grammar)
    needs: Needs | None = None
    needs_job: bool = False
    changes: bool = False
    acting: frozenset[str] = frozenset()
    is_everyday: bool = False
    asks_installed: bool = False
    needs_history: bool = False
    needs_samples: bool = False

    def acts(self, words: Words) -> bool:
        """Whether these words of it are to change something."""
        return self.changes or not self.acting.isdisjoint(words.words)
