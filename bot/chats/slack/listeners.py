"""The bolt app: everything that Slack sends is acknowledged, and what a person did is handed on.

One listener takes every event and looks at its type itself: bolt's own message matching raises on a message without
text, and what raises is not acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from bot.chats.slack.secrecy import sdk_logger

_log = structlog.get_logger(__name__)
_ALL = re.compile(".*", re.DOTALL)

Ack = Callable[..., Awaitable[Any]]


def bolt_app(
    client: AsyncWebClient,
    signing_secret: str,
    *,
    authorized: Callable[[], AuthorizeResult],
    on_event: Callable[[dict[str, Any]], None],
    on_press: Callable[[dict[str, Any]], None],
) -> AsyncApp:
    """An app that authorizes without asking Slack, so that an outage of the Web API holds up no acknowledgement."""

    async def authorize() -> AuthorizeResult:
        return authorized()

    app = AsyncApp(name="upbot", logger=sdk_logger(), client=client, signing_secret=signing_secret, authorize=authorize)

    async def event(body: dict[str, Any]) -> None:
        on_event(body)

    async def action(ack: Ack, body: dict[str, Any]) -> None:
        await ack()
        on_press(body)

    async def other(ack: Ack, body: dict[str, Any]) -> None:
        await ack()
        _log.debug("something that the bot does not offer", type=str(body.get("type") or body.get("command"))[:60])

    app.event(_ALL)(event)
    app.action(_ALL)(action)
    for kind in (app.view, app.shortcut, app.command, app.options):
        kind(_ALL)(other)
    return app
