"""The composition root: the webhook's port is open while the bot runs, and `upbot check` looks at both addresses."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from bot.app.machine import App, running
from bot.app.ways import Setup, check
from bot.domain.errors import ConfigError
from tests.demo.simulation import free_port
from tests.monitors.test_webhook import SECRET, post
from tests.monitors.wire import wired
from tests.tester import PretendChat


def setup(home: Path, *, port: int | None = None, environ: Mapping[str, str] = {}, **monitors: object) -> Setup:
    """One server on this machine, and what is said of monitors."""
    server = {"host": "here", "port": str(port or free_port()), "launch": [sys.executable, "-m", "bot.demo.engine"]}
    fleet = {"hosts": {"here": {}}, "servers": {"gpu3": server}, "channels": {"fleet": {"slack": "C1"}}, **monitors}
    (home / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    return Setup.of({"UPBOT_FLEET": str(home / "fleet.yaml"), "UPBOT_STATE": str(home / "state"), **environ})


def test_a_running_bot_takes_what_an_alertmanager_tells_and_reload_moves_its_port(tmp_path: Path) -> None:
    async def whole() -> None:
        first, second = free_port(), free_port()
        async with wired() as wire:
            wire.says(b"[]")
            said = {"url": wire.url, "listen": f"127.0.0.1:{first}"}
            made = setup(tmp_path, environ={"UPBOT_WEBHOOK_SECRET": SECRET}, alertmanager=said)
            (tmp_path / "state").mkdir()
            chat = PretendChat()
            database = made.database()
            app = App(made.source(), made.plugins, database, chat, made.clock, keys=made.environment.monitors)
            async with running(app, tmp_path / "state" / "ask.sock"):
                assert (await post(f"http://127.0.0.1:{first}/alertmanager"))[0] == 200
                assert chat.posts[0].text.startswith("🔴 Slow: ct200:30003 for ")
                file = tmp_path / "fleet.yaml"
                file.write_text(file.read_text().replace(str(first), str(second)))
                await app.reload()
                assert (await post(f"http://127.0.0.1:{second}/alertmanager"))[0] == 200
            database.close()

    asyncio.run(whole())


def test_a_bot_without_the_secret_does_not_begin(tmp_path: Path) -> None:
    async def whole() -> None:
        made = setup(tmp_path, alertmanager={"url": "http://127.0.0.1:9"})
        (tmp_path / "state").mkdir()
        database = made.database()
        app = App(made.source(), made.plugins, database, PretendChat(), made.clock, keys=made.environment.monitors)
        with pytest.raises(ConfigError, match="UPBOT_WEBHOOK_SECRET: is not set"):
            async with running(app, tmp_path / "state" / "ask.sock"):
                pass
        await app.end()
        database.close()

    asyncio.run(whole())


def looked_at(made: Setup) -> list[str]:
    return [one.line for one in asyncio.run(check(made)) if "rometheus" in one.line or "lertmanager" in one.line]


def test_check_looks_at_both_addresses_and_says_what_to_do(tmp_path: Path) -> None:
    closed = free_port()
    monitors = {
        "prometheus": {"url": f"http://127.0.0.1:{closed}"},
        "alertmanager": {"url": f"http://127.0.0.1:{closed}"},
    }
    assert looked_at(setup(tmp_path, **monitors)) == [
        f"NOT  Prometheus at 127.0.0.1:{closed} can't be reached: Connection refused\n     → docs/prometheus.md",
        "NOT  UPBOT_WEBHOOK_SECRET is not set\n     → docs/prometheus.md says what it is for",
        f"NOT  Alertmanager at 127.0.0.1:{closed} can't be reached: Connection refused\n     → docs/prometheus.md",
    ]


def test_check_names_a_target_that_prometheus_does_not_have(tmp_path: Path) -> None:
    async def told(instance: str, every: int = 15) -> list[str]:
        async with wired() as wire:
            values = [[1_790_000_000 - every, "1"], [1_790_000_000, "1"]]
            up = {"metric": {"__name__": "up", "instance": instance, "job": "j"}, "values": values}
            wire.says(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [up]}}).encode())
            made = setup(tmp_path, port=30_003, prometheus={"url": wire.url})
            found = [one.line for one in await check(made) if "rometheus" in one.line]
            return [one.replace(f"127.0.0.1:{wire.port}", "there") for one in found]

    assert asyncio.run(told("here:30003")) == ["ok   Prometheus at there: 1 of 1 target up"]
    assert asyncio.run(told("here:30003", every=5)) == [
        "NOT  Prometheus scrapes each 5 s, the fleet file says each 15 s\n     → prometheus: scrape_interval: 5 s"
    ]
    assert asyncio.run(told("other:30003")) == [
        (
            'NOT  Prometheus has no target instance="here:30003"\n'
            "     → docs/prometheus.md; the fleet file's prometheus: label and value must fit"
        )
    ]
