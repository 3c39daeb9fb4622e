"""A service on loopback that answers as it is told: well, slowly, with garbage, by halves, without an end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Wire:
    """What it answers next, raw; ``asked`` is what it was asked."""

    port: int = 0
    raw: bytes = b""
    delay: float = 0.0
    endless: bytes = b""
    asked: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, body: bytes, status: str = "200 OK", *, length: int | None = None, extra: str = "") -> None:
        size = len(body) if length is None else length
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n{extra}\r\n"
        self.raw, self.endless = head.encode() + body, b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(one.split(b":")[1]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length")), 0
            )
            self.asked.append(head + await reader.readexactly(length))
            await asyncio.sleep(self.delay)
            writer.write(self.raw)
            await writer.drain()
            while self.endless:
                writer.write(self.endless)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def wired() -> AsyncIterator[Wire]:
    """One that listens."""
    wire = Wire()
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await wire.answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
