"""What can go wrong, sorted by what the caller does about it.

::

    UpbotError
    ├── UserError         a person's words were wrong; shown to that person as written
    ├── FleetError        something out there failed; one line is shown, everything is logged
    │   ├── HopError      a hop on the way to a host failed: the name, the login, the container, …
    │   ├── TimedOut      no end within the time that was given
    │   └── StepFailed    a step of an operation found that it can't be done
    ├── StoreError        what was intended can't be written down, so nothing that destroys is done
    ├── ChatError         the chat refused a message for good
    │   └── NoSuchGroup   the chat has no user group of that id
    └── ConfigError       at start or reload: a file is wrong; names file, line and key
"""

from __future__ import annotations


class UpbotError(Exception):
    """The base of everything that Upbot raises on purpose."""


class UserError(UpbotError):
    """A person's words can't be carried out; the text says what to type instead."""


class FleetError(UpbotError):
    """A host or a server did not do what was asked; the text fits one line of chat."""


class HopError(FleetError):
    """A hop on the way to a host failed.

    ``hop`` is how a person names it ("ssh root@h1", "container 200"); ``why`` completes the
    sentence "<hop> …" ("is stopped", "refused the key", "timed out after 3 s").
    """

    def __init__(self, hop: str, why: str) -> None:
        super().__init__(f"{hop} {why}")
        self.hop = hop
        self.why = why


class TimedOut(FleetError):
    """A remote command, or an answer, did not come within the time that was given."""


class StepFailed(FleetError):
    """A step of an operation can't reach its end; the text says why and what was left."""


class StoreError(UpbotError):
    """The state could not be written; the text names the file and the reason."""


class ChatError(UpbotError):
    """The chat refused a message and will refuse it again."""


class NoSuchGroup(ChatError):
    """The chat has no user group of that id: nobody is in it."""


class ConfigError(UpbotError):
    """A file that a person wrote is wrong: where, what, and the nearest right thing."""

    def __init__(self, why: str, *, file: str = "", line: int | None = None, key: str = "") -> None:
        where = f"{file}:{line}" if line is not None else file
        super().__init__(": ".join(part for part in (where, key, why) if part))
        self.why = why
        self.file = file
        self.line = line
        self.key = key
