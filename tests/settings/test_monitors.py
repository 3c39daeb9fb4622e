"""What a fleet file says of a Prometheus and an Alertmanager, and the keys that come from the environment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.domain.errors import ConfigError
from bot.domain.fleet import Fleet
from bot.domain.monitors import AlertmanagerPeer, Labelling, PrometheusSource
from bot.settings import Environment, MonitorKeys, parse_fleet
from tests.settings.test_mistakes import KNOWN, RIGHT


def read(more: str) -> Fleet:
    return parse_fleet((RIGHT + more).encode(), "fleet.yaml", **KNOWN)


def mistake(more: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(more)
    return str(caught.value)


def test_without_them_there_are_none():
    assert (read("").prometheus, read("").alertmanager) == (None, None)


def test_an_address_is_enough():
    fleet = read("prometheus: {url: http://prom:9090/}\nalertmanager: {url: https://am.example/alertmanager}\n")
    assert fleet.prometheus == PrometheusSource("http://prom:9090")
    assert fleet.alertmanager == AlertmanagerPeer("https://am.example/alertmanager")
    assert fleet.labelled(fleet.prometheus.labelling) == {f"box:3000{n}": f"gpu{n}" for n in range(4)}


def test_everything_may_be_said():
    fleet = read(
        "prometheus: {url: 'http://p:1', label: server, value: '{name}', only: {cluster: a}, scrape_interval: 5 s,"
        " timeout: 1 s, when_away: wait}\n"
        "alertmanager: {url: 'http://a:1', send: true, listen: '0.0.0.0:9100', timeout: 2 s, watchdog: Watchdog,"
        " watchdog_within: 5 min}\n"
    )
    by_name = Labelling("server", "{name}")
    assert fleet.prometheus == PrometheusSource(
        "http://p:1", by_name, {"cluster": "a"}, timedelta(seconds=5), timedelta(seconds=1), falls_back=False
    )
    assert fleet.alertmanager == AlertmanagerPeer(
        "http://a:1", by_name, True, ("0.0.0.0", 9100), timedelta(seconds=2), "Watchdog", timedelta(minutes=5)
    )


@pytest.mark.parametrize(
    ("listen", "place"),
    [("false", None), ("9100", ("127.0.0.1", 9100)), ("'[::1]:9100'", ("::1", 9100)), ("'localhost:0'", ("localhost", 0))],
)  # fmt: skip
def test_where_the_webhook_is_listened_for(listen: str, place: object):
    fleet = read(f"alertmanager: {{url: 'http://a:1', listen: {listen}}}\n")
    assert fleet.alertmanager is not None
    assert fleet.alertmanager.listen == place


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("prometheus: {}\n", "fleet.yaml:17: prometheus.url: is missing"),
        ("prometheus: {url: 'prom:9090'}\n", "fleet.yaml:17: prometheus.url: must be an address such as http://127.0.0.1:9090, not 'prom:9090'"),
        ("prometheus: {url: 'http://ana:pw@prom'}\n", "fleet.yaml:17: prometheus.url: holds a user or a password; these belong in the environment (docs/prometheus.md)"),
        ("prometheus: {url: 'http://[::'}\n", "fleet.yaml:17: prometheus.url: must be an address such as http://127.0.0.1:9090, not 'http://[::'"),
        ("prometheus: {url: 'http://p', label: 'a-b'}\n", "fleet.yaml:17: prometheus.label: must be the name of a label, not 'a-b'"),
        ("prometheus: {url: 'http://p', value: '{nme}:{port}'}\n", "fleet.yaml:17: prometheus.value: there is no {nme}; the nearest is name"),
        ("prometheus: {url: 'http://p', value: '{host}'}\n", "fleet.yaml:17: prometheus.value: {host} is the same for several servers; they could not be told apart"),
        ("prometheus: {url: 'http://p', scrape_interval: 1 min}\n", "fleet.yaml:17: prometheus.scrape_interval: must be from 1 s to 30 s"),
        ("prometheus: {url: 'http://p', only: {'a b': c}}\n", "fleet.yaml:17: prometheus.only.a b: is no name of a label"),
        ("alertmanager: {url: 'http://a', listen: here}\n", "fleet.yaml:17: alertmanager.listen: must be an address and a port, such as 127.0.0.1:9099, not 'here'"),
        ("alertmanager: {url: 'http://a', listen: '127.0.0.1:99999'}\n", "fleet.yaml:17: alertmanager.listen: must be an address and a port, such as 127.0.0.1:9099, not '127.0.0.1:99999'"),
        ("alertmanager: {url: 'http://a', sends: true}\n", "fleet.yaml:17: alertmanager.sends: is no key here; the nearest is send"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(more: str, said: str):
    assert mistake(more) == said


def test_keys_come_from_the_environment_and_are_never_shown():
    environ = {"UPBOT_PROMETHEUS_AUTH": "tok", "UPBOT_ALERTMANAGER_AUTH": " ana:pw ", "UPBOT_WEBHOOK_SECRET": "s"}
    found = Environment.of(environ).monitors
    assert found == MonitorKeys("tok", "ana:pw", "s")
    assert found.secrets == ("tok", "ana:pw", "s")
    assert repr(found) == "MonitorKeys()"
    with pytest.raises(ConfigError, match="UPBOT_WEBHOOK_SECRET: holds a line break"):
        Environment.of({"UPBOT_WEBHOOK_SECRET": "a\nb"})
    with pytest.raises(ConfigError, match="UPBOT_WEBHOOK_SECRT: is no setting; the nearest is UPBOT_WEBHOOK_SECRET"):
        Environment.of({"UPBOT_WEBHOOK_SECRT": "s"})
