"""The life of a simulated server: loads, opens its port last of all, serves, drains, and dies as SGLang dies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

from aiohttp import web

from bot.demo.engine import lines
from bot.demo.engine.batch import Request
from bot.demo.engine.failures import FAILURES, Failure, died, traceback_of
from bot.demo.engine.scheduler import PREFILL_RATE, PULSE, Scheduler, beat
from bot.demo.engine.setup import Setup
from bot.demo.engine.sizes import WEIGHTS_MIB
from bot.demo.engine.startup import SERVER, WARM_UP, Part, Stage, personal_factor, stages
from bot.demo.engine.voice import Voice
from bot.demo.engine.web import Status, Web
from bot.demo.machine import GPU_TOTAL_MIB, Entry, Machine

DRAIN_LOOK = 5.0
"""Seconds between two looks of a draining server whether requests are left."""


class ServerProcess:
    """One server from its first line to its last."""

    def __init__(self, setup: Setup, machine: Machine, entry: Entry, voice: Voice) -> None:
        self._setup = setup
        self._machine = machine
        self._entry = entry
        self._voice = voice
        self._is_asked_to_end = asyncio.Event()

    async def run(self) -> int:
        """Live; the exit status."""
        loading = asyncio.create_task(beat(PULSE, lambda: self._machine.beat(self._entry.pid)))
        try:
            await self._load()
        finally:
            loading.cancel()
        scheduler = Scheduler(
            self._setup.sizes, self._machine, self._entry, self._voice, max(1, self._setup.args.decode_log_interval)
        )
        pulse = asyncio.create_task(beat(PULSE, lambda: self._pulse(scheduler)))
        try:
            return await self._serve(scheduler)
        finally:
            pulse.cancel()
            self._machine.beat(self._entry.pid)

    # Loading

    async def _load(self) -> None:
        setup, failure = self._setup, self._failure()
        factor = 0.0 if setup.is_instant else personal_factor(setup.args.port) / setup.speed
        shown: Counter[Part] = Counter()
        is_cold = setup.is_cold and not setup.is_instant
        for stage in stages(setup.args, setup.version, setup.sizes, setup.shown(), is_cold=is_cold):
            await self._pass(stage.after * factor)
            if failure is not None and stage.part == failure.part and shown[stage.part] >= failure.after:
                self._die_of(failure)
            shown[stage.part] += 1
            self._show(stage)
            self._claim(stage)
        setup.keep_kernels()
        await self._pass(SERVER / 2 * factor)

    async def _pass(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _failure(self) -> Failure | None:
        cause = self._machine.take_failure(self._entry.port)
        return FAILURES.get(cause) if cause is not None else None

    def _show(self, stage: Stage) -> None:
        if stage.is_bar:
            self._voice.bar(stage.text)
        else:
            self._voice.say(stage.text)

    def _claim(self, stage: Stage) -> None:
        """Take the memory of a stage on every GPU; the process dies where others hold too much."""
        if stage.memory is None:
            return
        for gpu in self._setup.gpus:
            others = [one for one in self._machine.holders(gpu) if one.pid != self._entry.pid]
            if sum(one.mib for one in others) + stage.memory > GPU_TOTAL_MIB:
                error = lines.out_of_memory(gpu, WEIGHTS_MIB // 64, others)
                self._scheduler_dies(Failure("weights", 0, error, FAILURES["oom"].where))
        self._entry = self._machine.with_memory(self._entry, stage.memory)

    def _die_of(self, failure: Failure) -> NoReturn:
        if failure.exit_code is not None:
            self._voice.bar(f"Traceback (most recent call last):\n{died(failure.exit_code)}\n")
            raise SystemExit(1)
        self._scheduler_dies(failure)

    def _scheduler_dies(self, failure: Failure) -> NoReturn:
        self._voice.say(traceback_of(failure))
        self._voice.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self._kill_itself()

    def _kill_itself(self) -> NoReturn:
        """The real one ends its whole process tree, itself last, with SIGKILL."""
        pid = os.getpid()
        self._voice.say(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        self._machine.beat(pid)
        os.kill(pid, signal.SIGKILL)
        raise SystemExit(137)

    # Serving

    async def _serve(self, scheduler: Scheduler) -> int:
        side = Web(self._setup, scheduler, self._voice)
        say, pid = self._voice.say, os.getpid()
        say(f"INFO:     Started server process [{pid}]")
        say("INFO:     Waiting for application startup.")
        say("INFO:     Application startup complete.")
        async with self._listening(side) as is_bound:
            if not is_bound:
                return await self._give_up()
            await self._warm_up(side, scheduler)
            await self._is_asked_to_end.wait()
            await self._drain(side, scheduler)
            say("INFO:     Shutting down")
            await self._pass(0.5 / self._setup.speed)
        say("INFO:     Waiting for application shutdown.")
        say("INFO:     Application shutdown complete.")
        say(f"INFO:     Finished server process [{pid}]")
        say(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
        return 0

    @contextlib.asynccontextmanager
    async def _listening(self, side: Web) -> AsyncIterator[bool]:
        args = self._setup.args
        runner = web.AppRunner(side.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, args.host, args.port, backlog=2048).start()
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise
                self._voice.say(lines.bind_error(args.host, args.port))
                yield False
                return
            self._voice.say(f"INFO:     Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
            yield True
        finally:
            await runner.cleanup()

    async def _give_up(self) -> int:
        """The port is another's: a second too late, its owner may have answered our warm-up meanwhile."""
        self._voice.say("INFO:     Waiting for application shutdown.")
        if await _answers(self._setup.args.host, self._setup.args.port):
            self._voice.say(lines.READY)
        self._voice.say("INFO:     Application shutdown complete.")
        pid = os.getpid()
        self._voice.say(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
        return 3

    async def _warm_up(self, side: Web, scheduler: Scheduler) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_end, number)
        if not self._setup.args.skip_server_warmup:
            # However fast the rest goes, the 503 of a warm-up stays long enough to be seen.
            await self._pass(0 if self._setup.is_instant else max(0.3, WARM_UP / self._setup.speed))
            peer = f"127.0.0.1:{40_000 + os.getpid() % 20_000}"
            self._voice.say(lines.access(peer, "GET", "/model_info", 200, "OK"))
            self._voice.say(lines.prefill(scheduler.batch, [Request("warm-up", 6, 8, 0.0)], PREFILL_RATE / 400))
            self._voice.say(lines.access(peer, "POST", "/generate", 200, "OK"))
            if lines.is_new(self._setup.version):
                self._voice.say(lines.access(peer, "POST", "/freeze_gc", 200, "OK"))
        side.status = Status.UP
        self._voice.say(lines.READY)
        scheduler.note_ready()

    def _asked_to_end(self, number: signal.Signals) -> None:
        self._machine.note(self._entry, number.name)
        self._is_asked_to_end.set()

    async def _drain(self, side: Web, scheduler: Scheduler) -> None:
        if side.status is Status.UNHEALTHY:
            self._voice.say("Signal SIGTERM received while health check failed. Exiting.")
            return
        side.is_draining = True
        self._voice.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        while True:
            await self._pass(DRAIN_LOOK / 2 / self._setup.speed)
            scheduler.catch_up()
            left: Sequence[str] = scheduler.batch.rids
            self._voice.say(
                f"Gracefully exiting... Remaining number of requests {len(left)}. "
                f"Remaining requests remaining_rids={list(left)}."
            )
            if not left:
                return
            await self._pass(DRAIN_LOOK / 2 / self._setup.speed)

    def _pulse(self, scheduler: Scheduler) -> None:
        scheduler.pulse()
        limit, since = self._setup.args.watchdog_timeout, scheduler.hung_since
        if since is None or not scheduler.batch.running or limit <= 0:
            return
        if asyncio.get_running_loop().time() - since > limit / self._setup.speed:
            self._voice.say(f"Scheduler watchdog timeout (self.watchdog_timeout={limit:g}, self.soft=False)")
            self._voice.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
            self._kill_itself()


async def _answers(host: str, port: int) -> bool:
    """Whether whoever has the port answers a warm-up's first question."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET /model_info HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
    except (OSError, TimeoutError):
        return False
    return b" 200 " in line
