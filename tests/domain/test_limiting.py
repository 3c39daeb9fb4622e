"""What limits throughput, decided on values: every kind of limit, its sentence and its lever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from bot.domain import limit_words, mamba
from bot.domain.facts import Answer, Gpu, Load, Outcome, Process, Running, ServerFacts, Sight
from bot.domain.flags import Flags
from bot.domain.fleet import Fleet, Profile, Role
from bot.domain.limiting import Group, Limit, Work, best_gain, grouped, groups, limit_of, lost
from bot.domain.records import StartRecord
from bot.domain.world import World
from bot.engines.sglang import ENGINE
from tests.jumping import START
from tests.tester import first_night


def work(engine: str = "sglang", **more: Any) -> Work:
    """A server with a cap of 37, at 20 of them, unless told otherwise."""
    about = {name: more.pop(name) for name in list(more) if name not in Load.__dataclass_fields__}
    load = Load(**{"running": 20, "queued": 0, "kv_usage": 0.3, **more})
    return Work("gpu0", engine, load, **{"most": 37, **about})


def told(*works: Work) -> tuple[str, str]:
    group = grouped(works)[0]
    return limit_words.sentence(group), limit_words.lever(group)


@pytest.mark.parametrize(
    ("one", "limit"),
    [
        (work(running=None), Limit.UNKNOWN),
        (work(running=0), Limit.IDLE),
        (work(running=0, queued=9), Limit.SCHEDULER),
        (work(running=29), Limit.DEMAND),
        (work(running=30), Limit.CAP),
        (work(running=30, asked=64), Limit.MEMORY),
        (work(running=30, asked=64, mamba_usage=0.6), Limit.MAMBA),
        (work(running=37, asked=37, mamba_usage=0.6), Limit.ASKED),
        (work(running=37, asked=37, mamba_usage=0.6, slots=5), Limit.MAMBA),
        (work(running=37, asked=37, mamba_usage=0.2, slots=5), Limit.ASKED),
        (work(running=37, asked=37, slots=5, pool=400), Limit.ASKED),
        (work(running=20, queued=9), Limit.SCHEDULER),
        (work(running=20, queued=2), Limit.DEMAND),
        (work(running=30, queued=40), Limit.SCHEDULER),
        (work(running=30, queued=40, mamba_usage=0.6), Limit.MAMBA),
        (work(running=37, queued=40), Limit.CAP),
        (work(running=37, queued=40, kv_usage=0.95), Limit.KV),
        (work(running=20, put_back=3.0, kv_usage=0.6), Limit.KV),
        (work(running=20, put_back=3.0, kv_usage=0.1), Limit.DEMAND),
        (work(running=20, put_back=0.5, kv_usage=0.6), Limit.DEMAND),
        (work(running=20, swa_usage=0.96), Limit.WINDOW),
        (work("vllm", running=200, queued=90, most=None), Limit.CAP),
        (work("vllm", running=200, most=None), Limit.DEMAND),
    ],
)
def test_what_holds_a_server(one: Work, limit: Limit) -> None:
    assert limit_of(one) is limit


def test_sixty_percent_of_the_states_is_full() -> None:
    assert told(work(running=37, queued=118, kv_usage=0.21, mamba_usage=0.61, slots=5, version="0.5.13")) == snapshot(
        (
            "Concurrency is capped by Mamba state memory: 37 of at most 37 requests run, 118 wait, KV cache 21 % used, Mamba 61 % (a request holds 3 of 5 slots: 60 % is full).",
            "--mamba-scheduler-strategy no_buffer would raise the cap to about 62, at the price of overlap scheduling.",
        )
    )


def test_the_lever_bears_the_name_that_the_version_knows() -> None:
    capped = work(running=37, queued=9, mamba_usage=0.79, slots=4, version="0.5.23")
    assert told(capped) == snapshot(
        (
            "Concurrency is capped by Mamba state memory: 37 of at most 37 requests run, 9 wait, KV cache 30 % used, Mamba 79 % (a request holds 3 of 4 slots: 75 % is full).",
            "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule would raise the cap to about 49, at the price of overlap scheduling.",
        )
    )


def test_a_cap_that_was_asked_for_is_named_as_such() -> None:
    assert told(work(running=64, queued=200, most=64, asked=64)) == snapshot(
        (
            "Concurrency is capped by --max-running-requests 64: 64 of at most 64 requests run, 200 wait, KV cache 30 % used.",
            "Raise --max-running-requests: the KV cache has room (30 % used).",
        )
    )


def test_a_cap_below_what_was_asked_for_is_memory() -> None:
    assert told(work(running=60, queued=200, most=64, asked=256)) == snapshot(
        (
            "Concurrency is capped by the memory of its caches, below what was asked for: 60 of at most 64 requests run, 200 wait, KV cache 30 % used.",
            "Raise --mem-fraction-static if GPU memory is free, or use a smaller cache type (--kv-cache-dtype).",
        )
    )


def test_the_client_that_does_not_push_more_is_named_beside_the_cap() -> None:
    assert told(work(running=34, mamba_usage=0.58, slots=5, asked=64))[0] == snapshot(
        "Concurrency is capped by Mamba state memory, and the client does not push more: 34 of at most 37 requests run, none wait, KV cache 30 % used, Mamba 58 % (a request holds 3 of 5 slots: 60 % is full)."
    )
    assert told(work(running=37, mamba_usage=0.60, slots=5, asked=64))[0] == snapshot(
        "Concurrency is capped by Mamba state memory, though the client does not push more: 37 of at most 37 requests run, none wait, KV cache 30 % used, Mamba 60 % (a request holds 3 of 5 slots: 60 % is full)."
    )


def test_a_full_cache_and_requests_put_back() -> None:
    assert told(work(running=30, queued=40, kv_usage=0.98, put_back=4.2)) == snapshot(
        (
            "The KV cache is full: 30 of at most 37 requests run, 40 wait, KV cache 98 % used, 4.2 requests a minute put back.",
            "--schedule-conservativeness 1.3 stops the churn; more room: a higher --mem-fraction-static, or --kv-cache-dtype fp8_e5m2.",
        )
    )
    assert told(work("vllm", running=30, queued=40, kv_usage=0.6, put_back=4.2)) == snapshot(
        (
            "The KV cache is too small for what runs: 30 of at most 37 requests run, 40 wait, KV cache 60 % used, 4.2 requests a minute put back.",
            "Raise --gpu-memory-utilization, or set --kv-cache-dtype fp8; fewer requests at once (--max-num-seqs) stop the churn.",
        )
    )


def test_a_careful_scheduler() -> None:
    assert told(work(running=12, queued=60)) == snapshot(
        (
            "The scheduler lets requests in too carefully, since some wait although seats are free: 12 of at most 37 requests run, 60 wait, KV cache 30 % used.",
            "Set --schedule-conservativeness 0.3, so that it lets more in at once.",
        )
    )
    assert told(work("vllm", running=12, queued=60, most=256, asked=256))[1] == snapshot(
        "Raise --max-num-batched-tokens, so that more prompts fit a step."
    )


def test_a_server_of_which_no_cap_is_told() -> None:
    assert told(work("vllm", running=256, queued=90, most=None)) == snapshot(
        (
            "Concurrency is capped by the server's own number of seats: 256 requests run, 90 wait, KV cache 30 % used.",
            "Raise --max-num-seqs: the KV cache has room (30 % used).",
        )
    )


def test_a_full_window_cache() -> None:
    assert told(work(running=20, queued=30, swa_usage=0.96)) == snapshot(
        (
            "The cache of the sliding windows is full: 20 of at most 37 requests run, 30 wait, KV cache 30 % used, windows 96 %.",
            "Raise --swa-full-tokens-ratio, which takes from the full cache, or --mem-fraction-static.",
        )
    )


def test_a_few_that_run_a_little_less_are_no_case_of_their_own() -> None:
    busy = [work(running=number, mamba_usage=0.6, asked=64) for number in (36, 34, 29, 28)]
    idle = work(running=3, mamba_usage=0.1, asked=64)
    assert [(group.limit, len(group.works)) for group in grouped([*busy, idle])] == [
        (Limit.MAMBA, 4),
        (Limit.DEMAND, 1),
    ]


def test_a_queue_anywhere_in_the_group_means_that_the_client_does_push() -> None:
    full = work(running=37, mamba_usage=0.6, asked=64)
    assert grouped([full, full])[0].is_client_slow
    assert not grouped([full, replace(full, load=replace(full.load, queued=30))])[0].is_client_slow


@given(
    st.builds(
        Load,
        running=st.none() | st.integers(0, 5000),
        queued=st.none() | st.integers(0, 100_000),
        kv_usage=st.none() | st.floats(0, 1.5),
        swa_usage=st.none() | st.floats(0, 1.5),
        mamba_usage=st.none() | st.floats(0, 1.5),
    ),
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 5000),
    st.none() | st.sampled_from([1, 3, 4, 5]),
    st.none() | st.floats(0, 100),
)
def test_any_numbers_make_a_sentence(
    load: Load, most: int | None, asked: int | None, slots: int | None, back: float | None
) -> None:
    one = Work("gpu0", "sglang", load, most, asked, slots, put_back=back)
    sentence, lever = told(one, one)
    assert sentence.endswith(".")
    assert lever == "" or lever.endswith(".")
    assert limit_words.brief(grouped([one])[0]) == limit_words.brief(grouped([one])[0]).strip()


def test_what_is_lost_on_the_way_counts_from_a_tenth_on() -> None:
    assert [lost(1000, 905), lost(1000, None), lost(0, 5), lost(1000, 1200)] == [None] * 4
    assert lost(5368, 3900) == pytest.approx(0.2735, abs=1e-4)


# The arithmetic of states


@pytest.mark.parametrize(
    ("flags", "version", "slots"),
    [
        ({"mamba-scheduler-strategy": "extra_buffer"}, "0.5.13", 5),
        ({"mamba-radix-cache-strategy": "extra_buffer", "disable-overlap-schedule": True}, "0.5.20", 4),
        ({"mamba-radix-cache-strategy": "extra_buffer_lazy"}, None, 4),
        ({"mamba-scheduler-strategy": "no_buffer"}, "0.5.9", 3),
        ({"mamba-scheduler-strategy": "no_buffer", "disable-radix-cache": True}, "0.5.9", 1),
        ({}, "0.5.13", 3),
        ({"mamba-radix-cache-strategy": "auto"}, "0.5.14", 5),
        ({"disable-overlap-schedule": True}, "0.5.23", 3),
        ({}, "0.5.6", None),
        ({}, None, None),
        ({"mamba-scheduler-strategy": "something_new"}, "0.6.0", None),
    ],
)
def test_slots_that_a_request_reserves(flags: dict[str, str | bool], version: str | None, slots: int | None) -> None:
    assert mamba.reserved(Flags.of(flags), version) == slots


def test_a_pool_of_37_seats_seats_about_62_without_buffers() -> None:
    assert [mamba.seats(size, 3) for size in (185, mamba.pool(37, 5), 189)] == [61, 62, 63]
    assert mamba.seats(mamba.pool(37, 5, told=217), 3) == 72


def test_slots_held_of_those_reserved() -> None:
    assert [mamba.held(5, usage) for usage in (0.51, 0.61, 0.80, 1.0)] == [3, 3, 4, 5]
    assert [mamba.held(4, 0.75), mamba.held(3, 0.9), mamba.held(1, 0.5)] == [3, 3, 1]


# Profiles that would help


def world(
    fleet: Fleet | None = None,
    *,
    flags: dict[str, str] | None = None,
    starts: tuple[StartRecord, ...] = (),
    **load: Any,
) -> World:
    """One server of the first night at work."""
    fleet = fleet or first_night()
    server = fleet.servers[0]
    chosen = flags or {
        "mamba-scheduler-strategy": "extra_buffer",
        "max-running-requests": "64",
        "mem-fraction-static": "0.85",
    }
    argv = ENGINE.launch_argv(server, server.launch.flags.merged(Flags.of(chosen)))
    process = Process(7, 700, argv, age=timedelta(hours=6))
    seen = Load(**{"running": 37, "queued": 50, "max_running": 37, "kv_usage": 0.21, "mamba_usage": 0.61, **load})
    ok = Answer(Outcome.ANSWERED, START, 200)
    facts = ServerFacts(
        server.name, START, process=process, port_owner=process, instant=ok, load=seen,
        running=Running("0.5.13"), profile="extra_buffer", gpus=(Gpu(0),),
    )  # fmt: skip
    return World(
        fleet, START, "U1", Role.OPERATOR, "C1", Sight(START, {server.name: facts}),
        targets=(server,), engines={"sglang": ENGINE}, starts=starts,
    )  # fmt: skip


def gain(here: World) -> str | None:
    group: Group = groups(here, here.targets)[0]
    found = best_gain(here, group)
    return limit_words.gain(found, group) if found is not None else None


def with_profiles(*profiles: Profile) -> Fleet:
    fleet = first_night()
    return replace(fleet, profiles=(fleet.profiles[0], *profiles))


NO_BUFFER = {"mamba-scheduler-strategy": "no_buffer"}


def test_the_strategy_and_the_memory_fraction_are_told_apart() -> None:
    assert gain(world()) == snapshot(
        "no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 72."
    )


def test_a_profile_of_which_nobody_said_its_seats_is_reckoned() -> None:
    assert gain(world(with_profiles(Profile("lean", Flags.of(NO_BUFFER))))) == snapshot(
        "lean would raise the cap to about 62."
    )


def test_a_profile_that_caps_what_it_frees_is_reckoned_with_its_cap() -> None:
    capped = Flags.of({**NO_BUFFER, "max-running-requests": 48})
    assert gain(world(with_profiles(Profile("lean", capped)))) == snapshot("lean would raise the cap to about 48.")
    tight = Flags.of({**NO_BUFFER, "max-running-requests": 40})
    assert gain(world(with_profiles(Profile("lean", tight)))) is None


def test_its_own_past_counts_more_than_the_file() -> None:
    took = timedelta(minutes=2)
    past = (
        StartRecord("gpu4", "no_buffer", START, took, is_ready=True, max_running=99),
        StartRecord("gpu0", "no_buffer", START, took, is_ready=True, max_running=70),
        StartRecord("gpu0", "no_buffer", START, took, is_ready=False, max_running=12),
    )
    assert gain(world(starts=past)) == snapshot(
        "no_buffer would raise the cap to about 62, with its memory fraction of 0.90 to 70."
    )


def test_a_higher_cap_helps_where_the_flag_holds() -> None:
    asked = {"mamba-scheduler-strategy": "extra_buffer", "max-running-requests": "37"}
    wide = Profile("wide", Flags.of({**asked, "max-running-requests": 96}))
    assert gain(world(with_profiles(wide), flags=asked, mamba_usage=0.2)) == snapshot(
        "wide would raise the cap to about 96."
    )
    assert gain(world(with_profiles(wide), flags=asked, mamba_usage=0.61)) is None


def test_more_memory_helps_a_full_cache_and_more_seats_do_not() -> None:
    roomy = Profile(
        "roomy",
        Flags.of(
            {"mamba-scheduler-strategy": "extra_buffer", "max-running-requests": 64, "mem-fraction-static": "0.90"}
        ),
    )
    assert gain(world(with_profiles(roomy), kv_usage=0.97)) == snapshot(
        "roomy would give its caches more memory (0.85 → 0.90)."
    )
    assert gain(world(kv_usage=0.97)) is None


def test_no_profile_helps_where_demand_is_missing() -> None:
    assert gain(world(running=4, queued=0)) is None


def test_the_brief_reason_of_a_question() -> None:
    here = world(running=32, queued=0)
    assert limit_words.brief(groups(here, here.targets)[0]) == snapshot(
        "32 of 37 seats taken, Mamba state holds the cap (61 %), queue empty"
    )
    full = world(kv_usage=0.95)
    assert limit_words.brief(groups(full, full.targets)[0]) == snapshot("KV cache 95 % used, 50 queued")
    idle = world(running=1, queued=0)
    assert limit_words.brief(groups(idle, idle.targets)[0]) == ""


def test_what_slows_a_clock_in_words() -> None:
    assert limit_words.clocks(("hw_slowdown", "hw_thermal_slowdown")) == "thermal slowdown"
    assert limit_words.clocks(("hw_slowdown",)) == "hardware slowdown"
    assert limit_words.clocks(("some_new_reason",)) == "some new reason"
