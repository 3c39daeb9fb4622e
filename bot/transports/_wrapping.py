"""What pct, docker, sudo and an ssh client elsewhere have in common: words before the argv, a transport outside.

The outer transport does not know that it carries a hop. So the hop puts its own guard around the command, and
where the guard's sign does not come back, explains in a person's words what the hop's program printed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.domain.errors import ConfigError, FleetError, HopError, TimedOut
from bot.domain.fleet import Hop
from bot.ports import Channel, Completed, Transport
from bot.transports._argv import encoded, named
from bot.transports._guard import ENDING, Guard, GuardedChannel, sweep

OPENING = timedelta(seconds=10)
SWEEPING = timedelta(seconds=3)
_LINE_LIMIT = 200
_NO_SHELL = re.compile(
    r"""exec:\ "sh".*not\ found|stat\ sh:|sh:\ command\ not\ found|failed\ to\ (?:exec|execute)\ "?sh""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Way:
    """How one kind of hop is passed: the program, the words before the argv, what its failures mean.

    ``meanings`` maps a pattern of the program's output to the ``why`` of a HopError; the first that fits counts.
    """

    label: str
    program: str
    enter: Callable[[Sequence[str]], list[str]]
    meanings: Mapping[re.Pattern[str], str]
    verb: str = "can't be entered"

    def explain(self, status: int | None, output: bytes) -> HopError:
        """The failure of this hop, in a person's words."""
        text = output.decode("utf-8", "replace")
        for pattern, why in self.meanings.items():
            if found := pattern.search(text):
                return HopError(self.label, found.expand(why))
        if _NO_SHELL.search(text):
            return HopError(self.label, "has no sh, and nothing can be run there without it")
        if self._is_missing(status, text):
            return HopError(self.label, f"{self.verb}: there is no {named([self.program])} on its host")
        return HopError(self.label, f"{self.verb}: {last_line(text) or f'exit status {status} without a word'}")

    def _is_missing(self, status: int | None, text: str) -> bool:
        program = re.escape(named([self.program]))
        return status in (None, 126, 127) and bool(
            re.search(
                rf"{program}\W*:? (?:command )?(?:not found|no such file)|{program}\W+no such file", text, re.IGNORECASE
            )
        )


class Wrapped:
    """A hop that is passed by putting words before the argv."""

    def __init__(self, way: Way, outer: Transport) -> None:
        self._way = way
        self._outer = outer
        self._guard = Guard()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        encoded(argv)
        call = self._guard.call(timeout)
        started = asyncio.get_running_loop().time()
        try:
            done = await self._outer.run(self._way.enter(call.argv(argv)), stdin=stdin, timeout=timeout + ENDING)
        except TimedOut as exc:
            raise _over(argv, timeout, self._way.label) from exc
        reached = call.reached(done.stdout)
        if reached is None:
            raise self._way.explain(done.status, done.stdout + b"\n" + done.stderr)
        if call.is_over(done.status, asyncio.get_running_loop().time() - started):
            await self._sweep(reached.pid)
            raise _over(argv, timeout, self._way.label)
        return Completed(done.status, reached.stdout, call.errors(done.stderr))

    async def open(self, argv: Sequence[str]) -> Channel:
        encoded(argv)
        call = self._guard.call(None)
        inner = await self._outer.open(self._way.enter(call.argv(argv)))
        return await reach(GuardedChannel(inner, call, self._sweep), self._way)

    async def close(self) -> None:
        await self._outer.close()

    async def _sweep(self, pid: int) -> None:
        # What is left behind is rare, and failing to end it must not hide what is to be told.
        try:
            await self._outer.run(self._way.enter(sweep(pid)), timeout=SWEEPING)
        except FleetError:
            return


async def reach(channel: GuardedChannel, way: Way) -> Channel:
    """The channel once its command was reached; HopError, and all closed, when the hop fails or hangs."""
    is_reached = False
    try:
        async with asyncio.timeout(OPENING.total_seconds()):
            is_reached = await channel.reach()
    except TimeoutError:
        raise HopError(way.label, f"did not start a command within {OPENING.total_seconds():g} s") from None
    finally:
        if not is_reached:
            await channel.close()
    if not is_reached:
        raise way.explain(None, channel.noise + b"\n" + channel.errors)
    return channel


def _over(argv: Sequence[str], timeout: timedelta, label: str) -> TimedOut:
    return TimedOut(f"{named(argv)} did not end within {timeout.total_seconds():g} s in {label}")


def last_line(text: str) -> str:
    """The last line that says something, made fit for one line of chat."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    line = "".join(char if char.isprintable() else "?" for char in lines[-1]) if lines else ""
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"


_Settings = TypeVar("_Settings", bound=BaseModel)


def settings_of(model: type[_Settings], hop: Hop) -> _Settings:
    """A hop's settings; ConfigError names the key that is wrong. An empty text is a setting that was not made."""
    given: dict[str, Any] = {key: value for key, value in hop.settings if value}
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join([hop.transport, *map(str, first["loc"])])
        raise ConfigError(first["msg"], key=key) from exc
