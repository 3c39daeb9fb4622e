"""Says everything once and in order, also when Slack is away for a while.

Each channel has one lane in which posts wait their turn; all edits share one writer, since Slack counts them for
the whole workspace, and an edit that was overtaken by a newer one of the same message is never sent. Whoever posts
waits ``patience``; after that the work goes on, with a provisional Ref ("later-…") that stays good for edits and
threads, and the message is said when Slack is back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from bot.chats.slack.bucket import Bucket
from bot.chats.slack.letters import Correction, Letter, body, carries, is_malformed, refusal, trace
from bot.chats.slack.pace import Pace
from bot.chats.slack.render import pictures
from bot.chats.slack.web import NotNow, Refused, Web
from bot.domain.errors import ChatError
from bot.domain.message import Message, Picture, says
from bot.domain.phrases import count
from bot.ports import Clock, Place, Ref

_log = structlog.get_logger(__name__)
_LATER = "later-"
_REMEMBERED = 2_000
_OVERLAP = timedelta(minutes=2)  # clocks differ
_NOTHING = says("")
_STOPPING = "the bot is stopping"
_LAST_RUN = timedelta(days=1)


@dataclass(slots=True, eq=False)
class _Lane:
    """One channel's posts, oldest first."""

    letters: deque[Letter] = field(default_factory=deque)
    given_up: int = 0
    worker: asyncio.Task[None] | None = None


class Outbox:
    """The one writer. ``on_said`` hears of each post that stands, ``on_picture`` of pictures for its thread."""

    def __init__(
        self,
        web: Web,
        clock: Clock,
        pace: Pace,
        *,
        on_said: Callable[[Ref], None],
        on_picture: Callable[[Ref, Picture], None],
    ) -> None:
        self._web = web
        self._clock = clock
        self._pace = pace
        self._on_said = on_said
        self._on_picture = on_picture
        self._lanes: dict[str, _Lane] = {}
        self._letters: OrderedDict[str, Letter] = OrderedDict()
        self._edits: OrderedDict[tuple[str, str], Correction] = OrderedDict()
        self._edited_at: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._bucket = Bucket(pace.edits_a_minute, pace.edits_at_once)
        self._wake = asyncio.Event()
        self._editor: asyncio.Task[None] | None = None
        self._is_closed = False
        self._aliases: OrderedDict[tuple[str, str], str] = OrderedDict()

    # -------------------------------------------------------------------------------------------- for the adapter

    async def post(self, place: Place, message: Message, *, to: str | None = None) -> Ref:
        """Say it; the Ref is provisional when Slack did not take it within ``patience``. ChatError when refused."""
        letter = self.leave(place, message, to=to)
        await asyncio.wait({letter.done}, timeout=self._pace.patience.total_seconds())
        if not letter.done.done():
            letter.is_left = True
            _log.warning("slack is slow or away, a message waits", channel=place.channel, waiting=self.waiting)
            return Ref(place.channel, _LATER + letter.key, place.thread)
        return letter.done.result()

    def leave(self, place: Place, message: Message, *, to: str | None = None) -> Letter:
        """Have it said, without waiting for it."""
        self._check_open()
        letter = Letter(place, message, secrets.token_hex(8), asyncio.get_running_loop().create_future(), to)
        letter.done.add_done_callback(_told)
        self._remember(letter)
        self._queue(letter)
        return letter

    async def edit(self, ref: Ref, message: Message) -> None:
        """Make the message read so; of edits that wait only the newest is sent. ChatError when refused."""
        self._check_open()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_told)
        name = (ref.channel, ref.id)
        if name not in self._edits:
            name = (ref.channel, self.real_id(ref) or ref.id)
        correction = self._edits.setdefault(name, Correction(ref, message))
        correction.message = message
        correction.waiters.append(waiter)
        if self._editor is None or self._editor.done():
            self._editor = asyncio.create_task(self._edit_all())
            self._editor.add_done_callback(_report)
        self._wake.set()
        await asyncio.wait({waiter}, timeout=self._pace.patience.total_seconds())
        if waiter.done():
            waiter.result()

    def real_id(self, ref: Ref) -> str | None:
        """Slack's own id of the message; None while it was not said yet, or if it never was."""
        if not ref.id.startswith(_LATER):
            return ref.id
        letter = self._letters.get(ref.id.removeprefix(_LATER))
        if letter is None or not letter.done.done() or letter.done.cancelled() or letter.done.exception():
            return None
        return letter.done.result().id

    def known_as(self, channel: str, stamp: str) -> str:
        """The id under which the caller knows a message: its provisional one, if it was given one."""
        return self._aliases.get((channel, stamp), stamp)

    @property
    def waiting(self) -> int:
        """How many posts and edits are not yet with Slack."""
        return sum(len(lane.letters) for lane in self._lanes.values()) + len(self._edits)

    async def close(self) -> None:
        """Stop; what still waits is given up."""
        self._is_closed = True
        tasks = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        tasks += [self._editor] if self._editor is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stopping = ChatError(_STOPPING)
        for letter in self._letters.values():
            _settle(letter.done, stopping)
        for correction in self._edits.values():
            for waiter in correction.waiters:
                _settle(waiter, stopping)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ChatError(_STOPPING)

    # -------------------------------------------------------------------------------------------- posts

    def _remember(self, letter: Letter) -> None:
        self._letters[letter.key] = letter
        while len(self._letters) > _REMEMBERED:
            oldest = next(iter(self._letters.values()))
            if not oldest.done.done():
                break
            self._letters.popitem(last=False)

    def _queue(self, letter: Letter) -> None:
        lane = self._lanes.setdefault(letter.place.channel, _Lane())
        if len(lane.letters) >= self._pace.outbox:
            given_up = lane.letters[1]  # the first may be on its way
            del lane.letters[1]
            lane.given_up += 1
            _settle(given_up.done, ChatError("too much waited for Slack; this message was given up"))
        lane.letters.append(letter)
        if lane.worker is None:
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        lane.worker = asyncio.create_task(self._work(lane))
        lane.worker.add_done_callback(lambda task: self._ended(lane, task))

    def _ended(self, lane: _Lane, task: asyncio.Task[None]) -> None:
        _report(task)
        lane.worker = None
        if lane.letters and not self._is_closed:
            self._start(lane)

    async def _work(self, lane: _Lane) -> None:
        while lane.letters:
            letter = lane.letters[0]
            try:
                ref = await self._deliver(letter)
            except ChatError as error:
                _log.error("slack refused a message", channel=letter.place.channel, why=str(error))
                _settle(letter.done, error)
            else:
                self._delivered(letter, ref)
            finally:
                lane.letters.popleft()
                letter.message = _NOTHING  # its Ref is remembered; its pictures need not be
                _settle(letter.done, ChatError(_STOPPING if self._is_closed else "it could not be said"))
            self._wake.set()
            if lane.given_up:
                lane.letters.appendleft(_gap(letter.place.channel, lane.given_up))
                lane.given_up = 0

    def _delivered(self, letter: Letter, ref: Ref) -> None:
        if not letter.done.done():
            letter.done.set_result(ref)
        if letter.to is not None:
            return
        if letter.is_left:
            self._aliases[ref.channel, ref.id] = _LATER + letter.key
            if len(self._aliases) > _REMEMBERED:
                self._aliases.popitem(last=False)
        self._on_said(ref)
        for picture in pictures(letter.message):
            self._on_picture(ref, picture)

    async def _deliver(self, letter: Letter) -> Ref:
        """Say it until Slack has it, or refuses it for good (ChatError)."""
        wait = self._pace.retry
        is_bare = False
        while True:
            letter.tried_at = letter.tried_at or self._clock.now()
            try:
                thread = await self._thread(letter.place)
                found = await self._find(letter, thread) if letter.is_doubtful else None
                return found or await self._say(letter, thread, is_bare=is_bare)
            except NotNow as later:
                letter.is_doubtful = letter.is_doubtful or later.may_have_happened
                _log.info("slack did not take a message", why=str(later), channel=letter.place.channel)
                await self._clock.sleep(later.after or wait)
                wait = min(wait * 2, self._pace.retry_most)
            except Refused as no:
                if is_bare or not is_malformed(no.error):
                    raise refusal(no.error, str(no)) from no
                _log.warning("slack refused blocks, saying it as plain text", error=no.error)
                is_bare = True

    async def _say(self, letter: Letter, thread: str | None, *, is_bare: bool) -> Ref:
        place = letter.place
        fields = body(letter.message, is_bare=is_bare)
        if letter.to is not None:
            answer = await self._web.whisper(channel=place.channel, user=letter.to, thread_ts=thread, **fields)
            return Ref(place.channel, str(answer.get("message_ts", "")), thread)
        if is_bare:
            fields["mrkdwn"] = False
        answer = await self._web.post(channel=place.channel, thread_ts=thread, metadata=trace(letter.key), **fields)
        return Ref(str(answer.get("channel") or place.channel), str(answer.get("ts", "")), thread)

    async def _find(self, letter: Letter, thread: str | None) -> Ref | None:
        """The post, if Slack has it already. When that can't be looked up, saying it twice beats silence."""
        if letter.to is not None:
            return None
        since = (letter.tried_at or self._clock.now()) - _OVERLAP
        try:
            recent = await self._web.recent(letter.place.channel, thread, f"{since.timestamp():.6f}")
        except Refused as no:
            _log.warning("can't look whether a message was said; it may come twice", why=str(no))
            return None
        for one in recent:
            if carries(one, letter.key):
                return Ref(letter.place.channel, str(one.get("ts", "")), thread)
        return None

    async def _thread(self, place: Place) -> str | None:
        """Slack's id of the thread; a thread whose first message never came to be is the channel itself."""
        if place.thread is None:
            return None
        return await self._settled(Ref(place.channel, place.thread))

    async def _settled(self, ref: Ref) -> str | None:
        """Slack's id of a message; a provisional one of an earlier run is looked for by its key."""
        key = ref.id.removeprefix(_LATER)
        if key == ref.id or key in self._letters:
            return self.real_id(ref)
        letter = Letter(Place(ref.channel, ref.thread), says(""), key, asyncio.get_running_loop().create_future())
        letter.tried_at = self._clock.now() - _LAST_RUN
        letter.done.add_done_callback(_told)
        found = await self._find(letter, ref.thread)
        if found is None:
            letter.done.set_exception(ChatError("that message was never said"))
        else:
            letter.done.set_result(found)
        self._remember(letter)
        return found.id if found is not None else None

    # -------------------------------------------------------------------------------------------- edits

    async def _edit_all(self) -> None:
        wait = self._pace.retry
        while True:
            name = self._next_edit()
            if name is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            pause = self._bucket.take(self._clock.now())
            if pause:
                await self._clock.sleep(pause)
                continue
            correction = self._edits.pop(name)
            try:
                await self._correct(correction)
            except NotNow as later:
                self._put_back(name, correction)
                _log.info("slack did not take an edit", why=str(later), channel=name[0])
                await self._clock.sleep(later.after or wait)
                wait = min(wait * 2, self._pace.retry_most)
                continue
            except Refused as no:
                _log.warning("slack refused an edit", error=no.error, channel=name[0])
                self._tell(correction, refusal(no.error, str(no)))
            else:
                self._tell(correction, None)
            wait = self._pace.retry
            self._note_edit(name)

    def _next_edit(self) -> tuple[str, str] | None:
        """The edit whose message was left alone the longest: a question's answer never waits behind progress."""
        ready = [name for name in self._edits if self._is_ready(name)]
        never = datetime.min.replace(tzinfo=self._clock.now().tzinfo)
        return min(ready, key=lambda name: self._edited_at.get(name, never), default=None)

    def _is_ready(self, name: tuple[str, str]) -> bool:
        letter = self._letters.get(name[1].removeprefix(_LATER))
        return not name[1].startswith(_LATER) or letter is None or letter.done.done()

    async def _correct(self, correction: Correction) -> None:
        channel = correction.ref.channel
        stamp = await self._settled(correction.ref)
        if stamp is None:
            raise Refused("message_not_found")
        try:
            await self._web.update(channel=channel, ts=stamp, **body(correction.message, is_bare=False))
        except Refused as no:
            if not is_malformed(no.error):
                raise
            await self._web.update(channel=channel, ts=stamp, **body(correction.message, is_bare=True))

    def _put_back(self, name: tuple[str, str], correction: Correction) -> None:
        newer = self._edits.get(name)
        if newer is not None:
            newer.waiters.extend(correction.waiters)
        else:
            self._edits[name] = correction
            self._edits.move_to_end(name, last=False)

    def _note_edit(self, name: tuple[str, str]) -> None:
        self._edited_at[name] = self._clock.now()
        self._edited_at.move_to_end(name)
        if len(self._edited_at) > _REMEMBERED:
            self._edited_at.popitem(last=False)

    def _tell(self, correction: Correction, error: ChatError | None) -> None:
        for waiter in correction.waiters:
            if error is not None:
                _settle(waiter, error)
            elif not waiter.done():
                waiter.set_result(None)


def _gap(channel: str, given_up: int) -> Letter:
    note = says(f"{count(given_up, 'message')} could not be kept while Slack was away")
    letter = Letter(Place(channel), note, secrets.token_hex(8), asyncio.get_running_loop().create_future())
    letter.done.add_done_callback(_told)
    return letter


def _report(task: asyncio.Task[None]) -> None:
    """Say it when a writer ended by a mistake of ours; another one takes its place."""
    if not task.cancelled() and task.exception() is not None:
        _log.critical("a writer to slack failed", exc_info=task.exception())


def _settle(future: asyncio.Future[Ref] | asyncio.Future[None], error: ChatError) -> None:
    if not future.done():
        future.set_exception(error)


def _told(future: asyncio.Future[Ref] | asyncio.Future[None]) -> None:
    """Look at the outcome, since nobody may be waiting for it any more."""
    if not future.cancelled():
        future.exception()
