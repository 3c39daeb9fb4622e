"""What the guard says of a server before it is ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.facts import Load, Movement, Process, ServerFacts, Sight
from bot.domain.fleet import Fleet, Host, Launch, Role, Server
from bot.domain.guard import obstacles, rate
from bot.domain.message import plain
from bot.domain.world import World

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
STILL = Movement(still_since=NOW - timedelta(seconds=9))


@pytest.mark.parametrize(
    ("load", "movement", "expected"),
    [
        (Load(running=8, tokens_per_second=671.0), Movement(tokens_per_second=640.0), 640.0),
        (Load(running=8, tokens_per_second=671.0), Movement(), 671.0),
        (Load(running=8, tokens_per_second=671.0), STILL, 0.0),
        (Load(running=8, tokens_per_second=671.0, counts_at_end=True), STILL, 671.0),
        (Load(running=8, tokens_per_second=0.0), Movement(), None),
        (Load(running=0, tokens_per_second=671.0), STILL, 0.0),
        (Load(), Movement(), None),
    ],
)
def test_the_rate_is_what_was_measured_and_a_stale_gauge_is_not_believed(load, movement, expected):
    assert rate(ServerFacts("gpu3", NOW, load=load, movement=movement)) == expected


def test_a_worker_that_outlived_its_server_is_named_before_the_next_start():
    """The API process of vLLM was killed: its port is free, and its engine still holds the memory."""
    server = Server("one", "h", 30020, "vllm", Launch(("vllm", "serve", "/m")))
    worker = Process(8, 2, ("VLLM::EngineCore",), age=timedelta(minutes=4))
    world = World(
        Fleet((Host("h"),), (server,)),
        NOW,
        "U1",
        Role.OPERATOR,
        "C1",
        Sight(NOW, {"one": ServerFacts("one", NOW, orphans=(worker,))}),
    )
    told = obstacles(world, (server,))
    assert told is not None
    assert plain(told) == (
        "Not started: something else holds a port or GPU memory. Nothing was touched.\n"
        "one: an earlier start of it is survived by pid 8, 4 m old: VLLM::EngineCore\n"
        "[Kill 8…]"
    )
