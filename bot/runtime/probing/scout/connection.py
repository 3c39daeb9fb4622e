"""One HTTP request, and the answer as it is read from a kept connection."""

import socket
import time
from typing import Any

HEAD_LIMIT = 65536


class Get:
    """One HTTP request: its paths are tried until one is not 404."""

    __slots__ = (
        "begun",
        "body_limit",
        "connection",
        "content",
        "deadline",
        "head",
        "is_over",
        "key",
        "method",
        "path",
        "paths",
        "place",
        "request",
    )

    def __init__(self, request: int, key: int, item: "list[Any]") -> None:
        address, port, self.paths, limit, self.body_limit, token = item[:6]
        change: Any = item[6:] or ("GET", "")
        self.method, self.content = str(change[0]), str(change[1]).encode("utf-8")
        self.request, self.key, self.place = request, key, (address, port)
        self.path, self.begun, self.is_over = 0, time.monotonic(), False
        self.connection: Connection | None = None
        self.deadline = self.begun + limit
        host = "[%s]" % address if ":" in address else address  # noqa: UP031 - cheapest here
        self.head = " HTTP/1.1\r\nHost: %s:%d\r\nAccept: */*\r\n" % (host, port)  # noqa: UP031 - cheapest here
        if self.method != "GET":
            self.head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(self.content)  # noqa: UP031 - cheapest here
        if token:
            self.head += "Authorization: Bearer %s\r\n" % token  # noqa: UP031 - cheapest here

    def data(self) -> bytes:
        """The request as it goes over the wire."""
        line: str = self.method + " " + self.paths[self.path] + self.head + "\r\n"
        return line.encode("latin-1", "replace") + self.content


class Connection:
    """A kept connection; ``get`` is what it is busy with, None while it is idle."""

    __slots__ = ("chunk", "fd", "get", "got", "is_closing", "is_used", "left", "pieces", "rest", "sock", "status")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.fd = sock, sock.fileno()
        self.is_used = False
        self.get: Get | None = None
        self.begin()

    def begin(self) -> None:
        """Forget the last answer."""
        self.rest, self.got = b"", 0
        self.pieces: list[bytes] = []
        self.status, self.left, self.chunk = 0, -1, False
        self.is_closing = False

    @property
    def has_begun(self) -> bool:
        """Whether anything of an answer has come."""
        return bool(self.status or self.rest)

    @property
    def is_stale(self) -> bool:
        """Whether it was kept, and may have died since before it was used again."""
        return self.is_used and not self.has_begun

    @property
    def is_to_end(self) -> bool:
        """Whether the body ends where the connection ends."""
        return bool(self.status) and self.left < 0 and not self.chunk

    def feed(self, data: bytes, limit: int) -> bool:
        """Take bytes; whether the answer is whole (or cut at ``limit``). ValueError when it is not HTTP."""
        self.rest += data
        while not self.status:
            end = self.rest.find(b"\r\n\r\n")
            if end < 0:
                if len(self.rest) > HEAD_LIMIT or self.rest[:7] != b"HTTP/1."[: len(self.rest)]:
                    raise ValueError("not HTTP")
                return False
            head, self.rest = self.rest[:end], self.rest[end + 4 :]
            self.read_head(head)
        if self.chunk:
            return self.feed_chunks(limit)
        piece = self.rest if self.left < 0 else self.rest[: self.left]
        if self.left >= 0:
            self.left -= len(piece)
            self.is_closing = self.is_closing or len(piece) < len(self.rest)
        self.rest = b""
        return self.keep(piece, limit) or self.left == 0

    def read_head(self, head: bytes) -> None:
        """Read the status line and the few headers that say where the body ends."""
        lines = head.split(b"\r\n")
        status = int(lines[0].split(None, 2)[1])
        if not 100 <= status <= 999:
            raise ValueError("not an HTTP status")
        if status < 200:
            return
        self.is_closing = lines[0][:8] == b"HTTP/1.0"
        for line in lines[1:]:
            name, _colon, value = line.partition(b":")
            self.read_header(name.strip().lower(), value.strip().lower())
        self.status = status
        if status in (204, 304):
            self.left, self.chunk = 0, False
        elif self.chunk:
            self.left = 0
        self.is_closing = self.is_closing or (self.left < 0 and not self.chunk)

    def read_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name == b"content-length":
            self.left = int(value)
            if self.left < 0:
                raise ValueError("a negative length")
        elif name == b"transfer-encoding" and b"chunked" in value:
            self.chunk = True
        elif name == b"connection" and b"close" in value:
            self.is_closing = True

    def feed_chunks(self, limit: int) -> bool:
        """Take the chunks that are there; ``left`` is what is missing of the present one."""
        while self.rest:
            if self.left > 0:
                piece, self.rest = self.rest[: self.left], self.rest[self.left :]
                self.left -= len(piece)
                if self.keep(piece, limit):
                    return True
                continue
            line, newline, rest = self.rest.partition(b"\r\n")
            if not newline:
                if len(line) > 1024:
                    raise ValueError("a chunk without its size")
                return False
            self.rest = rest
            if line:
                self.left = int(line.split(b";")[0], 16)
                if self.left == 0:
                    self.is_closing = self.is_closing or rest != b"\r\n"
                    return True
                if self.left < 0:
                    raise ValueError("a negative chunk")
        return False

    def keep(self, piece: bytes, limit: int) -> bool:
        """Keep a piece of the body; whether the limit is reached, in which case the rest is not read."""
        if piece:
            self.pieces.append(piece)
            self.got += len(piece)
        if self.got > limit:
            self.is_closing = True
            return True
        return False
