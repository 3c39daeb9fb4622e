"""The transports of hosts: opened when first needed, kept warm, shared by hosts that are reached the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bot.domain.errors import FleetError
from bot.domain.fleet import Hop, Host
from bot.ports import Transport, TransportKind

HERE = Hop("local")


class Reach:
    """Implements `Hosts` out of the transport plug-ins."""

    def __init__(self, kinds: Mapping[str, TransportKind]) -> None:
        self._kinds = kinds
        self._open: dict[tuple[Hop, ...], Transport] = {}

    def transport(self, host: Host) -> Transport:
        """The transport to a host; a host without hops is this machine."""
        return self._through(host.hops or (HERE,))

    def _through(self, hops: tuple[Hop, ...]) -> Transport:
        known = self._open.get(hops)
        if known is not None:
            return known
        *before, last = hops
        kind = self._kinds.get(last.transport)
        if kind is None:
            raise FleetError(f"no transport is called {last.transport}")
        outer = self._through(tuple(before)) if before else None
        self._open[hops] = kind.connect(last, outer)
        return self._open[hops]

    async def close(self) -> None:
        """Close all, the inner ones first."""
        for hops in sorted(self._open, key=len, reverse=True):
            transport = self._open.pop(hops)
            try:
                await asyncio.wait_for(transport.close(), 5)
            except (FleetError, TimeoutError):
                continue
