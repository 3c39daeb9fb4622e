"""How long a start still takes, and when it takes longer than ever before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.diagnosis import STARTING, Phase
from bot.domain.eta import NOTHING_KNOWN, Outlook, Overdue, longest_in, outlook, remaining, together
from bot.domain.kernel_caches import CacheState
from bot.domain.records import StartRecord, Warmth
from tests.jumping import START


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def record(server: str = "gpu0", profile: str = "no_buffer", *, is_ready: bool = True, **phases: float) -> StartRecord:
    spans = {
        name: seconds(number) for name, number in (phases or {"loading_weights": 30, "capturing_graphs": 34}).items()
    }
    return StartRecord(server, profile, START, sum(spans.values(), timedelta()), is_ready, spans)


def test_without_history_nothing_is_said_but_that_it_is_the_first() -> None:
    assert outlook((), "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(5)) == Outlook(first_with="no_buffer")
    failed = record(is_ready=False)
    other = record(profile="extra_buffer")
    assert outlook((failed, other), "gpu0", "no_buffer", None, seconds(5)) == Outlook(first_with="no_buffer")


def test_the_median_of_what_remained() -> None:
    past = [record(loading_weights=load, capturing_graphs=34, warming_up=4) for load in (20, 30, 100)]
    assert remaining(past, "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(10)) == seconds(20 + 38)
    assert remaining(past, "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(30)) == seconds(8)
    assert remaining(past, "gpu0", "no_buffer", None, seconds(8)) == seconds(30 + 38 - 8)


def test_its_own_past_comes_before_that_of_others() -> None:
    mine, other = record(loading_weights=30), record("gpu7", loading_weights=300)
    assert remaining([mine, other], "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(0)) == seconds(30)
    assert remaining([mine, other], "gpu3", "no_buffer", Phase.LOADING_WEIGHTS, seconds(0)) == seconds(165)


def test_graphs_are_captured_after_kernels_were_compiled() -> None:
    past = [record(jit_compiling=120, capturing_graphs=30)]
    assert remaining(past, "gpu0", "no_buffer", Phase.JIT_COMPILING, seconds(100)) == seconds(50)
    assert remaining(past, "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(10)) == seconds(20)


def test_a_start_that_compiles_is_compared_with_those_that_did() -> None:
    warm, cold = record(capturing_graphs=30), record(jit_compiling=600, capturing_graphs=40)
    assert remaining([warm, warm, cold], "gpu0", "no_buffer", Phase.JIT_COMPILING, seconds(100)) == seconds(540)
    assert remaining([warm], "gpu0", "no_buffer", Phase.JIT_COMPILING, seconds(100)) is None
    assert outlook([warm], "gpu0", "no_buffer", Phase.JIT_COMPILING, seconds(900)) == NOTHING_KNOWN


def test_longer_than_ever_before_is_half_as_long_again_and_no_trifle() -> None:
    past = [record(capturing_graphs=number) for number in (30, 34, 25)]
    assert longest_in(past, "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS) == seconds(34)
    assert outlook(past, "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(60)).overdue == ()
    found = outlook(past, "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(360))
    assert found == Outlook(overdue=(Overdue("gpu0", Phase.CAPTURING_GRAPHS, seconds(360), seconds(34)),))
    slow = [record(loading_weights=600)]
    assert outlook(slow, "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(800)).overdue == ()
    assert outlook(slow, "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(901)).overdue != ()


def test_together_the_slowest_counts_and_one_unknown_makes_all_unknown() -> None:
    late = Overdue("gpu1", Phase.CAPTURING_GRAPHS, seconds(360), seconds(34))
    assert together([Outlook(seconds(20)), Outlook(seconds(50))]) == Outlook(seconds(50))
    assert together([Outlook(seconds(20)), Outlook(first_with="lean")]) == Outlook(first_with="lean")
    assert together([Outlook(seconds(20)), Outlook(overdue=(late,))]) == Outlook(overdue=(late,))
    assert together([]) == NOTHING_KNOWN
    assert together([Outlook(timedelta())]) == NOTHING_KNOWN


_SPANS = st.dictionaries(
    st.sampled_from([phase.value for phase in STARTING]), st.timedeltas(timedelta(), timedelta(hours=2))
)


@given(
    st.lists(_SPANS, max_size=12),
    st.none() | st.sampled_from(list(Phase)),
    st.timedeltas(timedelta(), timedelta(days=2)),
)
def test_whatever_the_past_was_an_outlook_is_either_a_time_or_a_delay(past, phase, in_phase) -> None:
    starts = [StartRecord("gpu0", "p", START, sum(one.values(), timedelta()), True, one) for one in past]
    found = outlook(starts, "gpu0", "p", phase, in_phase)
    assert not (found.overdue and found.to_go is not None)
    assert found.to_go is None or found.to_go >= timedelta()
    assert (found.first_with == "p") == (not past)


def test_cold_starts_and_warm_ones_have_histories_of_their_own() -> None:
    warm = replace(record(loading_weights=30, capturing_graphs=30), caches=Warmth.WARM)
    cold = replace(record(loading_weights=30, jit_compiling=600, capturing_graphs=30), caches=Warmth.COLD)
    unknown = record(loading_weights=50, capturing_graphs=30)

    def rest(*past: StartRecord, warmth: Warmth) -> timedelta | None:
        return remaining(past, "gpu0", "no_buffer", Phase.LOADING_WEIGHTS, seconds(0), warmth=warmth)

    assert rest(warm, cold, warmth=Warmth.COLD) == seconds(660)
    assert rest(warm, cold, warmth=Warmth.WARM) == seconds(60)
    assert rest(warm, warm, cold, warmth=Warmth.UNKNOWN) == seconds(60)
    # Who knows nothing of the caches may have been warm, as most are; of a cold start it says nothing.
    assert rest(unknown, cold, warmth=Warmth.WARM) == seconds(80)
    assert rest(unknown, warm, warmth=Warmth.COLD) is None


def test_a_cold_start_that_stands_still_is_not_called_stuck_by_what_warm_ones_took() -> None:
    warm = replace(record(loading_weights=30, capturing_graphs=30), caches=Warmth.WARM)
    caches = CacheState(Warmth.COLD, ("triton",))
    found = outlook([warm], "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(900), caches=caches)
    assert found == Outlook(caches=caches)
    found = outlook([warm], "gpu0", "no_buffer", Phase.CAPTURING_GRAPHS, seconds(900), caches=CacheState(Warmth.WARM))
    assert [one.longest for one in found.overdue] == [seconds(30)]
    assert together([found, Outlook(caches=caches)]).caches == caches
