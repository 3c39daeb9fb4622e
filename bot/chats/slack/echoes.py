"""Tells a connection that is open but deaf: our own posts must come back to us as events.

Slack reports what the bot says like anything else that is said. In a channel where that was seen once it is
expected from then on; several posts in a row that do not come back mean that events are lost. Nothing has to be
asked for and no scope is needed; a channel whose events never come (not subscribed) proves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

_ENOUGH = 3
_MOST = 200


class Echoes:
    """What was said and what was heard of it."""

    def __init__(self, within: timedelta) -> None:
        self._within = within
        self._channels: set[str] = set()
        self._owed: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._early: OrderedDict[tuple[str, str], None] = OrderedDict()

    def said(self, channel: str, stamp: str, now: datetime) -> None:
        """We posted this; its event may have been here already."""
        if (channel, stamp) in self._early:
            self._channels.add(channel)
            del self._early[channel, stamp]
            self._owed.clear()
            return
        self._owed[channel, stamp] = now
        if len(self._owed) > _MOST:
            self._owed.popitem(last=False)

    def heard(self, channel: str, stamp: str) -> None:
        """A message event arrived, ours or not."""
        if (channel, stamp) in self._owed:
            self._channels.add(channel)
            self._owed.clear()  # events come: what is missing before this one does not matter
            return
        self._early[channel, stamp] = None
        if len(self._early) > _MOST:
            self._early.popitem(last=False)

    def is_deaf(self, now: datetime) -> bool:
        """Whether several posts have not come back in channels where they used to."""
        late = [name for name, at in self._owed.items() if name[0] in self._channels and now - at > self._within]
        return len(late) >= _ENOUGH

    def forget(self) -> None:
        """Start anew, on a new connection."""
        self._owed.clear()
