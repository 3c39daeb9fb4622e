"""Texts that people and programs write never do more than they should, whatever they are."""

from __future__ import annotations

import shlex
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.errors import ConfigError, FleetError
from bot.domain.fleet import Hop
from bot.transports._argv import encoded, named, quoted
from bot.transports._guard import Guard
from bot.transports._ssh_options import split
from bot.transports._wrapping import last_line
from tests.transports.chains import KINDS

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(TEXT, min_size=1))
def test_quoting_loses_nothing(argv: list[str]) -> None:
    assert shlex.split(quoted(argv)) == argv


@given(st.lists(st.text(), max_size=4))
def test_an_argv_is_bytes_or_a_clear_error(argv: list[str]) -> None:
    try:
        assert [part.decode("utf-8", "surrogateescape") for part in encoded(argv)] == argv
    except FleetError as exc:
        assert "\n" not in str(exc)  # noqa: PT017 - either is right, and the error is looked at


@given(st.text())
def test_a_command_is_named_by_its_program_in_one_short_line(program: str) -> None:
    said = named([program, "--api-key", "hunter2"])
    assert 0 < len(said) <= 40
    assert said.isprintable()
    assert "hunter2" not in said or "hunter2" in program


@given(st.text())
def test_what_a_hop_printed_becomes_one_line(text: str) -> None:
    line = last_line(text)
    assert line.isprintable()
    assert len(line) <= 200


@given(st.binary(), st.binary())
def test_the_sign_is_found_among_any_noise(before: bytes, after: bytes) -> None:
    call = Guard().call(timedelta(seconds=1))
    assert call.reached(before) is None
    reached = call.reached(before + f"{call.word} exact 42\n".encode() + after)
    assert reached is not None
    assert (reached.pid, reached.stdout) == (42, after)


@given(st.sampled_from(sorted(KINDS)), st.text(max_size=30), st.sampled_from(["", "user", "port", "jump", "command"]))
def test_settings_are_right_or_their_key_is_named(kind: str, value: str, more: str) -> None:
    plugin = KINDS[kind]
    settings = ((plugin.shorthand, value), *(((more, value),) if more else ()))
    try:
        plugin.connect(Hop(kind, settings), None)
    except ConfigError as exc:
        assert exc.key.startswith(f"{kind}.")  # noqa: PT017 - either is right, and the error is looked at


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("h1", ("", "h1", "")),
        ("root@h1", ("root", "h1", "")),
        ("root@h1:2222", ("root", "h1", "2222")),
        ("h1:2222", ("", "h1", "2222")),
        ("::1", ("", "::1", "")),
        ("[::1]", ("", "::1", "")),
        ("a@b@[::1]:22", ("a@b", "::1", "22")),
    ],
)
def test_an_ssh_address_is_taken_apart(text: str, parts: tuple[str, str, str]) -> None:
    assert split(text) == parts
