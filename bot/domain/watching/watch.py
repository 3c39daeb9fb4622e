"""The watcher's core: takes readings one by one and says what changed; the bot and the replay share it.

It holds what is learned and the recent past, both bounded; alerts are kept as plain values (`Watch.book`), what is
learned as plain data (`Watch.dump`), so that a restart forgets neither what was told nor what is usual.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.domain.watching import alerts, fleet_rules, foreign
from bot.domain.watching.alerts import Book, Change, Did
from bot.domain.watching.causes import FLEET, HIDES, PLANNED, Cause, Finding, Value
from bot.domain.watching.fleet_rules import JobTrack
from bot.domain.watching.limits import Limits
from bot.domain.watching.looks import FleetLook, Look, bounds, median_of_others
from bot.domain.watching.noise import Means, Noise
from bot.domain.watching.pace import Pace, paces
from bot.domain.watching.rules import PROOFS, RULES
from bot.domain.watching.samples import Reading, Sample
from bot.domain.watching.timeline import Break, Timeline
from bot.domain.watching.track import Track
from bot.domain.watching.usual import Shared, Usual

_LEARNED_AFTER = 90.0
_STILL = 1.5
_SAME = 0.5
_SUSPECT = (Cause.DOWN, Cause.HUNG, Cause.STARVED, Cause.SLOW_SERVER, Cause.CRASH_LOOP, Cause.SLOW_FLEET)
_LOST_AT_FIRST = 0.004
_FALSE_DOWNS_A_DAY = 0.02
_MOST_PROFILES = 64
_TOLD_AGAIN_AFTER = 900.0


class Watch:
    """Watches one fleet. ``book`` holds the alerts and silences."""

    def __init__(self, limits: Limits = Limits(), *, book: Book = Book()) -> None:  # noqa: B008 - both are frozen
        self.limits = limits
        self.book = book
        self._timeline = Timeline()
        self._tracks: dict[str, Track] = {}
        self._shared: dict[str, Shared] = {}
        self._usual: dict[tuple[str, str], Usual] = {}
        self._windows = [span.total_seconds() for span, _ in limits.windows]
        self._noise = Noise(len(self._windows), 0.05)
        self._fleet_noise = Noise(len(self._windows), 0.04)
        self._suspected: dict[str, float] = {}
        self._planned_at: dict[str, float] = {}
        self._jobs: dict[str, JobTrack] = {}
        self._fleet_means = Means(len(self._windows))
        self._bound_at = -math.inf
        self._lost = _LOST_AT_FIRST
        self._noted: dict[Cause, float] = {}

    def take(self, reading: Reading) -> tuple[Change, ...]:
        """Go on by one reading; everything that there is to tell of it, in order."""
        broken = self._timeline.advance(reading.at)
        now = self._timeline.elapsed
        for name in reading.planned | reading.planned_jobs:
            self._planned_at[name] = now
        looks = self._look(reading, broken)
        fleet = self._judge(looks, reading.at, now)
        findings = self._findings(fleet, looks)
        jobs, notes = self._jobs_and_notes(fleet, reading, now)
        kept = [one for one in (*findings, *jobs) if not self._is_planned(one, now)]
        self.book, changes = alerts.advance(self.book, kept, self._proof(fleet, looks, now), reading.at, self.limits)
        unwell = frozenset(name for name, look in looks.items() if look.track.misses > 1 or look.track.is_dead)
        self.book, fired = foreign.confirm(self.book, self.planned(), reading.at)
        self.book, doubts = foreign.doubt(self.book, unwell, reading.at)
        self._suspect(looks, findings, now)
        self._learn(looks, fleet, now)
        return (*changes, *fired, *doubts, *notes)

    # What was seen

    def _look(self, reading: Reading, broken: Break) -> dict[str, Look]:
        if reading.expected is not None:
            for name in [name for name in self._tracks if name not in reading.expected]:
                self.forget(name)
        names = dict.fromkeys((*self._tracks, *reading.servers, *(reading.expected or ())))
        needed = self._misses_needed(len(names))
        return {name: self._look_at(name, reading, broken, needed) for name in names}

    def _look_at(self, name: str, reading: Reading, broken: Break, needed: int) -> Look:
        sample = reading.servers.get(name)
        age = sample.age or 0.0 if sample is not None else 0.0
        now = self._timeline.elapsed - age
        track = self._tracks.get(name)
        if track is None:
            track = self._tracks[name] = Track(now)
        raw = track.take(sample, now, broken)
        usual = self._usual_of(name, track.last, now)
        if raw is not None and sample is not None:
            track.add(usual.step(raw, sample, track))
        self._count_loss(track)
        found = paces(track.steps, now, self._windows) if usual.is_known else [None] * len(self._windows)
        if track.still_seconds >= _STILL * self._timeline.usual:
            found = [None] * len(self._windows)  # whether it hangs or idles is not for its pace to say
        limits = bounds(found, (self._noise, usual.means), self.limits, usual.range)
        step = self._timeline.usual
        at = reading.at - timedelta(seconds=age)
        return Look(name, track, usual, now, at, step, needed, found, limits, [None] * len(found))

    def _usual_of(self, name: str, sample: Sample | None, now: float) -> Usual:
        profile = f"{sample.profile or ''}/{sample.max_running or ''}" if sample is not None else "/"
        key = (name, profile)
        usual = self._usual.get(key)
        if usual is None:
            self._make_room(name)
            usual = self._usual[key] = Usual(self._shared.setdefault(profile, Shared()), len(self._windows))
        usual.shared.refit(now)
        usual.refit(now)
        return usual

    def _make_room(self, name: str) -> None:
        mine = [key for key in self._usual if key[0] == name]
        if len(mine) >= 8:
            del self._usual[mine[0]]
        if len(self._shared) > _MOST_PROFILES:
            used = {profile for _, profile in self._usual}
            self._shared = {profile: one for profile, one in self._shared.items() if profile in used}

    def _count_loss(self, track: Track) -> None:
        """How often single reads are lost: those that were followed by a good one."""
        if track.misses == 0:
            lost = 1.0 if track.was_lost else 0.0
            self._lost += (lost - self._lost) / 20_000

    def _misses_needed(self, servers: int) -> int:
        """So many lost reads in a row that chance makes them less than once in weeks."""
        readings = 86_400 / max(1.0, self._timeline.usual) * max(1, servers)
        rate = max(1e-4, min(0.3, self._lost))
        needed = math.ceil(math.log(_FALSE_DOWNS_A_DAY / readings) / math.log(rate))
        return max(self.limits.misses, min(10, needed))

    # What is wrong

    def _judge(self, looks: dict[str, Look], at: datetime, now: float) -> FleetLook:
        """Compare the servers with each other; those that an operation works on stay out of it."""
        able = {
            name: look for name, look in looks.items() if not look.track.misses and not self._was_planned(name, now)
        }
        rows = {name: look.paces for name, look in able.items() if any(pace is not None for pace in look.paces)}
        windows = len(self._windows)
        fine = sum(1 for row in rows.values() if row[0] is not None and row[0].value > math.log(self.limits.recovered))
        for name in rows:
            others = median_of_others(name, rows, windows)
            able[name] = looks[name] = replace(able[name], others=others, fine=fine)
        least = max(2, sum(1 for look in looks.values() if not look.track.misses) // 2)
        medians = [_median([row[number] for row in rows.values()], least) for number in range(windows)]
        known = (
            statistics.median([able[name].usual.range[0] for name in rows]) if rows else math.inf,
            statistics.median([able[name].usual.range[1] for name in rows]) if rows else 0.0,
        )
        limits = bounds(medians, (self._fleet_noise, self._fleet_means), self.limits, known)
        return FleetLook({name: able[name] for name in rows}, medians, limits, at, now)

    def _findings(self, fleet: FleetLook, looks: Mapping[str, Look]) -> list[Finding]:
        findings: list[Finding] = []
        slow = fleet_rules.slow_fleet(fleet, self.limits)
        if slow is not None:
            findings.append(slow)
        for name, look in looks.items():
            hidden = {cause for one in HIDES for cause in HIDES[one] if name in self.book.on(one)}
            for cause, rule in RULES.items():
                found = rule(look, self.limits)
                if found is None:
                    continue
                if cause not in hidden:
                    findings.append(found)
                hidden |= HIDES.get(cause, frozenset())
        return findings

    def _jobs_and_notes(self, fleet: FleetLook, reading: Reading, now: float) -> tuple[list[Finding], list[Change]]:
        findings: list[Finding] = []
        notes: list[Finding | None] = [fleet_rules.prompt_heavy(fleet)]
        for name, sample in reading.jobs.items():
            job = self._jobs.setdefault(name, JobTrack(now))
            job.take(sample, now)
            stalled = fleet_rules.job_stalled(name, job, now, reading.at, self.limits)
            findings += [stalled] if stalled is not None else []
            ended = fleet_rules.job_finished(name, job, reading.at)
            if ended is not None:
                job.is_told = True
                notes.append(ended)
        return findings, [change for note in notes if note is not None for change in self._note(note, reading.at, now)]

    def _note(self, finding: Finding, at: datetime, now: float) -> list[Change]:
        """Tell a note once in a while; one about a job's end each time."""
        last = self._noted.get(finding.cause, -math.inf)
        self._noted[finding.cause] = now  # as long as it lasts, it was told
        if finding.cause is Cause.PROMPT_HEAVY and now - last < _TOLD_AGAIN_AFTER:
            return []
        note = alerts.Alert(f"{finding.cause.value}", finding.cause, finding.servers, finding.since)
        note = replace(note, evidence=finding.evidence, fired_at=at)
        return [Change(Did.NOTE, at, note, finding.servers)]

    def planned(self) -> frozenset[str]:
        """The servers that an operation works on, or did a moment ago."""
        return frozenset(name for name in self._planned_at if self._was_planned(name, self._timeline.elapsed))

    def _was_planned(self, name: str, now: float) -> bool:
        at = self._planned_at.get(name)
        return at is not None and now - at <= self.limits.grace_after_plan.total_seconds()

    def _is_planned(self, finding: Finding, now: float) -> bool:
        return finding.cause in PLANNED and all(self._was_planned(name, now) for name in finding.servers)

    def _proof(self, fleet: FleetLook, looks: Mapping[str, Look], now: float) -> alerts.Proof:
        def proof(cause: Cause, name: str) -> Mapping[str, Value] | None:
            if cause is Cause.SLOW_FLEET and name == FLEET:
                is_fast = fleet_rules.is_fleet_fast(fleet, self.limits)
                return {"rate": sum(look.rate for look in fleet.looks.values())} if is_fast else None
            if cause is Cause.JOB_STALLED:
                job = self._jobs.get(name)
                return fleet_rules.job_end(job, now) if job is not None else None
            look = looks.get(name)
            return {"rate": look.rate} if look is not None and PROOFS[cause](look, self.limits) else None

        return proof

    # What is usual

    def _suspect(self, looks: Mapping[str, Look], findings: list[Finding], now: float) -> None:
        suspects = self.book.on(*_SUSPECT) | {name for one in findings if one.cause in _SUSPECT for name in one.servers}
        if any(
            one.cause is Cause.SLOW_FLEET and (one.is_on or one.state.value == "pending") for one in self.book.alerts
        ):
            suspects |= set(looks)
        for name in suspects:
            self._suspected[name] = now
        for name in self.book.on(Cause.HUNG) & set(looks):
            looks[name].track.drop_steps()

    def _learn(self, looks: Mapping[str, Look], fleet: FleetLook, now: float) -> None:
        """Learn the steps that are a while old by now, unless something was suspected since they began."""
        for name, look in looks.items():
            spoiled = self._suspected.get(name, -math.inf) + 30
            for step in look.track.ripe(now - _LEARNED_AFTER):
                if spoiled < step.end - step.span and now - spoiled >= _LEARNED_AFTER:
                    look.usual.learn(step, look.track.last)
                    if look.track.waited >= 6:
                        look.usual.saw_full(step.high, 0.01)
            if now - spoiled > _LEARNED_AFTER:
                self._learn_noise(look)
        self._bind_levels(looks, now)
        if not any(now - at < _LEARNED_AFTER + 30 for at in self._suspected.values()):
            for number, pace in enumerate(fleet.medians):
                if pace is not None:
                    self._fleet_noise.learn(
                        number, pace.running, pace.value, self._timeline.usual / self._windows[number]
                    )

    def _bind_levels(self, looks: Mapping[str, Look], now: float) -> None:
        if now - self._bound_at < 60:
            return
        self._bound_at = now
        peers: dict[Shared, list[Usual]] = {}
        for look in looks.values():
            if look.usual.is_known:
                peers.setdefault(look.usual.shared, []).append(look.usual)
        for group in peers.values():
            levels = [usual.level for usual in group]
            for number, usual in enumerate(group if len(group) > 1 else ()):
                usual.stay_near(statistics.median(levels[:number] + levels[number + 1 :]))

    def _learn_noise(self, look: Look) -> None:
        for number, pace in enumerate(look.paces):
            if pace is not None:
                self._scatter(self._noise, look.usual.means, number, pace)

    def _scatter(self, noise: Noise, means: Means, window: int, pace: Pace) -> None:
        apart = means.learn(window, pace.value, self._timeline.usual)
        noise.learn(window, pace.running, apart, self._timeline.usual / self._windows[window])

    def expected(self) -> dict[str, float]:
        """The tokens a second that are usual for each server as it ran in the last reading, where that is known."""
        found = {}
        for (name, _), usual in self._usual.items():
            track = self._tracks.get(name)
            if track is None or track.misses or not track.steps or not usual.is_known:
                continue
            step, age = track.steps[-1], track.last.age or 0.0 if track.last is not None else 0.0
            if abs(step.end - (self._timeline.elapsed - age)) < _SAME and step.expected > 0:
                found[name] = step.expected / step.span
        return found

    def forget(self, server: str) -> None:
        """A server is no longer one of the fleet: its past goes, and its alerts with it."""
        for kept in (self._tracks, self._suspected, self._planned_at):
            kept.pop(server, None)
        self._usual = {key: one for key, one in self._usual.items() if key[0] != server}
        left = [(one, tuple(name for name in one.servers if name != server)) for one in self.book.alerts]
        kept_alerts = tuple(replace(one, servers=names) for one, names in left if names or not one.servers)
        self.book = replace(self.book, alerts=kept_alerts)

    def relearn(self, server: str) -> None:
        """Something was changed on purpose: what was usual for this server is not any more."""
        self._usual = {key: one for key, one in self._usual.items() if key[0] != server}

    def dump(self) -> dict[str, Any]:
        """What was learned, as plain JSON data."""
        return {
            "form": 1,
            "lost": self._lost,
            "noise": self._noise.dump(),
            "fleet_noise": self._fleet_noise.dump(),
            "shared": {profile: one.dump() for profile, one in self._shared.items()},
            "usual": [[*key, one.dump()] for key, one in self._usual.items()],
        }

    def load(self, plain: Mapping[str, Any]) -> None:
        """Know again what was learned; data of another form is left alone, and learning begins anew."""
        if plain.get("form") != 1:
            return
        self._lost = float(plain["lost"])
        self._noise.load(plain["noise"])
        self._fleet_noise.load(plain["fleet_noise"])
        for profile, one in plain["shared"].items():
            self._shared[profile] = Shared()
            self._shared[profile].load(one)
        for name, profile, one in plain["usual"]:
            usual = self._usual[name, profile] = Usual(self._shared.setdefault(profile, Shared()), len(self._windows))
            usual.load(one)


def _median(row: list[Pace | None], least: int) -> Pace | None:
    """The middle one by value, with two servers the better one; None where fewer than ``least`` may be judged."""
    known = sorted((pace for pace in row if pace is not None), key=lambda pace: pace.value)
    if len(known) < least:
        return None
    return known[len(known) // 2]
