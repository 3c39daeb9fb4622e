"""Routers are asked from their host over its warm line, and changed over a connection of their own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.errors import FleetError, StepFailed
from bot.domain.fleet import Membership, Router
from bot.domain.routing import Routed, Standing
from tests.runtime.probing.stage import World, answering, fleet, free_port, ok, served, server, silent
from tests.runtime.probing.test_prober import BASICS, commands

LIST = json.dumps({"workers": [{"id": "a/b", "url": "http://127.0.0.1:30000", "is_healthy": True}]}).encode()
MEMBER = (Membership("front", "http://127.0.0.1:30000"),)


def behind(port: int, *members: tuple[Membership, ...], key: str = "", **more):
    """A fleet of servers that run nowhere behind one router."""
    servers = [server(f"gpu{n}", free_port(), routers=mine) for n, mine in enumerate(members or (MEMBER,))]
    return replace(fleet(*servers, **more), routers=(Router("front", "h1", port, key_variable=key),))


class Recording:
    """A router that keeps whole requests and answers each connection in turn."""

    def __init__(self, *raw: bytes) -> None:
        self.raw, self.seen = list(raw), list[bytes]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(one.split(b":")[1]) for one in head.split(b"\r\n") if one.startswith(b"Content-L")), 0)
            self.seen.append(head + await reader.readexactly(length))
            writer.write(self.raw.pop(0))
            await writer.drain()


def test_a_worker_is_removed_and_added_and_the_list_is_read() -> None:
    async def scene() -> None:
        router = Recording(ok(LIST), ok(b"{}", 202), ok(b"{}", 202))
        async with served(router) as port, World(behind(port)) as world:
            front = world.fleet.routers[0]
            (one,) = await world.prober.routers.workers(front)
            await world.prober.routers.remove(front, one.id)
            assert await world.prober.routers.add(front, one.url, '{"priority": 7}', 'k"ey')
        assert [request.split(b"\r\n")[0] for request in router.seen] == [
            b"GET /workers HTTP/1.1",
            b"DELETE /workers/a%2Fb HTTP/1.1",
            b"POST /workers HTTP/1.1",
        ]
        body = json.loads(router.seen[2].partition(b"\r\n\r\n")[2])
        assert body == {"priority": 7, "url": "http://127.0.0.1:30000", "api_key": 'k"ey'}

    asyncio.run(scene())


def test_without_python_curl_does_it_and_no_key_stands_on_a_command_line(tmp_path: Path) -> None:
    async def scene() -> None:
        router = Recording(ok(b"{}", 202))
        async with served(router) as port, World(behind(port, key="FRONT_KEY")) as world:
            world.transports["h1"] = commands(tmp_path, "curl", *BASICS)
            world.prober.routers._secret = {"FRONT_KEY": "sk-front"}.get
            await world.prober.routers.add(world.fleet.routers[0], "http://127.0.0.1:1", "{}", "sk-worker")
        (seen,) = router.seen
        assert seen.startswith(b"POST /workers HTTP/1.1")
        assert b"Bearer sk-front" in seen
        assert json.loads(seen.partition(b"\r\n\r\n")[2]) == {"url": "http://127.0.0.1:1", "api_key": "sk-worker"}

    asyncio.run(scene())


def test_settings_that_are_refused_are_left_away() -> None:
    async def scene() -> None:
        router = Recording(ok(b"priority: invalid type", 422), ok(b"{}", 202))
        async with served(router) as port, World(behind(port)) as world:
            assert not await world.prober.routers.add(world.fleet.routers[0], "http://x:1", '{"priority": "x"}', None)
        assert json.loads(router.seen[1].partition(b"\r\n\r\n")[2]) == {"url": "http://x:1"}

    asyncio.run(scene())


@pytest.mark.parametrize("status", [202, 404])
def test_one_that_is_gone_already_is_no_error(status: int) -> None:
    async def scene() -> None:
        async with served(Recording(ok(b"{}", status))) as port, World(behind(port)) as world:
            await world.prober.routers.remove(world.fleet.routers[0], "a")

    asyncio.run(scene())


def test_one_that_is_there_already_is_no_error() -> None:
    async def scene() -> None:
        async with served(Recording(ok(b"{}", 409))) as port, World(behind(port)) as world:
            assert await world.prober.routers.add(world.fleet.routers[0], "http://x:1", "{}", None)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answering(ok(b"sk-secret", 500)), "router front refuses: HTTP 500"),
        (answering(ok(b"no", 401)), "router front refuses the bot: HTTP 401, `key` is wrong or missing"),
        (answering(ok(b"<html>")), "router front answered no list of workers"),
        (answering(b"SSH-2.0\r\n"), "router front failed: the answer is not HTTP"),
        (silent, "router front gives no answer"),
    ],
)
def test_whatever_a_router_does_is_one_line_that_names_it(answer, said: str) -> None:
    async def scene() -> None:
        async with served(answer) as port, World(behind(port)) as world:
            with pytest.raises(FleetError) as caught:
                await world.prober.routers.workers(world.fleet.routers[0])
            assert str(caught.value) == said

    asyncio.run(scene())


def test_a_router_that_is_not_there_or_has_no_key_or_no_host_is_said_to_be_so() -> None:
    async def scene() -> None:
        async with World(behind(free_port())) as world:
            front = world.fleet.routers[0]
            for router, said in (
                (front, "router front refuses the connection"),
                (replace(front, key_variable="FRONT_KEY"),
                 "router front: its key is not in the bot's environment (FRONT_KEY)"),
                (replace(front, host="h9"), "router front: there is no host h9 any more"),
            ):  # fmt: skip
                with pytest.raises(StepFailed) as caught:
                    await world.prober.routers.workers(router)
                assert str(caught.value) == said

    asyncio.run(scene())


def test_a_look_says_how_each_server_stands_with_one_get_a_router() -> None:
    async def scene() -> None:
        router = Recording(ok(LIST))
        other = (Membership("front", "http://127.0.0.1:30001"),)
        async with served(router) as port, World(behind(port, MEMBER, other, ())) as world:
            sights = await world.looks(router=True)
        assert len(router.seen) == 1
        assert [facts.routed for facts in sights[-1].servers.values()] == [
            (Routed("front", Standing.HEALTHY),),
            (Routed("front", Standing.ABSENT),),
            (),
        ]
        assert sights[0].servers["gpu0"].routed == ()

    asyncio.run(scene())


def test_a_look_without_the_need_asks_no_router_and_one_that_fails_delays_nobody() -> None:
    async def scene() -> None:
        router = Recording()
        async with served(router) as port, World(behind(port)) as world:
            assert (await world.facts("gpu0")).routed == ()
        assert router.seen == []
        async with served(silent) as port, World(behind(port)) as world:
            sights = await world.looks(router=True)
        assert any(sight.is_settled and not sight.is_complete for sight in sights)
        assert sights[-1].servers["gpu0"].routed == (Routed("front", Standing.UNKNOWN, "router front gives no answer"),)

    asyncio.run(scene())
