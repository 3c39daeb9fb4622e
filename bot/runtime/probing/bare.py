"""Looks at a host that has no usable python3: one command after the other, curl or bash for HTTP, sh for /proc.

It knows less and tells later, and what it can't know it leaves out: who holds a socket is looked up in the
output of ``ls``, and a log is read by ``tail`` alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from bot.domain.errors import TimedOut
from bot.domain.facts import Outcome, Process
from bot.ports import Completed, Transport
from bot.runtime.probing.scout.processes import recorded_pid
from bot.runtime.probing.wire import (
    FIRST_LOOK,
    MOST_BEHIND,
    AskGpus,
    Begun,
    Chunk,
    Follow,
    Get,
    Got,
    GpusSeen,
    Item,
    Listener,
    Processes,
    Record,
    Report,
    Request,
    Running,
    Tail,
    Tailed,
    Watch,
)

AT_ONCE = 6
"""sshd allows ten sessions a connection; others need some too."""
RETRY = timedelta(minutes=10)
"""When to see whether somebody has installed python3."""
PATIENCE = timedelta(seconds=5)
_MISSING = (126, 127)
_REFUSED, _TIMED_OUT, _TOO_LARGE = 7, 28, 63
_MARK = "upbot"
_NO_HTTP = "the host has no python3, curl or bash to ask with"

_TCP = """exec 3<>"/dev/tcp/$1/$2" || exit 7
printf '%s\\r\\n' "GET $3 HTTP/1.0" "Host: $1" 'Connection: close' "${4:+Authorization: Bearer $4}" '' >&3
head -c "$5" <&3"""

# Words are taken as words (-F); a pid that ends meanwhile prints nothing.
_CANDIDATES = """[ -r /proc/1/stat ] || exit 3
cat /proc/uptime; getconf CLK_TCK 2>/dev/null || echo 100
grep -lF "$@" /proc/[0-9]*/cmdline 2>/dev/null; exit 0"""
_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; exit 0"
_HOLDERS = """ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F -e /proc/ "$@"; exit 0"""
_DESCRIBE = """for pid in "$@"; do
  stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
  printf '%s\\n' "$stat"
  od -An -v -tx1 "/proc/$pid/cmdline" 2>/dev/null | tr -d ' \\n'; echo
  stat -c '%u %U' "/proc/$pid" 2>/dev/null || echo
  readlink "/proc/$pid/cwd" 2>/dev/null || echo
done"""
_HOME = """case $1 in '~/'*) f=$HOME/${1#'~/'};; *) f=$1;; esac
"""
_RECORDS = """for path in "$@"; do
  case $path in '~/'*) f=$HOME/${path#'~/'};; *) f=$path;; esac
  head -c 4096 "$f/start.json" 2>/dev/null; printf '\\0'
  head -c 4096 "$f/exit" 2>/dev/null; printf '\\0'
done"""
_LOG = (
    _HOME
    + """exec <"$f" || exit 1
stat -c '%i %s %Y' "$f" && date +%s && tail -c "+$2" | head -c "$3\""""
)
_SIZE = _HOME + """stat -c '%i %s' "$f\""""
_TAIL = _HOME + """stat -c %s "$f" && tail -c "$2" "$f\""""


class Bare:
    """A host that is asked with single commands."""

    def __init__(self, transport: Transport, label: str) -> None:
        self._transport = transport
        self._label = label
        self._room = asyncio.Semaphore(AT_ONCE)
        self._until = asyncio.get_running_loop().time() + RETRY.total_seconds()

    @property
    def is_alive(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def close(self) -> None:
        self._until = 0.0

    async def ask(self, request: Request, tell: Callable[[Item], None]) -> None:
        await self._run(("true",))
        tell(Begun())
        todo: list[Awaitable[Item]] = []
        if request.watch is not None:
            todo.append(self._processes(request.watch))
        todo.extend(self._get(key, get) for key, get in enumerate(request.gets))
        todo.extend(self._chunk(key, follow) for key, follow in enumerate(request.follows))
        todo.extend(self._tail(key, tail) for key, tail in enumerate(request.tails))
        if request.gpu is not None:
            todo.append(self._gpus(request.gpu))
        tasks = [asyncio.ensure_future(one) for one in todo]
        try:
            for task in asyncio.as_completed(tasks):
                tell(await task)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, argv: Sequence[str], *, stdin: bytes = b"", limit: timedelta = PATIENCE) -> Completed:
        async with self._room:
            return await self._transport.run(argv, stdin=stdin, timeout=limit)

    async def _sh(self, script: str, *words: str) -> Completed:
        try:
            return await self._run(("sh", "-c", script, _MARK, *words))
        except TimedOut:
            return Completed(124)

    # --- HTTP

    async def _get(self, key: int, get: Get) -> Got:
        begun = asyncio.get_running_loop().time()
        got = Got(key, Outcome.BROKEN, path=get.paths[0], why=_NO_HTTP)
        for path in get.paths:
            try:
                got = await self._get_one(key, get, path)
            except TimedOut:
                got = Got(key, Outcome.TIMED_OUT, path=path, why="no answer in time")
            if got.status != 404:
                break
        took = timedelta(seconds=asyncio.get_running_loop().time() - begun)
        return Got(key, got.outcome, got.status, took, got.path, got.body, got.why)

    async def _get_one(self, key: int, get: Get, path: str) -> Got:
        # The key goes through stdin: a command line can be read by everybody on that host.
        lines = [f"url = {_quoted(f'http://{_host(get.address)}:{get.port}{path}')}"]
        if get.token:
            lines.append(f"header = {_quoted(f'Authorization: Bearer {get.token}')}")
        if get.method != "GET":
            lines += [f"request = {get.method}", 'header = "Content-Type: application/json"']
            lines += [f"data-raw = {_quoted(get.data)}"] if get.data else []
        asked = ("curl", "-q", "-sS", "--noproxy", "*", "-m", f"{get.limit.total_seconds():g}", "-w", "\n%{http_code}")
        argv = (*asked, "--max-filesize", str(max(get.body, 1 << 20)), "-K", "-")
        ended = await self._run(argv, stdin="\n".join(lines).encode(), limit=get.limit + PATIENCE)
        if ended.status in _MISSING:
            return await self._get_by_bash(key, get, path)
        return _curled(key, path, get, ended)

    async def _get_by_bash(self, key: int, get: Get, path: str) -> Got:
        words = (get.address, str(get.port), path, "", str(get.body + 4096))
        if get.token or get.method != "GET":
            what = "to change it with" if get.method != "GET" else "to ask with a key"
            return Got(key, Outcome.BROKEN, path=path, why=f"the host has no python3 or curl {what}")
        ended = await self._run(("bash", "-c", _TCP, _MARK, *words), limit=get.limit)
        if ended.status in _MISSING:
            return Got(key, Outcome.BROKEN, path=path, why=_NO_HTTP)
        if ended.status == _REFUSED:
            is_refused = b"refused" in ended.stderr.lower()
            return Got(
                key,
                Outcome.REFUSED if is_refused else Outcome.BROKEN,
                path=path,
                why="" if is_refused else "no connection",
            )
        head, _blank, body = ended.stdout.partition(b"\r\n\r\n")
        parts = head.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            return Got(key, Outcome.BROKEN, path=path, why="the answer is not HTTP")
        return Got(key, Outcome.ANSWERED, int(parts[1]), path=path, body=body[: get.body])

    # --- processes

    async def _processes(self, watch: Watch) -> Processes:
        words = [part for word in watch.words for part in ("-e", word)]
        listed, sockets = await asyncio.gather(self._sh(_CANDIDATES, *words), self._sh(_SOCKETS))
        lines = listed.stdout.decode("utf-8", "replace").splitlines()
        if not listed.is_ok or not sockets.is_ok or len(lines) < 2:
            return Processes(is_final=True, report=Report(is_readable=False))
        uptime, ticks = _float(lines[0].split(" ")[0]), _float(lines[1]) or 100.0
        pids = {int(part) for line in lines[2:] if (part := line.removeprefix("/proc/").partition("/")[0]).isdigit()}
        found = _listening(sockets.stdout, set(watch.ports))
        holders = await self._holders([inode for _address, _port, inode, _uid in found])
        records = await self._records(watch.records)
        pids.update(holders.values())
        pids.update(pid for record in records.values() if (pid := recorded_pid(record.start)))
        running = await self._describe(sorted(pids), uptime, ticks)
        parents = {one.process.parent for one in running} - pids - {0, 1}
        running += await self._describe(sorted(parents), uptime, ticks)
        listeners = tuple(Listener(address, port, uid, holders.get(inode)) for address, port, inode, uid in found)
        return Processes(is_final=True, report=Report(True, tuple(running), listeners, records))  # noqa: FBT003 - a field

    async def _holders(self, inodes: Sequence[int]) -> dict[int, int]:
        if not inodes:
            return {}
        listed = await self._sh(_HOLDERS, *(part for inode in inodes for part in ("-e", f"socket:[{inode}]")))
        holders: dict[int, int] = {}
        pid = 0
        for line in listed.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith("/proc/"):
                part = line.split("/")[2]
                pid = int(part) if part.isdigit() else 0
            elif pid and "socket:[" in line:
                inode = int(_float(line.rpartition("socket:[")[2].partition("]")[0]))
                holders[inode] = min(pid, holders.get(inode, pid))
        return holders

    async def _describe(self, pids: Sequence[int], uptime: float, ticks: float) -> list[Running]:
        if not pids:
            return []
        told = await self._sh(_DESCRIBE, *(str(pid) for pid in pids))
        lines = told.stdout.decode("utf-8", "replace").splitlines()
        rows = (_running(lines[place : place + 4], uptime, ticks) for place in range(0, len(lines) - 3, 4))
        return [row for row in rows if row is not None]

    async def _records(self, paths: Sequence[str]) -> dict[str, Record]:
        if not paths:
            return {}
        told = await self._sh(_RECORDS, *paths)
        texts = told.stdout.decode("utf-8", "replace").split("\0")
        pairs = zip(texts[::2], texts[1::2], strict=False)
        return {path: Record(start, ended) for path, (start, ended) in zip(paths, pairs, strict=False)}

    # --- files and GPUs

    async def _chunk(self, key: int, follow: Follow) -> Chunk:
        sized = await self._sh(_SIZE, follow.path)
        inode, size = _two(sized.stdout)
        if not sized.is_ok or inode is None:
            return Chunk(key, why="can't be read")
        offset = follow.offset
        is_reset = offset is None or inode != follow.inode or size < offset or size - offset > MOST_BEHIND
        start = max(0, size - FIRST_LOOK) if is_reset or offset is None else offset
        told = await self._sh(_LOG, follow.path, str(start + 1), str(FIRST_LOOK))
        head, _newline, rest = told.stdout.partition(b"\n")
        now, _newline, data = rest.partition(b"\n")
        if not told.is_ok or _two(head)[0] != inode or len(head.split()) != 3:
            return Chunk(key, why="can't be read")
        quiet = max(0.0, _float(now.decode("ascii", "replace")) - _float(head.split()[2].decode("ascii", "replace")))
        if is_reset and start:
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        end = start + len(data)
        return Chunk(key, inode, start, end, is_reset, end < size, timedelta(seconds=quiet), "", data)

    async def _tail(self, key: int, tail: Tail) -> Tailed:
        told = await self._sh(_TAIL, tail.path, str(tail.size))
        size, _newline, data = told.stdout.partition(b"\n")
        if not told.is_ok or not size.isdigit():
            return Tailed(key, b"", is_cut=False, why="can't be read")
        return Tailed(key, data, is_cut=int(size) > tail.size)

    async def _gpus(self, gpu: AskGpus) -> GpusSeen:
        why = "no answer"
        for variant, arguments in enumerate(gpu.cards):
            try:
                cards = await self._run((*gpu.argv, *arguments), limit=gpu.limit)
                if cards.is_ok:
                    uses = await self._run((*gpu.argv, *gpu.uses), limit=gpu.limit)
                    return GpusSeen(variant, _plain(cards.stdout), _plain(uses.stdout) if uses.is_ok else "")
            except TimedOut:
                return GpusSeen(0, "", "", "no answer in time")
            why = (_plain(cards.stdout or cards.stderr).strip() or f"exit status {cards.status}")[:200]
        return GpusSeen(0, "", "", why)


def _curled(key: int, path: str, get: Get, ended: Completed) -> Got:
    body, _newline, code = ended.stdout.rpartition(b"\n")
    if ended.status == _REFUSED:
        return Got(key, Outcome.REFUSED, path=path)
    if ended.status == _TIMED_OUT:
        return Got(key, Outcome.TIMED_OUT, path=path, why="no answer in time")
    is_answered = code.isdigit() and int(code) >= 100 and ended.status in (0, _TOO_LARGE)
    if not is_answered:
        words = _plain(ended.stderr).strip()[:120]
        return Got(key, Outcome.BROKEN, path=path, why=words or f"curl ended with {ended.status}")
    return Got(key, Outcome.ANSWERED, int(code), path=path, body=body[: get.body])


def _quoted(text: str) -> str:
    """A value of curl's configuration file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _listening(table: bytes, ports: set[int]) -> list[tuple[str, int, int, int]]:
    """Address, port, inode and user of what listens on these ports, from /proc/net/tcp and tcp6."""
    found = []
    for line in table.decode("ascii", "replace").splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[3] != "0A":
            continue
        place, _colon, port = fields[1].partition(":")
        try:
            if int(port, 16) in ports:
                found.append((_address(place), int(port, 16), int(fields[9]), int(fields[7])))
        except ValueError:
            continue
    return found


def _address(place: str) -> str:
    """The kernel prints words in the machine's own byte order; every machine with a GPU is little-endian."""
    raw = bytes.fromhex(place)
    turned = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(turned)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _running(lines: Sequence[str], uptime: float, ticks: float) -> Running | None:
    stat, line, user, directory = lines
    try:
        pid = int(stat.split(" ", 1)[0])
        fields = stat[stat.rindex(")") + 2 :].split()
        state, parent, started = fields[0], int(fields[1]), int(fields[19])
        words = bytes.fromhex(line).rstrip(b"\0").split(b"\0") if line else []
    except (ValueError, IndexError):
        return None
    if state in ("Z", "X"):
        return None
    uid, _blank, name = user.partition(" ")
    argv = tuple(word.decode("utf-8", "replace") for word in words)
    age = timedelta(seconds=max(0.0, uptime - started / ticks))
    process = Process(pid, started, argv, name or uid, age, parent, directory)
    return Running(process, int(uid) if uid.isdigit() else -1)


def _two(line: bytes) -> tuple[int | None, int]:
    parts = line.split()
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None, 0
    return int(parts[0]), int(parts[1])


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _plain(data: bytes) -> str:
    return data.decode("utf-8", "replace")
