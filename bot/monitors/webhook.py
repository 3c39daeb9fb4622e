"""The webhook: an Alertmanager posts what it has to tell to a port of ours, with a secret.

200 is said once the alert is kept, so that nothing is lost with us: an Alertmanager tells again what was answered 5xx.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac

import structlog
from aiohttp import web

from bot.domain.errors import ConfigError, StoreError
from bot.monitors.alertmanager import LARGEST, NotANotification, notification
from bot.ports import Notified

_log = structlog.get_logger(__name__)

PATH = "/alertmanager"
_SLOWEST = 10.0
"""Seconds for a body to come."""


class Webhook:
    """Listens as long as it is open."""

    def __init__(self, secret: str, listener: Notified) -> None:
        self._secret = secret.encode()
        self._listener = listener
        self._runner: web.AppRunner | None = None
        self._place: tuple[str, int] | None = None

    async def listen(self, place: tuple[str, int] | None) -> None:
        """Listen there, and nowhere else; None: nowhere. ConfigError when the place is taken or the secret missing."""
        if place == self._place:
            return
        await self.close()
        if place is None:
            return
        if not self._secret:
            raise ConfigError(
                "is not set; docs/prometheus.md says what it is for", file="environment", key="UPBOT_WEBHOOK_SECRET"
            )
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post(PATH, self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, lingering_time=0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *place).start()
        except OSError as exc:
            await self.close()
            why = f"can't listen on {place[0]}:{place[1]}: {exc.strerror or exc}"
            raise ConfigError(why, key="alertmanager.listen") from exc
        self._place = place

    @property
    def port(self) -> int | None:
        """The port that it listens on."""
        return self._runner.addresses[0][1] if self._runner is not None and self._runner.addresses else None

    async def close(self) -> None:
        """Listen no more."""
        runner, self._runner, self._place = self._runner, None, None
        if runner is not None:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if not self._may(request.headers.get("Authorization", "")):
            _log.warning("webhook_refused", peer=request.remote)
            return web.Response(status=401, text="the secret is another one\n")
        try:
            async with asyncio.timeout(_SLOWEST):
                body = await request.read()
            told = notification(body)
        except TimeoutError:
            return web.Response(status=408)
        except NotANotification as error:
            return web.Response(status=400, text=f"{error}\n")
        try:
            await self._listener.notified(told)
        except StoreError as error:
            _log.warning("notification_not_kept", error=str(error))
            return web.Response(status=503, text="it can't be kept now\n")
        return web.Response(text="taken\n")

    def _may(self, given: str) -> bool:
        """Whether the secret is given, as a bearer token or as a password."""
        kind, _, value = given.partition(" ")
        word = value.strip().encode("utf-8", "replace")
        if kind.lower() == "basic":
            try:
                word = base64.b64decode(word, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(word, self._secret)
