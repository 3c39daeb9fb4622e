"""Checks flags against what the installed version's own parser knows, the way argparse would.

An engine's table of renames and its rules of conflict stand in its own package; here is what they share.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bot.domain.engine import FlagProblem
from bot.domain.flags import Flags
from bot.engines._versions import Version, said

Fix = Callable[[Flags], Flags]
_NUMBERS: dict[str, tuple[Callable[[str], object], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}


@dataclass(frozen=True, slots=True)
class Rename:
    """A flag whose name changed: ``since`` the new one exists, and ``gone`` is the first version without the old.

    ``value`` is given to the new flag where the old one was a bare switch.
    """

    old: str
    new: str
    since: Version
    gone: Version
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and how to mend the flags where that is sure."""

    flag: str
    why: str
    fix: Fix | None = None


def accepts(name: str, known: frozenset[str]) -> bool:
    """Whether argparse takes this flag: by its whole name, or by an abbreviation of exactly one.

    The ``--no-`` forms are names of their own there. A dotted name sets one key of a JSON flag (vLLM).
    """
    word = f"--{name}"
    if word in known or f"--{name.split('.', 1)[0].rstrip('+')}" in known:
        return True
    return sum(one.startswith(word) and "=" not in one for one in known) == 1


def unknown_flags(
    program: str, version: Version | None, known: frozenset[str], flags: Flags, renames: Sequence[Rename]
) -> Iterator[Finding]:
    """The flags that this version does not know; without ``known`` only the table of renames can tell."""
    for name, _values in flags:
        if known and accepts(name, known):
            continue
        rename = _renamed(name, version, known, renames)
        if rename is not None:
            yield rename_finding(program, name, rename)
        elif known:
            yield Finding(name, f"{program} has no --{name}{_nearest(name, known)}")


def rename_finding(program: str, name: str, rename: Rename) -> Finding:
    """The sentence of a rename, in the direction in which it applies, and its cure."""
    if name == rename.old:
        right = rename.new if rename.value is None else f"{rename.new} {rename.value}"
        why = f"{program} has no --{name}; since {said(rename.gone)} it is --{right}"
        values = None if rename.value is None else (rename.value,)
        return Finding(name, why, lambda flags: replaced(flags, name, rename.new, values))
    why = f"{program} has no --{name}; before {said(rename.since)} it is --{rename.old}"
    return Finding(name, why, lambda flags: replaced(flags, name, rename.old))


def bad_values(known: frozenset[str], flags: Flags, seen: Sequence[Finding]) -> Iterator[Finding]:
    """The values that the installed parser itself refuses: no such choice, no number; ``seen`` are told already."""
    takes = dict(one.split("=", 1) for one in known if "=" in one)
    told = {one.flag for one in seen}
    for name, values in flags:
        takes_only = takes.get(f"--{name}")
        if takes_only is None or name in told:
            continue
        for value in values:
            if (why := _refusal(name, value, takes_only)) is not None:
                yield Finding(name, why)
                break


def _refusal(name: str, value: str, takes: str) -> str | None:
    shown = repr(value[:40])
    if takes in _NUMBERS:
        number, words = _NUMBERS[takes]
        return None if _is(number, value) else f"--{name} takes {words}, not {shown}"
    choices = takes.split("|")
    if value in choices:
        return None
    close = difflib.get_close_matches(value[:50], choices, n=1, cutoff=0.6)
    rest = f"the nearest is {close[0]}" if close else f"there is {', '.join(choices[:12])}"
    return f"--{name} has no choice {shown}; {rest}"


def _is(number: Callable[[str], object], value: str) -> bool:
    try:
        number(value[:400])
    except ValueError:
        return False
    return True


def _renamed(name: str, version: Version | None, known: frozenset[str], renames: Sequence[Rename]) -> Rename | None:
    for rename in renames:
        if name == rename.old and _holds(rename.new, known, version is not None and version >= rename.gone):
            return rename
        is_before = version is not None and version < rename.since
        if name == rename.new and rename.value is None and _holds(rename.old, known, is_before):
            return rename
    return None


def _holds(other: str, known: frozenset[str], by_version: bool) -> bool:
    return f"--{other}" in known if known else by_version


def _nearest(name: str, known: frozenset[str]) -> str:
    names = sorted(one for one in known if "=" not in one)
    close = difflib.get_close_matches(f"--{name[:100]}", names, n=1, cutoff=0.75)
    return f"; the nearest is {close[0]}" if close else ""


def replaced(flags: Flags, old: str, new: str, values: tuple[str, ...] | None = None) -> Flags:
    """The flags with one renamed in its place, with its own values or with others."""
    if flags.get(new) is not None:
        return flags.merged(Flags(), without=(old,))
    return Flags(
        tuple((new, given if values is None else values) if name == old else (name, given) for name, given in flags)
    )


def with_flag(name: str, *values: str) -> Fix:
    """A cure: give this flag these values."""
    return lambda flags: flags.merged(Flags(((name, values),)))


def without_flag(name: str) -> Fix:
    """A cure: leave this flag out."""
    return lambda flags: flags.merged(Flags(), without=(name,))


def mended(flags: Flags, findings: Sequence[Finding]) -> Flags:
    """The flags with every sure cure applied."""
    for finding in findings:
        if finding.fix is not None:
            flags = finding.fix(flags)
    return flags


def problems(flags: Flags, findings: Sequence[Finding]) -> tuple[FlagProblem, ...]:
    """The findings as problems; each that can be cured carries the flags with all the cures together."""
    corrected = mended(flags, findings)
    return tuple(FlagProblem(one.flag, one.why, None if one.fix is None else corrected) for one in findings)
