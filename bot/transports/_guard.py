"""The few lines of shell around every command that leaves this machine: a sign that it was reached, a limit in time.

The sign is how a failing hop is told from a failing command. A random word is printed just before the command
takes the shell's place; where the word did not come, the command never ran, and whatever was printed and whatever
the exit status is, they are the hop's. What login shells and hops print before the word is dropped.

The limit is ``timeout`` on the far side, because closing an ssh channel, or killing ``docker exec``, leaves the
command running. Systems differ (GNU's takes fractions, old busybox has no -k, some images have none): the first
command through a hop asks, later ones know. Without ``timeout`` a watcher in plain shell does the same; it leaves
at most one second after its command. It is not the first choice because it looks only once a second.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from bot.domain.errors import FleetError
from bot.ports import Channel
from bot.transports._argv import quoted

# How much longer than its limit a command may take to be ended (SIGKILL comes a second after SIGTERM) and reported.
ENDING = timedelta(seconds=1.5)
# Statuses of a command that was ended: by timeout, by SIGKILL, by SIGTERM; by a signal, as OpenSSH's client has it.
_ENDED = frozenset({124, 137, 143, 255})
_NOISE_LIMIT = 256 * 1024

_ASK = (
    "if timeout -k 1 1.5 true; then m=exact; elif timeout -k 1 2 true; then m=whole; else m=none; fi"
    " >/dev/null 2>&1 </dev/null"
)
_AGE = 'age() { { read -r x </proc/$p/stat; } 2>/dev/null && x=${x##*) } && set -- $x && echo "${20}"; }'
# The watcher is nobody's child (its parent leaves at once), holds none of the command's pipes, and signals only
# while the process of that number is the one that it was told to watch.
_WATCH = (
    "p=$$; " + _AGE + "; b=$(age); ( ( trap '' HUP INT TERM; n=0; "
    'while [ $n -lt {whole} ]; do sleep 1 || exit; kill -0 $p && [ "$(age)" = "$b" ] || exit; n=$((n+1)); done; '
    'kill -TERM -$p || kill -TERM $p; sleep 1; [ "$(age)" = "$b" ] || exit; kill -KILL -$p || kill -KILL $p '
    ") </dev/null >/dev/null 2>&1 & )"
)
_SWEEP = 'kill -KILL "-$1" 2>/dev/null || kill -KILL "$1"'


@dataclass(frozen=True, slots=True)
class Reached:
    """The sign came: the command's process id where it runs, and what it wrote after the sign."""

    pid: int
    stdout: bytes


class Guard:
    """One hop's guard; it remembers which ``timeout`` is there."""

    def __init__(self) -> None:
        self._mode = ""

    def call(self, limit: timedelta | None) -> Call:
        """The guard of one command; without a limit the command must end when its stdin does."""
        return Call(self, secrets.token_hex(8), limit, self._mode)

    def learn(self, mode: str) -> None:
        """Remember which ``timeout`` the far side has."""
        self._mode = mode


@dataclass(frozen=True, slots=True)
class Call:
    """The guard around one command."""

    guard: Guard
    word: str
    limit: timedelta | None
    mode: str

    def argv(self, argv: Sequence[str]) -> list[str]:
        """The guarded command for a hop that execs what it gets."""
        return ["sh", "-c", self._text('"$@"'), "upbot", *argv]

    def text(self, argv: Sequence[str]) -> str:
        """The guarded command for a hop that gives its text to a POSIX login shell."""
        return self._text(quoted(argv))

    def reached(self, stdout: bytes) -> Reached | None:
        """Whether the sign has come, and what came after it."""
        found = re.search(rf"{self.word} ([a-z]*) (\d+)\r?\n".encode(), stdout[: _NOISE_LIMIT + 64])
        if not found:
            return None
        if self.limit is not None:
            self.guard.learn(found[1].decode())
        return Reached(int(found[2]), stdout[found.end() :])

    def errors(self, stderr: bytes) -> bytes:
        """What the command wrote to stderr, without what the hop wrote before."""
        return stderr.rpartition(f"{self.word}\n".encode())[2]

    def is_over(self, status: int, took: float) -> bool:
        """Whether a command that ended so, after so many seconds, was ended for its limit."""
        return self.limit is not None and status in _ENDED and took >= self.limit.total_seconds()

    def _text(self, command: str) -> str:
        sign = f"echo {self.word} $m $$; echo {self.word} >&2; "
        if self.limit is None:
            return f"m=talk; {sign}exec {command}"
        exact = f"{max(self.limit.total_seconds(), 0.001):.3f}"
        whole = str(max(1, math.ceil(self.limit.total_seconds())))
        ways = {
            "exact": f"exec timeout -k 1 {exact} {command}",
            "whole": f"exec timeout -k 1 {whole} {command}",
            "none": _WATCH.replace("{whole}", whole) + f"; exec {command}",
        }
        if self.mode in ways:
            return f"m={self.mode}; {sign}{ways[self.mode]}"
        # Which way is known only there, so the command's text must not stand here three times.
        start = f'case $m in exact) set -- timeout -k 1 {exact} "$@";; whole) set -- timeout -k 1 {whole} "$@";;'
        return (
            f'set -- {command}; {_ASK}; {sign}{start} *) {ways["none"].removesuffix(f"exec {command}")} esac; exec "$@"'
        )


def sweep(pid: int) -> list[str]:
    """The command that ends what is left of a guarded command: its process group, or the process alone."""
    return ["sh", "-c", _SWEEP, "upbot", str(pid)]


class GuardedChannel:
    """A channel whose command is known to have been reached."""

    def __init__(self, inner: Channel, call: Call, kill: Callable[[int], Awaitable[object]]) -> None:
        self._inner = inner
        self._call = call
        self._kill = kill
        self._pid = 0
        self._first = b""
        self._is_closed = False
        self.ended_by_itself = False

    async def reach(self) -> bool:
        """Read up to the sign; False when the hop ended without it."""
        noise = b""
        while data := await self._inner.receive():
            noise += data
            if reached := self._call.reached(noise):
                self._pid, self._first = reached.pid, reached.stdout
                return True
            if len(noise) > _NOISE_LIMIT:
                break
        self._first = noise
        return False

    @property
    def noise(self) -> bytes:
        """What came instead of the sign."""
        return self._first

    async def send(self, data: bytes) -> None:
        await self._inner.send(data)

    async def receive(self) -> bytes:
        if self._first:
            data, self._first = self._first, b""
            return data
        return await self._inner.receive()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._inner.close()
        self.ended_by_itself = getattr(self._inner, "ended_by_itself", True)
        if self._pid and not self.ended_by_itself:
            # The line may be dead too; then there is nothing more that can be done from here.
            with suppress(FleetError):
                await self._kill(self._pid)

    @property
    def errors(self) -> bytes:
        return self._call.errors(self._inner.errors)
