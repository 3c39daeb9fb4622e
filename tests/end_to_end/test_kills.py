"""A bot dies by SIGKILL before, in and after every step of a restart of eight servers, and is started again.

Everything is a process of its own: the bot, the servers, the job in tmux, a server of somebody else. What must hold
afterwards is stated once, in `assert_kept`, of the world's own records.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.end_to_end.demo import wait
from tests.end_to_end.demo import whole as marked_up
from tests.end_to_end.lasting import Before, World, described, draining, lasting
from tests.end_to_end.mortal import ACTS, Moment

pytestmark = [pytest.mark.tmux, pytest.mark.slow, pytest.mark.timeout(180)]

LABEL = "Restart 8 servers"
WITHIN = 60.0


def moments(step: str, act: str, *chosen: str) -> list[Moment]:
    """Moments of one act, chosen by its number and when: "1 before", "3 in"."""
    return [Moment(step, act, int(number), when) for number, when in (one.split() for one in chosen)]


ONCE = ("1 before", "1 in", "1 after")
MOMENTS = [
    *moments("press", "save", *ONCE, "4 before", "6 in", "8 after"),
    *moments("press", "edit", "1 before", "1 after"),
    *moments("press", "look", "1 before"),
    *moments("StopJob", "post", *ONCE),
    *moments("StopJob", "save", "3 before"),
    *moments("StopJob", "ask job", *ONCE),
    *moments("StopJob", "wait", "1 before"),
    *moments("EndServers", "save", "1 before", "1 in"),
    *moments("EndServers", "look", "1 before"),
    *moments("EndServers", "term", *ONCE, "4 in", "5 before", "8 before", "8 after"),
    *moments("EndServers", "wait", "1 before"),
    *moments("AwaitFree", "save", *ONCE),
    *moments("AwaitFree", "look", "1 after"),
    *moments("StartServers", "save", "1 before", "9 before", "12 in"),
    *moments("StartServers", "launch", *ONCE, "4 after", "5 before", "5 in", "8 after"),
    *moments("StartServers", "wait", "2 before"),
    *moments("Prove", "save", "1 before"),
    *moments("Prove", "run", "4 in", "8 after"),
    *moments("ResumeJob", "save", "1 before"),
    *moments("ResumeJob", "start job", *ONCE),
    *moments("ResumeJob", "wait", "1 before"),
    *moments("CompareThroughput", "save", "1 before", "1 in"),
    *moments("end", "save", "1 before", "2 before", "2 after"),
    *moments("end", "edit", "1 before"),
    *moments("end", "post", *ONCE),
    *moments("afterwards", "save", "1 before"),
    *moments("afterwards", "wait", "1 before"),
]
TWICE = [
    (Moment("StopJob", "ask job", 1, "after"), Moment("StopJob", "edit", 1, "after")),
    (Moment("EndServers", "term", 4, "after"), Moment("EndServers", "edit", 1, "after")),
    (Moment("StartServers", "launch", 4, "in"), Moment("StartServers", "edit", 1, "after")),
    (Moment("ResumeJob", "start job", 1, "in"), Moment("ResumeJob", "edit", 1, "after")),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A restart that was asked for: since which message, the question's card, and what it is to become."""

    after: str
    card: dict[str, Any]
    profile: str
    before: Before


UNSURE = {
    *moments("StopJob", "post", "1 in", "1 after"),
    *moments("StopJob", "save", "1 before", "1 in"),
    *moments("end", "post", "1 in", "1 after"),
    *moments("end", "save", "2 before", "2 in"),
}


def whole(message: dict[str, Any]) -> str:
    """All text of a message, without what makes it bold."""
    return marked_up(message).replace("*", "")


def found(world: World, asked: Asked, pattern: str) -> list[dict[str, Any]]:
    """What stands in channel and threads since then and begins like this."""
    messages = world.channel.messages(asked.after)
    return [one for one in messages if re.match(pattern, whole(one)) and one["ephemeral_to"] is None]


def has_buttons(message: dict[str, Any]) -> bool:
    return any(block["type"] == "actions" for block in message["blocks"] or [])


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[World]]:
    """The world that is in use, if there is one; it is made by `world`."""
    kept: list[Any] = []
    yield kept
    if kept:
        kept[1].__exit__(None, None, None)


@pytest.fixture
def world(worlds: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Eight servers and all; one after the other uses them, and after a failure there are new ones."""
    if not worlds:
        manager = lasting(tmp_path_factory.mktemp("world"))
        worlds[:] = [manager.__enter__(), manager]
    it: World = worlds[0]
    it.turn += 1
    it.is_good = False
    yield it
    if not it.is_good:
        manager = worlds[1]
        worlds.clear()
        manager.__exit__(None, None, None)


def ask(world: World) -> Asked:
    """Ask for a restart with the other profile; the question stands there."""
    before = Before.of(world)
    profile = "no_buffer" if before.profile == "extra_buffer" else "extra_buffer"
    after = world.channel.say(f"restart {profile}")
    card = world.channel.until(
        lambda messages: next((one for one in messages if whole(one).startswith(f"{LABEL} with profile")), None), after
    )
    return Asked(after, card, profile, before)


def wait_for_an_end(world: World, asked: Asked) -> None:
    """Until the end is told, or that nothing was done; a card that still asks is pressed again, as a person would."""
    deadline, quiet_since = time.monotonic() + WITHIN, time.monotonic()
    ends = re.compile(rf"🟢 8/8 up with {asked.profile}|Not done: {LABEL}")
    begun = re.compile(rf"{LABEL} · |I was restarted")
    while True:
        messages = [one for one in world.channel.messages(asked.after) if one["ephemeral_to"] is None]
        if any(ends.match(whole(one)) for one in messages):
            return
        is_asking = any(one["ts"] == asked.card["ts"] and has_buttons(one) for one in messages)
        has_begun = any(begun.match(whole(one)) for one in messages)
        if is_asking and not has_begun and time.monotonic() - quiet_since > 1.5:
            world.press(asked.card, LABEL)
            quiet_since = time.monotonic() + WITHIN
        assert time.monotonic() < deadline, f"no end within {WITHIN:g} s\n{told(world, asked)}\n{world.log}"
        wait(0.1)


def told(world: World, asked: Asked) -> str:
    """The channel, for people."""
    lines = [
        f"--- {one['thread_ts'] or ''} {'only for ' + one['ephemeral_to'] if one['ephemeral_to'] else ''}\n{whole(one)}"
        for one in world.channel.messages(asked.after)
    ]
    return "\n".join(lines)


KNOWN = (
    rf"{LABEL} with profile ",
    rf"{LABEL} · ",
    r"\d+:\d\d · ",
    r"I was restarted",
    r"🟢 8/8 up with ",
    rf"Not done: {LABEL}",
    r"[\d.,k]+ tok/s",
)
"""Whatever else the bot says in the channel is a false alarm."""


def assert_kept(world: World, asked: Asked, comebacks: int, *, is_unsure: bool = False) -> None:
    """What must hold whenever the bot was killed: done once and told once, or nothing done and that told once.

    ``is_unsure``: it died between Slack's taking a message and its own note of that; such a one may stand there twice.
    """
    happened = asked.before.since(world)
    story = f"\n{told(world, asked)}\n\n{described(happened)}\n\n{world.log}"
    ends = found(world, asked, rf"🟢 8/8 up with {asked.profile}")
    lost = found(world, asked, f"Not done: {LABEL}")
    assert (len(ends), len(lost)) in ((1, 0), (0, 1), (1 + is_unsure, 0)), (
        f"the end was told {len(ends)} times, its loss {len(lost)}{story}"
    )
    if ends:
        assert_done_once(world, asked, story)
    else:
        assert happened == [], f"it says that nothing was done{story}"
    back = found(world, asked, "I was restarted")
    assert len(back) == comebacks, (
        f"it came back to an operation {comebacks} times, and said so {len(back)} times{story}"
    )
    strange = [
        whole(one)
        for one in world.channel.messages(asked.after)
        if one["user"] not in ("ana", "bo") and not one["ephemeral_to"] and not re.match("|".join(KNOWN), whole(one))
    ]
    assert strange == [], f"what is that?{story}"
    heads = found(world, asked, rf"{LABEL} · ")
    assert bool(ends) <= len(heads) <= bool(ends) + is_unsure, f"{len(heads)} messages show how it stands{story}"
    are_done = [whole(one).endswith("· done") and not has_buttons(one) for one in heads[-1:]]
    assert all(are_done), f"the head is behind{story}"
    assert world.operations_at_work() == 0, f"it is written down as being at work{story}"
    assert world.strangers_signals == "here\n", f"somebody else's server was signalled{story}"
    assert world.stranger.poll() is None, f"somebody else's server is gone{story}"


def assert_done_once(world: World, asked: Asked, story: str) -> None:
    """Each server ended once, by SIGTERM, and was started once with the new profile; so was the job."""
    job, servers = world.job(), world.servers()
    before, happened = asked.before, asked.before.since(world)
    expected: Counter[tuple[int, str]] = Counter()
    for port, old in before.servers.items():
        (new,) = servers[port] if len(servers[port]) == 1 else pytest.fail(f"port {port}: {servers[port]}{story}")
        expected.update([(old.pid, "SIGTERM"), (old.pid, "ended"), (new.pid, "started")])
        assert world.profile_of(new.pid) == asked.profile, f"port {port} runs something else{story}"
        holders = [one.pid for gpu in new.gpus for one in world.fleet.machine.holders(gpu)]
        assert holders == [new.pid], f"the GPU of port {port} is held by {holders}{story}"
    expected.update([(before.job, "SIGINT"), (before.job, "ended"), (job, "started")])
    seen = Counter((one.pid, one.what) for one in happened)
    assert seen == expected, f"too much: {seen - expected}, missing: {expected - seen}{story}"


def assert_old_buttons_are_answered(world: World, asked: Asked) -> None:
    """Somebody's screen still shows the card with its buttons: each press is answered, to that person, and does nothing."""
    deadline = time.monotonic() + 10
    while any(has_buttons(one) for one in found(world, asked, f"{LABEL} with profile")):
        assert time.monotonic() < deadline, f"the card keeps its buttons\n{told(world, asked)}"
        wait(0.05)
    world.job()
    count = len(world.fleet.machine.journal())
    for label in (LABEL, "Cancel"):
        answered = len(whispers(world, asked))
        world.press_again(asked.card, label)
        deadline = time.monotonic() + 10
        while len(whispers(world, asked)) == answered:
            assert time.monotonic() < deadline, f"no answer to {label}\n{told(world, asked)}\n{world.log}"
            wait(0.02)
        last = whispers(world, asked)[-1]
        assert re.fullmatch(r"bo pressed it [\w ]+ ago: it is not done twice\.", last), last
    assert len(world.fleet.machine.journal()) == count
    assert world.operations_at_work() == 0


def whispers(world: World, asked: Asked) -> list[str]:
    return [whole(one) for one in world.channel.messages(asked.after) if one["ephemeral_to"] == "bo"]


def survive(world: World, *killed: Moment) -> None:
    """A restart through which the bot dies at these moments, one in each of its lives; then all must be well."""
    first, *later = killed
    world.start_bot(first)
    asked = ask(world)
    world.press(asked.card, LABEL)
    world.bot_dies(first)
    comebacks = world.operations_at_work()
    for moment in later:
        world.start_bot(moment, again=True)
        world.bot_dies(moment)
        comebacks += world.operations_at_work()
    world.start_bot()
    wait_for_an_end(world, asked)
    assert_old_buttons_are_answered(world, asked)
    world.end_bot()
    assert_kept(world, asked, comebacks, is_unsure=not UNSURE.isdisjoint(killed))
    world.is_good = True


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_killed_once_it_goes_on_and_does_nothing_twice(world: World, moment: Moment) -> None:
    survive(world, moment)


def test_killed_while_a_server_drains_it_does_not_ask_that_server_again(world: World) -> None:
    """The request of somebody else goes on until the bot has been back for a while."""
    with draining(world.fleet.ports[0]):
        world.start_bot(Moment("EndServers", "wait", 3))
        asked = ask(world)
        world.press(asked.card, LABEL)
        world.bot_dies(Moment("EndServers", "wait", 3))
        world.start_bot()
        head = rf"{LABEL} · [^\n]+\n[^\n]*7/8\sstopped"
        world.channel.until(lambda _: found(world, asked, "I was restarted") and found(world, asked, head), asked.after)
        wait(1)
    wait_for_an_end(world, asked)
    assert_old_buttons_are_answered(world, asked)
    world.end_bot()
    assert_kept(world, asked, 1)
    world.is_good = True


@pytest.mark.parametrize("both", TWICE, ids=lambda both: f"{both[0]}, then {both[1]}")
def test_killed_twice_in_a_row_it_goes_on_and_does_nothing_twice(world: World, both: tuple[Moment, Moment]) -> None:
    survive(world, *both)


def test_every_step_and_every_act_has_its_kills(world: World) -> None:
    """Nobody dies here: what the bot does is noted, and each act of a step that changes anything is among the moments."""
    world.start_bot()
    asked = ask(world)
    world.press(asked.card, LABEL)
    wait_for_an_end(world, asked)
    assert_old_buttons_are_answered(world, asked)
    world.end_bot()
    assert_kept(world, asked, 0)
    met = {tuple(line.split("\t")[:2]) for line in world.acts.read_text().splitlines()}
    acts = {(step, act) for step, act in met if act in {*ACTS.values(), "save"}}
    chosen = {(one.step, one.act) for one in MOMENTS}
    assert acts <= chosen, acts - chosen
    assert len(MOMENTS) + len(TWICE) >= 60
    world.is_good = True
