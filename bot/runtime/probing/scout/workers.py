"""Threads for what may block, so that it never holds up the HTTP answers."""

import threading
from collections import deque
from typing import Any


class Worker:
    """A thread with its own queue of jobs, started by the first one; it never keeps the scout from ending."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.jobs: deque[tuple[Any, ...]] = deque()
        self.ready = threading.Semaphore(0)
        self.is_started = False

    def do(self, *job: Any) -> None:
        """Queue a job: a function, the request's id, and what the function gets."""
        self.jobs.append(job)
        self.ready.release()
        if not self.is_started:
            self.is_started = True
            threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        """One job after the other."""
        while True:
            self.ready.acquire()
            if self.jobs:
                self.act(self.jobs.popleft())

    def act(self, job: "tuple[Any, ...]") -> None:
        """Do one job and hand over what it found."""
        function, request, key, item = job
        self.loop.post([request, *function(key, item)])

    def alike(self, job: "tuple[Any, ...]", place: int) -> "list[tuple[Any, ...]]":
        """This job and those that wait for the same; they are taken out of the queue."""
        same = [one for one in list(self.jobs) if one[place] == job[place]]
        for one in same:
            self.jobs.remove(one)
        return [job, *same]


class SharingWorker(Worker):
    """As a Worker; one answer serves everybody who waits for the same when it begins."""

    def act(self, job: "tuple[Any, ...]") -> None:
        """Do it once for all."""
        everybody = self.alike(job, 3)
        found = job[0](job[2], job[3])
        for one in everybody:
            self.loop.post([one[1], *found])
