"""What every transport, and every chain of them, does the same."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bot.domain.errors import FleetError, TimedOut
from bot.ports import Completed, Transport
from tests.transports.chains import CHAINS, SOON, over
from tests.transports.gone import gone, started

pytestmark = pytest.mark.parametrize("names", CHAINS)

ECHO = "import os,sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"

_PIECES = [
    "", " ", "  ", "\t", "\n", "\r", "\r\n", "'", '"', "`", "$", "\\", "!", "*", "?", "[a-z]", "{a,b}", "~", "~root",
    "#", "&", "&&", "|", ";", "(", ")", "<", ">", ">>", "=", "a=b", "%s", "%n%d", "-", "--", "-n", "-e", "--help", "-c",
    "$HOME", "${HOME}", "$(id)", "`id`", "$((1+1))", "$$", "$?", "$@", '"$@"', "'$(id)'", '"$(id)"', "'\"'\"'",
    "; rm -rf /nothing", "| cat", "&& false", "> /dev/null", "\\n", "\\\\", "\\'", '\\"', "\\$", "it's", "a'b\"c`d",
    "\x01", "\x07", "\x08", "\x0b", "\x0c", "\x1b[31mred\x1b[0m", "\x7f", "\x04", "\x03", "\x1a", "\x16", "\x11\x13",
    "é", "ß", "漢字", "🙂", "\u200frtl", "\u200b", "\ufeff", "\u2028", "e\u0301", "\x80", "\xff", "\xa0",
    "a b", " lead", "trail ", "tab\tin", "new\nline", "two\n\nlines\n", "*.py", "/*", "../..", "!!", "!$", "^a^b", "%1",
    "x" * 5000, "'" * 300, "\\" * 301, "\n" * 200, "$(" * 100, "é漢" * 500, "EOF", "<<EOF\nx\nEOF", "${IFS}", "$'\\x41'",
]  # fmt: skip
HOSTILE = _PIECES + [a + b for a, b in itertools.pairwise(_PIECES[:60])] + [f"a{p}b{p}c" for p in _PIECES[:60]]


def test_two_hundred_hostile_strings_arrive_as_they_are(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        done = await transport.run([sys.executable, "-c", ECHO, *HOSTILE], timeout=SOON)
        assert done == Completed(0, b"\0".join(map(os.fsencode, HOSTILE)))

    assert len(HOSTILE) > 200
    over(tmp_path, names, check)


def test_data_in_the_place_of_a_program_or_of_its_first_argument_is_no_option_of_any_hop(
    tmp_path: Path, names: str
) -> None:
    async def check(transport: Transport) -> None:
        for word in ("--", "-n", "$(id)", "a b", "", "-u", "'"):
            assert await transport.run(["printf", "%s|", word, word], timeout=SOON) == Completed(
                0, f"{word}|{word}|".encode()
            )
        missing = await transport.run(["$(echo true)"], timeout=SOON)
        assert (missing.status, missing.stdout) == (127, b"")

    over(tmp_path, names, check)


def test_stdin_goes_in_whole_and_its_end_is_always_told(tmp_path: Path, names: str) -> None:
    data = bytes(range(256)) * 4096

    async def check(transport: Transport) -> None:
        assert await transport.run(["cat"], stdin=data, timeout=SOON) == Completed(0, data)
        assert await transport.run(["cat"], timeout=SOON) == Completed(0)
        assert await transport.run(["true"], stdin=data, timeout=SOON) == Completed(0)

    over(tmp_path, names, check)


def test_a_status_is_the_commands_whatever_it_is_and_whatever_it_says(tmp_path: Path, names: str) -> None:
    words = b"CT 200 not running; sudo: a password is required; Permission denied\n"

    async def check(transport: Transport) -> None:
        for status in (0, 1, 2, 124, 125, 126, 127, 137, 143, 255):
            done = await transport.run(["sh", "-c", f"echo out; cat >&2; exit {status}"], stdin=words, timeout=SOON)
            assert done == Completed(status, b"out\n", words)

    over(tmp_path, names, check)


def test_death_by_a_signal_is_a_status_above_128(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        assert await transport.run(["sh", "-c", "kill -KILL $$"], timeout=SOON) == Completed(137)

    over(tmp_path, names, check)


def test_a_missing_program_is_the_commands_failure(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        done = await transport.run(["no-such-program"], timeout=SOON)
        assert done.status == 127
        assert b"no-such-program" in done.stderr

    over(tmp_path, names, check)


def test_after_its_time_the_command_and_its_children_are_gone(tmp_path: Path, names: str) -> None:
    mark = f"{time.time_ns()}"
    stubborn = f"trap '' TERM; (trap '' TERM; sleep 600.{mark}) & sleep 600.{mark}"

    async def check(transport: Transport) -> None:
        before = time.monotonic()
        with pytest.raises(TimedOut, match=r"^sh did not end within 0\.5 s (on|in) "):
            await transport.run(["sh", "-c", stubborn], timeout=timedelta(seconds=0.5))
        assert 0.5 <= time.monotonic() - before < 4
        assert await gone(mark)
        assert await transport.run(["echo", "fine"], timeout=SOON) == Completed(0, b"fine\n")

    over(tmp_path, names, check)


def test_a_child_that_ignores_the_end_of_its_parent_is_gone_too(tmp_path: Path, names: str) -> None:
    mark = f"{time.time_ns()}"

    async def check(transport: Transport) -> None:
        with pytest.raises(TimedOut):
            await transport.run(
                ["sh", "-c", f"(trap '' TERM; exec sleep 600.{mark}) & exec sleep 600.{mark}"],
                timeout=timedelta(seconds=0.5),
            )
        assert await gone(mark)

    over(tmp_path, names, check)


def test_output_is_cut_at_its_end(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        done = await transport.run(["sh", "-c", "yes 0123456 | head -c 20000000; echo end >&2"], timeout=SOON)
        assert done.status == 0
        assert 7_000_000 < len(done.stdout) <= 8 * 1024 * 1024
        assert done.stdout.startswith(b"0123456\n0123456\n")
        assert done.stderr == b"end\n"

    over(tmp_path, names, check)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([], "there is no command to run"),
        (["echo", "a\0b"], "a NUL character can't stand in a command"),
        (["echo", "\ud800"], "a command holds a character that has no bytes (a lone surrogate)"),
        (["/bin/echo", "x" * 131_072], "an argument of echo is too long: 131,072 bytes, 131,071 at most"),
    ],
)
def test_what_no_command_can_carry_is_refused_and_the_next_command_runs(
    tmp_path: Path, names: str, argv: list[str], why: str
) -> None:
    async def check(transport: Transport) -> None:
        await transport.run(["true"], timeout=SOON)
        for attempt in (transport.run(argv, timeout=SOON), transport.open(argv)):
            with pytest.raises(FleetError) as caught:
                await attempt
            assert str(caught.value) == why
        assert await transport.run(["echo", "fine"], timeout=SOON) == Completed(0, b"fine\n")

    over(tmp_path, names, check)


def test_thirty_commands_at_once(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        runs = [transport.run(["sh", "-c", 'echo "$1"', "_", str(n)], timeout=SOON) for n in range(30)]
        assert [done.stdout for done in await asyncio.gather(*runs)] == [f"{n}\n".encode() for n in range(30)]

    over(tmp_path, names, check)


def test_a_channel_talks_back_and_forth_and_ends_when_closed(tmp_path: Path, names: str) -> None:
    mark = f"{time.time_ns()}"
    loop = f"import sys\nfor line in sys.stdin: sys.stdout.write(line.strip()[::-1] + '\\n')\nprint('{mark}', file=sys.stderr)"

    async def check(transport: Transport) -> None:
        channel = await transport.open([sys.executable, "-u", "-c", loop])
        for word in ("abc", "déf"):
            await channel.send(word.encode() + b"\n")
            assert await channel.receive() == word[::-1].encode() + b"\n"
        await channel.close()
        assert await channel.receive() == b""
        assert channel.errors == mark.encode() + b"\n"
        assert await gone(mark)
        with pytest.raises(FleetError):
            await channel.send(b"more\n")
        await channel.close()

    over(tmp_path, names, check)


def test_closing_a_channel_ends_also_what_does_not_listen(tmp_path: Path, names: str) -> None:
    mark = f"{time.time_ns()}"

    async def check(transport: Transport) -> None:
        channel = await transport.open(["sh", "-c", f"trap '' TERM; echo up; sleep 600.{mark}; sleep 600.{mark}"])
        assert await channel.receive() == b"up\n"
        await channel.close()
        assert await gone(mark)

    over(tmp_path, names, check)


def test_a_channels_flood_waits_until_it_is_read(tmp_path: Path, names: str) -> None:
    size = 20_000_000

    async def check(transport: Transport) -> None:
        channel = await transport.open(["head", "-c", str(size), "/dev/zero"])
        await asyncio.sleep(0.2)
        read = 0
        while data := await channel.receive():
            read += len(data)
            assert len(data) < 8_000_000
        assert read == size
        await channel.close()

    over(tmp_path, names, check)


def test_a_channel_to_a_missing_program_ends_at_once_and_says_why(tmp_path: Path, names: str) -> None:
    async def check(transport: Transport) -> None:
        channel = await transport.open(["no-such-program"])
        assert await channel.receive() == b""
        await channel.close()
        assert b"no-such-program" in channel.errors

    over(tmp_path, names, check)


def test_giving_up_waiting_leaves_nothing_behind(tmp_path: Path, names: str) -> None:
    mark = f"{time.time_ns()}"

    async def check(transport: Transport) -> None:
        task = asyncio.create_task(transport.run(["sleep", f"600.{mark}"], timeout=timedelta(seconds=2)))
        assert await started(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await gone(mark)
        assert await transport.run(["echo", "fine"], timeout=SOON) == Completed(0, b"fine\n")

    over(tmp_path, names, check)
