"""Keeps an eye on the processes of a host: as before, or changed."""

import os
from typing import Any

from bot.runtime.probing.scout.processes import stat_of, survey
from bot.runtime.probing.scout.sessions import add_sessions
from bot.runtime.probing.scout.workers import Worker

RESCAN_DELAY = 0.03
RESCAN_LATEST = 0.3


class Watcher(Worker):
    """Processes, who listens on the watched ports, and the launchers' records.

    ``[id, "processes", 0, is_final, report]``; the report is null when it is the last one told.
    """

    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self.item: dict[str, Any] | None = None
        self.report: dict[str, Any] | None = None
        self.holds: list[tuple[int, str, str]] = []
        self.keepers: list[tuple[int, int]] = []
        self.is_firm = False
        self.latest = 0.0
        self.due: list[tuple[int, dict[str, Any]]] = []

    def ask(self, request: int, item: "dict[str, Any]") -> None:
        """Tell "as before" at once where that is so, and look again right after; else look now."""
        if item == self.item and self.is_firm and self.is_still_so():
            self.loop.out.append([request, "processes", 0, False, None])
            if not self.due:
                self.latest = self.loop.now() + RESCAN_LATEST
                self.loop.after(self.loop.now() + RESCAN_DELAY, self.look_again)
            self.due.append((request, item))
        else:
            self.do(request, item)

    def look_again(self) -> None:
        """The list has been told as it was a moment ago: read it for all who were told so, HTTP answers first."""
        if self.loop.burst > 0 and self.loop.now() < self.latest:
            self.loop.after(self.loop.now() + RESCAN_DELAY, self.look_again)
            return
        due, self.due = self.due, []
        for job in due:
            self.do(*job)

    def is_still_so(self) -> bool:
        """Whether whoever held the sockets still lives, with the process above, and still holds them."""
        try:
            for pid, began in self.keepers:
                state, _parent, started = stat_of(pid)
                if started != began or state in ("Z", "X"):
                    return False
            return all(os.readlink(link) == target for _pid, link, target in self.holds)  # noqa: PTH115 - hot place
        except (OSError, ValueError, IndexError):
            return False

    def act(self, job: "tuple[Any, ...]") -> None:
        """Read the whole list for everybody who waits."""
        requests = [one[0] for one in self.alike(job, 1)]
        report, holds = survey(job[1], [hold[0] for hold in self.holds])
        add_sessions(report["processes"])
        self.loop.post(lambda: self.finish(requests, job[1], report, holds))

    def finish(
        self, requests: "list[int]", item: "dict[str, Any]", report: "dict[str, Any]", holds: "list[Any]"
    ) -> None:
        """Remember it and tell it (in the main thread, where the order of answers is made)."""
        is_same = item == self.item and self.report is not None and are_same(report, self.report)
        self.item, self.report, self.holds = item, report, holds
        owned = {one[1] for one in report["listeners"] if one[4]}
        self.is_firm = all(port in owned for port in item["ports"])
        parents = {row[0]: row[5] for row in report["processes"]}
        pids = {hold[0] for hold in holds}
        pids |= {parents.get(pid, 0) for pid in pids}
        self.keepers = [(row[0], row[1]) for row in report["processes"] if row[0] in pids]
        for request in requests:
            self.loop.tell([request, "processes", 0, True, None if is_same else report])
            is_same = True


def are_same(one: "dict[str, Any]", other: "dict[str, Any]") -> bool:
    """Whether two reports say the same of the world, age left out."""
    left = [row[:4] + row[5:] for row in one["processes"]]
    right = [row[:4] + row[5:] for row in other["processes"]]
    return left == right and all(one[key] == other[key] for key in ("readable", "listeners", "records"))
