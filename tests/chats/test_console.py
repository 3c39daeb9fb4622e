"""The terminal as a chat, over a real pipe."""

import asyncio
import io
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.chats.console import Console
from bot.domain.message import Answers, Button, Buttons, Lines, LogPiece, Message, Says, line, says
from bot.ports import Heard, Place, Pressed

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HERE = Place("console")
QUESTION = Message(
    line("Restart 8 servers?"),
    (
        Lines((line("8 healthy"),)),
        Buttons((Button("Restart", Answers("ab12", "confirm")), Button("Cancel", Answers("ab12", "cancel")))),
    ),
)


class StillClock:
    def now(self):
        return NOW

    async def sleep(self, span):
        raise AssertionError("the console does not wait")


@dataclass
class Recorder:
    events: list = field(default_factory=list)

    def heard(self, event):
        self.events.append(event)

    def pressed(self, event):
        self.events.append(event)


@dataclass
class Terminal:
    console: Console
    out: io.StringIO
    listener: Recorder
    keys: int
    reading: asyncio.Task

    def type(self, text):
        os.write(self.keys, text.encode())

    async def until(self, true):
        deadline = time.monotonic() + 3
        while not true():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.002)


@asynccontextmanager
async def terminal():
    reads, writes = os.pipe()
    out = io.StringIO()
    listener = Recorder()
    with os.fdopen(reads, "rb") as source:
        console = Console(StillClock(), "ana", source=source, out=out)
        reading = asyncio.create_task(console.run(listener))
        try:
            yield Terminal(console, out, listener, writes, reading)
        finally:
            os.close(writes)
            await asyncio.wait_for(reading, 1)  # the end of the input ends it


def heard(number, text):
    return Heard(HERE, str(number), "ana", text, NOW, mentions_bot=True)


def test_lines_are_heard_however_they_come():
    async def scenario():
        async with terminal() as it:
            it.type("up?\n\n  stat")
            await it.until(lambda: it.listener.events)
            it.type("us gpu3\x07\r\nlogs")
            await it.until(lambda: len(it.listener.events) == 2)
        assert it.listener.events == [heard(1, "up?"), heard(2, "status gpu3"), heard(3, "logs")]

    asyncio.run(scenario())


def test_a_long_line_is_cut():
    async def scenario():
        async with terminal() as it:
            it.type("x" * 20_000 + "\n")
            await it.until(lambda: it.listener.events)
            assert len(it.listener.events[0].text) == 10_000

    asyncio.run(scenario())


def test_messages_are_plain_text_with_numbered_buttons():
    async def scenario():
        async with terminal() as it:
            root = await it.console.post(HERE, QUESTION)
            await it.console.post(Place("console", root.id), Message(line("tail"), (LogPiece("a\x1b[31mb"),)))
            await it.console.whisper(HERE, "vic", says("you may look"))
            await it.console.whisper(HERE, "ana", says("for you"))
            await it.console.react(root, "eyes")
            await it.console.react(root, "eyes", on=False)
            await it.console.react(root, "white_check_mark")
        assert it.out.getvalue() == (
            "Restart 8 servers?\n8 healthy\n[1 Restart] [2 Cancel]\n  tail\n    a�[31mb\n(to vic) you may look\nfor you\n… heard, looking\n"
        )

    asyncio.run(scenario())


def test_a_button_is_pressed_by_its_number_or_its_label():
    async def scenario():
        async with terminal() as it:
            ref = await it.console.post(HERE, QUESTION)
            it.type("press 1\nPress [2]\ncancel\npress restart\n")
            await it.until(lambda: len(it.listener.events) == 4)
        cancel = Pressed(HERE, ref, "ana", "ab12:cancel", NOW, "Cancel")
        restart = Pressed(HERE, ref, "ana", "ab12:confirm", NOW, "Restart")
        assert it.listener.events == [restart, cancel, cancel, restart]

    asyncio.run(scenario())


def test_of_two_buttons_with_one_label_the_newer_is_meant():
    async def scenario():
        async with terminal() as it:
            await it.console.post(HERE, Message(line("a"), (Buttons((Button("Why", Says("why gpu1")),)),)))
            await it.console.post(HERE, Message(line("b"), (Buttons((Button("Why", Says("why gpu2")),)),)))
            it.type("why\n")
            await it.until(lambda: it.listener.events)
        assert it.listener.events[0].does == "say:why gpu2"

    asyncio.run(scenario())


def test_a_button_that_is_not_there_is_told():
    async def scenario():
        async with terminal() as it:
            it.type("press 3\npress\n")
            await it.until(lambda: it.out.getvalue().count("\n") == 2)
            await it.console.post(HERE, QUESTION)
            it.type("press 99999999999\n")
            await it.until(lambda: "1 Restart, 2 Cancel" in it.out.getvalue())
        assert it.listener.events == []
        assert it.out.getvalue().splitlines()[:2] == [
            "no button 3; there is: none",
            "no button is named; there is: none",
        ]

    asyncio.run(scenario())


def test_an_edit_prints_what_is_new_and_its_buttons_keep_their_numbers():
    async def scenario():
        async with terminal() as it:
            ref = await it.console.post(HERE, QUESTION)
            await it.console.edit(ref, QUESTION)
            await it.console.edit(ref, Message(line("Restart 8 servers? 1 request"), QUESTION.blocks))
            await it.console.edit(ref, QUESTION.without_buttons(line("by @ana")))
            it.type("press 1\n")
            await it.until(lambda: "no button 1" in it.out.getvalue())
        assert it.out.getvalue() == (
            "Restart 8 servers?\n8 healthy\n[1 Restart] [2 Cancel]\n"
            "~ Restart 8 servers? 1 request\n"
            "~ Restart 8 servers?\nby @ana\n"
            "no button 1; there is: none\n"
        )

    asyncio.run(scenario())


def test_the_oldest_messages_and_their_buttons_are_forgotten():
    async def scenario():
        async with terminal() as it:
            for number in range(600):
                await it.console.post(HERE, Message(line("a"), (Buttons((Button(f"b{number}", Says("x")),)),)))
            assert len(it.console._shown) == len(it.console._buttons) == 500

    asyncio.run(scenario())


def test_an_ordinary_file_can_be_the_input(tmp_path):
    script = tmp_path / "commands"
    script.write_text("up?\nstatus")
    listener = Recorder()

    async def scenario():
        with script.open("rb") as source:
            await Console(StillClock(), "ana", source=source, out=io.StringIO()).run(listener)

    asyncio.run(scenario())
    assert listener.events == [heard(1, "up?"), heard(2, "status")]


def test_reading_can_be_cancelled_while_nobody_types():
    async def scenario():
        reads, writes = os.pipe()
        with os.fdopen(reads, "rb") as source, os.fdopen(writes, "wb"):
            console = Console(StillClock(), "ana", source=source, out=io.StringIO())
            reading = asyncio.create_task(console.run(Recorder()))
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert reading.cancelled()
            assert os.get_blocking(source.fileno())

    asyncio.run(scenario())
