"""Slack's Web API, with every failure sorted by what the caller does about it: give up, or try again later.

The SDK's own retries are off: they sleep inside a call, where nothing could be coalesced or counted, and its
default one posts twice when the answer is lost. Here a failure says whether the request may have been carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web.async_client import AsyncWebClient

from bot.chats.slack.secrecy import sdk_logger
from bot.domain.message import Picture

# Slack's words for "try again"; whatever else it says, it will say again.
_PASSING = {
    "ratelimited", "rate_limited", "message_limit_exceeded", "internal_error", "fatal_error", "service_unavailable",
    "request_timeout", "team_added_to_org", "update_failed", "thread_locked_temporarily", "upload_failed",
}  # fmt: skip
_LONGEST_RETRY_AFTER = timedelta(minutes=5)


class Refused(Exception):
    """Slack said no and will say no again; ``error`` is its word for why."""

    def __init__(self, error: str, needed: str = "") -> None:
        super().__init__(f"{error} (needs the scope {needed})" if needed else error)
        self.error = error


class NotNow(Exception):
    """Slack can't be reached, is in trouble, or asks to wait ``after``.

    ``may_have_happened`` when the request was sent and its answer lost.
    """

    def __init__(self, why: str, *, after: timedelta | None = None, may_have_happened: bool = False) -> None:
        super().__init__(why)
        self.after = after
        self.may_have_happened = may_have_happened


class Web:
    """The few methods that the bot uses. ``open`` and ``close`` frame its use; one session is kept warm."""

    def __init__(self, token: str, base_url: str, timeout: timedelta) -> None:
        self._timeout = timeout
        self.is_near = urlsplit(base_url).hostname in {"127.0.0.1", "localhost", "::1"}
        self._session: aiohttp.ClientSession | None = None
        self.client = AsyncWebClient(token=token, base_url=base_url, timeout=30, logger=sdk_logger(), retry_handlers=[])
        if self.is_near:
            self.client.proxy = None  # the SDK takes the environment's proxy for every address, also for this machine

    async def open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._timeout.total_seconds())
        self._session = aiohttp.ClientSession(timeout=timeout)
        self.client.session = self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def who_am_i(self) -> dict[str, Any]:
        return await _ask(self.client.auth_test)

    async def socket_address(self, app_token: str) -> str:
        """A fresh address for one Socket Mode connection; it carries a ticket that is good for a moment, once."""
        answer = await _ask(self.client.apps_connections_open, app_token=app_token)
        return str(answer.get("url", ""))

    async def post(self, **fields: Any) -> dict[str, Any]:
        return await _ask(self.client.chat_postMessage, unfurl_links=False, unfurl_media=False, **fields)

    async def whisper(self, **fields: Any) -> dict[str, Any]:
        return await _ask(self.client.chat_postEphemeral, **fields)

    async def update(self, **fields: Any) -> dict[str, Any]:
        return await _ask(self.client.chat_update, **fields)

    async def react(self, channel: str, stamp: str, sign: str, *, on: bool) -> None:
        method = self.client.reactions_add if on else self.client.reactions_remove
        await _ask(method, channel=channel, timestamp=stamp, name=sign)

    async def group_members(self, group: str) -> list[str]:
        """Who is in a user group, also nobody; a group that was switched off has nobody."""
        answer = await _ask(self.client.usergroups_users_list, usergroup=group, include_disabled=False)
        found = answer.get("users")
        if not isinstance(found, list):
            raise NotNow("an answer that can't be read")
        return [one for one in found if isinstance(one, str)]

    async def recent(self, channel: str, thread: str | None, oldest: str) -> list[dict[str, Any]]:
        """The newest messages of a channel or a thread since ``oldest``, with their metadata."""
        fields: dict[str, Any] = {
            "channel": channel, "oldest": oldest, "inclusive": True, "limit": 200, "include_all_metadata": True,
        }  # fmt: skip
        if thread is None:
            answer = await _ask(self.client.conversations_history, **fields)
        else:
            answer = await _ask(self.client.conversations_replies, ts=thread, **fields)
        found = answer.get("messages")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    async def upload(self, channel: str, thread: str, picture: Picture, comment: str) -> None:
        """Put a picture into a thread. No alt text: with one, Slack takes the file and shows it nowhere."""
        await _ask(
            self.client.files_upload_v2,
            channel=channel,
            thread_ts=thread,
            filename=picture.name,
            title=picture.name,
            content=picture.png,
            initial_comment=comment,
        )


async def _ask(method: Callable[..., Awaitable[Any]], **fields: Any) -> dict[str, Any]:
    """Call it, and translate what the SDK and aiohttp raise."""
    try:
        answer = await method(**{name: value for name, value in fields.items() if value is not None})
    except SlackApiError as error:
        raise _translated(error) from error
    except SlackRequestError as error:
        raise NotNow("an upload failed", may_have_happened=True) from error
    except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
        raise NotNow(f"no connection ({type(error).__name__})") from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise NotNow(f"no answer ({type(error).__name__})", may_have_happened=True) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotNow("an answer that can't be read", may_have_happened=True) from error
    return answer.data if isinstance(answer.data, dict) else {}


def _translated(error: SlackApiError) -> Refused | NotNow:
    response = error.response
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0) or 0)
    data = getattr(response, "data", None)
    body = data if isinstance(data, dict) else {}
    said = str(body.get("error", ""))[:100]
    if status == 429 or said in {"ratelimited", "rate_limited"}:
        return NotNow("too many requests", after=_retry_after(getattr(response, "headers", {})))
    if said and said not in _PASSING and status < 500:
        return Refused(said, str(body.get("needed", ""))[:200])
    return NotNow(f"Slack is in trouble ({said or status})", may_have_happened=True)


def _retry_after(headers: Any) -> timedelta:
    try:
        wait = timedelta(seconds=float(headers.get("Retry-After", 1)))
    except (ValueError, OverflowError, TypeError):
        wait = timedelta(seconds=1)
    return min(max(wait, timedelta()), _LONGEST_RETRY_AFTER)
