"""One bounded HTTP exchange with a service that may be slow, broken or somebody else: every failure is a FleetError.

Redirects are not followed (the answer would come from a place that nobody configured), nothing is unpacked, and what
is larger than its limit is not read. A connection is used once: rounds are too far apart to keep one.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot.domain.errors import FleetError, TimedOut
from bot.domain.phrases import span

_CHUNK = 65_536
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked: a form or JSON to send along, and how much of an answer is read."""

    method: str
    url: str
    timeout: timedelta
    form: Mapping[str, str] | None = None
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    limit: int = 4 * 1024 * 1024


@dataclass(slots=True)
class Service:
    """A service by its name; ``auth`` is a bearer token, or "user:password", and is shown nowhere."""

    name: str
    auth: str = field(default="", repr=False)
    _session: aiohttp.ClientSession | None = None

    async def answer(self, ask: Ask) -> bytes:
        """The body of a 2xx; FleetError names the service, its address and what is wrong, in one line."""
        where = f"{self.name} at {urlsplit(ask.url).netloc}"
        try:
            async with self._opened().request(
                ask.method,
                ask.url,
                data=ask.form,
                params=ask.query or None,
                json=ask.body,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=ask.timeout.total_seconds()),
            ) as answer:
                body = await _read(answer.content, ask.limit if answer.ok else _CHUNK)
                if 200 <= answer.status < 300 and body is not None:
                    return body
                raise FleetError(f"{where} {_refusal(answer, body)}")
        except TimeoutError as exc:
            raise TimedOut(f"{where} did not answer within {span(ask.timeout)}") from exc
        except aiohttp.ClientConnectorError as exc:
            raise FleetError(f"{where} can't be reached: {_why(exc.os_error)}") from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise FleetError(f"{where} broke off its answer ({type(exc).__name__})") from exc

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            headers = {"Accept-Encoding": "identity", **_authorization(self.auth)}
            connector = aiohttp.TCPConnector(force_close=True, limit=8)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=headers, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        """Let go of what is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _why(error: OSError) -> str:
    """Why no connection came about, as the system says it."""
    known = error.errno if error.errno is not None and error.errno > 0 else None
    return os.strerror(known) if known is not None else error.strerror or "no connection"


async def _read(content: aiohttp.StreamReader, limit: int) -> bytes | None:
    """The whole body; None when it is larger than allowed."""
    body = bytearray()
    async for chunk in content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _refusal(answer: aiohttp.ClientResponse, body: bytes | None) -> str:
    if 300 <= answer.status < 400:
        return f"sends elsewhere (HTTP {answer.status}): the url must be where it really is"
    if answer.status in (401, 403):
        return f"refuses us (HTTP {answer.status}): check its auth in the environment"
    if answer.ok:
        return "answered more than can be"
    return f"answered HTTP {answer.status}{_said(body or b'')}"


def _said(body: bytes) -> str:
    """What an error's body says, in one line: the "error" of a JSON answer, else its first words."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = body.decode("utf-8", "replace")
    if isinstance(told, dict):
        told = told.get("error") or told.get("message") or ""
    words = " ".join(str(told).split())
    return f": {words[:_SHOWN]}" if words and not words.startswith("<") else ""


def _authorization(auth: str) -> dict[str, str]:
    if not auth:
        return {}
    if ":" in auth:
        return {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"}
    return {"Authorization": f"Bearer {auth}"}
