"""Reads how a Python program was started: by a module, by a file or by its own name.

Only what a process itself runs counts: ``sh -c "python -m …"``, a wrapper with a program in its arguments, or
``grep`` are other programs, whatever stands behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?(?:-dbg)?")
_LONELY = frozenset("bBdEiIOPqsSuvx")
_MEANT_FOR_PEOPLE = frozenset({"--help", "-h", "--version"})


@dataclass(frozen=True, slots=True)
class Entry:
    """What was started: the interpreter ("" where a script was called by its name), a module or a script, and
    the words that follow.
    """

    python: str
    module: str
    script: str
    rest: tuple[str, ...]

    @property
    def program(self) -> str:
        """The script's own name, without its folder."""
        return base(self.script)

    @property
    def only_asks(self) -> bool:
        """Whether it was started to print its help or version."""
        return not _MEANT_FOR_PEOPLE.isdisjoint(self.rest)


def base(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def is_python(word: str) -> bool:
    """Whether a word names a Python interpreter."""
    return _PYTHON.fullmatch(base(word)) is not None


def entry(argv: Sequence[str]) -> Entry | None:
    """What a process runs by its command line; None where it is no program (``python -c``, an empty line).

    A program that has set its own title shows as one word with spaces; it is taken apart at them.
    """
    words = tuple(argv[0].split()) if len(argv) == 1 else tuple(argv)
    if not words or not words[0]:
        return None
    if not is_python(words[0]):
        return Entry("", "", words[0], words[1:])
    return _of_interpreter(words)


def _of_interpreter(words: tuple[str, ...]) -> Entry | None:
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            module, after = (word[2:], place + 1) if len(word) > 2 else (_at(words, place + 1), place + 2)
            return Entry(words[0], module, "", words[after:]) if module else None
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            place += 2
        elif word[:2] in ("-X", "-W") or (word.startswith("-") and len(word) > 1 and _LONELY.issuperset(word[1:])):
            place += 1
        elif word.startswith("-") or not word:
            return None
        else:
            return Entry(words[0], "", word, words[place + 1 :])
    return None


def _at(words: tuple[str, ...], place: int) -> str:
    return words[place] if place < len(words) else ""


def entries(argv: Sequence[str]) -> Iterator[Entry]:
    """Every reading of a launch command, the outermost first: behind ``env``, ``numactl`` or ``nice`` stands the
    program itself.
    """
    for place in range(len(argv)):
        found = entry(argv[place:])
        if found is not None:
            yield found


def port(words: Sequence[str], default: int) -> int | None:
    """The value of ``--port`` (the last one wins), the default where it is not given, None where it is no port."""
    found: str | None = None
    for place, word in enumerate(words):
        if word == "--port":
            found = words[place + 1] if place + 1 < len(words) else ""
        elif word.startswith("--port="):
            found = word.removeprefix("--port=")
    if found is None:
        return default
    if not (found.isascii() and found.isdecimal() and len(found) <= 5):
        return None
    number = int(found)
    return number if 0 < number < 65_536 else None
