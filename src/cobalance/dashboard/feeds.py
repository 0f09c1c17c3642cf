"""The groups under watch, each from when it is first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cobalance.dashboard.feed import Feed
from cobalance.dashboard.overview import Overview
from cobalance.dashboard.status import Status

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin
    from cobalance.operate.watch import Watch

FORGOTTEN_S = 600.0
"""What nobody has looked at for so long is dropped; the next look reads the journal from its beginning."""


class Feeds:
    """One watch and one feed a group. Any number of threads may ask."""

    def __init__(self, admin: GroupAdmin, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._clock = admin, clock
        self._lock, self._watches_lock = Lock(), Lock()
        self._feeds: dict[str, Feed] = {}
        self._watches: WeakValueDictionary[str, Watch] = WeakValueDictionary()
        self.overview = Overview(admin, self._watch, clock=clock)
        self.status = Status(admin, clock=clock)
        self.closing = False
        """Set when the server stops: streams of events end within a second, if they are read."""

    def known(self, group: str) -> Feed | None:
        """The feed of a group that somebody has asked for lately."""
        return self._feeds.get(group)

    def feed(self, group: str) -> Feed:
        """The feed of a group.

        Raises:
            UnknownGroup: there is no such group.
            UsageError: no group can have that name.
        """
        found = self._feeds.get(group)
        if found is None:
            journal, tuned = self._admin.journal(group), partial(self._admin.tuned, group)
            self._forget_unwatched()
            with self._lock:
                found = self._feeds.setdefault(group, Feed(self._watch(group), journal, tuned, clock=self._clock))
        return found

    def _watch(self, group: str) -> Watch:
        with self._watches_lock:
            found = self._watches.get(group)
            if found is None:
                found = self._watches[group] = self._admin.watch(group)
            return found

    def _forget_unwatched(self) -> None:
        limit = self._clock() - FORGOTTEN_S
        with self._lock:
            self._feeds = {name: feed for name, feed in self._feeds.items() if feed.asked_at >= limit}
