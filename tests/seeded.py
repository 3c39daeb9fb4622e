"""Randomness that is the same in every run."""

from __future__ import annotations

import random


class SeededDice:
    """Dice that fall as the seed says."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - tests want the same dice each time

    def hex(self, digits: int) -> str:
        return "".join(self._random.choice("0123456789abcdef") for _ in range(digits))
