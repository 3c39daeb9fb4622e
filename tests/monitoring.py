"""A pretend Prometheus and a pretend Alertmanager in memory, behind the ports, for conversations on the jumping clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from bot.domain.errors import FleetError
from bot.domain.fleet import Fleet
from bot.domain.monitors import AlertmanagerPeer, PrometheusSource
from bot.domain.needs import Needs
from bot.domain.watching.exchange import Outgoing, RemoteSilence, SilenceOrder
from bot.domain.watching.foreign import Notification, Told
from bot.ports import Clock, Scraped
from tests.pretend import PretendFleet
from tests.tester import Bot, first_night

URL = "http://am.example:9093"


def monitored(**peer: object) -> Fleet:
    """The first night's fleet with an Alertmanager."""
    return first_night(alertmanager=replace(AlertmanagerPeer(URL, listen=None), **peer))


@dataclass
class PretendAlertmanager:
    """Silences and alerts as an Alertmanager has them; ``fails`` is why it can't be reached."""

    clock: Clock | None = None
    orders: dict[str, SilenceOrder] = field(default_factory=dict)
    firing: set[str] = field(default_factory=set)
    sent: list[list[Outgoing]] = field(default_factory=list)
    fails: str | None = None
    loses_answers: bool = False
    number: int = 0

    def _meet(self) -> None:
        if self.fails is not None:
            raise FleetError(self.fails)

    async def silences(self, peer: AlertmanagerPeer) -> Sequence[RemoteSilence]:
        self._meet()
        return [RemoteSilence(id_, one.comment) for id_, one in self.orders.items()]

    async def silence(self, peer: AlertmanagerPeer, order: SilenceOrder) -> str:
        self._meet()
        self.number += 1
        self.orders[f"theirs-{self.number}"] = order
        if self.loses_answers:
            raise FleetError("Alertmanager at am.example:9093 did not answer within 3 s")
        return f"theirs-{self.number}"

    async def unsilence(self, peer: AlertmanagerPeer, id_: str) -> None:
        self._meet()
        self.orders.pop(id_, None)

    async def send(self, peer: AlertmanagerPeer, alerts: Sequence[Outgoing]) -> None:
        self._meet()
        self.sent.append(list(alerts))

    async def fingerprints(self, peer: AlertmanagerPeer) -> frozenset[str]:
        self._meet()
        return frozenset(self.firing)


@dataclass
class PretendPrometheus:
    """Scrapes a pretend fleet each ``every`` seconds, each server at a time of its own; ``fails`` is why it can't be read."""

    world: PretendFleet | None = None
    every: int = 15
    fails: str | None = None
    unknown: set[str] = field(default_factory=set)
    up: dict[str, bool] = field(default_factory=dict)
    asked: int = 0
    _pages: dict[str, Scraped] = field(default_factory=dict)

    async def scraped(
        self, source: PrometheusSource, values: Sequence[str], names: frozenset[str]
    ) -> Mapping[str, Scraped]:
        self.asked += 1
        if self.fails is not None:
            raise FleetError(self.fails)
        assert self.world is not None
        now = self.world.clock.now()
        found = {value: Scraped(is_up, now) for value, is_up in self.up.items() if value in values}
        for value, name in self.world.fleet.labelled(source.labelling).items():
            if value in values and name not in self.unknown:
                found[value] = self._scrape(name)
        return found

    def _scrape(self, name: str) -> Scraped:
        """The scrape that went last, at this server's own second of each interval."""
        assert self.world is not None
        now = self.world.clock.now()
        offset = int(name[-1]) * 1.7
        last = now - timedelta(seconds=(now.timestamp() - offset) % self.every)
        kept = self._pages.get(name)
        if kept is None or last - kept.at > timedelta(seconds=1):
            kept = self._pages[name] = self._page(name, last)
        return kept

    def _page(self, name: str, at: datetime) -> Scraped:
        assert self.world is not None
        facts = self.world._facts(name, Needs(load=True), is_first=False)
        load = facts.load
        if load.running is None:
            return Scraped(is_up=False, at=at)
        behind = (self.world.clock.now() - at).total_seconds() * (load.tokens_per_second or 0)
        rows = {
            "num_running_reqs": load.running,
            "num_queue_reqs": load.queued,
            'realtime_tokens_total{mode="decode"}': max(0.0, (load.tokens_total or 0.0) - behind),
            "full_token_usage": load.kv_usage,
        }
        page = "".join(f"sglang:{key} {value}\n" for key, value in rows.items())
        return Scraped(is_up=True, at=at, page=page.encode())


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def told(
    bot: Bot,
    *servers: str,
    name: str = "GpuFanSlow",
    group: str | None = None,
    is_firing: bool = True,
    summary: str = "the fan turns at 800 rpm",
    left_out: int = 0,
    **labels: str,
) -> Notification:
    """What an Alertmanager's webhook would tell of an alert on these servers (or of instances that are none)."""
    known = {server.name: f"{server.host}:{server.port}" for server in bot.fleet_value.servers}
    alerts = tuple(
        Told(
            f"print-{name}-{one}",
            is_firing,
            bot.clock.now() - timedelta(seconds=40),
            {"alertname": name, "severity": "page", "instance": known.get(one, one), **labels},
            {"summary": summary},
        )
        for one in servers or ("",)
    )
    common = {"alertname": name, "severity": "page", **labels}
    if len(alerts) == 1:
        common |= dict(alerts[0].labels)
    return Notification(group or f"{{}}:{{alertname={name}}}", alerts, common, left_out)
