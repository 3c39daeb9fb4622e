"""What is usual for a server and its profile, learned from its own past and never from a fault.

A step is learned only when it is a while old and nothing was suspected since. One curve is shared by all servers of
a profile with the same number of seats; each server bends it by what it showed itself. A slow level follows what
drifts over hours (longer contexts), within bounds, so that a creeping loss is told in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bot.domain.watching.curve import Bins, Table, adapt, fit
from bot.domain.watching.noise import Means, Slope
from bot.domain.watching.samples import Sample
from bot.domain.watching.track import Raw, Step, Track

_FOLLOWS = 1800.0
_LEVEL_MOST = 0.35
_APART_MOST = 0.12
_TRAINED = 900.0
_REFIT_EVERY = 60.0
_BURST = 1.5
_PROMPT_BINS = 80
_LUMPY = 0.3
LUMPS_LAG = 180.0
"""Seconds after a load began in which counters that move at requests' ends say nothing."""


class Shared:
    """What the servers of one profile have in common: the curve, what prompts take off it, what bursts are usual."""

    __slots__ = ("_bursts", "_fitted_at", "_steps", "bins", "burst", "context_slope", "prompt_slope", "table")

    def __init__(self) -> None:
        self.bins = Bins()
        self.table: Table | None = None
        self.prompt_slope = Slope(1 / 3000)
        self.context_slope = Slope(0.8, held=50.0)
        self.burst = math.inf
        self._bursts = [0.0] * _PROMPT_BINS
        self._steps = 0.0
        self._fitted_at = -math.inf

    def refit(self, now: float) -> None:
        """Draw the curve anew when it is time."""
        if now - self._fitted_at < (_REFIT_EVERY if self.bins.seconds > _TRAINED else 15.0):
            return
        self._fitted_at = now
        self.table = fit(self.bins)
        self.prompt_slope.settle()
        self.context_slope.settle()
        self.burst = self._usual_burst()

    def saw_prompts(self, prompts: float) -> None:
        """Count how many prompt tokens a second came."""
        self._bursts[min(int(math.log2(1 + prompts) * 4), _PROMPT_BINS - 1)] += 1
        self._steps += 1
        if self._steps > 200_000:
            self._bursts = [count / 2 for count in self._bursts]
            self._steps /= 2

    def _usual_burst(self) -> float:
        """One and a half times what is exceeded by two steps in a thousand."""
        if self._steps < 200:
            return math.inf
        rest = 0.002 * self._steps
        for place in range(_PROMPT_BINS - 1, -1, -1):
            rest -= self._bursts[place]
            if rest < 0:
                return max(_BURST * 2 ** ((place + 1) / 4), 500.0)
        return math.inf

    def dump(self) -> dict[str, Any]:
        """As plain values, for the store."""
        return {
            "bins": self.bins.dump(),
            "prompt_slope": self.prompt_slope.value,
            "context_slope": self.context_slope.value,
            "bursts": list(self._bursts),
        }

    def load(self, plain: Mapping[str, Any]) -> None:
        """The other way round."""
        self.bins.load(plain["bins"])
        self.prompt_slope.value = float(plain["prompt_slope"])
        self.context_slope.value = float(plain["context_slope"])
        self._bursts = [float(count) for count in plain["bursts"]][:_PROMPT_BINS]
        self._steps = sum(self._bursts)


class Usual:
    """What is usual for one server with one profile."""

    __slots__ = (
        "_accepted",
        "_context",
        "_context_slow",
        "_fitted_at",
        "_heavy_seen",
        "_lumps",
        "_prompts",
        "_table",
        "bins",
        "heaviness",
        "level",
        "lowest_level",
        "means",
        "seats",
        "shared",
    )

    def __init__(self, shared: Shared, windows: int) -> None:
        self.shared = shared
        self.means = Means(windows)
        self._lumps = 0.0
        self.bins = Bins()
        self.level = 0.0
        self.lowest_level = -_LEVEL_MOST
        self.seats: float | None = None
        self.heaviness = 0.0
        self._heavy_seen = 0.0
        self._prompts: float | None = None
        self._accepted: float | None = None
        self._context = 0.0
        self._context_slow = 0.0
        self._table: Table | None = None
        self._fitted_at = -math.inf

    def refit(self, now: float) -> None:
        """Draw this server's curve anew when it is time."""
        if now - self._fitted_at >= (_REFIT_EVERY if self.bins.seconds > _TRAINED else 15.0):
            self._fitted_at = now
            shared = self.shared.table
            self._table = adapt(shared, self.bins) if shared is not None else None

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to judge by."""
        return self._table is not None and self.shared.bins.seconds >= _TRAINED and self.bins.seconds >= _TRAINED / 1.5

    @property
    def range(self) -> tuple[float, float]:
        """The loads that were really seen."""
        return (self._table.low, self._table.high) if self._table is not None else (math.inf, 0.0)

    @property
    def is_lumpy(self) -> bool:
        """Whether tokens are counted when requests end: a fresh load then shows none for a while."""
        return self._lumps > _LUMPY * _LUMPY

    def step(self, raw: Raw, sample: Sample, track: Track) -> Step:
        """Say what was to be expected of a step, and whether it may be judged."""
        is_burst = raw.prompts > self.shared.burst
        expected = self._tokens(raw) * self._factor(raw, sample) * math.exp(self.level)
        return Step(
            raw.end,
            raw.span,
            raw.tokens,
            raw.prompts,
            raw.low,
            raw.high,
            raw.queued,
            expected,
            raw.is_ramp or is_burst or (self.is_lumpy and raw.end - track.ramped_at < LUMPS_LAG),
            raw.context,
        )

    @property
    def prompts(self) -> float | None:
        """Prompt tokens a second, on the average of minutes."""
        return self._prompts

    def with_usual_prompts(self, step: Step) -> float:
        """The tokens that a step would have made with as many prompts as usual."""
        if self._table is None or step.running <= 0:
            return 0.0
        usual = self.heaviness * max(step.running, 1.0)
        factor = max(0.1, 1 - self.shared.prompt_slope.value * usual)
        return self._table.pace(step.running) * step.running * step.span * factor * math.exp(self.level)

    def _tokens(self, raw: Raw) -> float:
        if self._table is None:
            return 0.0
        low = raw.low * self._table.pace(raw.low) if raw.low else 0.0
        high = (raw.high * self._table.pace(raw.high) if raw.high != raw.low else low) if raw.high else 0.0
        return (low + high) / 2 * raw.span

    def _factor(self, raw: Raw, sample: Sample) -> float:
        factor = max(0.1, 1 - self.shared.prompt_slope.value * raw.prompts)
        if sample.accept_length and self._accepted:
            factor *= max(0.4, min(2.0, sample.accept_length / self._accepted))
        return factor * self._by_context(raw.context)

    def _by_context(self, context: float) -> float:
        """Longer contexts take longer to read at each step: what that leaves of the pace."""
        if not context or not self._context:
            return 1.0
        return max(0.5, min(1.3, 1 - self.shared.context_slope.value * self._longer(context)))

    def _longer(self, context: float) -> float:
        return max(-1.5, min(1.5, math.log(context / self._context)))

    def learn(self, step: Step, sample: Sample | None) -> None:
        """Take a step that is known by now to have been an ordinary one."""
        running, shared = step.running, self.shared
        shared.saw_prompts(step.prompts)
        if step.is_masked or running <= 0:
            return
        self._weigh(step)
        share = min(1.0, step.span / 1800.0)
        if sample is not None and sample.accept_length:
            was = self._accepted
            self._accepted = sample.accept_length if was is None else was + share * (sample.accept_length - was)
        tokens = step.tokens
        if self.is_known and step.expected > 0:
            tokens = min(tokens, 5 * step.expected)
            excess = tokens / step.expected - 1
            self._lumps += min(1.0, step.span / 1800) * (min(excess, 2.0) ** 2 - self._lumps)
            if shared.bins.seconds > 2 * _TRAINED:
                shared.prompt_slope.learn(step.prompts, self._prompts or 0.0, excess, step.span)
                self._learn_context(step, excess)
                self._follow(step, excess)
        factor = max(0.1, 1 - shared.prompt_slope.value * step.prompts) * math.exp(self.level)
        factor *= self._by_context(step.context)
        demand = running * step.span * factor
        self.bins.learn(running, tokens, demand, step.span)
        shared.bins.learn(running, tokens, demand, step.span)

    def _weigh(self, step: Step) -> None:
        """Follow how many prompts come, within minutes, and how many of them to a running request, within hours."""
        share = min(1.0, step.span / 600.0)
        self._prompts = (
            step.prompts if self._prompts is None else self._prompts + share * (step.prompts - self._prompts)
        )
        self._heavy_seen = min(self._heavy_seen + step.span, 7200.0)
        self.heaviness += step.span / self._heavy_seen * (step.prompts / max(step.running, 1.0) - self.heaviness)

    def _learn_context(self, step: Step, excess: float) -> None:
        if not step.context:
            return
        if not self._context:
            self._context = step.context
        longer = self._longer(step.context)
        self.shared.context_slope.learn(longer, self._context_slow, excess, step.span)
        self._context_slow += step.span / 3600 * (longer - self._context_slow)

    def _follow(self, step: Step, excess: float) -> None:
        moved = self.level + step.span / _FOLLOWS * max(-0.3, min(0.3, excess))
        self.level = max(self.lowest_level, min(_LEVEL_MOST, moved))

    def stay_near(self, others: float) -> None:
        """Bind the slow level to that of the others: what drifts for one alone is a fault that creeps."""
        self.lowest_level = max(-_LEVEL_MOST, others - _APART_MOST)

    def saw_full(self, running: float, share: float) -> None:
        """Learn how many requests run when others have to wait."""
        if self.seats is None:
            self.seats = running
        elif running > self.seats:
            self.seats += 0.5 * (running - self.seats)
        else:
            self.seats += share * (running - self.seats)

    def dump(self) -> dict[str, Any]:
        """As plain values, for the store."""
        return {
            "bins": self.bins.dump(),
            "level": self.level,
            "seats": self.seats,
            "prompts": self._prompts,
            "lumps": self._lumps,
            "heaviness": [self.heaviness, self._heavy_seen],
            "accepted": self._accepted,
            "context": self._context,
        }

    def load(self, plain: Mapping[str, Any]) -> None:
        """The other way round."""
        self.bins.load(plain["bins"])
        self.level = float(plain["level"])
        self.seats = plain["seats"]
        self._prompts = plain["prompts"]
        self._lumps = float(plain["lumps"])
        self.heaviness, self._heavy_seen = plain["heaviness"]
        self._accepted = plain["accepted"]
        self._context = float(plain["context"])
