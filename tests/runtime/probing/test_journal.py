"""A journal as a log, where a stand-in obeys journalctl's command line; the real one is in tests/launchers/test_systemd.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.runtime.probing.scout.journal import KEPT, parted
from bot.runtime.probing.wire import Chunk, Follow, Request, Tail, Tailed
from bot.transports._local import Local
from tests import hosts
from tests.runtime.probing.stage import asked, lined

# What it was asked stands in $HERE/asked; the journal is the file $HERE/journal.
STAND_IN = r"""#!/bin/sh
here=${0%/*}
echo "$$ $*" >>"$here/asked"
[ ! -e "$here/broken" ] || { cat "$here/broken" >&2; exit 1; }
case " $* " in
  *' --follow '*) exec tail -c "+$(($(cat "$here/seen") + 1))" -f "$here/journal" ;;
  *' --lines=1 '*) [ ! -s "$here/journal" ] || echo "$(stat -c %Y "$here/journal").5 host unit[1]: x" ;;
  *)
    wc -c <"$here/journal" >"$here/seen"
    cat "$here/journal"
    [ ! -s "$here/journal" ] || echo "-- cursor: s=1;i=2"
    ;;
esac
"""
LOG = "journal:sglang@30000.service"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    program = tmp_path / "journalctl"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "journal").touch()
    return tmp_path


def host(here: Path) -> Local:
    return Local({**os.environ, "PATH": f"{here}:{os.environ['PATH']}"})


async def chunk(line, follow: Follow) -> Chunk:
    (found,) = [one for one in await asked(line, Request(follows=(follow,))) if isinstance(one, Chunk)]
    return found


def after(one: Chunk, path: str = LOG) -> Follow:
    return Follow(path, one.end, one.inode, one.seam)


@pytest.mark.parametrize("before", [b"", b"one\ntwo\n"])
def test_what_was_there_and_what_comes_is_read_once_and_in_order(here, before):
    async def scene() -> bytes:
        (here / "journal").write_bytes(before)
        async with lined(host(here)) as line:
            first = await chunk(line, Follow(LOG))
            assert (first.is_reset, first.data, first.why) == (True, before, "")
            said, last = first.data, first
            with (here / "journal").open("ab") as journal:
                for number in range(20):
                    journal.write(b"line %d\n" % number)
                    journal.flush()
            for _attempt in range(200):
                last = await chunk(line, after(last))
                assert not last.is_reset
                said += last.data
                if said.endswith(b"line 19\n"):
                    break
                await asyncio.sleep(0.02)
            return said

    assert asyncio.run(scene()) == before + b"".join(b"line %d\n" % number for number in range(20))


def test_the_unit_is_named_and_the_follower_goes_on_behind_what_was_read(here):
    async def scene() -> None:
        (here / "journal").write_bytes(b"one\n")
        async with lined(host(here)) as line:
            await chunk(line, Follow("user-journal:upbot-gpu0.service"))
            await hosts.until(lambda: "--follow" in hosts.read(here / "asked"))

    asyncio.run(scene())
    calls = [call.split(" ", 1)[1] for call in hosts.read(here / "asked").splitlines()]
    common = "--user --unit=upbot-gpu0.service --no-pager --quiet --output="
    assert calls == [
        f"{common}short-unix --lines=1",
        f"{common}cat --lines=2000 --show-cursor",
        f"{common}cat --follow --lines=all --after-cursor=s=1;i=2",
    ]


def test_the_follower_ends_with_the_scout(here):
    async def scene() -> int:
        async with lined(host(here)) as line:
            await chunk(line, Follow(LOG))
            await hosts.until(lambda: "--follow" in hosts.read(here / "asked"))
        return int(hosts.read(here / "asked").splitlines()[-1].split()[0])

    follower = asyncio.run(scene())
    asyncio.run(hosts.until(lambda: not hosts.lives(follower)))


def test_a_follower_that_has_ended_is_begun_anew_as_another_story(here):
    async def scene() -> None:
        (here / "journal").write_bytes(b"one\n")
        async with lined(host(here)) as line:
            first = await chunk(line, Follow(LOG))
            await hosts.until(lambda: "--follow" in hosts.read(here / "asked"))
            hosts.end(int(hosts.read(here / "asked").splitlines()[-1].split()[0]))
            last = first
            for _attempt in range(200):
                last = await chunk(line, after(first))
                if last.inode != first.inode:
                    break
                await asyncio.sleep(0.02)
            assert (last.is_reset, last.data) == (True, b"one\n")

    asyncio.run(scene())


def test_the_end_of_a_journal_is_a_tail_and_its_age_is_that_of_its_last_entry(here):
    async def scene() -> None:
        (here / "journal").write_bytes(b"one\ntwo\n")
        hour_ago = (here / "journal").stat().st_mtime - 3600
        os.utime(here / "journal", (hour_ago, hour_ago))
        async with lined(host(here)) as line:
            found = await chunk(line, Follow(LOG))
            assert 3500 < found.quiet.total_seconds() < 3700
            tails = [one for one in await asked(line, Request(tails=(Tail(LOG, 4),))) if isinstance(one, Tailed)]
            assert tails == [Tailed(0, b"two\n", is_cut=True)]

    asyncio.run(scene())


def test_a_journal_that_can_not_be_read_says_why_and_is_tried_again(here):
    async def scene() -> None:
        (here / "broken").write_text("No journal files were opened due to insufficient permissions.\n")
        async with lined(host(here)) as line:
            found = await chunk(line, Follow(LOG))
            assert found.why == "No journal files were opened due to insufficient permissions."
            (here / "broken").unlink()
            assert (await chunk(line, Follow(LOG))).why == ""

    asyncio.run(scene())


def test_more_than_is_kept_is_let_go_from_the_start(here):
    async def scene() -> None:
        (here / "journal").write_bytes(b"first\n")
        async with lined(host(here)) as line:
            first = await chunk(line, Follow(LOG))
            with (here / "journal").open("ab") as journal:
                journal.write((b"x" * 99 + b"\n") * (3 * KEPT // 100) + b"last\n")
            last = first
            for _attempt in range(400):
                found = await chunk(line, Follow(LOG))
                last = found
                if found.data.endswith(b"last\n"):
                    break
                await asyncio.sleep(0.02)
            assert last.data.endswith(b"last\n")
            assert (await chunk(line, after(first))).is_reset

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (b"", (b"", "")),
        (b"one\n", (b"one\n", "")),
        (b"one\n-- cursor: s=1\n", (b"one\n", "s=1")),
        (b"-- cursor: s=1\n", (b"", "s=1")),
        (b"-- cursor: a\n-- cursor: b\n", (b"-- cursor: a\n", "b")),
    ],
)
def test_the_cursor_is_parted_from_the_messages(told, expected):
    assert parted(told) == expected
