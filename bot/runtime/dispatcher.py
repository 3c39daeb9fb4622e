"""From what a person says or presses to what is done: one task each, so that the bot is never deaf.

1. Words are read (`bot.domain.words`), the role is checked, and the handler decides on a gathered world.
2. A reply is posted as soon as the instant facts are in, or after 0.9 s with what is known, and edited as more comes.
3. A plan with something healthy at stake becomes a question (`bot.runtime.questions`); one without starts at once.
4. The one broad `except` of the bot is here: a fault in a handler is an answer and a log entry, never silence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from bot.domain.command import (
    AckAlert,
    Adopt,
    CancelOpen,
    Change,
    Decision,
    DrawChart,
    EndHold,
    Forget,
    Promise,
    PutHold,
    ReloadFleet,
    Reply,
    SetPace,
    SilenceAlerts,
    UnsilenceAlerts,
)
from bot.domain.errors import ChatError, ConfigError, UpbotError, UserError
from bot.domain.facts import Process, Sight
from bot.domain.fleet import Role
from bot.domain.guard import busy
from bot.domain.message import Message, bold, code, says
from bot.domain.operation import InTheWay, Operation, Question
from bot.domain.people import everything, refusal, role_of
from bot.domain.phrases import listing, span
from bot.domain.plan import Plan
from bot.domain.saying import Words
from bot.domain.touching import Ended, refusal_to_end, theirs_to_end, touched
from bot.domain.words import Hint, interpret, is_only_safe_word, is_safe_word, says_it_is_up
from bot.domain.world import World
from bot.ports import Alarms, Charts, Chat, Clock, Heard, Place, Pressed, Promises, Ref
from bot.runtime.executor import Executor
from bot.runtime.gathering import Asking, Gatherer
from bot.runtime.holding import Holding
from bot.runtime.questions import Desk
from bot.runtime.scribe import Scribe
from bot.runtime.tasks import Tasks
from bot.text import questions as text
from bot.text import wishes as wish_text

_log = structlog.get_logger(__name__)

RECALL = timedelta(minutes=10)
LOOK_AT_LEAST = timedelta(milliseconds=300)
"""However late a message has come, a look has that long until something is known, before nothing is told of it."""
TOO_OLD = timedelta(minutes=2)
"""A command that changes something and was typed longer ago than this is not carried out: the night has moved on."""


_ANYTHING = frozenset({"", "it", "that", "all", "please", "now"})
_YES = re.compile(r"(?:yes|confirm)\s+`?([0-9a-f]{4})`?[.!]?", re.IGNORECASE | re.ASCII)


@dataclass(slots=True)
class Asker:
    """A caller at the door: where its questions are asked, and what came of its words."""

    question_in: Place
    command: str | None = None
    world: World | None = None


@dataclass(slots=True)
class _Memory:
    """The servers last named in each channel and thread."""

    named: dict[tuple[str, str | None], tuple[tuple[str, ...], datetime]] = field(default_factory=dict)

    def keep(self, place: Place, servers: tuple[str, ...], now: datetime) -> None:
        self.named = {key: value for key, value in self.named.items() if now - value[1] <= timedelta(hours=12)}
        self.named[place.channel, place.thread] = (servers, now)
        self.named[place.channel, None] = (servers, now)

    def recall(self, place: Place, now: datetime) -> tuple[str, ...]:
        if place.thread is not None and (place.channel, place.thread) in self.named:
            return self.named[place.channel, place.thread][0]
        servers, at = self.named.get((place.channel, None), ((), now))
        return servers if now - at <= RECALL else ()


class Dispatcher:
    """Hears people and answers them."""

    def __init__(  # noqa: PLR0917 - the machine's parts, given once by the composition root
        self,
        gatherer: Gatherer,
        executor: Executor,
        desk: Desk,
        chat: Chat,
        clock: Clock,
        tasks: Tasks,
        scribe: Scribe,
        reload: Callable[[], Awaitable[str]],
    ) -> None:
        self._gatherer = gatherer
        self._executor = executor
        self._desk = desk
        self._chat = chat
        self._clock = clock
        self._tasks = tasks
        self._scribe = scribe
        self._reload = reload
        self._memory = _Memory()
        self._looking: list[Asking] = []
        """What would change something and is still being looked at: a "no" calls it off."""
        self.alarms: Alarms | None = None
        self.charts: Charts | None = None
        self.promises: Promises | None = None
        self.holding: Holding | None = None

    def heard(self, event: Heard) -> None:
        """Take a message; the work goes on in its own task."""
        self._tasks.spawn(self._guarded(event.place, self._hear(event)), name=f"heard {event.id}")

    def pressed(self, event: Pressed) -> None:
        """Take a press."""
        self._tasks.spawn(self._guarded(event.place, self._press(event)), name=f"pressed {event.does[:20]}")

    async def ask(self, event: Heard, asker: Asker) -> bool:
        """Hear a message and wait until it is answered; whether all was well. For `upbot ask`."""
        result = False

        async def hearing() -> None:
            nonlocal result
            result = await self._hear(event, asker)

        await self._guarded(event.place, hearing())
        return result

    async def _guarded(self, place: Place, work: Awaitable[object]) -> None:
        try:
            await work
        except InTheWay as error:
            await self._mention(place, busy(error.operation, self._clock.now(), error.claim))
        except UserError as error:
            await self._mention(place, says(str(error)))
        except ConfigError as error:
            await self._mention(place, says(bold("The fleet file is wrong: "), str(error)))
        except UpbotError as error:
            _log.warning("not_done", error=str(error), exc_info=error)
            await self._mention(place, says(bold("Not done: "), str(error)))
        except Exception as error:  # noqa: BLE001 - the bot's one broad except: a fault must be an answer
            _log.exception("fault")
            told = says(bold("That is a fault of mine: "), f"{type(error).__name__}; it is in my log.")
            await self._mention(place, told)

    async def _mention(self, place: Place, message: Message) -> None:
        """Say it as well as can be: there is nobody left to tell that it can't be said."""
        try:
            await self._post(place, message)
        except ChatError as error:
            _log.warning("not_told", error=str(error))

    # What people say

    async def _hear(self, event: Heard, asker: Asker | None = None) -> bool:
        fleet = self._gatherer.fleet()
        is_here = not fleet.channels or fleet.channel(event.place.channel) is not None
        if not is_here and not event.mentions_bot and asker is None:
            return False
        now = self._clock.now()
        words = interpret(
            event.text,
            fleet=fleet,
            commands=self._gatherer.commands,
            channel=event.place.channel,
            mentions_bot=event.mentions_bot or asker is not None,
            recalled=self._memory.recall(event.place, now),
        )
        if await self._is_safe_word(event, words) or await self._is_word_for_the_open(event, asker):
            return True
        if words is None:
            return False
        if isinstance(words, Hint):
            await self._post(event.place, words.message)
            return False
        return await self._command(event, words, asker)

    async def _command(self, event: Heard, words: Words, asker: Asker | None) -> bool:
        fleet, now = self._gatherer.fleet(), self._clock.now()
        command = next(one for one in self._gatherer.commands if one.name == words.command)
        acts = command.acts(words)
        why = refusal(fleet, event.user, command.role, command.act or command.name, event.place.channel, ())
        if why is not None and not (acts and words.is_question):
            return await self._refuse(event, words, why)
        if acts and now - event.at > TOO_OLD:
            ago = span(now - event.at)
            self._scribe.refused(f"typed {ago} ago", words, event.user, event.place)
            told = says(f"That was typed {ago} ago: ", bold("nothing was done"), ". Say it again.")
            await self._post(event.place, told)
            return False
        if words.named:
            self._memory.keep(event.place, words.targets, now)
        _log.info("command", command=command.name, targets=words.targets, profile=words.profile, user=event.user)
        asking = Asking(words, command, event.place, event.user)
        if asker is not None:
            asker.command = command.name
        if acts:
            return await self._decide_once(event, asking, asker)
        return await self._decide_as_it_comes(event, asking, asker)

    async def _refuse(self, event: Heard, words: Words, why: str) -> bool:
        """Only they hear what they lack, and who may."""
        self._scribe.refused(why, words, event.user, event.place)
        await self._whisper(event, says(why))
        return False

    def _may_not(self, event: Heard, asking: Asking, decision: Decision, world: World) -> str | None:
        """Why this person may not do that here to what it would really act on; None when they may."""
        acted_on = touched(decision, asking.words, world)
        if acted_on is None:
            return None
        needed = max(asking.command.role, Role.OPERATOR)
        what = decision.act if isinstance(decision, Plan) else asking.command.act or asking.command.name
        return refusal(self._gatherer.fleet(), event.user, needed, what, event.place.channel, acted_on)

    async def _decide_once(self, event: Heard, asking: Asking, asker: Asker | None) -> bool:
        """For what changes something: decide when everything is known; show that it was heard meanwhile."""
        sign = self._tasks.spawn(self._sign(event), name="sign")
        self._looking.append(asking)
        try:
            world = await self._gatherer.whole(asking)
            decision = asking.decide(world)
        finally:
            sign.cancel()
            is_wanted = asking in self._looking
            self._looking = [one for one in self._looking if one is not asking]
        await self._chat.react(_ref(event), "eyes", on=False)
        if not is_wanted:  # whoever called it off has had the answer
            return False
        if asker is not None:
            asker.world = world
        return await self._carry_out(event, asking, decision, world, asker)

    async def _sign(self, event: Heard) -> None:
        await self._clock.sleep(self._gatherer.fleet().limits.answer_within)
        await self._chat.react(_ref(event), "eyes")

    async def _decide_as_it_comes(self, event: Heard, asking: Asking, asker: Asker | None) -> bool:
        """For what only looks: the first answer in time, then the same message kept true until all is known."""
        latest: list[World] = []
        changed = asyncio.Event()

        async def follow() -> None:
            async for world in self._gatherer.worlds(asking):
                latest[:] = [world]
                changed.set()

        following = self._tasks.spawn(follow(), name=f"look for {asking.command.name}")
        following.add_done_callback(lambda _: changed.set())
        begun, within = self._clock.now(), self._gatherer.fleet().limits.answer_within
        left = max(within - max(begun - event.at, timedelta()), timedelta())
        waits = (left, max(left, min(within, LOOK_AT_LEAST)))
        timely, late = (self._tasks.spawn(self._clock.sleep(wait), name="answer within") for wait in waits)
        for timer in (timely, late):
            timer.add_done_callback(lambda _: changed.set())
        shown: tuple[Ref, Message] | None = None
        is_ok = False
        try:
            while True:
                await changed.wait()
                changed.clear()
                is_last = following.done()
                is_time = late.done() or (timely.done() and _tells_something(latest))
                if latest and (latest[0].sight.is_settled or is_time or is_last):
                    decision = asking.decide(latest[0])
                    if not isinstance(decision, Reply):
                        return await self._carry_out(event, asking, decision, latest[0], asker)
                    if asker is not None:
                        asker.world = latest[0]
                    is_ok = decision.is_ok
                    shown = await self._show(event.place, decision.message, shown)
                if is_last:
                    await following
                    return is_ok
        finally:
            for task in (following, timely, late):
                task.cancel()

    async def _show(self, place: Place, message: Message, shown: tuple[Ref, Message] | None) -> tuple[Ref, Message]:
        if shown is None:
            return await self._chat.post(place, message), message
        if shown[1] != message:
            await self._chat.edit(shown[0], message)
        return shown[0], message

    async def _carry_out(
        self, event: Heard, asking: Asking, decision: Decision, world: World, asker: Asker | None
    ) -> bool:
        if (why := self._may_not(event, asking, decision, world)) is not None:
            return await self._refuse(event, asking.words, why)
        if isinstance(decision, Reply):
            if not (decision.is_look or asking.words.is_question):
                self._scribe.replied(decision, asking.words, event.user, event.place)
            await self._post(event.place, decision.message)
            return decision.is_ok
        if not isinstance(decision, Plan):
            await self._change(event, decision)
            if isinstance(decision, AckAlert | SilenceAlerts | UnsilenceAlerts):
                self._scribe.changed(asking.words, event.user, event.place)
            return True
        if decision.is_preview:
            await self._post(event.place, text.preview(decision))
            return True
        copies = (event.place,) if asker is not None and asker.question_in != event.place else ()
        place = asker.question_in if asker is not None else event.place
        if decision.needs_confirmation:
            await self._desk.ask(decision, asking, place, copies=copies)
            return True
        self._scribe.started(decision, event.text, event.user, event.place)
        try:
            await self._executor.begin(decision, by=self._name(event.user), where=place, copies=copies)
        except UserError as error:
            self._scribe.refused(str(error), asking.words, event.user, event.place)
            raise
        return True

    async def _change(self, event: Heard, change: Change) -> None:
        match change:
            case Adopt(processes):
                await self._adopt(event, processes)
            case CancelOpen(target):
                await self._cancel(event, target)
            case PutHold() | EndHold():
                await self._post(event.place, self._hold(event, change))
            case ReloadFleet():
                await self._read_again(event)
            case SetPace(every):
                self._executor.set_pace(event.place.channel, every)
                told = f"Notes each {span(every)}." if every is not None else "Quiet: only a crash and the end."
                await self._post(event.place, says(told))
            case AckAlert() | SilenceAlerts() | UnsilenceAlerts():
                await self._alarm(event, change)
            case DrawChart(servers, length):
                if self.charts is None:
                    raise UserError("nothing is watched here")
                await self.charts.show(servers, length, event.place)
            case Promise() | Forget():
                await self._wish(event, change)

    async def _adopt(self, event: Heard, processes: Sequence[tuple[str, Process]]) -> None:
        for server, process in processes:
            await self._executor.adopt(server, process)
        names = [server for server, _process in processes]
        told = f"{listing(names)}: nothing was touched."
        self._scribe.adopted(names, event.text, event.user, event.place)
        await self._post(event.place, says(bold("Adopted "), told))

    def _hold(self, event: Heard, change: PutHold | EndHold) -> Message:
        if self.holding is None:
            raise UserError("nothing can be held here")
        if isinstance(change, PutHold):
            return self.holding.put(change, event.text, event.user, event.place)
        return self.holding.end(change, event.text, event.user, event.place)

    async def _alarm(self, event: Heard, change: AckAlert | SilenceAlerts | UnsilenceAlerts) -> None:
        if self.alarms is None:
            raise UserError("nothing is watched here")
        by = self._name(event.user)
        match change:
            case AckAlert(wanted):
                seen = await self.alarms.ack(wanted, by)
                told = f"Seen by {by}: {seen.id}."
            case SilenceAlerts(servers, length, _, ids):
                await self._silence(self.alarms, change, by)
                told = f"Silent about {', '.join((*servers, *ids))} for {span(length)}."
            case UnsilenceAlerts(servers, ids):
                await self.alarms.unsilence(frozenset(servers), frozenset(ids))
                named = ", ".join((*servers, *ids))
                told = "No longer silent" + (f" about {named}." if named else ".")
        await self._post(event.place, says(told))

    async def _silence(self, alarms: Alarms, change: SilenceAlerts, by: str) -> None:
        """Servers and single alerts are silences of their own: each ends by itself."""
        if change.servers:
            await alarms.silence(frozenset(change.servers), change.length, by, change.because)
        for one in change.alerts:
            await alarms.silence(frozenset(), change.length, by, change.because, frozenset({one}))

    async def _wish(self, event: Heard, change: Promise | Forget) -> None:
        if self.promises is None:
            raise UserError("nothing is watched here")
        if isinstance(change, Promise):
            everyone = [server.name for server in self._gatherer.fleet().servers]
            told = wish_text.promised(self.promises.promise(change.goal, event.user, event.place), everyone)
        else:
            told = wish_text.forgotten(self.promises.forget(event.user))
        await self._post(event.place, told)

    async def _read_again(self, event: Heard) -> None:
        try:
            told = await self._reload()
        except ConfigError as error:
            self._scribe.reloaded(str(error), event.user, event.place, is_read=False)
            raise
        self._scribe.reloaded(told, event.user, event.place, is_read=True)
        await self._post(event.place, says(told))

    async def _cancel(self, event: Heard, target: str | None) -> None:
        by, channel = self._name(event.user), event.place.channel
        live = [
            op for op in self._executor.live() if op.id == target or (target is None and op.where.channel == channel)
        ]
        questions = self._desk.stoppable_in(channel) if target is None else ()
        operations = self._theirs(event, live)
        if (live or questions) and not operations and not self._theirs(event, questions):
            await self._refuse_end(event, [*live, *questions])
            return
        ended = [one for op in operations for one in self._executor.cancel(op.id, channel, by)]
        is_all = target is None
        asked = await self._desk.cancel(channel, by, lambda one: bool(self._theirs(event, [one]))) if is_all else ()
        self._note_cancel(event, asked, ended)
        for one in ended:
            follows = " What was launched is still followed and proved; another cancel leaves it alone."
            rest = follows if one.touched else ""
            await self._post(event.place, says(bold(f"Cancelling: {one.plan.title}."), rest))
        if asked:
            await self._post(event.place, await self._stopped_before(asked[0].plan))
        again = operations if not asked and not ended else []
        left = [one for op in again for one in self._executor.leave(op.id, channel)]
        for one in left:
            told = " What was launched runs on, and nobody follows it."
            await self._post(event.place, says(bold(f"Left as it is: {one.plan.title}."), told))
        if not asked and not ended and not left:
            await self._post(event.place, text.nothing_cancelled(self._executor.live(), target, channel))

    def _note_cancel(self, event: Heard, questions: Sequence[Question], operations: Sequence[Operation]) -> None:
        self._scribe.cancelled([*questions, *operations], event.text, event.user, event.place)

    # What people in a hurry say

    async def _is_safe_word(self, event: Heard, words: Words | Hint | None) -> bool:
        """End what is open on "no", "stop", "wait"; inside a sentence, once something was touched, ask."""
        channel, by = event.place.channel, self._name(event.user)
        if not is_safe_word(event.text) or self._role(event) < Role.OPERATOR:
            return False
        if isinstance(words, Words) and words.command == "stop" and words.targets:
            return False
        is_cancel = isinstance(words, Words) and words.command == "cancel"
        if is_cancel and isinstance(words, Words) and words.rest.strip("?!. ") not in _ANYTHING:
            return False  # one operation is meant: the command itself knows which
        live = [op for op in self._executor.live() if op.where.channel == channel]
        questions = self._desk.stoppable_in(channel)
        looking = [one for one in self._looking if one.place.channel == channel and self._may_call_off(event, one)]
        if not live and not looking and not questions:
            return False
        if is_cancel or is_only_safe_word(event.text):
            await self._call_off(event, looking, by)
            if live or self._desk.stoppable_in(channel):
                await self._cancel(event, None)
        else:
            await self._end_untouched(event, looking, live, questions)
        return True

    async def _end_untouched(
        self, event: Heard, looking: Sequence[Asking], live: Sequence[Operation], questions: Sequence[Question]
    ) -> None:
        """A sentence that begins so ends what is theirs and has touched nothing; of the rest it asks."""
        channel, by = event.place.channel, self._name(event.user)
        await self._call_off(event, looking, by)
        theirs = self._theirs(event, live)
        if not looking and not theirs and not self._theirs(event, questions):
            await self._refuse_end(event, [*live, *questions])
            return
        untouched = [op for op in theirs if not op.touched]
        for op in untouched:
            self._executor.cancel(op.id, channel, by)
        ended = await self._desk.cancel(channel, by, lambda one: bool(self._theirs(event, [one])))
        self._note_cancel(event, ended, untouched)
        if ended:
            await self._post(event.place, await self._stopped_before(ended[0].plan))
        if touched_already := [op for op in theirs if op.touched]:
            await self._post(event.place, text.still_open(touched_already[0]))

    def _theirs(self, event: Heard, open_: Sequence[Ended]) -> list[Ended]:
        """What of it this person may end here."""
        return theirs_to_end(self._gatherer.fleet(), event.user, event.place.channel, open_)

    async def _refuse_end(self, event: Heard, open_: Sequence[Operation | Question]) -> None:
        why = refusal_to_end(self._gatherer.fleet(), event.user, event.place.channel, open_)
        if why is not None:
            await self._whisper(event, says(why))

    def _may_call_off(self, event: Heard, asking: Asking) -> bool:
        """Whether what is not decided yet is theirs, or all that it may come to act on is."""
        fleet = self._gatherer.fleet()
        meant = asking.words.targets or everything(fleet)
        return asking.user == event.user or role_of(fleet, event.user, event.place.channel, meant) >= Role.OPERATOR

    async def _call_off(self, event: Heard, looking: Sequence[Asking], by: str) -> None:
        """What is not decided yet never is."""
        self._looking = [one for one in self._looking if one not in looking]
        for one in looking:
            self._scribe.refused(f"called off by {by}", one.words, event.user, event.place)
            await self._post(event.place, text.called_off(one.words.text, by))

    async def _stopped_before(self, plan: Plan) -> Message:
        sight = await self._look(plan)
        return text.stopped_before(plan, sight, self._clock.now())

    async def _look(self, plan: Plan) -> Sight:
        fleet = self._gatherer.fleet()
        return await self._executor.look([server for server in fleet.servers if server.name in plan.servers])

    async def _is_word_for_the_open(self, event: Heard, asker: Asker | None) -> bool:
        """The typed "yes 7F3A" presses; "it's up" has what is open looked at and decided anew."""
        if (match := _YES.fullmatch(event.text.strip())) is not None:
            asked = self._desk.by_code(match[1])
            if asker is not None:  # whoever asks from a shell never answers: a person in the chat does
                await self._post(event.place, says("A person must press in the channel. Nothing was done."))
                return True
            if asked is not None:
                await self._desk.press(asked.nonce, text.CONFIRM, event.user, event.place)
                return True
            if self._desk.open_in(event.place.channel) or any(one.isdigit() for one in match[1]):
                await self._whisper(event, says("No open question has the code ", code(match[1]), "."))
                return True
        if says_it_is_up(event.text):
            for asked in self._theirs(event, self._desk.open_in(event.place.channel)):
                await self._desk.decide_anew(asked, event.place)
                return True
        return False

    # What people press

    async def _press(self, event: Pressed) -> None:
        kind, _, rest = event.does.partition(":")
        if kind == "say":
            id_ = f"{event.message.id}/{event.at.timestamp()}"
            await self._hear(Heard(event.place, id_, event.user, rest, event.at, mentions_bot=True))
            return
        await self._desk.press(kind, rest, event.user, event.place)

    # Small things

    def _role(self, event: Heard) -> Role:
        """The strongest that they have there at all."""
        return role_of(self._gatherer.fleet(), event.user, event.place.channel, ())

    def _name(self, user: str) -> str:
        person = self._gatherer.fleet().person(user)
        return person.name if person is not None else user

    async def _post(self, place: Place, message: Message) -> None:
        await self._chat.post(place, message)

    async def _whisper(self, event: Heard, message: Message) -> None:
        await self._chat.whisper(event.place, event.user, message)


def _tells_something(latest: Sequence[World]) -> bool:
    """Whether any server was seen already."""
    return any(not facts.is_pending for world in latest for facts in world.sight.servers.values())


def _ref(event: Heard) -> Ref:
    return Ref(event.place.channel, event.id, event.place.thread)
