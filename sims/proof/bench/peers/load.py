"""The load: a message on each partition at equal intervals, spread over them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proof.bench.peers.peer import Place

EVERY_S = 0.025
"""Between two messages of a partition."""


class Load:
    """Publishes from a thread of its own until it is closed."""

    def __init__(self, place: Place, partitions: int) -> None:
        self.published: dict[tuple[int, int], float] = {}
        """(partition, number) → when. Complete once it is closed."""
        self._place, self._partitions = place, partitions
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Stops publishing. Raises what went wrong, if anything did."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001  # raised by close
            self._failure = error

    def _publish(self) -> None:
        publisher, due, count = self._place.publisher(), time.monotonic(), 0
        while not self._over.is_set():
            number, partition = divmod(count, self._partitions)
            self.published[partition, number] = time.monotonic()
            publisher.publish(partition, number)
            count += 1
            due += EVERY_S / self._partitions
            publisher.rest(max(0.0, due - time.monotonic()))
        publisher.close()
