"""This machine as a transport: what only it does, and the same on the loop that production runs on."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from bot.domain.errors import TimedOut
from bot.domain.fleet import Hop
from bot.ports import Completed, Transport
from bot.transports._local import Local
from tests.transports.chains import KINDS, SOON, chain, run
from tests.transports.gone import gone, started


def test_the_bot_s_own_keys_do_not_reach_its_children() -> None:
    async def main() -> None:
        local = Local({"PATH": "/usr/bin:/bin", "SLACK_BOT_TOKEN": "xoxb-hunter2", "HF_HOME": "/models"})
        done = await local.run(["env"], timeout=SOON)
        assert sorted(done.stdout.decode().split()) == ["HF_HOME=/models", "PATH=/usr/bin:/bin"]

    run(main())


def test_what_can_not_be_run_is_126() -> None:
    async def main() -> None:
        assert await Local().run(["/etc"], timeout=SOON) == Completed(126, b"", b"etc: Permission denied")

    run(main())


def test_a_child_left_behind_on_purpose_is_not_waited_for_and_lives() -> None:
    async def main() -> None:
        mark = f"3.{time.time_ns()}"
        began = time.monotonic()
        done = await Local().run(["sh", "-c", f"sleep {mark} & echo started"], timeout=SOON)
        assert done == Completed(0, b"started\n")
        assert time.monotonic() - began < 2.5
        assert await started(mark, "sleep", within=0.1)
        assert await gone(mark)

    run(main())


def test_giving_up_at_any_instant_of_the_start_leaves_nothing() -> None:
    async def main() -> None:
        local = Local()
        mark = f"60.{time.time_ns()}"
        for yields in range(12):
            task = asyncio.create_task(local.run(["sh", "-c", f"sleep {mark} & sleep {mark}"], timeout=SOON))
            for _ in range(yields):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await local.close()
        assert await gone(mark)

    run(main())


def test_closing_ends_the_channels_that_are_open() -> None:
    async def main() -> None:
        local = Local()
        mark = f"60.{time.time_ns()}"
        await local.open(["sleep", mark])
        assert await started(mark)
        await local.close()
        assert await gone(mark)

    run(main())


def test_a_local_hop_is_what_is_outside_of_it() -> None:
    outer = Local()
    assert KINDS["local"].connect(Hop("local"), outer) is outer


async def _works(transport: Transport) -> None:
    data = b"x" * 3_000_000
    assert await transport.run(["cat"], stdin=data, timeout=SOON) == Completed(0, data)
    with pytest.raises(TimedOut):
        await transport.run(["sleep", "9"], timeout=timedelta(seconds=0.2))
    flood = await transport.open(["head", "-c", "9000000", "/dev/zero"])
    size = 0
    while data := await flood.receive():
        size += len(data)
    assert size == 9_000_000
    await flood.close()
    channel = await transport.open([sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.readline())"])
    await channel.send(b"hello\n")
    assert await channel.receive() == b"hello\n"
    await channel.close()
    assert await transport.run(["no-such-program"], timeout=SOON) != Completed(0)


@pytest.mark.parametrize("names", ["local", "pct", "ssh", "ssh pct"])
def test_it_is_the_same_on_uvloop(tmp_path: Path, names: str) -> None:
    async def main() -> None:
        async with chain(tmp_path, names) as transport:
            await _works(transport)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
