"""Routers: what they say of their workers, and how a worker is put back as it was.

sglang-router 0.3 and SMG 1.13 speak the same API of workers, a list of objects with ``id``, ``url`` and what each was
registered with. An id is the router's own and changes with every registration, so a server is known by its URL alone.
Both find most of a worker's labels out by asking it; those are never put back, since a restart changes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

_RANK = re.compile(r"@\d+$")
_LOCAL = ("localhost", "0.0.0.0", "::1", "::", "")  # noqa: S104 - compared with, not bound
_KEPT = (
    "priority",
    "cost",
    "worker_type",
    "bootstrap_port",
    "bootstrap_host",
    "disable_health_check",
    "health",
    "tokenizer_path",
    "reasoning_parser",
    "tool_parser",
    "chat_template",
    "kv_connector",
    "kv_role",
)
"""What a worker was registered with and both routers list; its key is listed by neither."""
_FOUND_OUT = frozenset(
    {
        *("architectures", "attn_dp_size", "context_length", "cost", "disaggregation_mode", "dp_size"),
        *("enable_dp_attention", "has_audio_understanding", "has_image_understanding", "hf_model_type"),
        *("is_embedding", "is_generation", "load_balance_method", "max_model_len", "max_running_requests"),
        *("max_total_tokens", "model_path", "model_type", "pp_size", "priority", "served_model_name"),
        *("tokenizer_path", "tp_size", "version", "weight_version"),
    }
)
"""Labels that the routers find out by themselves when a worker is added."""
_MOST_WORKERS = 10_000
_MOST_SETTINGS = 8_192


class Standing(Enum):
    """How a server stands with its router."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DRAINING = "draining"
    ABSENT = "not listed"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Routed:
    """What was seen of a server at one of its routers; ``why`` says what keeps it from being known."""

    router: str
    standing: Standing
    why: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """One entry of a router's list. ``settings`` is what it was registered with, as JSON."""

    id: str
    url: str
    is_healthy: bool
    is_draining: bool = False
    settings: str = "{}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A server that an operation takes out of a router, written down before it is done.

    ``url`` and ``settings`` are as the router had them; ``entries`` are the ids that were to be removed, so that an
    entry that is about to go is not taken for one that is back. ``why`` is what keeps it from being put back.
    """

    server: str
    router: str
    url: str
    at: datetime
    settings: str = "{}"
    entries: tuple[str, ...] = ()
    is_back: bool = False
    why: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """The server and the router."""
        return self.server, self.router


def read_workers(body: bytes) -> tuple[Worker, ...]:
    """The workers of a router's list; ValueError when it is no such list."""
    try:
        listed = json.loads(body)["workers"]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ValueError("no list of workers") from exc
    if not isinstance(listed, list):
        raise ValueError("no list of workers")  # noqa: TRY004 - foreign text is wrong, not our types
    found = [_worker(one) for one in listed[:_MOST_WORKERS] if isinstance(one, dict)]
    return tuple(one for one in found if one is not None)


def _worker(one: Mapping[str, Any]) -> Worker | None:
    id_, url = one.get("id"), one.get("url")
    if not isinstance(id_, str) or not isinstance(url, str):
        return None
    is_draining = one.get("status") == "draining"
    is_healthy = one.get("is_healthy") is True and not is_draining
    return Worker(id_, url, is_healthy, is_draining, _settings(one))


def _settings(one: Mapping[str, Any]) -> str:
    """What is to be put back, as JSON; nothing where it is more than any honest worker has."""
    kept = {key: one[key] for key in _KEPT if one.get(key) not in (None, "", False)}
    found: Mapping[str, Any] = next((one[key] for key in ("labels", "metadata") if isinstance(one.get(key), dict)), {})
    own = {key: value for key, value in found.items() if key not in _FOUND_OUT and isinstance(value, str)}
    model = one.get("model_id")
    is_own = isinstance(model, str) and model not in ("", "unknown", *_found_names(one, found))
    kept |= {"labels": own} if own else {}
    kept |= {"model_id": model} if is_own else {}
    text = json.dumps(kept, sort_keys=True)
    return text if len(text) <= _MOST_SETTINGS else "{}"


def _found_names(one: Mapping[str, Any], labels: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of its model that the router learned from the worker."""
    models = one.get("models")
    listed = [each.get("id") for each in models if isinstance(each, dict)] if isinstance(models, list) else []
    told = (labels.get("served_model_name"), labels.get("model_path"), *listed)
    return tuple(name for name in told if isinstance(name, str))


def addition(url: str, settings: str, key: str | None) -> str:
    """The request that adds a worker as it was; ``key`` is what the server itself asks for."""
    try:
        kept = json.loads(settings)
    except ValueError:
        kept = {}
    return json.dumps({**(kept if isinstance(kept, dict) else {}), "url": url, **({"api_key": key} if key else {})})


def place(url: str) -> tuple[str, int]:
    """Host and port of a worker's URL, for comparing; a rank behind it (``…:30000@1``) is left away."""
    text = _RANK.sub("", url if "//" in url else f"//{url}")
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return url, 0
    default = 443 if parts.scheme == "https" else 80
    return ("127.0.0.1" if host in _LOCAL else host), port if port is not None else default


def base(url: str) -> str:
    """A worker's URL without its rank: that is what is registered, and the router parts it again."""
    return _RANK.sub("", url)


def of_server(workers: Sequence[Worker], url: str) -> tuple[Worker, ...]:
    """The entries that are this server: one, or one a rank."""
    wanted = place(url)
    return tuple(one for one in workers if place(one.url) == wanted)


def standing(mine: Sequence[Worker]) -> Standing:
    """How a server stands by its entries."""
    if not mine:
        return Standing.ABSENT
    if all(one.is_draining for one in mine):
        return Standing.DRAINING
    return Standing.HEALTHY if all(one.is_healthy for one in mine) else Standing.UNHEALTHY
