"""Counts the files of a folder and below, as far as a bound, and says how long nothing was written there."""
# ruff: noqa: PTH118 - pathlib costs more than the system calls that it would wrap here

import errno
import os
import pwd
import time
from typing import Any

MOST = 3000
DEEPEST = 6
LONGEST = 1.0
ASIDE = (".log", ".lock", ".tmp")
"""What stands beside the kernels: a folder with nothing else has none."""


def count(key: int, item: "list[Any]") -> "list[Any]":
    """``[places, env]``, of which the first place counts whose variables are set: how many files, how long quiet."""
    place = place_of(item[0], item[1])
    if place is None:
        return ["counted", key, None, None, False]
    try:
        files, newest = walked(place, time.monotonic() + LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return ["counted", key, 0, None, False]
    except (OSError, ValueError):
        return ["counted", key, None, None, False]
    quiet = None if newest is None else max(0.0, time.time() - newest)
    return ["counted", key, files, quiet, True]


def place_of(places: "list[str]", env: "dict[str, str]") -> "str | None":
    """The path that holds, with its variables and ``~`` filled in."""
    known = dict(os.environ)
    known.update(env)
    try:
        person = pwd.getpwuid(os.getuid())
        user, home = person.pw_name, person.pw_dir
    except KeyError:
        user, home = str(os.getuid()), ""
    home = known.get("HOME") or home
    for place in places:
        first, slash, rest = place.partition("/")
        if first.startswith("$"):
            first = known.get(first[1:], "").strip()
            if not first:
                continue
        if first == "~" or first.startswith("~/"):
            if not home:
                continue
            first = home + first[1:]
        return (first + slash + rest).replace("{user}", user)
    return None


def walked(place: str, until: float) -> "tuple[int, float | None]":
    """How many files, and when the newest was written; OSError where nothing was found and not all could be seen."""
    files, looked_at, newest, unseen = 0, 0, None, None
    waiting = [(place, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = os.scandir(folder)
        except OSError as error:
            if depth == 0:
                raise
            unseen = error
            continue
        with entries:
            for entry in entries:
                looked_at += 1
                if looked_at > MOST or time.monotonic() > until:
                    unseen = OSError(errno.EFBIG, "more than is looked at")
                    waiting.clear()
                    break
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEEPEST:
                        waiting.append((os.path.join(folder, entry.name), depth + 1))
                elif not entry.name.endswith(ASIDE):
                    files += 1
                    newest = max(newest or 0.0, written(entry))
    if unseen is not None and not files:
        raise unseen
    return files, newest


def written(entry: "os.DirEntry[str]") -> float:
    """When a file was written; 0 where it is gone meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0
