"""The shipped rules and samples: Prometheus' own tools take them, and each rule says what it should and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bot.domain.command import Command
from bot.domain.watching.causes import Cause
from bot.plugins import load
from tests.monitors.real import SHIPPED, tool

RULES = SHIPPED / "inference.rules.yml"


def alerts() -> list[dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_causes_are_those_of_the_bot_and_runbooks_name_its_commands() -> None:
    known = {one.name for one in load("handlers", "COMMAND").values() if isinstance(one, Command)}
    for rule in alerts():
        cause = rule["labels"].get("cause")
        assert cause is None or Cause(cause) is not Cause.FOREIGN
        if rule["alert"] != "Watchdog":
            runbook = rule["annotations"]["runbook"]
            named = {word.split()[0].rstrip("?") for word in runbook.split("`")[1::2]}
            assert named, rule["alert"]
            assert named <= known, named - known


@pytest.mark.prometheus
def test_prometheus_and_alertmanager_take_what_is_shipped(tmp_path: Path) -> None:
    assert "SUCCESS: 13 rules found" in tool("promtool", "check", "rules", str(RULES))
    tool("promtool", "check", "config", str(SHIPPED / "prometheus.yml"))
    tool("amtool", "check-config", str(SHIPPED / "alertmanager.yml"))


def series(name: str, values: str, server: int, **labels: str) -> dict[str, str]:
    words = {"job": "inference", "instance": f"ct200:3000{server}", **labels}
    selected = ",".join(f'{key}="{value}"' for key, value in words.items())
    return {"series": f"{name}{{{selected}}}", "values": values}


def fleet(
    *, running: str = "32x60", tokens: str = "0+10050x60", queued: str = "0x60", up: str = "1x60"
) -> list[dict[str, str]]:
    """Four servers, one of which (0) is as it is said; the others make 670 tokens a second at 32 running."""
    rows = []
    for server in range(4):
        own = server == 0
        rows += [
            series("up", up if own else "1x60", server),
            series("sglang:num_running_reqs", running if own else "32x60", server, tp_rank="0"),
            series("sglang:num_running_reqs", running if own else "32x60", server, tp_rank="1"),
            series("sglang:num_queue_reqs", queued if own else "0x60", server),
            series("sglang:realtime_tokens_total", tokens if own else "0+10050x60", server, mode="decode", tp_rank="0"),
            series("sglang:realtime_tokens_total", "0x60", server, mode="prefill_compute", tp_rank="0"),
            series("sglang:full_token_usage", "0.21x60", server),
        ]
    return rows


CASES = {
    "all is well": (fleet(), []),
    "slow": (fleet(tokens="0+5000x60"), ["InferenceServerSlow"]),
    "less to do": (fleet(running="8x60", tokens="0+4400x60"), []),
    "idle": (fleet(running="0x60", tokens="5x60"), []),
    "hung": (fleet(tokens="0+10050x10 100500x50"), ["InferenceServerHung", "InferenceServerSlow"]),
    "starved": (fleet(running="32x40 12x20", queued="0x40 9x20", tokens="0+10050x40 402000+6000x20"), ["InferenceServerStarved"]),
    "down": (fleet(up="1x20 0x40"), ["InferenceServerDown"]),
}  # fmt: skip


@pytest.mark.prometheus
@pytest.mark.parametrize("name", CASES)
def test_each_rule_fires_for_its_fault_and_not_for_want_of_demand(name: str, tmp_path: Path) -> None:
    rows, expected = CASES[name]
    known = ("InferenceServerSlow", "InferenceServerHung", "InferenceServerStarved", "InferenceServerDown")
    query = 'count by (alertname) (ALERTS{alertstate="firing",alertname!="Watchdog"})'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(expected) if alert in known]
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": rows,
                "promql_expr_test": [{"expr": query, "eval_time": "14m", "exp_samples": samples}],
            }
        ],
    }
    (tmp_path / "case.yml").write_text(yaml.safe_dump(case))
    tool("promtool", "test", "rules", str(tmp_path / "case.yml"))
