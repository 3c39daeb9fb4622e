"""Speaks with an Alertmanager by its API v2, and reads what its webhook sends; Grafana's answers are understood too.

Foreign text is cut here, so that whatever comes is small: labels and annotations to a few dozen of bounded length.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from bot.domain.errors import FleetError
from bot.domain.monitors import AlertmanagerPeer
from bot.domain.watching.exchange import Outgoing, RemoteSilence, SilenceOrder
from bot.domain.watching.foreign import Notification, Told
from bot.monitors._http import Ask, Service

LARGEST = 1024 * 1024
"""Bytes of one notification."""
_LARGEST_LIST = 16 * 1024 * 1024
_MOST_ALERTS = 1_000
_MOST_LABELS = 64
_LONGEST_NAME = 200
_LONGEST_VALUE = 1_000
_LONGEST_GROUP = 300


class NotANotification(ValueError):
    """What came is no notification; the text says what is wrong with it."""


class Alertmanager:
    """Implements `bot.ports.Silencer` and `AlertExchange`; ``auth`` is a bearer token or "user:password"."""

    def __init__(self, auth: str = "") -> None:
        self._service = Service("Alertmanager", auth)

    async def silences(self, peer: AlertmanagerPeer) -> Sequence[RemoteSilence]:
        told = await self._json(peer, "GET", "/api/v2/silences")
        return [
            RemoteSilence(one["id"], one["comment"])
            for one in _objects(told)
            if isinstance(one.get("id"), str) and isinstance(one.get("comment"), str) and _state(one) != "expired"
        ]

    async def silence(self, peer: AlertmanagerPeer, order: SilenceOrder) -> str:
        body = {
            "matchers": [
                {"name": one.name, "value": one.value, "isRegex": one.is_regex, "isEqual": True}
                for one in order.matchers
            ],
            "startsAt": order.since.isoformat(),
            "endsAt": order.until.isoformat(),
            "createdBy": order.by,
            "comment": order.comment,
        }
        told = await self._json(peer, "POST", "/api/v2/silences", body)
        found = (told.get("silenceID") or told.get("id")) if isinstance(told, dict) else None
        if not isinstance(found, str) or not found:
            raise FleetError(f"Alertmanager at {_where(peer)} took a silence and gave no id")
        return found

    async def unsilence(self, peer: AlertmanagerPeer, id_: str) -> None:
        if any(one.id == id_ for one in await self.silences(peer)):
            path = f"/api/v2/silence/{quote(id_, safe='')}"
            await self._service.answer(Ask("DELETE", f"{peer.url}{path}", peer.timeout))

    async def send(self, peer: AlertmanagerPeer, alerts: Sequence[Outgoing]) -> None:
        body = [
            {
                "labels": dict(one.labels),
                "annotations": dict(one.annotations),
                "startsAt": one.since.isoformat(),
                "endsAt": one.until.isoformat(),
            }
            for one in alerts
        ]
        await self._service.answer(Ask("POST", f"{peer.url}/api/v2/alerts", peer.timeout, body=body))

    async def fingerprints(self, peer: AlertmanagerPeer) -> frozenset[str]:
        told = await self._json(peer, "GET", "/api/v2/alerts")
        return frozenset(one["fingerprint"] for one in _objects(told) if isinstance(one.get("fingerprint"), str))

    async def close(self) -> None:
        """Let go of what is open."""
        await self._service.close()

    async def _json(self, peer: AlertmanagerPeer, method: str, path: str, body: Any = None) -> Any:
        ask = Ask(method, f"{peer.url}{path}", peer.timeout, body=body, limit=_LARGEST_LIST)
        answer = await self._service.answer(ask)
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as exc:
            raise FleetError(f"Alertmanager at {_where(peer)} answered something that is no JSON") from exc


def _where(peer: AlertmanagerPeer) -> str:
    return peer.url.partition("//")[2]


def _objects(told: Any) -> list[dict[str, Any]]:
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []


def _state(silence: Mapping[str, Any]) -> Any:
    status = silence.get("status")
    return status.get("state") if isinstance(status, dict) else None


# The webhook's way in


def notification(body: bytes) -> Notification:
    """What a webhook's body (version 4) tells; NotANotification says what is wrong with it."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise NotANotification("no JSON") from exc
    if not isinstance(told, dict) or not isinstance(told.get("alerts"), list):
        raise NotANotification("no notification of an Alertmanager: there are no alerts in it")
    group = told.get("groupKey")
    alerts = [one for one in told["alerts"] if isinstance(one, dict)]
    kept = tuple(_alert(one) for one in alerts[:_MOST_ALERTS])
    common = _texts(told.get("commonLabels"))
    return Notification(
        _key(group if isinstance(group, str) and group else json.dumps(common, sort_keys=True)),
        kept,
        common,
        _count(told.get("truncatedAlerts")) + len(alerts) - len(kept),
    )


def _alert(one: Mapping[str, Any]) -> Told:
    labels = _texts(one.get("labels"))
    fingerprint = one.get("fingerprint")
    return Told(
        _key(fingerprint if isinstance(fingerprint, str) and fingerprint else json.dumps(labels, sort_keys=True)),
        one.get("status") != "resolved",
        _instant(one.get("startsAt")),
        labels,
        _texts(one.get("annotations")),
    )


def _key(text: str) -> str:
    clean = _clean(text)
    return clean if len(clean) <= _LONGEST_GROUP else hashlib.sha256(clean.encode()).hexdigest()


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    pairs = [(key, one) for key, one in value.items() if isinstance(one, str)][:_MOST_LABELS]
    return {_clean(key)[:_LONGEST_NAME]: _clean(one)[:_LONGEST_VALUE] for key, one in pairs}


def _clean(text: str) -> str:
    """Without what can be neither stored nor shown: NULs and halves of characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _count(value: Any) -> int:
    return min(value, 10**6) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _instant(value: Any) -> datetime:
    """An instant as Go writes it, in UTC; the epoch when it is none, so that whoever takes it can tell."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else _EPOCH
    except (ValueError, OverflowError):
        return _EPOCH


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
