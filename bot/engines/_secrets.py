"""Takes secrets out of flags before anything else sees them: they are in argv, in /server_info and in logs."""

from __future__ import annotations

import re

from bot.domain.flags import Flags

HIDDEN = "[hidden]"

_SECRET = re.compile(r"(?:^|[-_.])(?:key|keys|token|password|passwd|secret|credential|credentials)$", re.IGNORECASE)
_SECRET_ENV = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def is_secret_flag(name: str) -> bool:
    """Whether a flag's value is a secret by its name ("api-key", "hf-token"; "max-total-tokens" is none)."""
    return _SECRET.search(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable may hold a secret; rather one too many than one too few."""
    return _SECRET_ENV.search(name) is not None


def hidden(flags: Flags) -> Flags:
    """The same flags with every secret's value hidden; that it was given stays visible."""
    return Flags(
        tuple(
            (name, (HIDDEN,) * len(values) if values and is_secret_flag(name) else values)
            for name, values in flags.items
        )
    )
