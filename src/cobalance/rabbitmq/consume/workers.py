"""The workers of a member's queues; how many messages the member has acknowledged in all, when the last one was, and how
busy that kept it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cobalance.group.clock import monotonic_ms

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.partition.delivery import Delivery

    Base = dict[str, PartitionWorker]
else:
    Base = dict


LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""What a container may have: µs of processors, in each so many µs."""


def processor_share() -> float:
    """How much of one processor the process may have: less than 1 only in a container with such a limit (cgroup v2)."""
    try:
        quota, period = map(int, LIMIT.read_text().split())
    except (OSError, ValueError):  # there is none
        return 1.0
    return min(1.0, quota / period)


class Workers(Base):
    """By queue. A worker that leaves, or is replaced, leaves its counts behind. Any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        # acknowledged, when the last one was, and ms of handlers, in tenures that are over
        self._before = self._acked_before = self._busy_before = 0
        self._busy_ms, self._occupied_ms = 0, 0.0
        self._looked_s, self._processor_s = time.monotonic(), time.process_time()
        self._most = processor_share()

    def __setitem__(self, queue: str, worker: PartitionWorker) -> None:
        with self._lock:
            self._count(queue)
            super().__setitem__(queue, worker)

    def __delitem__(self, queue: str) -> None:
        with self._lock:
            self._count(queue)
            super().__delitem__(queue)

    def can_acknowledge(self, delivery: Delivery) -> bool:
        """Not once its channel, or its tenure, is over: the message is redelivered."""
        worker = self.get(delivery.queue)
        return worker is not None and worker.can_acknowledge(delivery)

    @property
    def acknowledged(self) -> int:
        """How many messages, in all tenures of this member."""
        with self._lock:
            return self._before + sum(it.acknowledged for it in self.values())

    @property
    def last_ack_ago_ms(self) -> int | None:
        """How long ago the last one was; None if there is none."""
        with self._lock:
            acked_at = max([self._acked_before, *(it.acked_at for it in self.values())])
        return monotonic_ms() - acked_at if acked_at else None

    def occupied_ms(self, places: int) -> int:
        """For how long, altogether, it was full, if looked at often enough: it had handlers in each of its places, or the
        process, which runs Python on one processor at a time, had that, or as much as it may have. It is the longer of the
        two, as handlers may wait or compute, and never longer than what passed: some compute on several processors, and
        places may have gone.
        """
        with self._lock:
            busy_ms = self._busy_before + sum(it.busy_ms for it in self.values())
            busy_ms = max(busy_ms, self._busy_ms)  # a handler that ends just now may be missing
            looked_s, processor_s = time.monotonic(), time.process_time()
            computed_ms = 1_000 * (processor_s - self._processor_s) / self._most
            full_ms = max((busy_ms - self._busy_ms) / places, computed_ms)
            self._occupied_ms += min(1_000 * (looked_s - self._looked_s), full_ms)
            self._busy_ms, self._looked_s, self._processor_s = busy_ms, looked_s, processor_s
            return round(self._occupied_ms)

    def _count(self, queue: str) -> None:
        former = self.get(queue)
        if former is not None:
            self._before += former.acknowledged
            self._acked_before = max(self._acked_before, former.acked_at)
            self._busy_before += former.busy_ms
