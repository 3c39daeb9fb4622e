"""One server's facts from what was asked and what its process says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.domain.facts import Process
from bot.domain.fleet import Fleet, Launch, Server
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM
from bot.ports import Needs
from bot.runtime.probing.recognition import Recognised
from bot.runtime.probing.servers import Memory, ServerLook

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("engine", "argv", "seats"),
    [
        (VLLM, ("vllm", "serve", "/m", "--port", "30020", "--max-num-seqs", "8"), 8),
        (VLLM, ("vllm", "serve", "/m", "--port", "30020", "--max-num-seqs", "many"), None),
        (VLLM, ("vllm", "serve", "/m", "--port", "30020"), None),
        (SGLANG, ("python", "-m", "sglang.launch_server", "--port", "30020", "--max-running-requests", "64"), None),
    ],
)
def test_an_engine_that_tells_no_seats_has_those_of_its_command_line(engine, argv, seats):
    """SGLang tells them itself, and may have less than it was asked for."""
    server = Server("one", "h", 30020, engine.name, Launch(argv[:3]))
    look = ServerLook(server, engine, Memory(engine, server), Needs(), Fleet((), (server,)))
    look.recognise(Recognised(Process(7, 1, argv)), NOW)
    assert look.facts(NOW).running.max_running == seats
