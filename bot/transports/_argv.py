"""Checks an argv before it leaves this machine, and turns it into the bytes and the shell text that carry it.

Argv is a list of texts as the rest of the program has them. Bytes that are no UTF-8 travel as Python's
surrogate escapes, as in ``os.fsencode``, and arrive as the bytes that they were.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from bot.domain.errors import FleetError

# Linux's MAX_ARG_STRLEN is 32 pages, its ending NUL included: the longest text that exec takes as one argument.
LONGEST_ARGUMENT = 131_071
# Linux gives a quarter of the stack limit (8 MiB by default) to all arguments and the environment together.
LONGEST_ARGV = 1_500_000


def encoded(argv: Sequence[str]) -> list[bytes]:
    """The arguments as bytes; FleetError for what no exec, or no connection, would survive."""
    if not argv or not argv[0]:
        raise FleetError("there is no command to run")
    parts = [_encoded(part) for part in argv]
    longest = max(map(len, parts))
    if longest > LONGEST_ARGUMENT:
        raise FleetError(f"an argument of {named(argv)} is too long: {longest:,} bytes, {LONGEST_ARGUMENT:,} at most")
    total = sum(map(len, parts))
    if total > LONGEST_ARGV:
        raise FleetError(f"the arguments of {named(argv)} are too long: {total:,} bytes, {LONGEST_ARGV:,} at most")
    return parts


def quoted(argv: Sequence[str]) -> str:
    """The text from which exactly one POSIX shell makes this argv again; FleetError when it is too long for one."""
    text = shlex.join(argv)
    size = len(_encoded(text))
    if size > LONGEST_ARGUMENT:
        raise FleetError(f"the command {named(argv)} is too long for ssh: {size:,} bytes, {LONGEST_ARGUMENT:,} at most")
    return text


def named(argv: Sequence[str]) -> str:
    """How a message calls the command: its program alone, because arguments may hold secrets."""
    program = argv[0].rsplit("/", 1)[-1] if argv else ""
    return "".join(char if char.isprintable() else "?" for char in program[:40]) or "command"


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise FleetError("a NUL character can't stand in a command")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise FleetError("a command holds a character that has no bytes (a lone surrogate)") from exc
