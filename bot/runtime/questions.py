"""Questions that wait for a press: stored before they are posted, consumed once, decided again, never silent.

A press is authorised, consumed atomically, its buttons are taken away, and only then is the world gathered and the
plan decided again; it starts when the harm has not grown. Every other press gets an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import structlog

from bot.domain.audit import Result
from bot.domain.command import Reply
from bot.domain.errors import ChatError, StoreError, UpbotError
from bot.domain.fleet import Role
from bot.domain.guard import busy
from bot.domain.holds import not_theirs, whose_press
from bot.domain.message import Message, plain_line, says
from bot.domain.operation import Asked, InTheWay, Operation, Question, Where
from bot.domain.people import refusal, role_of
from bot.domain.plan import Plan, grown_harm
from bot.domain.saying import Words
from bot.domain.touching import of_plan, theirs_to_end
from bot.domain.words import interpret
from bot.ports import Chat, Clock, Dice, Place, Questions, Ref
from bot.runtime.executor import Executor
from bot.runtime.gathering import Asking, Gatherer
from bot.runtime.scribe import Scribe
from bot.runtime.tasks import Tasks
from bot.text import questions as text

_log = structlog.get_logger(__name__)

END_AGAIN = timedelta(seconds=5)
"""So often a question's end that could not be written down is tried again."""
TIDY = timedelta(hours=1)
"""A card whose question ended no longer ago has its buttons taken away again when the bot comes back."""


class Desk:
    """Asks questions and takes presses."""

    def __init__(  # noqa: PLR0917 - the machine's parts, given once by the composition root
        self,
        gatherer: Gatherer,
        executor: Executor,
        chat: Chat,
        questions: Questions,
        clock: Clock,
        dice: Dice,
        tasks: Tasks,
        scribe: Scribe,
    ) -> None:
        self._gatherer = gatherer
        self._executor = executor
        self._chat = chat
        self._store = questions
        self._clock = clock
        self._dice = dice
        self._tasks = tasks
        self._scribe = scribe
        self._acting: list[Question] = []
        """Pressed, and being looked at again: a "no" still ends them."""
        self._called_off: dict[str, str] = {}
        self._seen_open: tuple[Question, ...] = ()
        self._unwritten: dict[str, Question] = {}
        """Ended, though the store could not be told: a full disk keeps nobody from saying no."""
        executor.when_lost = self.go_back

    async def go_back(self, op: Operation, servers: Sequence[str]) -> None:
        """Start servers with the last good profile again; what lives by now is asked about like everything else."""
        place = Place(op.where.channel, op.where.thread)
        text_ = f"restart {' '.join(servers)} {op.plan.back_to}"
        asking = self._asking(text_, op.where, op.by, ())
        if asking is None:
            return
        world = await self._gatherer.whole(asking)
        decision = asking.decide(world, covered={op.owner, *(hold.by for hold in op.plan.held)})
        if isinstance(decision, Reply):
            await self._chat.post(place, decision.message)
        elif isinstance(decision, Plan) and decision.needs_confirmation:
            await self.ask(decision, asking, place)
        elif isinstance(decision, Plan):
            await self._executor.begin(decision, by=f"{op.by}, going back", where=place)

    def open_in(self, channel: str) -> tuple[Question, ...]:
        """The open questions of a channel, the newest first."""
        mine = [one for one in self._open() if one.where.channel == channel]
        return tuple(sorted(mine, key=lambda one: one.asked_at, reverse=True))

    def stoppable_in(self, channel: str) -> tuple[Question, ...]:
        """What a "no" ends there: the open questions, and those pressed whose world is being looked at again."""
        return (*self.open_in(channel), *self._acting_in(channel))

    def _acting_in(self, channel: str) -> tuple[Question, ...]:
        return tuple(one for one in self._acting if one.where.channel == channel and one.nonce not in self._called_off)

    def is_acting_for(self, channel: str) -> bool:
        """Whether a press was taken, and it is not decided yet what comes of it, that somebody there waits for."""
        return any(one.channel == channel for question in self._acting for one in question.copies)

    def by_code(self, code: str) -> Question | None:
        """The open question with that code, whatever the case."""
        return next((one for one in self._open() if one.code == code.upper()), None)

    def _open(self) -> tuple[Question, ...]:
        """The open questions; those last seen where the state can't be read: a "no" still ends them."""
        try:
            self._seen_open = self._store.open()
        except StoreError as error:
            _log.warning("questions_not_read", error=str(error))
        return tuple(one for one in self._seen_open if one.nonce not in self._unwritten)

    def _get(self, nonce: str) -> Question | None:
        return self._unwritten.get(nonce) or self._store.get(nonce)

    async def ask(
        self, plan: Plan, asking: Asking, place: Place, *, copies: Sequence[Place] = (), asker: str | None = None
    ) -> Question:
        """Store a question, then post it; an older one about the same servers is replaced by it."""
        theirs = theirs_to_end(self._gatherer.fleet(), asking.user, place.channel, self.open_in(place.channel))
        for old in theirs:
            if set(old.plan.servers) & set(plan.servers):
                await self._close(old, Asked.CANCELLED, by=None)
        now = self._clock.now()
        nonce = self._nonce()
        question = Question(
            nonce,
            nonce[:4].upper(),
            plan,
            asking.words.text,
            asker or self._name(asking.user),
            now,
            now + self._gatherer.fleet().limits.confirm_within,
            Where(place.channel, place.thread),
            copies=tuple(Where(one.channel, one.thread) for one in copies),
        )
        self._scribe.asked(question, asking.user)
        self._store.add(question)
        self._seen_open = (*self._seen_open, question)
        self._tasks.spawn(self._expire(question), name=f"expire {nonce[:4]}")
        # A caller who goes away meanwhile takes only itself away: the question is posted whole.
        failed = await asyncio.shield(self._tasks.spawn(self._put(question), name=f"ask {nonce[:4]}"))
        if failed is not None:
            raise failed
        return question

    async def _put(self, question: Question) -> ChatError | None:
        """Post a question; why it could not be, and then it is none."""
        place = Place(question.where.channel, question.where.thread)
        message = text.question(question, self._who_may(question), question.asked_at)
        try:
            ref = await self._chat.post(place, message)
        except ChatError as error:
            self._end(question, Asked.CANCELLED, by=None)
            return error
        where = Where(place.channel, place.thread, ref.id)
        self._placed(question.nonce, where)
        ended = None
        with contextlib.suppress(StoreError):  # it stands there with its buttons: a press will look again
            ended = self._get(question.nonce)
        if ended is not None and ended.state is not Asked.OPEN:  # while it was being posted
            await self._edit(replace(ended, where=where), text.closed(ended, ended.state, ended.by))
        told = says(*message.headline, " A person must press in the channel; waiting.")
        for one in question.copies:
            await self._mention(Place(one.channel, one.thread), told)
        return None

    def _placed(self, nonce: str, where: Where) -> None:
        seen = (replace(one, where=where) if one.nonce == nonce else one for one in self._seen_open)
        self._seen_open = tuple(seen)
        try:
            self._store.placed(nonce, where)
        except StoreError as error:
            _log.warning("question_place_not_kept", error=str(error))

    def resume(self) -> None:
        """After a restart: let the open questions expire in time, and tell of presses that nothing came of."""
        for question in self._store.open():
            self._tasks.spawn(self._expire(question), name=f"expire {question.nonce[:4]}")
        self._tasks.spawn(self._come_back(), name="presses before the restart")

    async def _come_back(self) -> None:
        now = self._clock.now()
        for press in self._scribe.unanswered(self._executor.known(), [one.code for one in self._open()]):
            self._scribe.lost(press, "restarted before anything was done")
            await self._mention(Place(press.channel), text.lost_press(press.by, press.title, now - press.at))
        for channel in {id_ for one in self._gatherer.fleet().channels for id_ in one.ids}:
            last = self._store.last_for(channel)
            if last is not None and last.ended_at is not None and now - last.ended_at < TIDY:
                await self._edit(last, text.closed(last, last.state, last.by))

    def _nonce(self) -> str:
        taken = {one.code for one in self._open()}
        while True:
            nonce = self._dice.hex(16)
            if nonce[:4].upper() not in taken:
                return nonce

    async def _expire(self, question: Question) -> None:
        await self._clock.sleep(question.expires_at - self._clock.now())
        await self._close(question, Asked.EXPIRED, by=None)

    async def cancel(
        self, channel: str, by: str, is_theirs: Callable[[Question], bool] = lambda _: True
    ) -> tuple[Question, ...]:
        """End the open questions of a channel that this person may end, also pressed ones that have not begun yet."""
        pressed = tuple(one for one in self._acting_in(channel) if is_theirs(one))
        self._called_off.update({one.nonce: by for one in pressed})
        mine = [one for one in self.open_in(channel) if is_theirs(one)]
        ended = [one for one in mine if await self._close(one, Asked.CANCELLED, by=by)]
        return (*ended, *pressed)

    async def press(self, nonce: str, choice: str, user: str, place: Place) -> None:
        """Take a press, from a button or typed."""
        now, fleet = self._clock.now(), self._gatherer.fleet()
        question = self._get(nonce)
        if question is None or question.state is not Asked.OPEN or question.expires_at <= now:
            if question is not None and question.state is Asked.OPEN:
                await self._close(question, Asked.EXPIRED, by=None)
                question = self._get(nonce)
            await self._too_late(question, user, place)
            return
        by = self._name(user)
        if choice == text.CANCEL and (by == question.asker or self._lacks(question, user, place) is None):
            self._scribe.cancelled([question], "", user, place)
            await self._close(question, Asked.CANCELLED, by=by)
            return
        if (why := self._may_not(question, user, by, place)) is not None:
            self._scribe.not_accepted(question, why, user, place)
            await self._chat.whisper(place, user, says(why))
            return
        is_admin = self._is_admin_over(question, user, place)
        holds = () if is_admin else self._gatherer.holds()
        if (told := not_theirs(question.plan, fleet, holds, by, now)) is not None:
            self._scribe.not_accepted(question, plain_line(told.headline), user, place)
            await self._chat.whisper(place, user, told)
            return
        self._scribe.accepted(question, user, place)
        if not self._store.end(nonce, Asked.PRESSED, by=by, at=now):
            await self._too_late(self._get(nonce), user, place)
            return
        self._acting.append(question)
        try:
            _log.info("pressed", question=question.code, by=by, plan=question.plan.title)
            await self._edit(question, text.closed(question, Asked.PRESSED, by))
            agreed = tuple(one for one in question.plan.held if is_admin or one.by == by)
            await self._act(replace(question, plan=replace(question.plan, held=agreed)), user, by)
        except InTheWay as error:
            told = busy(error.operation, self._clock.now(), error.claim)
            self._came_to_nothing(question, plain_line(told.headline), user)
            await self._tell(question, told)
        except UpbotError as error:
            self._came_to_nothing(question, str(error), user)
            raise
        finally:
            self._acting.remove(question)
            self._called_off.pop(nonce, None)

    def _came_to_nothing(self, question: Question, why: str, user: str) -> None:
        place = Place(question.where.channel, question.where.thread)
        self._scribe.not_accepted(question, why, user, place, result=Result.VOID)

    async def _too_late(self, question: Question | None, user: str, place: Place) -> None:
        told = text.too_late(question, self._clock.now())
        self._scribe.not_accepted(question, plain_line(told.headline), user, place)
        await self._chat.whisper(place, user, told)

    def _lacks(self, question: Question, user: str, place: Place) -> str | None:
        """What a person lacks where they press, over what the question is about; by the right that they have now."""
        fleet, plan = self._gatherer.fleet(), question.plan
        return refusal(fleet, user, Role.OPERATOR, plan.act, place.channel, of_plan(plan, fleet, self._executor.live()))

    def _may_not(self, question: Question, user: str, by: str, place: Place) -> str | None:
        fleet = self._gatherer.fleet()
        if place.channel != question.where.channel:  # who answers is to have read what is at stake, and be seen
            return f"{question.code} is asked in {self._called(question.where.channel)}: answer it there"
        if (why := self._lacks(question, user, place)) is not None:
            return why
        if question.plan.verb in fleet.limits.two_persons and by == question.asker:
            return f"{question.plan.verb} needs a second person: you asked for it yourself"
        return None

    def _is_admin_over(self, question: Question, user: str, place: Place) -> bool:
        """Whether whoever presses there is an admin over all of it, and so may do without the holders."""
        fleet = self._gatherer.fleet()
        acted_on = of_plan(question.plan, fleet, self._executor.live())
        return role_of(fleet, user, place.channel, acted_on) >= Role.ADMIN

    async def _act(self, question: Question, user: str, by: str) -> None:
        """Gather and decide again, and start only what was asked about; held are those who agree by this press."""
        place = Place(question.where.channel, question.where.thread)
        asking = self._again(question, user)
        if asking is None:
            await self._void(question, "its words mean nothing any more, the fleet file has changed", user, place)
            return
        world = await self._gatherer.whole(asking)
        decision = asking.decide(world)
        if (who := self._called_off.get(question.nonce)) is not None:  # whoever said no has had the answer
            self._came_to_nothing(question, f"called off by {who}", user)
            await self._edit(question, text.closed(question, Asked.CANCELLED, who))
            return
        if not isinstance(decision, Plan):
            if isinstance(decision, Reply):
                told = plain_line(decision.message.headline)
                self._scribe.not_accepted(question, told, user, place, result=Result.VOID)
                await self._tell(question, decision.message)
            return
        copies = [Place(one.channel, one.thread) for one in question.copies]
        if (why := grown_harm(question.plan, decision)) is not None:
            await self._void(question, why, user, place)
            if decision.needs_confirmation:
                await self.ask(decision, asking, place, copies=copies, asker=question.asker)
            return
        await self._executor.begin(decision, by=by, where=place, copies=copies, question=question.code)

    async def _void(self, question: Question, why: str, user: str, place: Place) -> None:
        self._scribe.not_accepted(question, why, user, place, result=Result.VOID)
        await self._tell(question, text.void(why))

    async def _tell(self, question: Question, message: Message) -> None:
        """Say it where the question was asked, and to who waits elsewhere."""
        for one in (question.where, *question.copies):
            await self._mention(Place(one.channel, one.thread), message)

    async def decide_anew(self, question: Question, place: Place) -> None:
        """Somebody says that it works: look again, and ask again only if there is still something to ask."""
        asking = self._again(question, question.asker)
        if asking is None:
            return
        world = await self._gatherer.whole(asking)
        decision = asking.decide(world)
        if isinstance(decision, Plan) and _is_same(decision, question.plan):
            sight = world.sight
            await self._chat.post(place, text.looked_again(question.plan, sight, world.now))
            return
        await self._close(question, Asked.CANCELLED, by=None)
        if isinstance(decision, Plan):
            await self._tell(question, text.stopped_before(question.plan, world.sight, world.now))
            if decision.needs_confirmation:
                copies = [Place(one.channel, one.thread) for one in question.copies]
                await self.ask(decision, asking, place, copies=copies, asker=question.asker)
        elif isinstance(decision, Reply):
            await self._tell(question, decision.message)

    def _again(self, question: Question, user: str) -> Asking | None:
        return self._asking(question.text, question.where, user, question.plan.servers)

    def _asking(self, text_: str, where: Where, user: str, servers: tuple[str, ...]) -> Asking | None:
        """Words read again as they were meant; ``servers`` are those that were meant without being named."""
        fleet, commands = self._gatherer.fleet(), self._gatherer.commands
        words = interpret(text_, fleet=fleet, commands=commands, channel=where.channel, mentions_bot=True)
        if not isinstance(words, Words):
            return None
        command = next(one for one in commands if one.name == words.command)
        meant = replace(words, targets=words.targets or servers)
        return Asking(meant, command, Place(where.channel, where.thread), user)

    async def _close(self, question: Question, state: Asked, *, by: str | None) -> bool:
        if not self._end(question, state, by=by):
            return False
        await self._edit(question, text.closed(question, state, by))
        for one in question.copies:
            await self._mention(Place(one.channel, one.thread), text.closed(question, state, by))
        return True

    def _end(self, question: Question, state: Asked, *, by: str | None) -> bool:
        """End it, once; what can't be written counts all the same, and is written later."""
        now = self._clock.now()
        if question.nonce in self._unwritten:
            return False
        try:
            return self._store.end(question.nonce, state, by=by, at=now)
        except StoreError as error:
            _log.warning("question_end_not_written", question=question.code, error=str(error))
            self._unwritten[question.nonce] = replace(question, state=state, by=by, ended_at=now)
            self._tasks.spawn(self._end_later(question.nonce), name=f"end {question.code} later")
            return True

    async def _end_later(self, nonce: str) -> None:
        while (one := self._unwritten.get(nonce)) is not None:
            await self._clock.sleep(END_AGAIN)
            with contextlib.suppress(StoreError):
                self._store.end(nonce, one.state, by=one.by, at=one.ended_at or self._clock.now())
                del self._unwritten[nonce]

    async def _mention(self, place: Place, message: Message) -> None:
        """Say it as well as can be."""
        try:
            await self._chat.post(place, message)
        except ChatError as error:
            _log.warning("not_told", error=str(error))

    def _where(self, question: Question) -> Where:
        """Where it stands, which is known only once it was posted."""
        if question.where.message is not None:
            return question.where
        try:
            return (self._store.get(question.nonce) or question).where
        except StoreError:
            return question.where

    async def _edit(self, question: Question, message: Message) -> None:
        where = self._where(question)
        if where.message is None:
            return
        try:
            await self._chat.edit(Ref(where.channel, where.message, where.thread), message)
        except ChatError as error:
            _log.warning("question_not_edited", error=str(error))

    def _who_may(self, question: Question) -> str:
        is_double = question.plan.verb in self._gatherer.fleet().limits.two_persons
        if (holders := whose_press(question.plan, question.asker if is_double else None)) is not None:
            return f"{holders}, not the asker's" if is_double else holders
        return "a second operator's press" if is_double else "an operator's press"

    def _called(self, channel: str) -> str:
        known = (one.name for one in self._gatherer.fleet().channels if channel in one.ids)
        return next((f"#{name}" for name in known), "another channel")

    def _name(self, user: str) -> str:
        person = self._gatherer.fleet().person(user)
        return person.name if person is not None else user


def _is_same(decision: Plan, asked: Plan) -> bool:
    """Whether what was asked is still what there is to ask."""
    return (decision.stakes, decision.held) == (asked.stakes, asked.held)
