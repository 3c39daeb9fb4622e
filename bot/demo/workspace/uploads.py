"""Files in three calls, as Slack takes them now: ask for a URL, send the bytes there, and complete."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aiohttp import web

from bot.demo.workspace import shapes
from bot.demo.workspace.arguments import Arguments, CompleteUpload, OfFile, UploadUrl
from bot.demo.workspace.delivery import Pace, SocketMode
from bot.demo.workspace.room import BOT_USER, File, Post, Refused, Room
from bot.ports import Clock

MOST_FILE = 4 * 1024 * 1024


class Uploads:
    """The file methods, the address that takes the bytes, and the one that gives them back."""

    def __init__(self, room: Room, line: SocketMode, clock: Clock, pace: Pace) -> None:
        self.base = ""
        self._room = room
        self._line = line
        self._clock = clock
        self._pace = pace
        self._waiting: dict[str, str] = {}

    @property
    def methods(self) -> Mapping[str, tuple[type[Arguments], Callable[[Any], dict[str, Any]]]]:
        """The Web API's methods about files."""
        return {
            "files.getUploadURLExternal": (UploadUrl, self._url),
            "files.completeUploadExternal": (CompleteUpload, self._complete),
            "files.info": (OfFile, self._info),
        }

    def _url(self, args: UploadUrl) -> dict[str, Any]:
        if not args.filename.strip():
            raise Refused("invalid_arguments", ["filename: missing"])
        file = self._room.keep(File(f"F{secrets.token_hex(5).upper()}", args.filename, args.length, self._clock.now()))
        secret = secrets.token_hex(16)
        self._waiting[secret] = file.id
        if len(self._waiting) > 1000:
            del self._waiting[next(iter(self._waiting))]
        return {"upload_url": f"{self.base}upload/{secret}", "file_id": file.id}

    async def take(self, request: web.Request) -> web.Response:
        """The bytes of a file, exactly as many as were announced."""
        file = self._room.files.get(self._waiting.get(request.match_info["secret"], ""))
        if file is None:
            return web.Response(status=404, text="no such upload")
        if request.content_type == "multipart/form-data":
            return web.Response(status=415, text="send the bytes themselves")
        content = await request.read()
        if len(content) != file.length:
            return web.Response(status=400, text=f"{file.length} bytes were announced, {len(content)} came")
        self._waiting.pop(request.match_info["secret"], None)
        self._room.keep(replace(file, content=content))
        return web.Response(text=f"OK - {len(content)}")

    def _complete(self, args: CompleteUpload) -> dict[str, Any]:
        files = [self._uploaded(one.id) for one in args.files]
        channel = self._room.channel(args.channel_id) if args.channel_id else None
        if channel and args.thread_ts:
            self._room.post(channel.id, args.thread_ts)
        for file, given in zip(files, args.files, strict=True):
            self._room.keep(replace(file, title=given.title or file.name))
        self._line.spawn(self._share(args, channel.id if channel else None))
        return {"files": [shapes.file(self._room.files[one.id]) for one in files]}

    def _uploaded(self, name: str) -> File:
        file = self._room.files.get(name)
        if file is None or file.content is None:
            raise Refused("file_not_found")
        return file

    async def _share(self, args: CompleteUpload, channel: str | None) -> None:
        """Slack answers first and shows the file some moments later."""
        if self._pace.share_lag:
            await self._clock.sleep(self._pace.share_lag)
        ids = tuple(one.id for one in args.files if one.id in self._room.files)
        ts = self._room.stamp()
        shared = ((channel, ts),) if channel else ()
        for one in ids:
            file = self._room.files[one]
            self._room.keep(replace(file, is_complete=True, shared_in=(*file.shared_in, *shared)))
        if channel:
            text = args.initial_comment or ""
            thread = args.thread_ts if args.thread_ts and self._is_there(channel, args.thread_ts) else None
            self._room.add(Post(ts, channel, BOT_USER, text, (), thread, files=ids, subtype="file_share"))

    def _is_there(self, channel: str, ts: str) -> bool:
        return any(one.ts == ts for one in self._room.posts(channel))

    def _info(self, args: OfFile) -> dict[str, Any]:
        file = self._room.files.get(args.file)
        if file is None:
            raise Refused("file_not_found")
        return {"file": shapes.file(file), "comments": []}

    async def give(self, request: web.Request) -> web.Response:
        """A complete file; pictures are shown, everything else is only ever saved."""
        file = self._room.files.get(request.match_info["file"])
        if file is None or file.content is None or not file.is_complete:
            return web.Response(status=404, text="no such file")
        headers = {} if file.mime.startswith("image/") else {"Content-Disposition": "attachment"}
        return web.Response(body=file.content, content_type=file.mime, headers=headers)
