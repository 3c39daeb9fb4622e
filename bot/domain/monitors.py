"""Other people's monitoring as it is configured: the Prometheus that is read, the Alertmanager that is spoken with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

_PLACE = re.compile(r"\{(name|host|port|address)\}")
PLACES = ("name", "host", "port", "address")
"""What a label's template may hold."""


@dataclass(frozen=True, slots=True)
class Labelling:
    """How a server is found among labels: the label's name, and its value as a template of the server's own words."""

    label: str = "instance"
    template: str = "{host}:{port}"

    def value(self, *, name: str, host: str, port: int, address: str) -> str:
        """The label's value for one server."""
        words = {"name": name, "host": host, "port": str(port), "address": address}
        return _PLACE.sub(lambda match: words[match[1]], self.template)


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """A Prometheus that the watch reads instead of the servers.

    ``scrape_interval`` is how often it scrapes them, ``falls_back`` whether the bot looks itself while it is away.
    ``only`` are labels that every series must have, where one Prometheus serves several fleets.
    """

    url: str
    labelling: Labelling = Labelling()
    only: Mapping[str, str] = field(default_factory=dict)
    scrape_interval: timedelta = timedelta(seconds=15)
    timeout: timedelta = timedelta(seconds=3)
    falls_back: bool = True


@dataclass(frozen=True, slots=True)
class AlertmanagerPeer:
    """An Alertmanager whose alerts are shown, whose silences are set and, where ``sends``, that gets our own alerts.

    ``listen`` is host and port of the webhook, None: nobody listens. ``watchdog`` is the alert that always fires,
    None: none is awaited; it must be heard again within ``watchdog_within``.
    """

    url: str
    labelling: Labelling = Labelling()
    sends: bool = False
    listen: tuple[str, int] | None = ("127.0.0.1", 9099)
    timeout: timedelta = timedelta(seconds=3)
    watchdog: str | None = None
    watchdog_within: timedelta = timedelta(minutes=10)
