"""The terminal as a chat: one person types lines, and the bot's messages are printed as plain text.

Buttons are numbered; `press 1` or a button's label presses it. The same message values as everywhere are shown.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import BinaryIO, TextIO

from bot.chats.carried import carried
from bot.domain.message import Button, Buttons, Message, plain
from bot.ports import Clock, Heard, Listener, Place, Pressed, Ref

_MOST_LINE = 10_000
_MOST_MESSAGES = 500
_MOST_BYTES = 65_536
_CHANNEL = "console"


class Console:
    """A Chat on a terminal. ``run`` reads until the input ends."""

    def __init__(
        self,
        clock: Clock,
        user: str,
        *,
        channel: str = _CHANNEL,
        source: BinaryIO | None = None,
        out: TextIO | None = None,
    ) -> None:
        self._clock = clock
        self._user = user
        self._channel = channel
        self._source = source if source is not None else sys.stdin.buffer
        self._out = out if out is not None else sys.stdout
        self._number = 0
        self._shown: OrderedDict[str, Message] = OrderedDict()
        self._buttons: OrderedDict[int, tuple[Ref, Button]] = OrderedDict()
        self._next_button = 1

    async def run(self, listener: Listener) -> None:
        """Hand on each line, or the press that it stands for, until the end of the input."""
        async for text in _lines(self._source):
            self._take(text, listener)

    # ------------------------------------------------------------------------------------------------ what people do

    def _take(self, text: str, listener: Listener) -> None:
        words = "".join(one for one in text if one.isprintable() or one == "\t").strip()[:_MOST_LINE]
        if not words:
            return
        pressed = self._pressed(words)
        place, now = Place(self._channel), self._clock.now()
        if isinstance(pressed, str):
            self._print(pressed)
        elif pressed is not None:
            ref, button = pressed
            does = carried(button.does)
            where = Place(ref.channel, ref.thread)
            listener.pressed(Pressed(where, ref, self._user, does, now, button.label))
        else:
            listener.heard(Heard(place, self._new_id(), self._user, words, now, mentions_bot=True))

    def _pressed(self, words: str) -> tuple[Ref, Button] | str | None:
        """The button that is meant, or why none is, or None when the words are no press."""
        verb, _, which = words.partition(" ")
        if verb.lower() == "press":
            which = which.strip().strip("[]")
            found = self._buttons.get(int(which)) if which.isdecimal() and len(which) < 9 else self._labelled(which)
            return found or f"no button {which or 'is named'}; there is: {self._offer()}"
        return self._labelled(words.strip("[]"))

    def _labelled(self, label: str) -> tuple[Ref, Button] | None:
        """The newest button with that label."""
        for ref, button in reversed(self._buttons.values()):
            if button.label.casefold() == label.casefold():
                return ref, button
        return None

    def _offer(self) -> str:
        return ", ".join(f"{number} {button.label}" for number, (_, button) in self._buttons.items()) or "none"

    # ------------------------------------------------------------------------------------------------ what the bot says

    async def post(self, place: Place, message: Message) -> Ref:
        ref = Ref(place.channel, self._new_id(), place.thread)
        self._show(ref, message, "")
        return ref

    async def edit(self, ref: Ref, message: Message) -> None:
        """Print the lines that are new: a terminal can't take back what it printed."""
        self._show(ref, message, "~ ")

    async def whisper(self, place: Place, user: str, message: Message) -> None:
        ref = Ref(place.channel, self._new_id(), place.thread)
        self._show(ref, message, "" if user == self._user else f"(to {user}) ")

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        """A line that says it was heard, where an answer takes its time; a terminal has nothing to take off again."""
        if on and sign == "eyes":
            self._print("… heard, looking", indent="  " if ref.thread else "")

    def _show(self, ref: Ref, message: Message, mark: str) -> None:
        numbered = self._numbered(ref, message)
        before = self._shown.pop(ref.id, None)
        known = set(plain(before).splitlines()) if before is not None else set()
        self._shown[ref.id] = numbered
        if len(self._shown) > _MOST_MESSAGES:
            self._forget_buttons(self._shown.popitem(last=False)[0])
        fresh = [one for one in plain(numbered).splitlines() if one not in known]
        if fresh:
            self._print(mark + "\n".join(fresh), indent="  " if ref.thread else "")

    def _numbered(self, ref: Ref, message: Message) -> Message:
        """The message with its buttons numbered, and those numbers remembered; a button that stays keeps its own."""
        before = self._forget_buttons(ref.id)
        blocks = [
            Buttons(tuple(self._remembered(ref, one, before) for one in block.buttons))
            if isinstance(block, Buttons)
            else block
            for block in message.blocks
        ]
        return Message(message.headline, tuple(blocks))

    def _forget_buttons(self, message: str) -> dict[Button, int]:
        found = {button: number for number, (ref, button) in self._buttons.items() if ref.id == message}
        for number in found.values():
            del self._buttons[number]
        return found

    def _remembered(self, ref: Ref, button: Button, before: dict[Button, int]) -> Button:
        number = before.get(button, self._next_button)
        self._next_button = max(self._next_button, number + 1)
        self._buttons[number] = (ref, button)
        return Button(f"{number} {button.label}", button.does, button.look)

    def _print(self, text: str, indent: str = "") -> None:
        shown = "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
        self._out.write("".join(f"{indent}{one}\n" for one in shown.split("\n")))
        self._out.flush()

    def _new_id(self) -> str:
        self._number += 1
        return str(self._number)


async def _lines(source: BinaryIO) -> AsyncIterator[str]:
    """Lines as they come; a line without an end is cut at 64 KiB."""
    rest = b""
    async for chunk in _chunks(source.fileno()):
        *whole, rest = (rest + chunk).split(b"\n")
        for one in whole:
            yield one.decode(errors="replace")
        if len(rest) > _MOST_BYTES:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")


async def _chunks(number: int) -> AsyncIterator[bytes]:
    """What can be read without waiting in a thread, which would hold up the program's end.

    The descriptor stays blocking, since a terminal's output shares it; so it is read once for each time that the
    loop finds something there, and right then.
    """
    loop = asyncio.get_running_loop()
    while True:
        chunk: asyncio.Future[bytes] = loop.create_future()
        try:
            loop.add_reader(number, _read, number, chunk)
        except PermissionError:  # an ordinary file, which is always ready
            _read(number, chunk)
        try:
            found = await chunk
        finally:
            loop.remove_reader(number)
        if not found:
            return
        yield found


def _read(number: int, chunk: asyncio.Future[bytes]) -> None:
    if chunk.done():
        return
    try:
        chunk.set_result(os.read(number, _MOST_BYTES))
    except BlockingIOError:
        return
    except OSError:  # the terminal is gone
        chunk.set_result(b"")
