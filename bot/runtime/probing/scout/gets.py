"""HTTP gets over kept connections, as many at once as this login may open sockets; driven by the loop."""

import contextlib
import errno
import os
import select
import socket
import threading
from collections import deque
from typing import Any

from bot.runtime.probing.scout.connection import Connection, Get

READ, WRITE, BAD = select.POLLIN, select.POLLOUT, select.POLLERR | select.POLLHUP
KEPT_BODY = 65536
WAITING = (errno.EINPROGRESS, errno.EAGAIN, errno.ENOTCONN)


def room() -> int:
    """How many sockets may be open at once, after asking for as many as this login may have."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not every Python has it

        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return max(16, min(wanted - 128, 4096))
    return 128


class Gets:
    """Every HTTP request that is under way, and the connections that are kept for the next ones."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.poller = loop.poller
        self.connections: dict[int, Connection] = {}
        self.idle: dict[tuple[str, int], list[Connection]] = {}
        self.queue: deque[Get] = deque()
        self.room = room()
        self.names: dict[str, str] = {}

    def start(self, get: Get) -> None:
        """Send now, over a kept connection or a new one, or when there is room; what changes something: a new one."""
        kept = self.idle.get(get.place) if get.method == "GET" else None
        if kept:
            self.send_over(kept.pop(), get)
        elif len(self.connections) < self.room or self.drop_idle():
            self.connect(get)
        else:
            self.queue.append(get)

    def drop_idle(self) -> bool:
        """Close one idle connection to make room; whether there was one."""
        for place, kept in list(self.idle.items()):
            if kept:
                self.close(kept.pop())
                return True
            del self.idle[place]
        return False

    def send_over(self, connection: Connection, get: Get) -> None:
        """Send over a connection that was used before; one that has died meanwhile is replaced."""
        connection.get, get.connection = get, connection
        try:
            connection.sock.send(get.data())
        except OSError:
            self.again(connection, get)

    def again(self, connection: Connection, get: Get) -> None:
        """The kept connection had died before it answered a byte: ask once more over a new one."""
        self.close(connection)
        self.connect(get)

    def connect(self, get: Get) -> None:
        """Ask over a new connection."""
        address, port = get.place
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if family == socket.AF_INET and not address.replace(".", "").isdigit():
            if address not in self.names:
                threading.Thread(target=self.resolve, args=(get,), daemon=True).start()
                return
            address = self.names[address]
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)  # noqa: FBT003 - the library's signature
            problem = sock.connect_ex((address, port))
        except (OSError, ValueError, OverflowError) as error:
            self.end(get, "broken", why=str(error))
            return
        connection = Connection(sock)
        connection.get, get.connection = get, connection
        self.connections[connection.fd] = connection
        if problem and problem not in WAITING:
            self.fail(connection, problem)
        else:
            self.first_send(connection, get, self.poller.register)

    def first_send(self, connection: Connection, get: Get, wait_for: Any) -> None:
        """Send as soon as the connection stands; on loopback that may be at once."""
        try:
            connection.sock.send(get.data())
            wait_for(connection.fd, READ)
        except OSError as error:
            if error.errno in WAITING:
                wait_for(connection.fd, WRITE)
            else:
                self.fail(connection, error.errno or 0)

    def resolve(self, get: Get) -> None:
        """Look a name up (in a thread of its own), then go on."""
        try:
            found = socket.getaddrinfo(get.place[0], get.place[1], 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            self.loop.post(lambda: self.end(get, "broken", why="its name is not known"))
            return
        first = [one for one in found if one[0] == socket.AF_INET] or found
        self.names[get.place[0]] = str(first[0][4][0])
        self.loop.post(lambda: None if get.is_over else self.start(get))

    def on_socket(self, fd: int, mask: int) -> None:
        """Something happened on a connection."""
        connection = self.connections.get(fd)
        if connection is None:
            return
        get = connection.get
        if get is None:
            self.forget(connection)
        elif mask & WRITE and not mask & BAD:
            self.first_send(connection, get, self.poller.modify)
        else:
            self.receive(connection, get)

    def receive(self, connection: Connection, get: Get) -> None:
        """Read what is there."""
        try:
            data = connection.sock.recv(65536)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return
            if connection.is_stale:
                self.again(connection, get)
            else:
                self.fail(connection, error.errno or 0)
            return
        if data:
            self.on_data(connection, get, data)
        elif connection.is_to_end:
            self.finish(connection, get)
        elif connection.is_stale:
            self.again(connection, get)
        else:
            self.end(get, "broken", why="closed in the middle of an answer" if connection.has_begun else "closed")

    def on_data(self, connection: Connection, get: Get, data: bytes) -> None:
        """Bytes of an answer."""
        try:
            # Small bodies are read to their end even where nobody wants them: that keeps the connection.
            is_whole = connection.feed(data, max(get.body_limit, KEPT_BODY))
        except (ValueError, IndexError):
            self.end(get, "broken", why="the answer is not HTTP")
            return
        if is_whole:
            self.finish(connection, get)

    def finish(self, connection: Connection, get: Get) -> None:
        """A whole answer: keep the connection, then tell it or try the next path."""
        status, pieces = connection.status, connection.pieces
        connection.get = get.connection = None
        if connection.is_closing:
            self.close(connection)
        else:
            connection.begin()
            connection.is_used = True
            self.idle.setdefault(get.place, []).append(connection)
        if status == 404 and get.path + 1 < len(get.paths):
            get.path += 1
            self.start(get)
            return
        self.end(get, "answered", status, b"".join(pieces)[: get.body_limit])

    def fail(self, connection: Connection, problem: int) -> None:
        """A connection failed."""
        get = connection.get
        if get is None:
            self.close(connection)
        elif problem == errno.ECONNREFUSED:
            self.end(get, "refused")
        else:
            self.end(get, "broken", why=os.strerror(problem))

    def end(self, get: Get, outcome: str, status: "int | None" = None, body: bytes = b"", why: str = "") -> None:
        """Tell how a request ended; a connection that did not end well is not kept."""
        if get.is_over:
            return
        get.is_over = True
        if get.connection is not None:
            self.close(get.connection)
        took = round(self.loop.now() - get.begun, 6)
        path, text = get.paths[get.path], body.decode("latin-1")
        self.loop.tell([get.request, "got", get.key, outcome, status, took, path, text, why])
        while self.queue:
            waiting = self.queue.popleft()
            if not waiting.is_over:
                self.start(waiting)
                break

    def forget(self, connection: Connection) -> None:
        """An idle connection was closed by the other side."""
        for place, kept in list(self.idle.items()):
            if connection in kept:
                kept.remove(connection)
            if not kept:
                del self.idle[place]
        self.close(connection)

    def close(self, connection: Connection) -> None:
        """Close a connection for good."""
        if connection.get is not None:
            connection.get.connection = None
            connection.get = None
        self.connections.pop(connection.fd, None)
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.poller.unregister(connection.fd)
        connection.sock.close()
