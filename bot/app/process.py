"""What the bot is as a process: one a state folder, ended by signals, logging to stderr."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from bot.domain.errors import ConfigError, StoreError

_log = structlog.get_logger(__name__)


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the folder's lock; ConfigError when another bot has it."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"the state can't be kept in {state}: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ConfigError(
            "another bot runs on this state; stop it first, or give this one another --state", file=str(state)
        ) from error
    try:
        yield
    finally:
        os.close(handle)


async def until_stopped(on_hangup: Callable[[], Awaitable[object]] | None = None) -> None:
    """Wait for SIGTERM or SIGINT; SIGHUP does what was given."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    pending: set[asyncio.Task[Any]] = set()

    async def hang_up() -> None:
        if on_hangup is not None:
            try:
                _log.info("reloaded", told=await on_hangup())
            except ConfigError as error:
                _log.error("not_reloaded", why=str(error))

    def hung_up() -> None:
        task = loop.create_task(hang_up())
        pending.add(task)
        task.add_done_callback(pending.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        await stopped.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def configure_logging(*, is_json: bool, level: str = "info", hide: Callable[[str], str] = lambda text: text) -> None:
    """Log to stderr, a JSON object a line for machines, else for eyes; secrets are hidden on the way out."""

    def hiding(_: object, __: str, event: Any) -> Any:
        return {key: hide(value) if isinstance(value, str) else value for key, value in event.items()}

    renderer: Any = structlog.processors.JSONRenderer() if is_json else structlog.dev.ConsoleRenderer(colors=False)
    number = getattr(logging, level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hiding,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
