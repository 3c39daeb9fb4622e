"""Reads from /proc which processes there are, who listens where, and what launchers left on record."""
# ruff: noqa: PTH111, PTH115, PTH116, PTH118, PTH208 - pathlib costs more than the system calls that it would wrap here

import json
import os
import pwd
from typing import Any

from bot.runtime.probing.scout.files import read_file
from bot.runtime.probing.scout.sockets import listening

ARGV_LIMIT = 32768
PROCESS_LIMIT = 2000
RECORD_LIMIT = 4096
TICKS = os.sysconf("SC_CLK_TCK")


def survey(item: "dict[str, Any]", hints: "list[int]") -> "tuple[dict[str, Any], list[Any]]":
    """Everything that is asked about processes: ``{ports, words, records, env}``."""
    words = [word.encode("utf-8", "surrogateescape") for word in item["words"]]
    pids = all_pids()
    candidates = [pid for pid in pids if matches(pid, words)] if words else []
    listeners = listening(set(item["ports"]))
    records = {path: record_of(path) for path in item["records"]}
    holders, holds = holders_of({one[2] for one in listeners}, [*hints, *candidates, *pids])
    for one in listeners:
        one[4] = [holders[one[2]]] if one[2] in holders else []
    wanted = list(candidates)
    for one in listeners:
        wanted += [pid for holder in one[4] for pid in with_ancestors(holder)]
    recorded = {path: recorded_pid(text) for path, (text, _exit) in records.items()}
    wanted += [pid for pid in recorded.values() if pid]
    left = left_behind({path: pid for path, pid in recorded.items() if pid and pid not in pids}, pids)
    wanted += [pid for orphans in left.values() for pid in orphans]
    rows: list[list[Any]] = []
    seen: set[int] = set()
    uptime = float(read_file("/proc/uptime").split()[0] or 0) if pids else 0.0
    for pid in wanted[:PROCESS_LIMIT]:
        row = None if pid in seen else describe(pid, uptime, item["env"])
        seen.add(pid)
        if row is not None:
            rows.append(row)
    rows.sort()
    found = {"readable": bool(pids), "processes": rows, "listeners": listeners, "records": records, "left": left}
    return found, holds


def all_pids() -> "list[int]":
    """Every process but this one; empty where there is no /proc, or it hides the others."""
    own = os.getpid()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if pid != own] if 1 in pids else []


def matches(pid: int, words: "list[bytes]") -> bool:
    """Whether a process' command line holds one of the words."""
    line = read_file("/proc/%d/cmdline" % pid, ARGV_LIMIT)  # noqa: UP031 - cheapest here
    return bool(line) and any(word in line for word in words)


def stat_of(pid: int) -> "tuple[str, int, int]":
    """State, parent and start (ticks since boot) of a process; its name may hold blanks and parentheses."""
    text = read_file("/proc/%d/stat" % pid, 4096)  # noqa: UP031 - cheapest here
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode("ascii"), int(fields[1]), int(fields[19])


def with_ancestors(pid: int) -> "list[int]":
    """A process and up to three of those above it."""
    found: list[int] = []
    while pid > 1 and len(found) < 4:
        found.append(pid)
        try:
            pid = stat_of(pid)[1]
        except (OSError, ValueError, IndexError):
            break
    return found


def describe(pid: int, uptime: float, names: "list[str]") -> "list[Any] | None":
    """``[pid, started, argv, user, age, parent, directory, env, uid]``; None when it is gone."""
    place = "/proc/%d/" % pid  # noqa: UP031 - cheapest here
    try:
        state, parent, started = stat_of(pid)
        uid = os.stat(place).st_uid
    except (OSError, ValueError, IndexError):
        return None
    if state in ("Z", "X"):
        return None
    line = read_file(place + "cmdline", ARGV_LIMIT)
    argv = [word.decode("utf-8", "replace") for word in line.rstrip(b"\0").split(b"\0")] if line else []
    try:
        directory = os.readlink(place + "cwd")
    except OSError:
        directory = ""
    directory = directory.encode("utf-8", "replace").decode("utf-8")
    age = max(0.0, uptime - float(started) / TICKS)
    return [pid, started, argv, user_name(uid), round(age, 2), parent, directory, environment(place, names), uid]


def environment(place: str, names: "list[str]") -> "dict[str, str]":
    """The allowed variables of a process, and no other."""
    found: dict[str, str] = {}
    for pair in read_file(place + "environ", 1 << 20).split(b"\0") if names else ():
        name, _equals, value = pair.partition(b"=")
        key = name.decode("utf-8", "replace")
        if key in names:
            found[key] = value[:1024].decode("utf-8", "replace")
    return found


def user_name(uid: int) -> str:
    """A user's name, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def holders_of(inodes: "set[int]", pids: "list[int]") -> "tuple[dict[int, int], list[tuple[int, str, str]]]":
    """Which process holds each of these sockets, likely ones asked first; and the links that prove it.

    A socket may be held by a process and its forks: the topmost counts.
    """
    wanted = {"socket:[%d]" % inode: inode for inode in inodes}  # noqa: UP031 - cheapest here
    found: dict[int, int] = {}
    holds = []
    asked = set()
    for pid in pids:
        if len(found) == len(wanted):
            break
        if pid in asked:
            continue
        asked.add(pid)
        for link, target in sockets_of(pid):
            inode = wanted.get(target)
            if inode is not None and inode not in found:
                found[inode], proof = topmost(pid, link, target)
                holds.append((found[inode], proof, target))
    return found, holds


def topmost(pid: int, link: str, target: str) -> "tuple[int, str]":
    """The highest ancestor that holds the same socket, and its link."""
    for above in with_ancestors(pid)[1:]:
        same = [one for one, other in sockets_of(above) if other == target]
        if not same:
            break
        pid, link = above, same[0]
    return pid, link


def sockets_of(pid: int) -> "list[tuple[str, str]]":
    """The sockets of a process, as the links of its descriptors; none where we may not look."""
    place = "/proc/%d/fd/" % pid  # noqa: UP031 - cheapest here
    try:
        names = os.listdir(place)
    except OSError:
        return []
    found = []
    for name in names:
        try:
            target = os.readlink(place + name)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.append((place + name, target))
    return found


def record_of(path: str) -> "list[str]":
    """What a launcher wrote of a start and of its end; "" where there is nothing."""
    place = os.path.expanduser(path)
    start = read_file(os.path.join(place, "start.json"), RECORD_LIMIT)
    ended = read_file(os.path.join(place, "exit"), RECORD_LIMIT)
    return [start.decode("utf-8", "replace"), ended.decode("utf-8", "replace")]


def left_behind(gone: "dict[str, int]", pids: "list[int]") -> "dict[str, list[int]]":
    """Who still lives in the sessions that these processes led: the kernel gives a session's number to nobody else."""
    found: dict[str, list[int]] = {path: [] for path in gone}
    paths = {pid: path for path, pid in gone.items()}
    for pid in pids if gone else ():
        try:
            path = paths.get(os.getsid(pid))
        except OSError:
            continue
        if path is not None:
            found[path].append(pid)
    return {path: orphans for path, orphans in found.items() if orphans}


def recorded_pid(text: str) -> int:
    """The pid in a launcher's record; 0 where there is none."""
    try:
        pid = json.loads(text)["pid"]
    except (ValueError, KeyError, TypeError):
        return 0
    return pid if isinstance(pid, int) and 0 < pid < 1 << 31 else 0
