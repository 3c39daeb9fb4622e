"""Puts the workspace together and opens its one address on loopback.

workspace = Workspace(port=0, clock=clock, is_ready=lambda: None)
await workspace.start()
AsyncWebClient(token=workspace.bot_token, base_url=workspace.api_url)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from bot.demo.workspace import shapes
from bot.demo.workspace.api import WebApi
from bot.demo.workspace.control import Breakage, BreakThing, Control, ServerSign, body_of, refusal
from bot.demo.workspace.delivery import Delivery, Pace, SocketMode
from bot.demo.workspace.faults import Misbehaviour
from bot.demo.workspace.people import Acts
from bot.demo.workspace.room import PEOPLE, Group, Happening, Person, Refused, Room
from bot.demo.workspace.uploads import MOST_FILE, Uploads
from bot.demo.workspace.web_page import Doorkeeper, Page, add_headers
from bot.domain.errors import ConfigError
from bot.ports import Clock

LOOPBACK = "127.0.0.1"


class Workspace:
    """A small Slack on 127.0.0.1, with a page to look at it and a control API to drive it.

    ``is_ready`` says why one may not begin yet, or None. ``break_thing``, ``servers`` and ``breakages`` fill the
    panel that breaks things; without ``break_thing`` the page has none. ``port`` 0 takes any free one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        port: int = 8420,
        people: Sequence[Person] = PEOPLE,
        channel: str = "fleet",
        more_channels: Sequence[str] = (),
        groups: Sequence[Group] = (),
        is_ready: Callable[[], str | None] = lambda: None,
        break_thing: BreakThing | None = None,
        servers: Callable[[], Sequence[ServerSign]] = tuple,
        breakages: Sequence[Breakage] = (),
        pace: Pace | None = None,
    ) -> None:
        pace = pace or Pace()
        self.room = Room(people, (channel, *more_channels), clock.now)
        self.room.groups = {one.id: one for one in groups}
        self._clock = clock
        self._port = port
        self._line = SocketMode(clock, pace)
        self._acts = Acts(self.room, self._line, clock, pace)
        self._uploads = Uploads(self.room, self._line, clock, pace)
        self._api = WebApi(self.room, self._line, self._acts, self._uploads, clock)
        self._page = Page(self.room, tuple(people))
        self._door = Doorkeeper()
        self._control = Control(
            self.room,
            self._acts,
            self._line.faults,
            is_ready=is_ready,
            break_thing=break_thing,
            servers=servers,
            breakages=breakages,
        )
        self._runner: web.AppRunner | None = None
        self.room.watchers.append(self._deliver)

    @property
    def url(self) -> str:
        """The page's address, without a slash at its end."""
        return f"http://{LOOPBACK}:{self._door.port}"

    @property
    def api_url(self) -> str:
        """What the SDK calls its base_url."""
        return f"{self.url}/api/"

    @property
    def bot_token(self) -> str:
        """The xoxb token; another one each run."""
        return self._api.bot_token

    @property
    def app_token(self) -> str:
        """The xapp token for Socket Mode."""
        return self._api.app_token

    @property
    def connected(self) -> int:
        """How many Socket Mode connections are open."""
        return self._line.connected

    @property
    def deliveries(self) -> deque[Delivery]:
        """The last attempts to deliver something to the app."""
        return self._line.deliveries

    @property
    def faults(self) -> Misbehaviour:
        """Misbehaviour on demand."""
        return self._line.faults

    @property
    def people(self) -> Acts:
        """What people do: say, edit, press, slash."""
        return self._acts

    async def ask(self, kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Deliver an envelope of any kind, once: for what no person here can do. Its ack's payload, or None."""
        return await self._line.ask(kind, payload)

    async def start(self) -> None:
        """Listen; ConfigError when the port is taken."""
        app = web.Application(client_max_size=MOST_FILE + 1024, middlewares=[self._door.check])
        app.on_response_prepare.append(add_headers)
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        except OSError as exc:
            await self._runner.cleanup()
            raise ConfigError(
                f"port {self._port} can't be opened ({exc.strerror}): choose another with --port"
            ) from exc
        self._door.port = self._runner.addresses[0][1]
        self._api.base = self._acts.base = self._uploads.base = f"{self.url}/"

    async def stop(self) -> None:
        """Cut the connections and close the address; may be called twice."""
        self._page.stop()
        await self._line.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.route("*", "/api/{method}", self._api.handle),
            web.get("/link/", self._line.handle),
            web.post("/response/{secret}", self._respond),
            web.post("/upload/{secret}", self._upload),
            web.get("/files/{file}", self._uploads.give),
            *self._control.routes(),
            *self._page.routes(),
        ]

    async def _respond(self, request: web.Request) -> web.Response:
        instead = await self.faults.answer_instead("response_url", request)
        if instead is not None:
            return instead
        try:
            self._acts.respond(request.match_info["secret"], await body_of(request))
        except Refused as exc:
            return refusal(exc)
        return web.json_response({"ok": True})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        return await self.faults.answer_instead("upload", request) or await self._uploads.take(request)

    def _deliver(self, happening: Happening) -> None:
        for inside in shapes.happened(self.room, happening):
            self._line.tell(self._event(inside))

    def _event(self, inside: Mapping[str, Any]) -> Mapping[str, Any]:
        return shapes.event(inside, self._clock.now())
