"""Writes the audit: each act at the moment that it is decided, before it is done.

What may destroy something is written down strictly: a StoreError goes up, the act is not done, and the person is
told. What is only an end, a no or a look away (an operation's end, a cancel, a refusal) is noted as well as can
be: a full disk must never keep anybody from stopping something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from bot.domain.audit import Act, AuditEntry, Result, seen, unanswered
from bot.domain.command import Reply
from bot.domain.errors import StoreError
from bot.domain.fleet import Fleet
from bot.domain.leases import Hold
from bot.domain.message import plain_line
from bot.domain.operation import Operation, Question, State
from bot.domain.plan import Plan
from bot.domain.saying import Words
from bot.ports import Audit, Clock, Place
from bot.text.operations import step_words

_log = structlog.get_logger(__name__)

_CATCH_UP = 200
_LOOKED_BACK = 200
_WORTH_TELLING = timedelta(hours=1)
_ENDS = {State.DONE: Result.DONE, State.FAILED: Result.FAILED, State.CANCELLED: Result.CANCELLED}


@dataclass(frozen=True, slots=True)
class Scribe:
    """Knows what is worth an entry, and whether it must be written."""

    audit: Audit
    clock: Clock
    fleet: Callable[[], Fleet]

    # What is done only when it is written; StoreError when it can't be

    def asked(self, question: Question, user: str) -> None:
        """A command has led to a question."""
        entry = self._said(Result.ASKED, question.text, user, question.where.channel, question.plan)
        self.audit.write(replace(entry, question=question.code))

    def started(self, plan: Plan, words: str, user: str, place: Place) -> None:
        """A command starts at once."""
        self.audit.write(self._said(Result.STARTED, words, user, place.channel, plan))

    def accepted(self, question: Question, user: str, place: Place) -> None:
        """A press counts."""
        self.audit.write(self._press(Result.ACCEPTED, question, user, place))

    def held(self, servers: Sequence[str], why: str, words: str, user: str, place: Place) -> None:
        """Somebody holds servers from now on, or not any more."""
        entry = self._said(Result.DONE, words, user, place.channel)
        self.audit.write(replace(entry, why=why, servers=tuple(servers)))

    def begins(self, op: Operation, question: str | None = None) -> None:
        """An operation begins: the last gate before anything is touched, whoever asked for it."""
        base = self._of_plan(Act.BEGIN, Result.STARTED, op.plan)
        self.audit.write(replace(base, by=op.by, channel=op.where.channel, operation=op.id, question=question))

    # What was written down, for a bot that comes back

    def unanswered(self, operations: Iterable[str], open_codes: Iterable[str]) -> tuple[AuditEntry, ...]:
        """The presses of the last hour that counted and led to nothing."""
        now = self.clock.now()
        recent = self.audit.recent(_LOOKED_BACK)
        found = unanswered(recent, frozenset(operations), frozenset(open_codes))
        return tuple(one for one in found if now - one.at < _WORTH_TELLING)

    def lost(self, press: AuditEntry, why: str) -> None:
        """Such a press was told about: it is not told twice."""
        self._note(replace(press, at=self.clock.now(), result=Result.VOID, why=why))

    # What is noted as well as can be

    def replied(self, reply: Reply, words: Words, user: str, place: Place) -> None:
        """A command that would change something has only got an answer."""
        result = Result.NOTHING if reply.is_ok else Result.REFUSED
        entry = self._said(result, words.text, user, place.channel)
        self._note(replace(entry, why=plain_line(reply.message.headline), servers=words.targets))

    def changed(self, words: Words, user: str, place: Place) -> None:
        """A command has changed something small: silence, a note that an alert was seen."""
        self._note(replace(self._said(Result.DONE, words.text, user, place.channel), servers=words.targets))

    def refused(self, why: str, words: Words, user: str, place: Place) -> None:
        """A command was refused before anything was looked at."""
        entry = self._said(Result.REFUSED, words.text, user, place.channel)
        self._note(replace(entry, why=why, servers=words.targets))

    def not_accepted(
        self, question: Question | None, why: str, user: str, place: Place, *, result: Result = Result.REFUSED
    ) -> None:
        """A press does not count, or was void when the world was looked at again."""
        self._note(replace(self._press(result, question, user, place), why=why))

    def cancelled(self, ended: Sequence[Question | Operation], words: str, user: str, place: Place) -> None:
        """Something open was ended on a person's word; with nothing ended there is nothing to note."""
        if not ended:
            return
        base = AuditEntry(self.clock.now(), Act.CANCEL, Result.CANCELLED, self._name(user), user, place.channel)
        names = [one.plan.title + ("?" if isinstance(one, Question) else f" ({one.id})") for one in ended]
        servers = dict.fromkeys(server for one in ended for server in one.plan.servers)
        self._note(replace(base, words=words, title=", ".join(names), servers=tuple(servers)))

    def adopted(self, servers: Sequence[str], words: str, user: str, place: Place) -> None:
        """Processes that somebody started by hand are the bot's from now on."""
        entry = self._said(Result.DONE, words, user, place.channel)
        self._note(replace(entry, why="adopted", servers=tuple(servers)))

    def reloaded(self, why: str, user: str, place: Place, *, is_read: bool) -> None:
        """The fleet file was read again, or was wrong."""
        result = Result.DONE if is_read else Result.REFUSED
        base = AuditEntry(self.clock.now(), Act.RELOAD, result, self._name(user), user, place.channel)
        self._note(replace(base, words="reload", why=why))

    def ended(self, op: Operation) -> None:
        """An operation has come to its end."""
        if op.state not in _ENDS:
            return
        lost = "; ".join(f"{server}: {why}" for server, why in op.lost)
        why = op.outcome if op.outcome not in {state.value for state in _ENDS} else ""
        stopped = f"by {op.stopper}" if op.stopper else ""
        base = self._of_plan(Act.END, _ENDS[op.state], op.plan)
        told = "; ".join(part for part in (why, stopped, lost) if part)
        self._note(replace(base, by=op.by, channel=op.where.channel, operation=op.id, why=told))

    def hold_ended(self, hold: Hold, why: str) -> None:
        """A hold is over, or a part of it is somebody else's, without its holder's word."""
        base = AuditEntry(self.clock.now(), Act.END, Result.DONE, hold.by, hold.user, hold.channel)
        self._note(replace(base, operation=hold.id, title=f"hold by {hold.by}", why=why, servers=hold.servers))

    def catch_up(self, operations: Sequence[Operation]) -> None:
        """Write what a kill -9 left out: the end of an operation whose beginning is written and that has ended."""
        try:
            entries = self.audit.recent(_CATCH_UP)
        except StoreError as error:
            _log.warning("audit_not_read", error=str(error))
            return
        begun = {one.operation for one in entries if one.act is Act.BEGIN}
        told = {one.operation for one in entries if one.act is Act.END}
        for op in operations:
            if not op.is_live and op.id in begun - told:
                self.ended(op)

    def _note(self, entry: AuditEntry) -> None:
        try:
            self.audit.write(entry)
        except StoreError as error:
            _log.warning("audit_not_written", act=entry.act.value, result=entry.result.value, error=str(error))

    # Entries

    def _said(self, result: Result, words: str, user: str, channel: str, plan: Plan | None = None) -> AuditEntry:
        base = self._of_plan(Act.COMMAND, result, plan)
        return replace(base, by=self._name(user), user=user, channel=channel, words=words)

    def _press(self, result: Result, question: Question | None, user: str, place: Place) -> AuditEntry:
        base = self._of_plan(Act.PRESS, result, question.plan if question is not None else None)
        code = question.code if question is not None else None
        return replace(base, by=self._name(user), user=user, channel=place.channel, question=code)

    def _of_plan(self, act: Act, result: Result, plan: Plan | None) -> AuditEntry:
        base = AuditEntry(self.clock.now(), act, result)
        if plan is None:
            return base
        steps = tuple(step_words(step) for step in plan.steps)
        return replace(base, title=plan.title, steps=steps, servers=plan.servers, seen=seen(plan))

    def _name(self, user: str) -> str:
        person = self.fleet().person(user)
        return person.name if person is not None else user
