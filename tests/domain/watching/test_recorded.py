from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bot.domain.errors import ConfigError
from bot.domain.watching.recorded import NotAReading, plain_of, read, reading_of, replay
from bot.domain.watching.samples import JobSample, Reading, Sample
from bot.domain.watching.watch import Watch
from tests.domain.watching.watched_fleet import Fleet, trained


def test_a_line_of_the_bench_is_a_reading():
    line = '{"time": 5, "servers": {"gpu0": {"tokens_total": 12, "prompt_tokens_total": 7, "running": 3, "queued": 0, "max_running": 37, "new": {}}}}'
    assert list(read([line, "\n"])) == [
        Reading(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), {"gpu0": Sample(12.0, 7.0, 3, 0, 37)})
    ]


def test_an_exported_reading_is_read_back_as_it_was():
    sample = Sample(
        1.0, 2.0, 3, 4, 5, 0.5, 0.6, 2.5, ("hw slowdown",), 80.0, 9.0, 10.0, 11.0, 1.0, "no_buffer", (7, 9), False, True
    )
    reading = Reading(
        datetime(2026, 3, 1, 22, 0, 0, 500, tzinfo=UTC),
        {"gpu0": sample, "gpu1": Sample(is_starting=True)},
        frozenset({"gpu0", "gpu1", "gpu2"}),
        frozenset({"gpu1"}),
        {"datagen": JobSample(is_running=False, done=3, total=9, rate=1.5)},
        frozenset({"datagen"}),
    )
    assert reading_of(json.loads(json.dumps(plain_of(reading)))) == reading


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not a line of JSON"),
        ("[1]", 'a reading is an object with "time" and "servers"'),
        ('{"servers": {}}', 'a reading is an object with "time" and "servers"'),
        ('{"time": "noon"}', '"time" is no instant: noon'),
        ('{"time": 1e99}', '"time" is no instant: 1e+99'),
        ('{"time": true}', '"time" is seconds or an ISO 8601 instant'),
        ('{"time": 1, "servers": []}', '"servers" and "jobs" are objects by name'),
        ('{"time": 1, "servers": {"a": 3}}', "a: a server's sample is an object"),
        ('{"time": 1, "servers": {"a": {"running": "x"}}}', "a: running is no number: x"),
        ('{"time": 1, "servers": {"a": {"running": NaN}}}', "a: running is no number that can be: nan"),
        ('{"time": 1, "servers": {"a": {"process": [1]}}}', "a: process is a pid and a start time"),
        ('{"time": 1, "planned": "gpu0"}', '"planned" is a list of names'),
        ('{"time": 1, "jobs": {"a": 1}}', "a: a job's sample is an object"),
    ],
)
def test_a_line_that_is_no_reading_is_an_error_with_its_file_and_line(line, why):
    with pytest.raises(ConfigError) as caught:
        list(read(['{"time": 0}', line], file="night.jsonl"))
    assert str(caught.value) == f"night.jsonl:2: {why}"


@given(some.text(max_size=300))
def test_any_text_is_a_reading_or_an_error(text):
    with contextlib.suppress(ConfigError):
        list(read([text]))


FIELD = some.sampled_from(
    ["time", "servers", "jobs", "planned", "expected", "running", "tokens_total", "process", "gpu0"]
)
ANY = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(FIELD, inner, max_size=4),
    max_leaves=12,
)


@given(some.dictionaries(FIELD, ANY))
def test_any_json_is_a_reading_that_can_be_watched_or_is_refused(plain):
    try:
        reading = reading_of(plain)
    except NotAReading:
        return
    Watch().take(reading)


def test_a_replay_says_what_the_watcher_would_have_told():
    fleet = Fleet(3)
    lines = []

    class Recorder(Watch):
        def take(self, reading):
            lines.append(json.dumps(plain_of(reading)))
            return super().take(reading)

    watch = Recorder()
    fleet.go(watch, minutes=20)
    fleet["gpu1"].is_lost = fleet["gpu2"].is_lost = True
    fleet.go(watch, minutes=2)
    fleet.every(is_lost=False)
    fleet.go(watch, minutes=1)
    told = list(replay(lines))
    assert [{key: row[key] for key in ("event", "alert", "cause", "servers")} for row in told] == [
        {"event": "firing", "alert": "down-1", "cause": "down", "servers": ["gpu1", "gpu2"]},
        {"event": "resolved", "alert": "down-1", "cause": "down", "servers": ["gpu1", "gpu2"]},
    ]
    assert json.loads(json.dumps(told)) == told


def test_servers_that_joined_an_alert_are_resolved_as_they_were_printed():
    fleet = Fleet(4)
    watch, lines = trained(fleet), []
    assert watch.book.alerts == ()
    for name in ("gpu0", "gpu1"):
        fleet[name].is_lost = True
        lines += [json.dumps(plain_of(fleet.read())) for _ in range(6)]
    fleet.every(is_lost=False)
    lines += [json.dumps(plain_of(fleet.read())) for _ in range(8)]
    assert [(row["event"], row["servers"]) for row in replay(lines)] == [
        ("firing", ["gpu0"]),
        ("firing", ["gpu1"]),
        ("resolved", ["gpu0"]),
        ("resolved", ["gpu1"]),
    ]
