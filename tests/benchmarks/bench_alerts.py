"""Measure the alert rules on simulated nights and write the table of docs/alerts.md.

    python tests/benchmarks/bench_alerts.py [--only NAME] [--seeds 1,2] [--write]

Needs numpy. Besides the fleets of `alert_simulator.py`, a folder ../shared/bench/alerts beside the project is used
when it is there: its simulator runs with both of its workloads. Takes about a minute a row and seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from alert_simulator import Event, Run, Setting, knee, saturating, speculative  # noqa: E402 - the path comes first

from bot.domain.watching.alerts import Change, Did  # noqa: E402 - as above
from bot.domain.watching.recorded import read  # noqa: E402 - as above
from bot.domain.watching.samples import Reading  # noqa: E402 - as above
from bot.domain.watching.watch import Watch  # noqa: E402 - as above

CAUSES = {"straggler": "slow_server", "all_slow": "slow_fleet", "dead": "down", "hang": "hung", "cap_cut": "starved"}
SHARED = ROOT.parent / "shared" / "bench" / "alerts"
RECOVERY, JOINED = 900, 300

BASE = Setting("as the reference, own traffic", is_batch=True, seed=1)
SETTINGS = (
    BASE,
    replace(BASE, name="saturating curve", curve=saturating),
    replace(BASE, name="curve with a knee", curve=knee),
    replace(BASE, name="speculative, accept length told", curve=speculative, wander=0.12, tells_drafts=True),
    replace(BASE, name="speculative, accept length unknown", curve=speculative, wander=0.08),
    replace(BASE, name="8 % noise", noise=0.08),
    replace(BASE, name="drifting context (-29 % in 3.5 h)", drift=0.4),
    replace(BASE, name="one server", servers=1),
    replace(BASE, name="two servers", servers=2),
    replace(BASE, name="64 servers, one day", servers=64, days=1.0),
    replace(BASE, name="samples each 15 s", every=15),
    replace(BASE, name="counters that move at request ends", lumps=True),
    replace(BASE, name="clock jumps, 12 a day", jumps=12),
    replace(BASE, name="2 % of reads lost", lost=0.02),
)


@dataclass
class Score:
    """What came of the alerts in one or more runs."""

    faults: int = 0
    delays: list[float] = field(default_factory=list)
    by_kind: dict[str, list[float]] = field(default_factory=dict)
    right: int = 0
    false: int = 0
    lulls: list[int] = field(default_factory=lambda: [0, 0])
    heavies: list[int] = field(default_factory=lambda: [0, 0])
    days: float = 0.0
    missed: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        self.faults += other.faults
        self.delays += other.delays
        for kind, delays in other.by_kind.items():
            self.by_kind.setdefault(kind, []).extend(delays)
        self.right += other.right
        self.false += other.false
        self.lulls = [a + b for a, b in zip(self.lulls, other.lulls, strict=True)]
        self.heavies = [a + b for a, b in zip(self.heavies, other.heavies, strict=True)]
        self.days += other.days
        self.missed += other.missed
        self.odd += other.odd

    def cells(self) -> list[str]:
        """The columns of the table."""
        found = len(self.delays)
        kinds = [
            f"{statistics.median(delays):.0f}" if (delays := self.by_kind.get(kind)) else "–"
            for kind in ("dead", "hang")
        ]
        middle = f"{statistics.median(self.delays):.0f} / {percentile(self.delays):.0f}" if found else "–"
        return [
            f"{found}/{self.faults}",
            f"{self.false / self.days:.2f}",
            f"{self.lulls[0]}/{self.lulls[1]}",
            f"{self.heavies[0]}/{self.heavies[1]}",
            middle,
            *kinds,
            f"{self.right}/{found}",
        ]


def percentile(values: list[float]) -> float:
    """The ninetieth."""
    return sorted(values)[int(0.9 * (len(values) - 1))]


def watch(readings: Iterable[tuple[float, Reading]]) -> list[tuple[float, Change]]:
    """Every change that is told, with the true second of its reading."""
    watcher = Watch()
    told = (Did.FIRING, Did.JOINED, Did.RETURNED, Did.RESOLVED)
    return [(at, change) for at, reading in readings for change in watcher.take(reading) if change.did in told]


def score(events: list[Event], changes: list[tuple[float, Change]], days: float) -> Score:
    """Count as the reference benchmark does: spans with any alert on, gaps under five minutes closed.

    But for one thing: seats that were taken away and hardly missed (no queue for half the time) are no fault that has
    to be found, yet an alert that says so within their time is not false.
    """
    result, spans = Score(days=days), spans_of(changes)
    starts = [(at, change) for at, change in changes if change.did is not Did.RESOLVED]
    scored = [event for event in events if event.is_scored]
    for event in scored:
        if event.kind in CAUSES:
            _score_fault(event, spans, starts, result)
    for begin, _ in spans:
        near = [event for event in events if event.start - 15 <= begin <= event.end + RECOVERY]
        what = [f"{change.alert.cause.value}@{at:.0f}" for at, change in starts if at == begin]
        if not near:
            result.false += 1
            result.odd.append(f"false {what}")
        elif near[0].kind in ("lull", "prompt_heavy"):
            (result.lulls if near[0].kind == "lull" else result.heavies)[0] += 1
            result.odd.append(f"{near[0].kind} {what}")
    result.lulls[1] = sum(event.kind == "lull" for event in scored)
    result.heavies[1] = sum(event.kind == "prompt_heavy" for event in scored)
    return result


def spans_of(changes: list[tuple[float, Change]]) -> list[list[float]]:
    """The spans in which any alert was on."""
    spans: list[list[float]] = []
    live: set[str] = set()
    for at, change in changes:
        if change.did is Did.RESOLVED:
            live.discard(change.alert.id)
            if not live and spans:
                spans[-1][1] = at
            continue
        if not live:
            if spans and at - spans[-1][1] <= JOINED:
                spans[-1][1] = float("inf")
            else:
                spans.append([at, float("inf")])
        live.add(change.alert.id)
    return spans


def _score_fault(event: Event, spans: list[list[float]], starts: list[tuple[float, Change]], result: Score) -> None:
    result.faults += 1
    hits = [(at, change) for at, change in starts if event.start <= at <= event.end + 60]
    if not hits or any(begin < event.start <= end for begin, end in spans):
        result.missed.append(f"{event.kind}@{event.start} -{event.loss:.0%}{'' if not hits else ' (alarm was on)'}")
        return
    first = hits[0][0]
    result.delays.append(first - event.start)
    result.by_kind.setdefault(event.kind, []).append(first - event.start)
    named = [
        change
        for at, change in hits
        if at <= first + 60
        and change.alert.cause.value == CAUSES[event.kind]
        and (event.kind == "all_slow" or event.server in change.servers)
    ]
    result.right += bool(named)
    if not named:
        result.odd.append(f"{event.kind}@{event.start} called {hits[0][1].alert.cause.value} {hits[0][1].servers}")


def run_own(setting: Setting) -> Score:
    """One run of our own simulator."""
    run = Run(setting)
    changes = watch(run)
    return score(run.events, changes, setting.days)


def run_shared(workload: str, seed: int, days: float = 2.0) -> Score:
    """One run of the reference simulator, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        argv = [sys.executable, str(SHARED / "simulate.py"), "--workload", workload, "--seed", str(seed)]
        subprocess.run([*argv, "--days", str(days), "--out", str(out)], check=True)
        plan = json.loads(out.with_suffix(".events.json").read_text())
        events = [
            Event(one["kind"], one["start"], one["end"], one["loss"], one["server"], one["scored"])
            for one in plan["events"]
        ]
        with out.with_suffix(".samples.jsonl").open() as lines:
            changes = watch((reading.at.timestamp(), reading) for reading in read(lines))
        return score(events, changes, days)


HEAD = (
    "fleet and traffic",
    "seeds × days",
    "found",
    "false a day",
    "lulls alarmed",
    "prompt-heavy alarmed",
    "median / P90 s",
    "down s",
    "hung s",
    "cause right",
)


def rows(only: str, seeds: list[int]) -> Iterable[tuple[str, Score]]:
    """Every row of the table, as it gets ready."""
    for workload in ("batch", "online"):
        if SHARED.is_dir() and only in f"reference benchmark, {workload}":
            yield f"reference benchmark, {workload}", _sum([run_shared(workload, seed) for seed in seeds])
    for setting in SETTINGS:
        for is_batch in (True, False):
            name = f"{setting.name}, {'batch' if is_batch else 'online'}"
            if only in name:
                runs = [run_own(replace(setting, is_batch=is_batch, seed=seed)) for seed in seeds]
                yield name, _sum(runs)


def _sum(scores: list[Score]) -> Score:
    total = Score()
    for one in scores:
        total.add(one)
    return total


def line(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--write", action="store_true", help="put the rows into the table of docs/alerts.md")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    say(line(HEAD))
    for name, result in rows(args.only, seeds):
        row = line([name, f"{len(seeds)} × {result.days / len(seeds):.0f}", *result.cells()])
        say(row)
        for odd in (*result.missed, *result.odd):
            say(f"    {odd}")
        if args.write:
            write(name, row)


def say(text: str) -> None:
    """Show how far it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write(name: str, row: str) -> None:
    """Put a row between the two marks in docs/alerts.md, in the place of an older one of that name."""
    page = ROOT / "docs" / "alerts.md"
    before, _, rest = page.read_text().partition("<!-- table -->\n")
    old, _, after = rest.partition("<!-- end -->")
    kept = {one.split(" | ")[0].removeprefix("| "): one for one in old.splitlines()[2:]}
    kept[name] = row
    ordered = [kept[one] for one in names() if one in kept]
    table = "\n".join([line(HEAD), "|" + "---|" * len(HEAD), *ordered])
    page.write_text(f"{before}<!-- table -->\n{table}\n<!-- end -->{after}")


def names() -> list[str]:
    """All rows' names, in order."""
    own = [f"{setting.name}, {kind}" for setting in SETTINGS for kind in ("batch", "online")]
    return ["reference benchmark, batch", "reference benchmark, online", *own]


if __name__ == "__main__":
    main()
