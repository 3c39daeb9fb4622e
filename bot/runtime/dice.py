"""Real randomness, good enough for what must not be guessed: the nonce on a button."""

from __future__ import annotations

import secrets


class SystemDice:
    """The operating system's randomness."""

    def hex(self, digits: int) -> str:
        return secrets.token_hex((digits + 1) // 2)[:digits]
