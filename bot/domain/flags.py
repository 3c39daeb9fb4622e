"""Launch flags as a value: read from a command line, merged with a profile, compared, written back.

A flag's name is kept without its dashes ("mem-fraction-static"). A bare switch has no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlagChange:
    """One flag that differs: its values before and after, None where it is absent."""

    name: str
    before: tuple[str, ...] | None
    after: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags in the order in which they were given; each name stands once, the last one wins."""

    items: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def of(values: Mapping[str, str | Iterable[str] | bool | int | float]) -> Flags:
        """From a mapping as a person writes it: ``true`` is a bare switch, ``false`` leaves it out."""
        items: list[tuple[str, tuple[str, ...]]] = []
        for name, value in values.items():
            if value is False:
                continue
            if value is True:
                items.append((name, ()))
            elif isinstance(value, (str, int, float)):
                items.append((name, (str(value),)))
            else:
                items.append((name, tuple(str(one) for one in value)))
        return Flags(tuple(items))

    @staticmethod
    def parse(argv: Iterable[str]) -> Flags:
        """Read the flags of a command line; words before the first flag are passed over.

        Both ``--name value`` and ``--name=value`` are read, and underscores count as dashes
        (argparse knows the difference, but people do not mean one).
        """
        found: dict[str, tuple[str, ...]] = {}
        name: str | None = None
        for word in argv:
            if word.startswith("--") and len(word) > 2:
                name, equals, value = word[2:].partition("=")
                name = name.replace("_", "-")
                found.pop(name, None)
                found[name] = (value,) if equals else ()
            elif name is not None:
                found[name] = (*found[name], word)
        return Flags(tuple(found.items()))

    def __iter__(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return iter(self.items)

    def get(self, name: str) -> tuple[str, ...] | None:
        """The values of a flag, () for a bare switch, None where it is absent."""
        return dict(self.items).get(name)

    def value(self, name: str) -> str | None:
        """The first value of a flag, None where there is none."""
        values = self.get(name)
        return values[0] if values else None

    def merged(self, other: Flags, without: Iterable[str] = ()) -> Flags:
        """These flags, with the other's on top, and without some."""
        result = dict(self.items)
        result.update(other.items)
        for name in without:
            result.pop(name, None)
        return Flags(tuple(result.items()))

    def argv(self) -> tuple[str, ...]:
        """As words of a command line."""
        return tuple(word for name, values in self.items for word in (f"--{name}", *values))

    def changes_to(self, other: Flags) -> tuple[FlagChange, ...]:
        """What differs when these flags become the other's, in the other's order, the gone ones last."""
        before, after = dict(self.items), dict(other.items)
        names = [*after, *(name for name in before if name not in after)]
        return tuple(
            FlagChange(name, before.get(name), after.get(name))
            for name in names
            if _meant(before.get(name)) != _meant(after.get(name))
        )

    def includes(self, other: Flags) -> bool:
        """Whether every flag of the other stands here with the same values."""
        mine = dict(self.items)
        return all(_meant(mine.get(name)) == _meant(values) for name, values in other.items)


def _meant(values: tuple[str, ...] | None) -> tuple[str | float, ...] | None:
    """Values as an engine takes them: 0.90 and 0.9 are one number."""
    if values is None:
        return None
    return tuple(_number(value) for value in values)


def _number(value: str) -> str | float:
    try:
        return float(value)
    except ValueError:
        return value
