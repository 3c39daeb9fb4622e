"""Keeps tokens and tickets out of the logs that Slack's own libraries write."""

from __future__ import annotations

import logging
import re

_SECRET = re.compile(r"xox[a-z]-[\w-]+|xapp-[\w-]+|(?<=ticket=)[^&\s\"']+|(?<=[Bb]earer )\S+")


def redacted(text: str) -> str:
    """The text with whatever looks like a token or a ticket blotted out."""
    return _SECRET.sub("(secret)", text)


class _Blot(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redacted(record.getMessage())
        record.args = ()
        if record.exc_info and record.exc_info[1] is not None:
            # A traceback may quote an address with its ticket; its kind is enough.
            record.msg += f" ({type(record.exc_info[1]).__name__})"
            record.exc_info = None
            record.exc_text = None
        return True


_BLOT = _Blot()


def sdk_logger() -> logging.Logger:
    """The logger for bolt and the SDK: errors only, without secrets; we tell ourselves what matters."""
    logger = logging.getLogger("bot.chats.slack.sdk")
    logger.setLevel(logging.ERROR)
    # websockets takes no logger from the SDK, and in its debug lines stand the ticket and all that is said.
    for one in (logger, logging.getLogger("websockets.client")):
        one.addFilter(_BLOT)
    return logger
