"""A night in the life: 24 hours of a channel, from one evening to the next, as people read it in the morning.

Eight servers, a job, an Alertmanager beside; two deploys, a canary, a job that ends and another that begins, a GPU that
overheats, a fan, a server that runs out of memory (and an Alertmanager that calls it resolved because its series ended),
a bot that is killed in the middle of it all, two servers that are held. What then stands in the channel is `night.txt`;
`python -m tests.scenarios.test_night` writes it anew, for a person to read before it is kept.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.domain.diagnosis import Diagnosis, Phase
from bot.domain.facts import JobState
from bot.domain.message import plain
from bot.runtime.reporter import Reporter
from bot.runtime.watcher import ROUND
from tests.jumping import JumpingClock, run
from tests.monitoring import PretendAlertmanager, monitored, told
from tests.tester import Bot, Post

EVENING = datetime(2026, 11, 30, 18, 0, tzinfo=UTC)
TRANSCRIPT = Path(__file__).with_name("night.txt")
NAMES = {"U1": "ana", "U2": "bo", "U3": "vic"}
OUT_OF_MEMORY = Diagnosis(
    "sglang",
    "0.5.13",
    Phase.CRASHED,
    is_crashed=True,
    cause="cuda_oom",
    decisive_line="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.44 GiB.",
    remedy="lower --mem-fraction-static",
)


@dataclass
class Night:
    """The channel and the fleet over a day; ``bot`` is the one that lives now, or None."""

    bot: Bot
    remote: PretendAlertmanager
    said: list[tuple[float, str]] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    is_watched: bool = True
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - weather, not a secret
    noise: dict[str, float] = field(default_factory=dict)

    async def until(self, hour: int, minute: float = 0) -> None:
        """Let the fleet work, and the watcher look, until that time of the day."""
        due = EVENING.replace(hour=0) + timedelta(hours=hour if hour >= EVENING.hour else hour + 24, minutes=minute)
        while self.bot.clock.now() < due:
            begun = asyncio.get_running_loop().time()
            self._weather(begun)
            if self.is_watched:
                await self.bot.watcher.round()
                await self.bot.liaison.round()
            await asyncio.sleep(max(0.0, begun + ROUND.total_seconds() - asyncio.get_running_loop().time()))

    def _weather(self, at: float) -> None:
        """Load that comes and goes, speeds that stray by some per cent, a job that gets on."""
        fleet = self.bot.fleet
        fleet.running = round(66 + 4 * math.sin(at / 2_900) + self.chance.uniform(-1.5, 1.5))
        is_fed = fleet.job_state is JobState.RUNNING
        total = 0.0
        for name, one in fleet.servers.items():
            self.noise[name] = 0.8 * self.noise.get(name, 0.0) + self.chance.gauss(0, 0.012)
            one.speed = (1 + self.noise[name]) * self.slow.get(name, 1.0)
            if one.pid is None:
                continue
            seats = fleet._seats(one)
            running = min(fleet.running, seats) if is_fed else 0
            total += running * 60 / (1 + 0.0643 * max(0, running - 1)) * one.speed
            usage = {"kv_usage": running * 0.0118, "mamba_usage": running / seats * (0.61 if seats < 40 else 0.96)}
            one.load_says = usage
        fleet.job_rate = 0.98 * total
        if is_fed:
            fleet.job_done = min(193_000, fleet.job_done + 26)
            if fleet.job_done == 193_000:
                fleet.job_state = JobState.DONE

    async def say(self, text: str, *, user: str = "U1") -> None:
        """Somebody says something, and reads the answer for some seconds."""
        self.said.append((asyncio.get_running_loop().time(), f"{NAMES[user]}: {text}"))
        self.bot.say(text, user=user)
        await self.bot.advance(4)

    async def press(self, label: str, *, user: str = "U1") -> None:
        """Somebody presses a button."""
        self.said.append((asyncio.get_running_loop().time(), f"{NAMES[user]} presses [{label}]"))
        self.bot.press(label, user=user)
        await self.bot.advance(4)

    def transcript(self) -> str:
        """The channel as it stands at the end: each head with its thread under it, in the order of the heads."""
        posts = self.bot.chat.posts
        heads = [(post.at, self._shown(post)) for post in posts if post.ref.thread is None]
        entries = sorted([*((at, f"{_time(at)} {text}") for at, text in self.said), *heads], key=lambda one: one[0])
        return "\n\n".join(text for _, text in entries) + "\n"

    def _shown(self, post: Post) -> str:
        whom = f"upbot, to {NAMES[post.only_for]} alone" if post.only_for else "upbot"
        lines = [f"{_time(post.at)} {whom}:", *(f"    {one}" for one in _texts(post))]
        for note in (one for one in self.bot.chat.posts if one.ref.thread == post.ref.id):
            first, *rest = note.text.splitlines()
            lines += [f"        ↳ {_time(note.at)} {first}", *(f"          {one}" for one in rest)]
        return "\n".join(lines)


def _texts(post: Post) -> list[str]:
    """The message; an alert and a question as they first stood, and then as they stand."""
    first, last = plain((post.was or [post.message])[0]).splitlines(), post.text.splitlines()
    if not post.was or not (first[0].startswith("🔴") or "asked by" in first[-1]):
        return last
    same = next((number for number, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), 0)
    return [*first, "– and in the end –", *last[same:]]


def _time(at: float) -> str:
    return f"{EVENING + timedelta(seconds=at):%H:%M:%S}"


async def evening(night: Night) -> None:
    """A first look, then the profile that takes the cap away: a canary, then all."""
    bot = night.bot
    bot.fleet.run_all()
    bot.fleet.job_state = JobState.RUNNING
    await night.until(18, 30)
    await night.say("up?")
    await night.say("status")
    await night.until(18, 40)
    await night.say("canary no_buffer gpu7")
    await night.press("Canary on gpu7")
    await night.until(18, 55)
    await night.say("restart no_buffer")
    await night.press("Restart 7 servers", user="U2")
    await night.until(21, 10)


async def heat(night: Night) -> None:
    """A GPU overheats for a quarter of an hour, beside a job that goes on."""
    gpu3 = night.bot.fleet.servers["gpu3"]
    night.slow["gpu3"] = 0.6
    gpu3.gpu_says = {"clock_limits": ("thermal slowdown",), "temperature_c": 92}
    await night.until(21, 14)
    await night.press("Ack", user="U2")
    await night.say("why gpu3", user="U2")
    await night.until(21, 24)
    night.slow.clear()
    gpu3.gpu_says = {}
    await night.until(22, 10)


async def fan(night: Night) -> None:
    """What only the Alertmanager sees: told once, silenced there from the chat, over when it is not had there any more.

    Of what is silenced an Alertmanager tells no end.
    """
    night.remote.firing.add("print-GpuFanSlow-gpu6")
    await night.bot.liaison.notified(told(night.bot, "gpu6"))
    await night.until(22, 12)
    await night.say("silence gpu6 2h because the fan is being replaced", user="U2")
    await night.until(22, 50)
    night.remote.firing.clear()
    await night.until(0, 20)


async def small_hours(night: Night) -> None:
    """The job ends and nobody is woken; another begins; a server dies of memory; the bot is killed in its restart."""
    await night.until(2, 30)
    night.bot.fleet.job_state, night.bot.fleet.job_done = JobState.STOPPED, 0
    await night.say("job")
    await night.say("job start")
    await night.say("tell me when done")
    await night.until(3, 7)
    night.bot.fleet.die("gpu5", OUT_OF_MEMORY, 1)
    await night.until(3, 8)
    await night.bot.liaison.notified(told(night.bot, "gpu5", name="InferenceServerDown", cause="down"))
    await night.until(3, 8.3)
    await night.bot.liaison.notified(told(night.bot, "gpu5", name="InferenceServerDown", cause="down", is_firing=False))
    await night.until(3, 9)
    await night.say("restart gpu5")
    await night.until(3, 9.7)
    await night.bot.die()
    night.is_watched = False
    await night.until(3, 10.2)
    night.bot = night.bot.restarted()
    night.is_watched = True
    await night.until(4)


async def day(night: Night) -> None:
    """The morning's report, a second deploy one after the other, and somebody who asks what the night was like."""
    await night.until(8)
    bot = night.bot
    fleet = lambda: bot.fleet_value  # noqa: E731
    await Reporter(fleet, bot.fleet, bot.samples, lambda: bot.watcher.book, bot.switchboard, bot.clock).tell()
    await night.until(8, 5)
    await night.say("since 0:00", user="U3")
    await night.say("restart no_buffer", user="U3")
    await night.until(9)
    await night.say("hold gpu6-7 until 14:00 eval running", user="U2")
    await night.until(9, 10)
    await night.say("restart gpu7")
    await night.press("Restart gpu7")
    await night.say("no")
    await night.until(10)
    await night.say("restart --rolling extra_buffer gpu0-1", user="U2")
    await night.press("Restart gpu0 and gpu1", user="U2")
    await night.until(10, 20)
    await night.say("compare no_buffer extra_buffer", user="U2")
    await night.until(17, 59)
    await night.say("alerts")
    await night.until(17, 59.9)


async def whole() -> str:
    """The day, and what stands in the channel at its end."""
    remote = PretendAlertmanager()
    bot = Bot(monitored(), clock=JumpingClock(EVENING), alertmanager=remote)
    night = Night(bot, remote)
    for part in (evening, heat, fan, small_hours, day):
        await part(night)
    await night.bot.tasks.close()
    assert not bot.tasks.failures, bot.tasks.failures
    return night.transcript()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_night_in_the_life_reads_as_it_was_read_and_found_good() -> None:
    assert run(whole()) == TRANSCRIPT.read_text()


if __name__ == "__main__":
    TRANSCRIPT.write_text(run(whole()))
