"""What can be said: a command's card and grammar, and a command as it was meant."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.flags import Flags
from bot.domain.fleet import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What help tells of a command: its name, what it is for, how it is typed, and who may.

    ``act`` is what somebody hears that they may not, where the name is no verb.
    """

    name: str
    summary: str
    usage: str
    examples: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    role: Role = Role.VIEWER
    act: str = ""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What may follow a command's name.

    ``options`` are words that begin with dashes; ``words`` are sub-commands ("stop", "start"); ``recalls`` means
    that without a target the last one named in the thread, or lately in the channel, is meant; ``rest`` is how many
    words are taken as they stand (more are talk). ``flags`` are the launch flags that may be typed along.
    ``when`` takes words that say when ("2h", "03:12"), ``because`` a reason up to the end, ``alerts`` ids of
    alerts. ``lasts`` takes, behind the
    targets, until when ("until 9:00", "for 30m", "2h"), and behind that a reason up to the end. ``operations``
    takes ids of operations ("op-12") as words. With ``first`` one
    of these words comes first, and a sentence with unknown words in it is talk.
    """

    targets: bool = False
    profile: bool = False
    job: bool = False
    number: bool = False
    recalls: bool = False
    when: bool = False
    because: bool = False
    alerts: bool = False
    lasts: bool = False
    operations: bool = False
    rest: int = 0
    rest_like: str = ""
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """A command as it was meant. ``named`` tells targets that were typed from those that were filled in.

    ``is_question`` is true when it ended in a question mark. ``text`` is what was typed, for the record and for
    deciding again.
    """

    command: str
    text: str
    targets: tuple[str, ...] = ()
    named: bool = False
    profile: str | None = None
    job: str | None = None
    options: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    number: int | None = None
    flags: Flags = Flags()
    rest: str = ""
    when: str = ""
    alerts: tuple[str, ...] = ()
    is_question: bool = False
