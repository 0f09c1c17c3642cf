"""M1: which messages reach handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World


class M1(Check):
    """Within a partition no message is skipped, reordered or lost.

    On one channel, messages are handled one after the other without a gap. A new tenure, or one that has lost its
    connection and has another, may begin with messages that were handled before and never acknowledged, but never after
    a message nobody has seen, and never with one that was acknowledged at the broker. When churn has stopped, everything
    published is acknowledged.
    """

    promise = "M1"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last: dict[tuple[str, int], int] = {}
        self._highest: dict[str, int] = {}
        self._acked: dict[str, int] = {}

    def handled(self, process: Process, queue: str, token: int, seq: int) -> None:
        highest = self._highest.get(queue, 0)
        last = self._last.get((queue, token))
        if last is not None and seq != last + 1:
            self.broken(f"{process.name} handles {seq} of {queue} after {last}")
        if last is None and seq > highest + 1:
            self.broken(f"{process.name} begins {queue} with {seq}, but {highest + 1} was never handled")
        if seq <= self._acked.get(queue, 0):
            self.broken(f"{process.name} handles {seq} of {queue}, which was acknowledged")
        self._last[queue, token] = seq
        self._highest[queue] = max(highest, seq)

    def ended(self, process: Process, tenure: SimulatedTenure, why: str) -> None:
        """What the broker has sent over a connection that is lost is sent again."""
        del process
        if why == "connection":
            self._last.pop((tenure.resource, tenure.token), None)

    def acked(self, queue: str, seq: int) -> None:
        self._acked[queue] = max(seq, self._acked.get(queue, 0))

    def settled(self) -> None:
        broker = self.world.broker
        if broker is None:
            return
        for queue in broker.queues.values():
            if queue.acked != queue.published:
                self.broken(f"{queue.name} has {queue.published} messages, of which {queue.acked} were acknowledged")
