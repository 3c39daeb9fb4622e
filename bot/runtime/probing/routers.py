"""Speaks with routers where they are: over the warm line to their host, since their port may be open only there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import quote

from bot.domain.errors import StepFailed
from bot.domain.facts import Answer, Outcome
from bot.domain.fleet import Fleet, Host, Router
from bot.domain.routing import Worker, addition, read_workers
from bot.runtime.probing.wire import Get

LIMIT = timedelta(seconds=3)
BODY = 8 * 1024 * 1024
_NOT_THESE = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_THERE = HTTPStatus.CONFLICT


class FleetRouters:
    """Implements ``Routers``. ``secret`` gives the value of a variable of the bot's environment."""

    def __init__(
        self,
        fleet: Callable[[], Fleet],
        ask: Callable[[Host, Get], Awaitable[Answer]],
        secret: Callable[[str], str | None],
    ) -> None:
        self._fleet = fleet
        self._ask = ask
        self._secret = secret

    async def workers(self, router: Router) -> tuple[Worker, ...]:
        answer = await self._answer(router, "GET", "/workers")
        if not answer.is_ok:
            raise _refusal(router, answer)
        try:
            return read_workers(answer.body)
        except ValueError as exc:
            raise StepFailed(f"router {router.name} answered {exc}") from exc

    async def remove(self, router: Router, worker: str) -> None:
        answer = await self._answer(router, "DELETE", f"/workers/{quote(worker, safe='')}")
        if not answer.is_ok and answer.status != HTTPStatus.NOT_FOUND:
            raise _refusal(router, answer)

    async def add(self, router: Router, url: str, settings: str, key: str | None) -> bool:
        answer = await self._answer(router, "POST", "/workers", addition(url, settings, key))
        has_settings = answer.status not in _NOT_THESE
        if not has_settings:
            answer = await self._answer(router, "POST", "/workers", addition(url, "{}", key))
        if not answer.is_ok and answer.status != _THERE:
            raise _refusal(router, answer)
        return has_settings

    async def _answer(self, router: Router, method: str, path: str, data: str = "") -> Answer:
        try:
            host = self._fleet().host(router.host)
        except KeyError as exc:
            raise StepFailed(f"router {router.name}: there is no host {router.host} any more") from exc
        token = self._token(router)
        answer = await self._ask(host, Get(router.address, router.port, (path,), LIMIT, BODY, token, method, data))
        if answer.outcome is not Outcome.ANSWERED:
            why = {Outcome.REFUSED: "refuses the connection", Outcome.TIMED_OUT: "gives no answer"}
            raise StepFailed(f"router {router.name} {why.get(answer.outcome, f'failed: {answer.why}')}")
        return answer

    def _token(self, router: Router) -> str | None:
        if not router.key_variable:
            return None
        key = "".join(char for char in self._secret(router.key_variable) or "" if char.isprintable())
        if not key:
            raise StepFailed(f"router {router.name}: its key is not in the bot's environment ({router.key_variable})")
        return key


def _refusal(router: Router, answer: Answer) -> StepFailed:
    """What it said; a request is never quoted, since it may hold a worker's key."""
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return StepFailed(f"router {router.name} refuses the bot: HTTP {answer.status}, `key` is wrong or missing")
    return StepFailed(f"router {router.name} refuses: HTTP {answer.status}")
