"""What people type becomes a command, a hint, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.message import plain
from bot.domain.saying import Words
from bot.domain.words import Hint, interpret, is_only_safe_word, is_safe_word, says_it_is_up
from bot.plugins import load
from tests.tester import first_night

COMMANDS = tuple(load("handlers", "COMMAND").values())
FLEET = first_night()
ALL = tuple(f"gpu{n}" for n in range(8))


def read(text: str, *, mentions: bool = False, recalled: tuple[str, ...] = ()) -> Words | str | None:
    found = interpret(text, fleet=FLEET, commands=COMMANDS, channel="C1", mentions_bot=mentions, recalled=recalled)
    return plain(found.message) if isinstance(found, Hint) else found


@pytest.mark.parametrize(
    ("text", "command", "targets", "profile"),
    [
        ("up?", "up", ALL, None),
        ("u", "up", ALL, None),
        ("up? gpu3", "up", ("gpu3",), None),
        ("up gpu3?", "up", ("gpu3",), None),
        ("up? :30003", "up", ("gpu3",), None),
        ("up? 30002-30004", "up", ("gpu2", "gpu3", "gpu4"), None),
        ("status gpu2-5", "status", ("gpu2", "gpu3", "gpu4", "gpu5"), None),
        ("status gpu2-gpu5", "status", ("gpu2", "gpu3", "gpu4", "gpu5"), None),
        ("status gpu5,gpu1", "status", ("gpu1", "gpu5"), None),
        ("restart no_buffer", "restart", ALL, "no_buffer"),
        ("Restart NO_BUFFER", "restart", ALL, "no_buffer"),
        ("restart gpu3", "restart", ("gpu3",), None),
        ("restart gpu3 gpu4 no_buffer", "restart", ("gpu3", "gpu4"), "no_buffer"),
        ("restart no_buffer gpu3", "restart", ("gpu3",), "no_buffer"),
        ("restart all", "restart", ALL, None),
        ("restart", "restart", (), None),
        ("stop", "stop", (), None),
        ("stop gpu3.", "stop", ("gpu3",), None),
        ("/up", "up", ALL, None),
    ],
)  # fmt: skip
def test_commands_mean_what_they_say(text: str, command: str, targets: tuple[str, ...], profile: str | None) -> None:
    found = read(text)
    assert isinstance(found, Words)
    assert (found.command, found.targets, found.profile) == (command, targets, profile)


def test_a_question_mark_and_options_are_kept() -> None:
    found = read("restart --rolling no_buffer?")
    assert isinstance(found, Words)
    assert found.is_question
    assert found.options == frozenset({"--rolling"})


@pytest.mark.parametrize(
    "text",
    [
        "what's up?", "is it up? dunno", "up to you", "no idea", "start with lunch", "job done I think", "stop it now or else",
        "morning", "gpu3", "how is the job going?", "helpful as ever", "nothing to see", "quiet please", "restarted it myself",
    ],
)  # fmt: skip
def test_talk_is_left_alone(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("restrat gpu3", "Did you mean restart gpu3? Nothing was done."),
        ("statsu", "Did you mean status? Nothing was done."),
        ("restart gpu9", "I don't know gpu9. Did you mean gpu7? Nothing was done."),
        ("restart no_bufer", "I don't know no_bufer. Did you mean no_buffer? Nothing was done."),
        ("restart gpu3; rm -rf /", "I don't know gpu3;. Did you mean gpu3? Nothing was done."),
        ("logs gpu0 $(id)", "I don't know $(id). Usage: logs [servers] [lines]. Nothing was done."),
        ("restart the whole thing", "I don't know the. Usage: restart [servers] [profile] [flag=value] [--rolling] [--again]. Nothing was done."),
        ("up gpu9", "I don't know gpu9. Did you mean gpu7? Nothing was done."),
    ],
)  # fmt: skip
def test_what_begins_like_a_command_gets_a_hint_and_nothing_happens(text: str, hint: str) -> None:
    assert read(text) == hint


def test_a_mention_alone_is_help_and_an_unknown_word_gets_a_hint() -> None:
    found = read("", mentions=True)
    assert isinstance(found, Words)
    assert found.command == "help"
    assert read("dance", mentions=True) == "I don't know dance; help tells what I know."


def test_ten_thousand_characters_are_too_long_to_be_a_command() -> None:
    assert read("restart " + "x" * 10_000) == "That is too long to be a command (10008 characters)."
    assert read("so " + "x " * 5_000) is None


def test_logs_and_status_recall_the_last_one_named_and_what_changes_never_guesses() -> None:
    logs, restart = read("logs", recalled=("gpu3",)), read("restart", recalled=("gpu3",))
    assert isinstance(logs, Words)
    assert isinstance(restart, Words)
    assert logs.targets == ("gpu3",)
    assert restart.targets == ()


@pytest.mark.parametrize(
    "text", ["no", "No the first launch already worked", "stop", "wait!", "don't", "dont", "cancel it", "abort"]
)
def test_words_of_people_in_a_hurry(text: str) -> None:
    assert is_safe_word(text)


@pytest.mark.parametrize("text", ["no_buffer is better", "nothing", "know", "stopped", "no-buffer", "cancelled"])
def test_words_that_only_begin_like_them(text: str) -> None:
    assert not is_safe_word(text)


def test_alone_or_inside_a_sentence() -> None:
    assert is_only_safe_word("stop it please!")
    assert not is_only_safe_word("stop, that's the wrong one")


@pytest.mark.parametrize(
    "text",
    ["ready", "it's up", "works", "It's still ready!", "it works", "they are up", "up now"],
)
def test_somebody_says_that_it_works(text: str) -> None:
    assert says_it_is_up(text)


@pytest.mark.parametrize("text", ["up?", "up", "Up ?", "UP!", "ready?", "still up?"])
def test_who_asks_whether_it_is_up_says_nothing_about_it(text: str) -> None:
    assert not says_it_is_up(text)


@given(st.text(max_size=500), st.booleans())
def test_any_text_is_read_without_a_fault_and_names_only_what_there_is(text: str, mentions: bool) -> None:
    found = interpret(text, fleet=FLEET, commands=COMMANDS, channel="C1", mentions_bot=mentions)
    if isinstance(found, Words):
        assert set(found.targets) <= set(ALL)
        assert found.profile in (None, "extra_buffer", "no_buffer")
