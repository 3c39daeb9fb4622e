"""The simulated server's HTTP side: SGLang's paths, answered from the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from aiohttp import web

from bot.demo.engine import lines
from bot.demo.engine.batch import Request
from bot.demo.engine.metrics import exposition
from bot.demo.engine.scheduler import Scheduler, Ticket
from bot.demo.engine.setup import Setup
from bot.demo.engine.voice import Voice

HEALTH_TIMEOUT = 20.0
IDLE_HEALTH = 1.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Status(Enum):
    """What the HTTP side thinks of the server."""

    STARTING = "Starting"
    UP = "Up"
    UNHEALTHY = "UnHealthy"


class Web:
    """The endpoints of one server."""

    def __init__(self, setup: Setup, scheduler: Scheduler, voice: Voice) -> None:
        self.status = Status.STARTING
        self.is_draining = False
        self._setup = setup
        self._scheduler = scheduler
        self._voice = voice
        self._created = int(time.time())

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 1024 * 1024)
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self._health, allow_head=False)
        for path, old, handler in (
            ("/model_info", "/get_model_info", self._model_info),
            ("/server_info", "/get_server_info", self._server_info),
        ):
            app.router.add_get(path, handler)
            app.router.add_get(old, self._deprecated(old, path, handler))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/ping", self._ping)
        if (0, 5, 2) <= self._setup.version <= (0, 5, 20):
            app.router.add_get("/get_load", self._old_load)
        if self._setup.version >= (0, 5, 20):
            app.router.add_get("/ready", self._ready)
        if self._setup.args.enable_metrics:
            app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post("/flush_cache", self._flush)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = await handler(request) if self._may(request) else _json({"error": "Unauthorized"}, 401)
        except web.HTTPNotFound:
            answer = _json({"detail": "Not Found"}, 404)
        except web.HTTPMethodNotAllowed:
            answer = _json({"detail": "Method Not Allowed"}, 405)
        self.note_access(request, answer.status, answer.reason)
        return answer

    def _may(self, request: web.Request) -> bool:
        key = self._setup.args.api_key
        if not key or request.path.startswith(("/health", "/metrics", "/ready")):
            return True
        return request.headers.get("Authorization") == f"Bearer {key}"

    def note_access(self, request: web.Request, status: int, reason: str) -> None:
        """A line of the access log."""
        peer = request.transport.get_extra_info("peername") if request.transport else None
        name = f"{peer[0]}:{peer[1]}" if peer else "127.0.0.1:0"
        self._voice.say(lines.access(name, request.method, request.path_qs, status, reason))

    def _deprecated(self, old: str, new: str, handler: Handler) -> Handler:
        async def told(request: web.Request) -> web.StreamResponse:
            self._voice.say(
                f"Endpoint '{old}' is deprecated and will be removed in a future version. Please use '{new}' instead."
            )
            return await handler(request)

        return told

    # Health

    async def _health(self, _: web.Request) -> web.StreamResponse:
        if self.is_draining:
            self._voice.say("Health check request received during shutdown. Returning 503.")
            return web.Response(status=503)
        if self.status is Status.STARTING:
            return web.Response(status=503)
        if await self._token_comes():
            self.status = Status.UP
            return web.Response(status=200)
        self.status = Status.UNHEALTHY
        stamp = time.strftime("%H:%M:%S")
        self._voice.say(
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            f"tic start time: {stamp}. last_heartbeat time: {stamp}"
        )
        return web.Response(status=503)

    async def _token_comes(self) -> bool:
        """Whether a token came within the time that health allows."""
        scheduler, speed = self._scheduler, self._setup.speed
        if not scheduler.control.is_hung:
            if scheduler.batch.running:
                await asyncio.sleep(0)
                return True
            request = Request("HEALTH_CHECK", 1, 1, 0.0)
            self._voice.say(lines.prefill(scheduler.batch, [request], 1.0))
            await asyncio.sleep(IDLE_HEALTH / speed)
            return not scheduler.control.is_hung
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(scheduler.is_mended.wait(), HEALTH_TIMEOUT / speed)
        return not scheduler.control.is_hung

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        is_ready = self.status is Status.UP and not self.is_draining
        return web.Response(status=200 if is_ready else 503)

    async def _ping(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200)

    async def _scheduler_answers(self) -> None:
        """Wait as long as the scheduler is stuck: what needs it is not answered meanwhile."""
        await self._scheduler.is_mended.wait()
        self._scheduler.catch_up()

    # What it is and how busy

    async def _model_info(self, _: web.Request) -> web.StreamResponse:
        return _json(self._setup.model_info())

    async def _server_info(self, _: web.Request) -> web.StreamResponse:
        await self._scheduler_answers()
        return _json(self._setup.server_info(self._scheduler.last_throughput))

    async def _models(self, _: web.Request) -> web.StreamResponse:
        model = {
            "id": self._setup.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "sglang",
            "root": self._setup.model_name,
            "parent": None,
            "max_model_len": lines.context_length(self._setup.args),
        }
        return _json({"object": "list", "data": [model]})

    async def _loads(self, _: web.Request) -> web.StreamResponse:
        if self._setup.version < (0, 5, 23):
            await self._scheduler_answers()
        batch, sizes, now = self._scheduler.batch, self._setup.sizes, time.time()
        stuck = self._scheduler.hung_since
        published = now - (asyncio.get_running_loop().time() - stuck) if stuck is not None else now
        load = {
            "timestamp": published,
            "dp_rank": 0,
            "num_running_reqs": batch.running,
            "num_waiting_reqs": batch.queued,
            "num_used_tokens": batch.tokens,
            "num_total_tokens": batch.tokens,
            "max_total_num_tokens": sizes.tokens,
            "max_running_requests": sizes.seats,
            "token_usage": round(batch.kv_usage, 4),
            "gen_throughput": round(self._scheduler.throughput, 2) if self._setup.args.enable_metrics else 0.0,
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
            "memory": self._setup.memory(),
            "queues": {"waiting": batch.queued, "grammar": 0, "paused": 0, "retracted": 0},
        }
        stamp = datetime.fromtimestamp(now, UTC).isoformat()
        return _json({"timestamp": stamp, "version": self._setup.version_text, "loads": [load]})

    async def _old_load(self, _: web.Request) -> web.StreamResponse:
        await self._scheduler_answers()
        batch = self._scheduler.batch
        waiting = {"num_reqs": batch.running + batch.queued, "num_waiting_reqs": batch.queued}
        return _json([{"dp_rank": 0, **waiting, "num_tokens": batch.tokens}])

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        scheduler = self._scheduler
        scheduler.catch_up()
        text = exposition(scheduler.batch, self._setup.model_name, scheduler.throughput, scheduler.latencies)
        return web.Response(text=text, content_type="text/plain")

    # Work

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        sampling = body.get("sampling_params")
        wanted = _whole(sampling.get("max_new_tokens") if isinstance(sampling, dict) else None, 128)
        ids = body.get("input_ids")
        prompt = len(ids) if isinstance(ids, list) else _tokens(body.get("text"))
        ticket = self._take(body.get("rid"), prompt, wanted)
        if body.get("stream") is True:
            return await self._stream(request, ticket)
        return _json(_generated(await self._finish(ticket)))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        wanted = _whole(body.get("max_tokens"), 16)
        done = await self._finish(self._take(None, _tokens(body.get("prompt")), wanted))
        choice = {"index": 0, "text": _words(done.wanted), "logprobs": None, "finish_reason": "length"}
        return _json(self._openai("text_completion", "cmpl", done, choice))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        wanted = _whole(body.get("max_tokens", body.get("max_completion_tokens")), 128)
        done = await self._finish(self._take(None, _tokens(body.get("messages")), wanted))
        message = {"role": "assistant", "content": _words(done.wanted)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
        return _json(self._openai("chat.completion", "chatcmpl", done, choice))

    def _openai(self, kind: str, stem: str, done: Request, choice: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": done.prompt, "completion_tokens": done.wanted}
        return {
            "id": f"{stem}-{done.rid}",
            "object": kind,
            "created": int(time.time()),
            "model": self._setup.model_name,
            "choices": [choice],
            "usage": {**usage, "total_tokens": done.prompt + done.wanted},
        }

    def _take(self, rid: Any, prompt: int, wanted: int) -> Ticket:
        is_usable = isinstance(rid, str) and rid and not self._scheduler.knows(rid)
        name = rid if is_usable else uuid.uuid4().hex
        return self._scheduler.submit(name, prompt, max(1, min(wanted, lines.context_length(self._setup.args))))

    async def _finish(self, ticket: Ticket) -> Request:
        try:
            return await ticket.done
        finally:
            self._scheduler.abort(ticket.request.rid)

    async def _stream(self, request: web.Request, ticket: Ticket) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await answer.prepare(request)
            await ticket.started.wait()
            await answer.write(_event(_generated(ticket.request, is_done=False)))
            done = await ticket.done
            await answer.write(_event(_generated(done)) + b"data: [DONE]\n\n")
        finally:
            self._scheduler.abort(ticket.request.rid)
        return answer

    async def _abort(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        rids = self._scheduler.batch.rids if body.get("abort_all") is True else [body.get("rid")]
        for rid in rids:
            if isinstance(rid, str):
                self._scheduler.abort(rid)
        return web.Response(status=200)

    async def _flush(self, _: web.Request) -> web.StreamResponse:
        if self._scheduler.batch.rids:
            return web.Response(status=400, text="Flush cache failed. Requests are running or waiting.\n")
        self._voice.say("Cache flushed successfully!")
        return web.Response(text="Cache flushed.\n")


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value, separators=(",", ":")), status=status, content_type="application/json")


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError as exc:
        raise web.HTTPBadRequest(text='{"error":{"message":"The body is not JSON."}}') from exc
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text='{"error":{"message":"The body is not an object."}}')
    return body


def _generated(request: Request, *, is_done: bool = True) -> dict[str, Any]:
    count = request.wanted if is_done and not request.is_aborted else 0
    started, ended = request.started or request.arrived, request.ended or request.arrived
    reason = {"type": "abort"} if request.is_aborted else {"type": "length", "length": request.wanted}
    meta = {
        "id": request.rid,
        "finish_reason": reason if is_done else None,
        "prompt_tokens": request.prompt,
        "completion_tokens": count,
        "cached_tokens": 0,
        "queue_time": round(started - request.arrived, 4),
        "e2e_latency": round(max(0.0, ended - request.arrived), 4),
    }
    return {"text": _words(count), "meta_info": meta}


def _words(tokens: int) -> str:
    return ("sound " * tokens)[:4096]


def _tokens(prompt: Any) -> int:
    return max(1, len(prompt if isinstance(prompt, str) else json.dumps(prompt)) // 4)


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
