"""What a person typed becomes a typed value, or talk that is none of the bot's business.

    interpret("restart no_buffer", …)  -> Words("restart", profile="no_buffer", …)
    interpret("what's up?", …)         -> None
    interpret("restrat gpu3", …)       -> Hint("did you mean `restart gpu3`?")

Only whole words count, nothing is executed on a guess, and what looks like talk between people is left alone: a
bot that answers everything is muted, and one that acts on a guess is worse.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.domain.command import Command
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet
from bot.domain.message import Message, code, says
from bot.domain.moments import is_moment, length
from bot.domain.saying import Words

LONGEST = 400
"""Characters; what is longer is not a command."""

_ENDING = "?!.,;:"
_ALERT = re.compile(r"[a-z_]{1,30}-\d{1,9}", re.ASCII)
_ANYBODYS = frozenset({"all", "everything", "fleet"})
"""Targets that people also say to each other: beside words that nobody knows, they do not make it a command."""
_PLAIN_SPEECH = re.compile(
    r"a|about|again|am|an|and|annoying|are|at|but|by|can|could|for|from|has|have|i|in|into|is|me|my|nice|"
    r"of|on|or|our|over|please|quo|should|so|sure|than|that|the|their|then|there|this|to|was|we|were|with|"
    r"would|you|your"
)
"""Words that stand in sentences and in no command: with nothing beside them that is known, it is talk."""
_MEANS_US = re.compile(
    r"all|cluster|engine|everything|fleet|gpu|gpus|host|hosts|it|machine|machines|model|server|servers|"
    r"them|thing|things"
)
"""Words that a person in a hurry says to the bot although they name nothing: those deserve a hint."""
_OPERATION = re.compile(r"op-[0-9]{1,9}")
_SAFE = re.compile(r"(no|nope|stop|wait|don'?t|cancel|abort|halt)\b(?!-)", re.IGNORECASE)
_IS_UP = re.compile(
    r"(it('?s)?|they('?re)?|all|everything('?s)?|the servers?)?\s*(is|are)?\s*(still\s+|already\s+)?"
    r"(ready|up|working|works|work|alive|serving)(\s+(now|already|again|fine))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Hint:
    """The message began like a command and can't be one; this says what to type."""

    message: Message


def is_safe_word(text: str) -> bool:
    """Whether a message begins as people begin when they want something to stop."""
    return _SAFE.match(text.strip()) is not None


def is_only_safe_word(text: str) -> bool:
    """Whether the message is such a word and nothing else ("no", "stop!", "cancel it")."""
    words = [word.strip(_ENDING).lower() for word in text.split()]
    return bool(words) and is_safe_word(text) and set(words[1:]) <= {"it", "that", "no", "stop", "please", "now"}


def says_it_is_up(text: str) -> bool:
    """Whether somebody says that the thing works ("it's up", "ready", "works"); "up" and "up?" ask, as a command."""
    said = text.strip()
    is_asked = said.endswith("?") or said.rstrip(_ENDING).lower() == "up"
    return not is_asked and _IS_UP.fullmatch(said.rstrip(_ENDING)) is not None


def interpret(
    text: str,
    *,
    fleet: Fleet,
    commands: Sequence[Command],
    channel: str,
    mentions_bot: bool = False,
    recalled: tuple[str, ...] = (),
) -> Words | Hint | None:
    """Read a message: a command, a hint for what begins like one, or None for talk.

    ``recalled`` are the servers last named in this thread or, lately, in this channel.
    """
    tokens = text.split()
    if not tokens:
        return Words("help", text) if mentions_bot else None
    command = _command(tokens[0], commands)
    if len(text) > LONGEST:
        is_meant = mentions_bot or (command is not None and _is_meant(command, tokens, fleet))
        return Hint(says("That is too long to be a command (", str(len(text)), " characters).")) if is_meant else None
    if command is None:
        return _near_command(tokens, text, fleet, commands, mentions_bot=mentions_bot)
    is_question = text.rstrip().endswith("?")
    reading = _Reading(command, fleet, tokens[1:])
    words = reading.words(text, is_question=is_question)
    if isinstance(words, Words):
        return _filled(words, command, fleet, channel, recalled)
    is_near = words.suggestion is not None and len(tokens) == 2  # one word beside it may be a mistyped target
    is_speech = command.is_everyday or _is_speech(tokens[1:])
    is_talk = is_speech and not reading.found and not is_near
    if command.grammar.first:  # a sentence that people say to each other all day: only what may name something is meant
        is_talk = words.suggestion not in fleet.words() and not any(map(str.isdigit, words.token))
    return None if is_talk and not mentions_bot else Hint(words.message(command))


def _is_meant(command: Command, tokens: Sequence[str], fleet: Fleet) -> bool:
    """Whether a long text that begins with a command is said to the bot: with an everyday word, by its target."""
    is_target = len(tokens) > 1 and tokens[1].lower() not in _ANYBODYS and fleet.select(tokens[1][:LONGEST]) is not None
    return not command.is_everyday or (command.grammar.targets and is_target)


def _is_speech(tokens: Sequence[str]) -> bool:
    """Whether words behind a command's name are a sentence between people ("restart your laptop, that helped")."""
    words = {token.lower().strip(_ENDING) for token in tokens}
    is_plain, means_us = (any(map(one.fullmatch, words)) for one in (_PLAIN_SPEECH, _MEANS_US))
    return len(tokens) > 1 and is_plain and not means_us


def _command(token: str, commands: Sequence[Command]) -> Command | None:
    word = token.lower().rstrip(_ENDING).lstrip("/!")
    return next((one for one in commands if word == one.name or word in one.aliases), None)


def _filled(words: Words, command: Command, fleet: Fleet, channel: str, recalled: tuple[str, ...]) -> Words:
    if words.targets or not command.grammar.targets:
        return words
    if command.grammar.recalls and recalled:
        return replace(words, targets=recalled)
    if command.changes and words.profile is None:
        return words
    return replace(words, targets=tuple(server.name for server in fleet.defaults(channel)))


@dataclass(frozen=True, slots=True)
class _Unknown:
    token: str
    suggestion: str | None

    def message(self, command: Command) -> Message:
        shown = self.token if len(self.token) <= 60 else f"{self.token[:59]}…"
        if self.suggestion is not None:
            return says("I don't know ", code(shown), ". Did you mean ", code(self.suggestion), "? Nothing was done.")
        return says("I don't know ", code(shown), ". Usage: ", code(command.usage), ". Nothing was done.")


class _Reading:
    """The words behind a command's name, read one by one against its grammar."""

    def __init__(self, command: Command, fleet: Fleet, tokens: Sequence[str]) -> None:
        self.command = command
        self.fleet = fleet
        self.tokens = tokens
        self.found = 0
        self.names: list[str] = []
        self.values = Words(command.name, "")

    def words(self, text: str, *, is_question: bool) -> Words | _Unknown:
        """The whole, or the first word that nobody knows."""
        first = self.command.grammar.first
        if first and (not self.tokens or self.tokens[0].lower().strip(_ENDING) not in first):
            return _Unknown(self.tokens[0] if self.tokens else self.command.name, None)
        if self.command.grammar.rest:
            like = self.command.grammar.rest_like
            if len(self.tokens) > self.command.grammar.rest or (
                self.tokens and like and re.fullmatch(like, self.tokens[0]) is None
            ):
                return _Unknown(self.tokens[-1], None)
            return replace(self.values, text=text, rest=" ".join(self.tokens), is_question=is_question)
        unknown: _Unknown | None = None
        for number, token in enumerate(self.tokens):
            bare = token.rstrip("?!.,")
            if not bare:
                continue
            if self.command.grammar.because and token.lower() == "because":
                rest = " ".join(self.tokens[list(self.tokens).index(token) + 1 :])
                self.values = replace(self.values, rest=rest)
                break
            if self.command.grammar.lasts and (used := _lasting(self.tokens[number:])):
                told = " ".join(word.lower().rstrip("?!.,:") for word in self.tokens[number : number + used])
                self.values = replace(self.values, when=told, rest=" ".join(self.tokens[number + used :]))
                break
            if self._take(token) or self._take(bare):
                self.found += bare.lower() not in _ANYBODYS
            else:
                unknown = unknown or _Unknown(token, self._near(token))
        if unknown is not None:
            return unknown
        order = [server.name for server in self.fleet.servers if server.name in self.names]
        return replace(self.values, text=text, targets=tuple(order), named=bool(order), is_question=is_question)

    def _take(self, token: str) -> bool:
        grammar, word = self.command.grammar, token.lower()
        if word in grammar.options:
            self.values = replace(self.values, options=self.values.options | {word})
        elif word in grammar.words or (grammar.operations and _OPERATION.fullmatch(word)):
            self.values = replace(self.values, words=(*self.values.words, word))
        elif grammar.targets and (servers := self.fleet.select(token)):
            self.names.extend(server.name for server in servers)
        elif grammar.profile and (profile := self.fleet.profile(token)) and self.values.profile is None:
            self.values = replace(self.values, profile=profile.name)
        elif grammar.job and (job := self.fleet.job(token)):
            self.values = replace(self.values, job=job.name)
        elif grammar.flags and (flag := _typed_flag(word, token, grammar.flags)) is not None:
            self.values = replace(self.values, flags=self.values.flags.merged(flag))
        elif grammar.alerts and _ALERT.fullmatch(word):
            self.values = replace(self.values, alerts=(*self.values.alerts, word))
        elif grammar.when and is_moment(word):
            self.values = replace(self.values, when=f"{self.values.when} {word}".strip())
        elif grammar.number and re.fullmatch(r"\d{1,7}", word) and self.values.number is None:
            self.values = replace(self.values, number=int(word))
        else:
            return False
        return True

    def _near(self, token: str) -> str | None:
        grammar = self.command.grammar
        words = () if grammar.first else grammar.words  # those of a sentence are no likely mistake
        known: list[str] = [*grammar.options, *words, *(f"{name}=" for name in grammar.flags)]
        if grammar.targets:
            known.extend(server.name for server in self.fleet.servers)
            known.extend(host.name for host in self.fleet.hosts)
        if grammar.profile:
            known.extend(profile.name for profile in self.fleet.profiles)
        if grammar.job:
            known.extend(job.name for job in self.fleet.jobs)
        near = difflib.get_close_matches(token.lower().strip(_ENDING + "'\"`"), known, n=1, cutoff=0.7)
        return near[0] if near else None


def _lasting(tokens: Sequence[str]) -> int:
    """How many of these words say until when: "until 9:00", "for 1h 30m", "2h"; 0 when they do not."""
    words = [token.lower().rstrip("?!.,:") for token in tokens]
    lead = int(bool(words) and words[0] in ("until", "till", "for"))
    told = length(words[lead:])
    return lead + told if told else 0


def _typed_flag(word: str, token: str, allowed: Sequence[str]) -> Flags | None:
    """A flag that was typed along ("mem-fraction-static=0.88"), when it is one of those that may be."""
    name, equals, _ = word.lstrip("-").replace("_", "-").partition("=")
    value = token.partition("=")[2]
    is_plain = re.fullmatch(r"[\w.+-]{1,40}", value, re.ASCII) is not None
    return Flags(((name, (value,)),)) if equals and name in allowed and is_plain else None


def _near_command(
    tokens: Sequence[str], text: str, fleet: Fleet, commands: Sequence[Command], *, mentions_bot: bool
) -> Hint | None:
    first = tokens[0].lower().strip(_ENDING)
    names = [one.name for one in commands if len(one.name) > 3]
    near = difflib.get_close_matches(first, names, n=1, cutoff=0.75) if len(first) > 3 and len(tokens) <= 3 else []
    if near:
        command = next(one for one in commands if one.name == near[0])
        reading = _Reading(command, fleet, tokens[1:])
        if isinstance(reading.words(text, is_question=False), Words):
            meant = " ".join([command.name, *tokens[1:]])
            return Hint(says("Did you mean ", code(meant), "? Nothing was done."))
    if not mentions_bot:
        return None
    return Hint(says("I don't know ", code(tokens[0][:60]), "; ", code("help"), " tells what I know."))
