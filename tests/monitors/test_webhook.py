"""The webhook's port: who may tell, what is taken, and what is answered when it can't be kept."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest

from bot.domain.errors import ConfigError, StoreError
from bot.domain.watching.foreign import Notification
from bot.monitors.webhook import Webhook
from tests.monitors.test_alertmanager import SENT

SECRET = "the-secret-of-the-webhook"
BODY = json.dumps(SENT).encode()


@dataclass
class Ears:
    """Takes what is told; ``fails`` is why it can't keep it."""

    heard: list[Notification] = field(default_factory=list)
    fails: StoreError | None = None

    async def notified(self, notification: Notification) -> None:
        if self.fails is not None:
            raise self.fails
        self.heard.append(notification)


def listening(act: Callable[[str, Ears, Webhook], Awaitable[None]]) -> None:
    async def whole() -> None:
        ears = Ears()
        webhook = Webhook(SECRET, ears)
        await webhook.listen(("127.0.0.1", 0))
        try:
            await act(f"http://127.0.0.1:{webhook.port}/alertmanager", ears, webhook)
        finally:
            await webhook.close()

    asyncio.run(whole())


async def post(url: str, body: bytes = BODY, **more: object) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=io.BytesIO(body), **({"headers": headers} | more)) as answer,
    ):
        return answer.status, await answer.text()


def test_what_is_told_with_the_secret_is_taken() -> None:
    async def act(url: str, ears: Ears, _: Webhook) -> None:
        assert await post(url) == (200, "taken\n")
        basic = base64.b64encode(f"anybody:{SECRET}".encode()).decode()
        assert await post(url, headers={"Authorization": f"Basic {basic}"}) == (200, "taken\n")
        assert [one.group for one in ears.heard] == ['{}:{alertname="Slow"}'] * 2

    listening(act)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {SECRET}x",
        f"Token {SECRET}",
        "Basic !!!",
        "Basic YW5hOndyb25n",
        "Bearer \udcff",
    ],
)
def test_without_the_secret_nothing_is_read(header: str) -> None:
    async def act(url: str, ears: Ears, _: Webhook) -> None:
        assert (await post(url, headers={"Authorization": header}))[0] == 401
        assert ears.heard == []

    listening(act)


def test_what_is_too_large_or_no_notification_is_refused_and_the_port_lives_on() -> None:
    async def act(url: str, ears: Ears, _: Webhook) -> None:
        assert (await post(url, b"x" * 1_100_000))[0] == 413
        assert await post(url, b"[1,2]") == (400, "no notification of an Alertmanager: there are no alerts in it\n")
        assert await post(url, b"[" * 100_000) == (400, "no JSON\n")
        assert (await post(url.replace("/alertmanager", "/")))[0] == 404
        assert (await post(url))[0] == 200
        assert len(ears.heard) == 1

    listening(act)


def test_what_can_not_be_kept_is_to_be_told_again() -> None:
    async def act(url: str, ears: Ears, _: Webhook) -> None:
        ears.fails = StoreError("the disk is full")
        assert await post(url) == (503, "it can't be kept now\n")

    listening(act)


def test_half_a_body_disturbs_nobody() -> None:
    async def act(url: str, ears: Ears, webhook: Webhook) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", webhook.port)
        head = (
            f"POST /alertmanager HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: 999\r\n\r\n{{"
        )
        writer.write(head.encode())
        await writer.drain()
        assert (await post(url))[0] == 200
        writer.close()
        await writer.wait_closed()
        assert len(ears.heard) == 1

    listening(act)


def test_the_place_may_change_and_a_taken_one_or_a_missing_secret_is_a_mistake() -> None:
    async def act(url: str, _: Ears, webhook: Webhook) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ConfigError, match=r"^alertmanager\.listen: can't listen on 127\.0\.0\.1:\d+: "):
                await webhook.listen(taken.getsockname())
        assert webhook.port is None
        await webhook.listen(("127.0.0.1", 0))
        assert webhook.port is not None
        await webhook.listen(None)
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(url)
        with pytest.raises(ConfigError, match=r"^environment: UPBOT_WEBHOOK_SECRET: is not set"):
            await Webhook("", Ears()).listen(("127.0.0.1", 0))

    listening(act)
