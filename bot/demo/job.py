"""``python -m bot.demo.job --urls … --progress FILE``: the client that feeds the simulated servers.

It keeps ``--concurrency`` requests open with each server, takes up where its progress file says it stopped, and ends
on SIGINT (Ctrl-C) or SIGTERM within a second: what is under way is given up and asked again next time. Servers may go
and come back; nothing makes it fail.

Not everything that the servers decode arrives. Each worker has a patience, drawn anew for every prompt; when no first
token has come by then it asks the prompt once more elsewhere, and the answer that comes second is thrown away. Three
answers in a hundred fail the job's check and their prompts are asked again. ``bot.demo.engine`` has the arithmetic.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bot.demo.machine import Entry, Machine, process_started, speed_of, write_whole

TOKENS = 600
"""Tokens of a usual answer; fewer when the simulation runs faster, so that answers come as often as it seems."""
FEWEST_TOKENS = 150
CONTEXT = 2_060
"""Tokens in the cache that a request holds on average: its prompt and half of its answer."""
PATIENCE = 80.0
"""The longest patience in seconds for answers of the usual length."""
REJECTED = 0.03
RATE_WINDOW = 60.0
GIVE_UP = 600.0


@dataclass(slots=True)
class Progress:
    """How far the job is. ``low``: all prompts below it are done; ``beyond``: those done above it."""

    total: int
    low: int = 0
    beyond: set[int] = field(default_factory=set)
    tokens: int = 0
    wasted: int = 0
    rate: float = 0.0

    @property
    def done(self) -> int:
        """Prompts that are done."""
        return self.low + len(self.beyond)

    def has(self, number: int) -> bool:
        """Whether a prompt is done."""
        return number < self.low or number in self.beyond

    def finish(self, number: int) -> None:
        """Note that a prompt is done."""
        self.beyond.add(number)
        while self.low in self.beyond:
            self.beyond.discard(self.low)
            self.low += 1

    @staticmethod
    def load(path: Path, total: int) -> Progress:
        """From its file; from the beginning when there is none or it can't be read."""
        try:
            stored = json.loads(path.read_text("utf-8"))
            fresh = Progress(total=total, low=int(stored.get("low", stored["done"])), rate=float(stored.get("rate", 0)))
            fresh.beyond = {int(one) for one in stored.get("beyond", ())}
            fresh.tokens, fresh.wasted = int(stored.get("tokens", 0)), int(stored.get("wasted", 0))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return Progress(total=total)
        return fresh

    def text(self, state: str) -> str:
        """As its file holds it."""
        values = {
            "state": state,
            "done": self.done,
            "total": self.total,
            "rate": round(self.rate, 1),
            "tokens": self.tokens,
            "wasted": self.wasted,
            "updated": round(time.time(), 1),
            "low": self.low,
            "beyond": sorted(self.beyond),
        }
        return json.dumps(values)


class Prompts:
    """Which prompt is next: second copies first, then what was given back, then new ones."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._again: deque[int] = deque()
        self._next = progress.low
        self._copied: set[int] = set()

    def take(self) -> int | None:
        """The next number; None when nothing is left to begin."""
        while self._again:
            number = self._again.popleft()
            if not self._progress.has(number):
                return number
        while self._next < self._progress.total and self._progress.has(self._next):
            self._next += 1
        if self._next >= self._progress.total:
            return None
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        """A prompt that got no answer, or a useless one."""
        if not self._progress.has(number):
            self._again.append(number)

    def copy(self, number: int) -> None:
        """Ask a prompt a second time, once."""
        if number not in self._copied and not self._progress.has(number):
            self._copied.add(number)
            self._again.appendleft(number)

    def forget(self, number: int) -> None:
        """A prompt is done: whether it was copied need not be known any more."""
        self._copied.discard(number)


class Rate:
    """Tokens a second over the last while."""

    def __init__(self, window: float, now: float) -> None:
        self._window = window
        self._began = now
        self._seen: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, now: float, tokens: int) -> None:
        """Count tokens that arrived."""
        self._seen.append((now, tokens))
        self._sum += tokens

    def value(self, now: float) -> float | None:
        """The rate; None while too little was seen to say one."""
        while self._seen and self._seen[0][0] < now - self._window:
            self._sum -= self._seen.popleft()[1]
        span = min(self._window, now - self._began)
        return self._sum / span if span >= self._window / 2 else None


class Endpoint:
    """One server as the job sees it: its address, and whether it is worth asking."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.is_up = asyncio.Event()
        self.is_up.set()


class Job:
    """Feeds every server until all prompts are done or it is asked to stop."""

    def __init__(self, args: argparse.Namespace, speed: float) -> None:
        self._args = args
        self._speed = speed
        self._tokens = args.tokens or max(FEWEST_TOKENS, round(TOKENS / speed))
        self._patience = PATIENCE * self._tokens / TOKENS
        self._dice = random.Random(args.seed)  # noqa: S311 - lengths of answers, not a secret
        self._texts = _prompt_texts(args.prompts, 4 * max(1, round(CONTEXT - 0.54 * self._tokens)))
        self.progress = Progress.load(args.progress, args.total)
        self._prompts = Prompts(self.progress)
        self._rate = Rate(max(15.0, RATE_WINDOW / speed), time.monotonic())
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask it to end."""
        self._stop.set()

    async def run(self) -> int:
        """Work; 0 when it was asked to end or all is done."""
        timeout = aiohttp.ClientTimeout(total=GIVE_UP, sock_connect=5)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            workers = [
                asyncio.create_task(self._work(session, endpoint))
                for endpoint in map(Endpoint, self._args.urls)
                for _ in range(self._args.concurrency)
            ]
            reporter = asyncio.create_task(self._report())
            ended = asyncio.create_task(self._asked_to_end())
            finished = asyncio.create_task(_all_of(workers))
            await asyncio.wait({ended, finished}, return_when=asyncio.FIRST_COMPLETED)
            tasks = (*workers, finished, reporter, ended)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        is_done = self.progress.done >= self.progress.total
        self._save("done" if is_done else "stopped")
        _say(f"{'done' if is_done else 'stopped'} at {self.progress.done:,} of {self.progress.total:,}, saved")
        return 0

    async def _asked_to_end(self) -> None:
        await self._stop.wait()

    async def _work(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        part = self._dice.random()
        while True:
            await endpoint.is_up.wait()
            number = self._prompts.take()
            if number is None:
                if self.progress.done >= self.progress.total:
                    return
                await asyncio.sleep(0.5)
                continue
            # The first answers are asked shorter, or all of a round would end in one wave.
            wanted = max(1, round(self._tokens * self._dice.uniform(0.5, 1.5) * part))
            part = 1.0
            try:
                count = await self._ask(session, endpoint, number, wanted)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                self._prompts.give_back(number)
                self._note_down(session, endpoint)
            else:
                self._take_answer(number, count)

    async def _ask(self, session: aiohttp.ClientSession, endpoint: Endpoint, number: int, wanted: int) -> int:
        """One request; the tokens of the answer. Asks again elsewhere when its first token is long in coming."""
        body = {
            "text": self._texts[number % len(self._texts)],
            "sampling_params": {"max_new_tokens": wanted, "temperature": 0.7, "ignore_eos": True},
            "stream": True,
        }
        loop = asyncio.get_running_loop()
        patience = loop.call_later(self._patience * self._dice.random(), self._prompts.copy, number)
        try:
            async with session.post(f"{endpoint.url}/generate", json=body) as answer:
                answer.raise_for_status()
                last = b""
                async for line in answer.content:
                    patience.cancel()
                    if line.startswith(b"data: {"):
                        last = line
            return _tokens_of(last)
        finally:
            patience.cancel()

    def _take_answer(self, number: int, count: int) -> None:
        if self.progress.has(number):
            self.progress.wasted += count
        elif self._dice.random() < REJECTED:
            self.progress.wasted += count
            self._prompts.give_back(number)
        else:
            self.progress.finish(number)
            self.progress.tokens += count
            self._prompts.forget(number)
            self._rate.add(time.monotonic(), count)

    def _note_down(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """One task looks for a server that failed; its workers wait for it."""
        if endpoint.is_up.is_set() and not self._stop.is_set():
            endpoint.is_up.clear()
            task = asyncio.get_running_loop().create_task(self._wait_for(session, endpoint))
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)

    async def _wait_for(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        _say(f"{endpoint.url} does not answer, waiting for it")
        while not session.closed:
            await asyncio.sleep(max(0.2, 1 / self._speed))
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, RuntimeError):
                async with session.get(f"{endpoint.url}/model_info", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                    if answer.status == 200:
                        _say(f"{endpoint.url} is back")
                        endpoint.is_up.set()
                        return

    async def _report(self) -> None:
        for beat in _count():
            rate = self._rate.value(time.monotonic())
            if rate is not None:
                self.progress.rate = rate
            self._save("running")
            if beat % 5 == 0:
                share = self.progress.done / max(1, self.progress.total)
                _say(f"{self.progress.done:,}/{self.progress.total:,} ({share:.1%}) · {self.progress.rate:,.0f} tok/s")
            await asyncio.sleep(2)

    def _save(self, state: str) -> None:
        try:
            write_whole(self._args.progress, self.progress.text(state))
        except OSError as exc:
            _say(f"progress not saved: {exc}")


_TASKS: set[asyncio.Task[None]] = set()


async def _all_of(workers: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*workers)


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _tokens_of(line: bytes) -> int:
    """The tokens of a finished answer; ValueError for one that was cut off or given up by the server."""
    try:
        meta: Any = json.loads(line.removeprefix(b"data: "))["meta_info"]
        count, reason = meta["completion_tokens"], meta["finish_reason"]
    except (KeyError, TypeError) as exc:
        raise ValueError("not an answer") from exc
    if not isinstance(count, int) or not isinstance(reason, dict) or reason.get("type") == "abort":
        raise ValueError("no whole answer")
    return count


def _prompt_texts(path: Path | None, length: int) -> list[str]:
    """The prompts, one a line, each with a document of its own to make it as long as prompts are."""
    lines = path.read_text("utf-8").splitlines() if path is not None else ["Summarise the document."]
    return [(f"{line}\n\n" + "lorem ipsum " * (length // 12 + 1))[:length] for line in lines if line.strip()]


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    made = argparse.ArgumentParser(prog="python -m bot.demo.job", description="Generate data with a fleet.")
    made.add_argument("--urls", nargs="+", required=True, help="the servers' addresses")
    made.add_argument("--concurrency", type=int, default=64, help="requests to keep open with each server")
    made.add_argument("--total", type=int, default=193_000, help="prompts in all")
    made.add_argument("--progress", type=Path, required=True, help="the progress file (JSON)")
    made.add_argument("--prompts", type=Path, help="prompts, one a line; they are used in turn")
    made.add_argument("--tokens", type=int, help="tokens of a usual answer")
    made.add_argument("--pid-file", type=Path, help="where to write the process id")
    made.add_argument("--seed", type=int, default=1)
    return made


async def _live(args: argparse.Namespace, env: Mapping[str, str], machine: Machine, entry: Entry) -> int:
    job, loop = Job(args, speed_of(env)), asyncio.get_running_loop()

    def asked_to_end(number: signal.Signals) -> None:
        machine.note(entry, number.name)
        job.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_end, number)
    return await job.run()


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the job to its end; its exit status."""
    args = parser().parse_args(argv)
    machine, pid = Machine.of(env), os.getpid()
    entry = Entry(pid, process_started(pid) or 0, "job")
    machine.note(entry, "started")
    machine.register(entry)
    if args.pid_file is not None:
        write_whole(args.pid_file, f"{pid}\n")
    try:
        return asyncio.run(_live(args, env, machine, entry))
    finally:
        machine.note(entry, "ended")
        machine.forget(pid)
        if args.pid_file is not None:
            args.pid_file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
