"""The scout's main thread: requests in, HTTP, what the threads found, answers out."""

import contextlib
import heapq
import json
import os
import select
import time
from collections import deque
from typing import Any

from bot.runtime.probing.scout.connection import Get
from bot.runtime.probing.scout.folders import count
from bot.runtime.probing.scout.gets import READ, Gets
from bot.runtime.probing.scout.gpus import RUNNING, ask_gpus, end_group
from bot.runtime.probing.scout.journal import follow, tail
from bot.runtime.probing.scout.kernel import read_kernel
from bot.runtime.probing.scout.watcher import Watcher
from bot.runtime.probing.scout.workers import SharingWorker, Worker

HELLO = b'["upbot-scout",1]\n'
IDLE_LIMIT = 900.0
LONGEST_PAUSE = 60.0
TOGETHER = 0.001
MOST_TOGETHER = 64
REQUEST_LIMIT = 8 << 20


class Loop:
    """Serves the requests on stdin until it closes."""

    def __init__(self) -> None:
        self.has_epoll = hasattr(select, "epoll")
        self.poller: Any = select.epoll() if self.has_epoll else select.poll()
        self.timers: list[tuple[float, int, Any]] = []
        self.count = 0
        self.left: dict[int, int] = {}
        self.out: list[Any] = []
        self.found: deque[Any] = deque()
        self.lines = b""
        self.heard = self.now()
        self.burst = 0
        self.burst_until = 0.0
        self.waker, self.alarm = os.pipe()
        os.set_blocking(self.alarm, False)
        self.gets = Gets(self)
        self.watcher = Watcher(self)
        self.logs = Worker(self)
        self.gpus = SharingWorker(self)
        self.kernel = SharingWorker(self)
        self.folders = Worker(self)
        self.poller.register(0, READ)
        self.poller.register(self.waker, READ)

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()

    def run(self) -> None:
        """Serve until stdin closes, or nobody has asked for long."""
        os.write(1, HELLO)
        while True:
            pause = self.pause()
            for fd, mask in self.poller.poll(pause if self.has_epoll else pause * 1000):
                if fd == 0:
                    if not self.read_requests():
                        return
                elif fd == self.waker:
                    os.read(fd, 65536)
                else:
                    self.gets.on_socket(fd, mask)
            while self.found:
                item = self.found.popleft()
                if callable(item):
                    item()
                else:
                    self.tell(item)
            self.on_time()
            if not self.is_bursting():
                self.flush()
            if not self.left and self.now() - self.heard > IDLE_LIMIT:
                return

    def pause(self) -> float:
        """How long nothing is due."""
        if self.found:
            return 0.0
        if self.out:
            return TOGETHER
        while self.timers and getattr(self.timers[0][2], "is_over", False):
            heapq.heappop(self.timers)
        due = self.timers[0][0] - self.now() if self.timers else LONGEST_PAUSE
        return min(max(due, 0.0), LONGEST_PAUSE)

    def is_bursting(self) -> bool:
        """Whether answers that were asked for a moment ago are about to come: one line holds them all then.

        A line for each costs more on its way through ssh than the answer itself.
        """
        return self.burst > 0 and len(self.out) < MOST_TOGETHER and self.now() < self.burst_until

    def after(self, instant: float, thing: Any) -> None:
        """Remember a request's deadline, or a function that is due then."""
        self.count += 1
        heapq.heappush(self.timers, (instant, self.count, thing))

    def on_time(self) -> None:
        """Do what is due."""
        while self.timers and self.timers[0][0] <= self.now():
            thing = heapq.heappop(self.timers)[2]
            if isinstance(thing, Get):
                self.gets.end(thing, "timed out", why="no answer in time")
            else:
                thing()

    def post(self, item: Any) -> None:
        """Hand over an item, or a function to call in the main thread; for the other threads."""
        self.found.append(item)
        with contextlib.suppress(OSError):
            os.write(self.alarm, b"!")

    def tell(self, item: "list[Any]") -> None:
        """Answer with one item, and say when it was the request's last."""
        self.out.append(item)
        self.burst -= item[1] == "got"
        left = self.left.pop(item[0], 0) - 1
        if left > 0:
            self.left[item[0]] = left
        elif left == 0:
            self.out.append([item[0], "done", 0])

    def flush(self) -> None:
        """Write what is ready, as one line."""
        if not self.out:
            return
        data = memoryview((json.dumps(self.out, separators=(",", ":")) + "\n").encode("ascii"))
        self.out = []
        while data:
            data = data[os.write(1, data) :]

    def read_requests(self) -> bool:
        """Take what stands on stdin; whether it is still open."""
        data = os.read(0, 1 << 20)
        if not data or len(self.lines) > REQUEST_LIMIT:
            return False
        self.heard = self.now()
        *whole, self.lines = (self.lines + data).split(b"\n")
        for line in whole:
            self.begin(json.loads(line.decode("utf-8")))
        return True

    def begin(self, request: "dict[str, Any]") -> None:
        """Start everything that one request asks for, HTTP first."""
        number, watch, gpu = request["id"], request["watch"], request["gpu"]
        gets, follows, tails = request["gets"], request["follows"], request["tails"]
        folders, kernel = request["folders"], request["kernel"]
        parts = (gets, follows, tails, folders)
        self.left[number] = sum(map(len, parts)) + bool(watch) + bool(gpu) + bool(kernel) + 1
        for key, item in enumerate(gets):
            get = Get(number, key, item)
            self.after(get.deadline, get)
            self.gets.start(get)
        if watch:
            self.watcher.ask(number, watch)
        for key, item in enumerate(follows):
            self.logs.do(follow, number, key, item)
        for key, item in enumerate(tails):
            self.logs.do(tail, number, key, item)
        for key, item in enumerate(folders):
            self.folders.do(count, number, key, item)
        if gpu:
            self.gpus.do(ask_gpus, number, 0, gpu)
        if kernel:
            self.kernel.do(read_kernel, number, 0, kernel)
        self.burst, self.burst_until = len(gets), self.now() + TOGETHER
        self.tell([number, "begun", 0])


def main() -> None:
    """Serve, and leave nothing behind."""
    try:
        Loop().run()
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        while RUNNING:
            end_group(RUNNING.pop())
    os._exit(0)
