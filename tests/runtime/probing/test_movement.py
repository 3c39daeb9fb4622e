from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Load, Movement
from bot.runtime.probing.movement import Mover
from tests.runtime.probing.stage import NOON, SECOND


def seen(*looks: tuple[float, Load], identity: object = 1) -> list[Movement]:
    mover = Mover()
    return [mover.see(load, identity, NOON + at * SECOND) for at, load in looks]


def work(tokens: float | None, running: int | None = 4, **more: float) -> Load:
    return Load(running=running, tokens_total=tokens, **more)


STILL, FAST = Movement(still_since=NOON), Movement(tokens_per_second=100.0)


def test_one_look_proves_nothing():
    assert seen((0, work(5))) == [Movement()]


def test_two_looks_closer_than_a_second_prove_nothing():
    assert seen((0, work(5)), (0.5, work(5)), (0.9, work(9))) == [Movement()] * 3


def test_looks_in_between_do_not_put_the_proof_off():
    assert seen((0, work(0)), (0.5, work(50)), (1, work(100)), (1.5, work(150)))[2:] == [FAST, FAST]


def test_standing_still_is_counted_from_the_last_look_that_could_have_moved():
    assert seen((0, work(5)), (1, work(5)), (6, work(5)))[1:] == [STILL, STILL]


def test_a_server_that_just_began_is_not_still_since_it_was_idle():
    looks = seen((0, work(5, 0)), (60, work(5)), (61, work(5)))
    assert looks == [Movement(), Movement(), Movement(still_since=NOON + 60 * SECOND)]


def test_nothing_running_is_neither_still_nor_fast():
    assert seen((0, work(5)), (1, work(105, 0))) == [Movement(), Movement()]


def test_a_counter_that_fell_or_another_process_begins_anew():
    assert seen((0, work(500)), (1, work(5)), (2, work(105)))[1:] == [Movement(), FAST]
    mover = Mover()
    mover.see(work(5), (1, 1), NOON)
    assert mover.see(work(5), (2, 9), NOON + SECOND) == Movement()


def test_counters_that_move_at_request_ends_only_are_no_hang_while_prompts_or_the_stamp_move():
    assert seen((0, work(5, prompt_tokens_total=1)), (5, work(5, prompt_tokens_total=2)))[1].still_since is None
    assert seen((0, work(5, stamp=1)), (5, work(5, stamp=2)))[1].still_since is None
    assert seen((0, work(None, stamp=1)), (5, work(None, stamp=1)))[1] == STILL


def test_a_rate_over_minutes_is_none_since_nobody_knows_how_much_was_idle():
    assert seen((0, work(0)), (61, work(6100)))[1] == Movement()


def test_where_no_counter_is_told_nothing_is_said():
    assert seen((0, work(None)), (5, work(None))) == [Movement(), Movement()]


def test_a_clock_that_jumps_back_begins_anew():
    assert seen((10, work(5)), (0, work(5)), (1, work(105)))[1:] == [Movement(), FAST]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.none() | st.floats(0, 1e9), st.none() | st.integers(0, 3)), max_size=12)
)
def test_whatever_comes_a_rate_is_never_negative_and_never_beside_standing_still(looks):
    at = timedelta()
    mover = Mover()
    for step, tokens, running in looks:
        at += timedelta(seconds=step)
        found = mover.see(Load(running=running, tokens_total=tokens), 1, NOON + at)
        assert found.still_since is None or found.tokens_per_second is None
        assert found.tokens_per_second is None or found.tokens_per_second >= 0
        assert found.still_since is None or found.still_since <= NOON + at
