"""The arithmetic of a batch in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.demo.engine.batch import Batch, Request, decode_rate
from bot.demo.engine.sizes import Sizes

SIZES = Sizes("extra_buffer", 5, 187, 37, 381_136, 125_000)


def _filled(count, wanted=1000, sizes=SIZES):
    batch = Batch(sizes, 0.0)
    for number in range(count):
        batch.add(Request(str(number), 1_700, wanted, 0.0))
    return batch


@pytest.mark.parametrize(("running", "rate"), [(0, 0), (1, 60), (32, 641), (37, 670), (64, 760), (72, 776)])
def test_speed_follows_the_curve(running, rate):
    assert decode_rate(running) == pytest.approx(rate, rel=0.001)


def test_more_requests_than_seats_wait():
    batch = _filled(64)
    batch.advance(1.0)
    assert (batch.running, batch.queued, batch.slots) == (37, 27, 111)
    assert batch.mamba_usage == pytest.approx(0.594, abs=0.001)
    assert batch.counters.decoded == pytest.approx(670, rel=0.001)


def test_a_request_alone_gets_sixty_tokens_a_second():
    batch = _filled(1, wanted=120)
    assert batch.next_end() == pytest.approx(2.0)
    assert [request.ended for request in batch.advance(10.0).finished] == [pytest.approx(2.0)]
    assert (batch.tokens, batch.running) == (0, 0)


def test_seats_that_become_free_are_taken_at_that_moment():
    batch = _filled(74, wanted=600)
    changes = batch.advance(33.2)
    assert len(changes.finished) == 37
    assert {request.started for request in changes.admitted if request.started} == {changes.finished[0].ended}


def test_a_batch_that_hangs_stays_as_it_is():
    batch = _filled(64)
    batch.advance(5.0)
    tokens = batch.tokens
    batch.pace = 0.0
    assert batch.advance(500.0).finished == []
    assert (batch.tokens, batch.next_end(), batch.time_of_step(1e9)) == (tokens, None, None)


def test_an_aborted_request_gives_its_seat_away():
    batch = _filled(38)
    batch.abort("0")
    batch.abort("0")
    batch.abort("nobody")
    assert (batch.running, batch.queued, batch.counters.aborted) == (37, 0, 1)
    assert "0" not in batch.rids


def test_a_full_cache_lets_nobody_in():
    batch = _filled(10, sizes=Sizes("extra_buffer", 5, 187, 37, 6_000, 125_000))
    assert (batch.running, batch.queued) == (2, 8)


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 3_000), st.floats(0, 20)), min_size=1, max_size=60),
    st.lists(st.floats(0.01, 40), min_size=1, max_size=20),
)
def test_every_token_is_decoded_once_whenever_one_looks(requests, looks):
    batch, now = Batch(SIZES, 0.0), 0.0
    arrivals = sorted(requests, key=lambda one: one[2])
    for number, (wanted, prompt, at) in enumerate(arrivals):
        now = max(now, at)
        batch.advance(now)
        batch.add(Request(str(number), prompt, wanted, now))
    for span in looks:
        now += span
        batch.advance(now)
        assert 0 <= batch.running <= SIZES.seats
        assert batch.tokens >= 0
    batch.advance(now + 1e6)
    assert batch.counters.finished == len(requests)
    assert batch.counters.decoded == pytest.approx(sum(wanted for wanted, _, _ in requests), rel=1e-6, abs=1e-3)
    assert batch.tokens == 0
