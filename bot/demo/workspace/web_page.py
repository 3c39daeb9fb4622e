"""The page for the browser: its files, the stream that keeps it current, and who may talk to this server at all.

The address answers only requests that were meant for it: a page from elsewhere that a person has open could
otherwise press buttons here (by a form, or by a name that resolves to 127.0.0.1), so Host and Origin must be
this address's own, and nothing is ever shared across origins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from importlib.resources import files as package_files
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from bot.demo.workspace import shapes
from bot.demo.workspace.room import BOT_USER, Happening, Person, Post, Room

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
MOST_WAITING = 500


class Doorkeeper:
    """Refuses requests that came by another name or from another page."""

    def __init__(self) -> None:
        self.port = 0

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through, or refuse it."""
        hosts = [f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")]
        origin = request.headers.get("Origin")
        if request.headers.get("Host", "").lower() not in hosts:
            return web.Response(status=403, text="this address answers only to its own name")
        if origin is not None and origin.lower() not in [f"http://{host}" for host in hosts]:
            return web.Response(status=403, text="requests from other pages are refused")
        return await handler(request)


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Every answer says that it is for this page alone."""
    response.headers.update(_HEADERS)


class Page:
    """The page's files and its stream of changes."""

    def __init__(self, room: Room, people: tuple[Person, ...]) -> None:
        self._room = room
        self._people = people
        self._files = _page_files()
        self._streams: set[asyncio.Queue[str | None]] = set()
        room.watchers.append(self._tell)

    def routes(self) -> list[web.RouteDef]:
        """The addresses."""
        return [web.get("/", self._file), web.get("/page/{name}", self._file), web.get("/stream", self._stream)]

    def stop(self) -> None:
        """End the streams."""
        for one in self._streams:
            one.put_nowait(None)

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        found = self._files.get(name)
        if found is None:
            return web.Response(status=404, text="no such page")
        return web.Response(body=found, content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: first everything as it stands, then each change."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        queue.put_nowait(_frame({"kind": "all", **self._everything()}))
        self._streams.add(queue)
        try:
            await response.prepare(request)
            while (frame := await queue.get()) is not None:
                await response.write(frame.encode())
        except ConnectionError:
            pass  # the page was closed; there is nobody left to tell
        finally:
            self._streams.discard(queue)
        return response

    def _everything(self) -> dict[str, Any]:
        return {
            "channels": [
                {"id": one.id, "name": one.name, "messages": [self._told(post) for post in self._room.posts(one.id)]}
                for one in self._room.channels.values()
            ],
            "people": [{"id": one.id, "name": one.name, "about": one.about} for one in self._people],
            "bots": [{"id": one.id, "name": one.name} for one in self._room.people.values() if one.is_bot],
        }

    def _told(self, post: Post) -> dict[str, Any]:
        return {
            **shapes.told(self._room, post),
            "channel": post.channel,
            "is_bot": post.user == BOT_USER,
            "is_marked_edited": post.edited_at is not None,
        }

    def _tell(self, happening: Happening) -> None:
        frame = _frame({"kind": happening.kind, "message": self._told(happening.post)})
        for queue in tuple(self._streams):
            # A page that does not keep up is let go; it comes again by itself and gets everything anew.
            queue.put_nowait(frame if queue.qsize() < MOST_WAITING else None)


def _frame(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _page_files() -> Mapping[str, bytes]:
    folder = package_files("bot.demo.workspace") / "page"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _TYPES}
