"""Builds what is said of a Prometheus and an Alertmanager out of a fleet file's values."""

from __future__ import annotations

from datetime import timedelta

from bot.domain.fleet import Fleet
from bot.domain.monitors import PLACES, AlertmanagerPeer, Labelling, PrometheusSource
from bot.settings.document import Document, Path_
from bot.settings.models import FleetFile
from bot.settings.words import Wrong, filled

_USUAL = Labelling()
_SHORTEST = timedelta(seconds=1)
_LONGEST = timedelta(seconds=30)
"""A watch that reads less often than that would take each reading for a new beginning."""


def prometheus(document: Document, file: FleetFile, fleet: Fleet) -> PrometheusSource | None:
    """The Prometheus that a file names; ConfigError where two servers could not be told apart."""
    one = file.prometheus
    if one is None:
        return None
    path: Path_ = ("prometheus",)
    if not _SHORTEST <= one.scrape_interval <= _LONGEST:
        raise document.error((*path, "scrape_interval"), "must be from 1 s to 30 s")
    found = _labelling(document, (*path, "value"), Labelling(one.label, one.value), fleet)
    return PrometheusSource(
        one.url, found, one.only, one.scrape_interval, one.timeout, falls_back=one.when_away == "look"
    )


def alertmanager(document: Document, file: FleetFile, fleet: Fleet) -> AlertmanagerPeer | None:
    """The Alertmanager that a file names; it tells servers apart as the Prometheus does unless it says otherwise."""
    one = file.alertmanager
    if one is None:
        return None
    base = Labelling(file.prometheus.label, file.prometheus.value) if file.prometheus is not None else _USUAL
    given = Labelling(one.label or base.label, one.value or base.template)
    found = _labelling(document, ("alertmanager", "value"), given, fleet)
    return AlertmanagerPeer(one.url, found, one.send, one.listen, one.timeout, one.watchdog, one.watchdog_within)


def _labelling(document: Document, path: Path_, found: Labelling, fleet: Fleet) -> Labelling:
    try:
        filled(found.template, dict.fromkeys(PLACES, ""), strict=True)
    except Wrong as exc:
        raise document.error(path, str(exc)) from exc
    if len(fleet.labelled(found)) < len(fleet.servers):
        raise document.error(path, f"{found.template} is the same for several servers; they could not be told apart")
    return found
