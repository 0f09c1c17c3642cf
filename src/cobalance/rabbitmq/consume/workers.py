"""The workers of a member's queues, and how many messages the member has acknowledged in all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker

    Base = dict[str, PartitionWorker]
else:
    Base = dict


class Workers(Base):
    """By queue. A worker that leaves, or is replaced, leaves its count of acknowledged messages behind. Any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._before = 0  # acknowledged in tenures that are over

    def __setitem__(self, queue: str, worker: PartitionWorker) -> None:
        with self._lock:
            self._count(queue)
            super().__setitem__(queue, worker)

    def __delitem__(self, queue: str) -> None:
        with self._lock:
            self._count(queue)
            super().__delitem__(queue)

    @property
    def acknowledged(self) -> int:
        """How many messages, in all tenures of this member."""
        with self._lock:
            return self._before + sum(it.acknowledged for it in self.values())

    def _count(self, queue: str) -> None:
        former = self.get(queue)
        if former is not None:
            self._before += former.acknowledged
