"""The sizes that the simulated server gets from its flags."""

import pytest

from bot.demo.engine.flags import known_flags, parser, version_of
from bot.demo.engine.sizes import NoRoomError, conflict_of, sizes_of

OLD = (0, 5, 13)


def _args(*words, version=OLD):
    return parser(version).parse_args(["--model-path", "m", *words])


def _sizes(*words, version=OLD):
    sizes = sizes_of(_args(*words, version=version), version)
    return sizes.seats, sizes.slots, sizes.tokens


def test_the_two_profiles_of_the_story_have_37_and_72_seats():
    flag = "--mamba-scheduler-strategy"
    assert _sizes(flag, "extra_buffer", "--mem-fraction-static", "0.85", "--max-running-requests", "64") == (
        37,
        187,
        381_136,
    )
    assert _sizes(flag, "no_buffer", "--mem-fraction-static", "0.90", "--max-running-requests", "128") == (
        72,
        217,
        392_208,
    )


def test_without_the_larger_memory_fraction_no_buffer_has_62_seats():
    assert _sizes("--mamba-scheduler-strategy", "no_buffer")[0] == 62


@pytest.mark.parametrize(
    ("words", "seats"),
    [
        (["--mamba-scheduler-strategy", "extra_buffer_lazy"], 46),
        (["--mamba-scheduler-strategy", "extra_buffer", "--disable-overlap-schedule"], 46),
        (["--disable-radix-cache"], 187),
        (["--mamba-scheduler-strategy", "extra_buffer", "--max-running-requests", "12"], 12),
        (["--mamba-scheduler-strategy", "extra_buffer", "--max-mamba-cache-size", "50"], 10),
        (["--mamba-scheduler-strategy", "extra_buffer", "--mamba-ssm-dtype", "bfloat16"], 74),
        ([], 62),
    ],
)
def test_seats_follow_the_flags(words, seats):
    assert _sizes(*words)[0] == seats


def test_a_larger_mamba_share_takes_room_from_the_kv_cache():
    _, slots, tokens = _sizes("--mamba-full-memory-ratio", "1.2")
    assert (slots, tokens) == (215, 329_163)


@pytest.mark.parametrize("fraction", ["0.3", "0.53", "0"])
def test_too_small_a_fraction_leaves_no_room(fraction):
    with pytest.raises(NoRoomError, match="Please try to increase --mem-fraction-static"):
        _sizes("--mem-fraction-static", fraction)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.5.6", []),
        ("0.5.13", ["--mamba-scheduler-strategy"]),
        ("0.5.14", ["--mamba-radix-cache-strategy", "--mamba-scheduler-strategy"]),
        ("0.5.19.post1", ["--mamba-radix-cache-strategy", "--mamba-scheduler-strategy"]),
        ("0.5.20", ["--mamba-radix-cache-strategy"]),
        ("0.5.23", ["--mamba-radix-cache-strategy"]),
    ],
)
def test_the_strategy_flag_is_called_what_that_version_calls_it(version, names):
    assert [name for name in known_flags(version_of(version)) if name.endswith("-strategy")] == names


@pytest.mark.parametrize(
    ("version", "words", "problem"),
    [
        ((0, 5, 13), ["--mamba-scheduler-strategy", "no_buffer"], None),
        ((0, 5, 14), ["--mamba-radix-cache-strategy", "no_buffer"], "AssertionError: no_buffer do not support overlap"),
        ((0, 5, 14), ["--mamba-radix-cache-strategy", "no_buffer", "--disable-overlap-schedule"], None),
        ((0, 5, 13), ["--speculative-algorithm", "EAGLE"], "ValueError: Speculative decoding for"),
        ((0, 5, 13), ["--speculative-algorithm", "EAGLE", "--mamba-scheduler-strategy", "extra_buffer"], None),
        ((0, 5, 15), ["--speculative-algorithm", "EAGLE"], None),
        (
            (0, 5, 13),
            ["--disable-radix-cache", "--mamba-scheduler-strategy", "extra_buffer"],
            "ValueError: mamba extra_buffer is not compatible",
        ),
    ],
)
def test_flags_that_do_not_go_together_fail_in_the_versions_where_they_do(version, words, problem):
    found = conflict_of(_args(*words, version=version), version)
    assert found is None if problem is None else found is not None and found.startswith(problem)


@pytest.mark.parametrize("text", ["", "x", "0.5.13", "0.5.13.post1", "0.5.13rc1"])
def test_any_version_text_is_read(text):
    assert version_of(text) in {(0, 5, 13), (0, 5)}
