"""Prometheus and Alertmanager beside the machine, as far as the fleet file names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.runtime.doctor import (
    Finding,
    look_at_alertmanager,
    look_at_prometheus,
)
from bot.runtime.liaison import ROUND as LIAISON_ROUND
from bot.settings import MonitorKeys

if TYPE_CHECKING:
    from bot.app.machine import App
    from bot.monitors.alertmanager import Alertmanager
    from bot.monitors.prometheus import Prometheus
    from bot.monitors.webhook import Webhook

_log = structlog.get_logger(__name__)


class Monitors:
    """Prometheus and Alertmanager, as far as the fleet file names them; aiohttp is imported only then."""

    def __init__(self, app: App, keys: MonitorKeys) -> None:
        self._app = app
        self._keys = keys
        self._prometheus: Prometheus | None = None
        self._alertmanager: Alertmanager | None = None
        self.webhook: Webhook | None = None

    async def open(self) -> None:
        """Make what the fleet file names, and listen where it says. ConfigError when that can't be."""
        app, fleet = self._app, self._app.source.fleet
        if fleet.prometheus is not None and self._prometheus is None:
            from bot.monitors.prometheus import Prometheus  # noqa: PLC0415 - see above

            self._prometheus = Prometheus(self._keys.prometheus)
            app.farsight.metrics = app.liaison.metrics = self._prometheus
        if fleet.alertmanager is not None and self._alertmanager is None:
            from bot.monitors.alertmanager import Alertmanager  # noqa: PLC0415 - see above
            from bot.monitors.webhook import Webhook  # noqa: PLC0415 - see above

            self._alertmanager = app.liaison.remote = Alertmanager(self._keys.alertmanager)
            self.webhook = Webhook(self._keys.webhook, app.liaison)
            app.liaison.load()
            app.watcher.on_change = self._wake
            app.schedule.every(LIAISON_ROUND, app.liaison.round, name="alertmanager")
        if self.webhook is not None:
            await self.webhook.listen(fleet.alertmanager.listen if fleet.alertmanager is not None else None)

    def _wake(self) -> None:
        if self._app.source.fleet.alertmanager is not None:
            self._app.tasks.spawn(self._app.liaison.round(), name="alertmanager")

    async def check(self) -> list[Finding]:
        """Whether both answer, and Prometheus knows the servers."""
        fleet = self._app.source.fleet
        findings: list[Finding] = []
        if fleet.prometheus is not None:
            from bot.monitors.prometheus import Prometheus  # noqa: PLC0415 - see above

            self._prometheus = Prometheus(self._keys.prometheus)
            findings += await look_at_prometheus(fleet, self._prometheus)
        if fleet.alertmanager is not None:
            from bot.monitors.alertmanager import Alertmanager  # noqa: PLC0415 - see above

            self._alertmanager = Alertmanager(self._keys.alertmanager)
            findings += await look_at_alertmanager(fleet, self._alertmanager, has_secret=bool(self._keys.webhook))
        return findings

    async def close(self) -> None:
        """Listen no more, and let go of what is open."""
        for one in (self.webhook, self._prometheus, self._alertmanager):
            if one is not None:
                await one.close()
