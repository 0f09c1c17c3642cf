"""When a partition is asked back, and until when its worker begins what has been sent ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.partition.half_time import HalfTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.tenure import Tenure


class Revocation:
    """The revocations of one tenure, one after another: each but the last is cancelled."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._asking, self._half_time = tenure.asking, HalfTime()

    @property
    def is_half_over(self) -> bool:
        """Whether half of the time to the deadline has passed, so that nothing more is begun."""
        self.hear_deadline()
        return self._current.is_over(monotonic_ms())

    def hear_deadline(self) -> int | None:
        """Returns in how many ms half of the time to the deadline has passed; None if there is none."""
        now, abort_at = monotonic_ms(), self._tenure.abort_at
        return None if abort_at is None else max(0, self._current.hear(now, abort_at) - now)

    @property
    def _current(self) -> HalfTime:
        if self._asking is not self._tenure.asking:
            self._asking, self._half_time = self._tenure.asking, HalfTime()
        return self._half_time

    async def watch(
        self, *, asked: Callable[[], None], half_over: Callable[[], None], told: Callable[[], None]
    ) -> None:
        """Calls `asked` at each revocation, `half_over` halfway to its deadline unless the partition is kept before, and
        `told` whenever it may be kept or the deadline has changed. Never returns.
        """
        while True:
            asking = self._tenure.asking
            await asking.wait()
            asked()
            if await self._wait_half_time(asking, told):
                half_over()
            while asking is self._tenure.asking:
                await self._tenure.wait_retold()
                told()

    async def _wait_half_time(self, asking: anyio.Event, told: Callable[[], None]) -> bool:
        """Returns once half of the time to the deadline has passed; False if the partition is kept before."""
        while asking is self._tenure.asking:
            left_ms = self.hear_deadline()
            with anyio.move_on_after(None if left_ms is None else left_ms / 1000) as waiting:
                await self._tenure.wait_retold()
                told()
            if waiting.cancelled_caught:
                return True
        return False
