"""Members that read a stream, what their handlers received, and what is committed, for tests."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import anyio
import anyio.lowlevel
from tests.consumers import Place
from tests.streams import Stream

from cobalance import ConsumerGroup, Delivery, StreamSettings

WITHIN_S = 60.0
NEVER_MS = 3_600_000.0


class Reading:
    """What handlers received, in order; checks that no two of them work one stream at a time. On one event loop."""

    def __init__(self) -> None:
        self.offsets: defaultdict[str, list[int]] = defaultdict(list)
        self.tokens: defaultdict[str, set[int]] = defaultdict(set)
        self.deliveries: list[Delivery] = []
        self._at_work: set[str] = set()
        self._more = anyio.Event()

    async def handle(self, delivery: Delivery) -> None:
        assert delivery.queue not in self._at_work
        self._at_work.add(delivery.queue)
        await anyio.lowlevel.checkpoint()
        self._at_work.remove(delivery.queue)
        assert delivery.offset is not None
        self.offsets[delivery.queue].append(delivery.offset)
        self.tokens[delivery.queue].add(delivery.token)
        self.deliveries.append(delivery)
        self._more.set()
        self._more = anyio.Event()

    def clear(self) -> None:
        """Forgets what came."""
        self.offsets.clear()
        self.deliveries.clear()

    async def wait(self, count: int) -> list[int]:
        """Waits for this many deliveries of all streams; returns the offsets of the first stream."""
        with anyio.fail_after(WITHIN_S):
            while len(self.deliveries) < count:
                await self._more.wait()
        return next(iter(self.offsets.values()))


def settings(**options: Any) -> StreamSettings:
    """Commits automatically only if that is asked for."""
    options.setdefault("commit_every", 1_000_000)
    options.setdefault("commit_interval_ms", NEVER_MS)
    return StreamSettings(**options)


def member(here: Place, stream: Stream, reading: Reading, **options: Any) -> ConsumerGroup:
    """A member that reads one stream."""
    chosen = {name: options.pop(name) for name in list(options) if name in StreamSettings.__annotations__}
    return here.member([stream.name], reading.handle, streams=settings(**chosen), **options)


def committed(here: Place, stream: Stream) -> int | None:
    row = here.resources().get(stream.name)
    return None if row is None else row.committed
