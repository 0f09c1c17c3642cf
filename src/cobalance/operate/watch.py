"""Looks at a group again and again, for any number of watchers, and remembers enough for verdicts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from cobalance.coordinator.client import Coordinator
from cobalance.description import GroupDescription, ResourceDescription, Verdict
from cobalance.group.clock import monotonic_ms
from cobalance.operate.backlog import Broker, OnUnknown
from cobalance.operate.group_snapshot import read_snapshot, say_nothing
from cobalance.operate.verdict import WINDOW_MS, Sample, judge, sample

FRESH_MS = 1_000
"""Within this time every watcher gets the same snapshot."""

SAMPLES = 12
"""Samples in a window, besides the latest: enough to see that something falls or rises."""


class Watch:
    """A group under watch. Any number of threads may ask: the servers are asked once a second at most.

    Made by :meth:`GroupAdmin.watch`; valid for as long as that is open.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        broker: Broker | None,
        *,
        on_unknown: OnUnknown = say_nothing,
        fresh_ms: int = FRESH_MS,
        window_ms: int = WINDOW_MS,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._coordinator, self._broker, self._on_unknown = coordinator, broker, on_unknown
        self._fresh_ms, self._clock = fresh_ms, clock
        self._histories = Histories(window_ms)
        self._lock = threading.Lock()
        self._latest: GroupDescription | None = None
        self._read_at = 0

    @property
    def group(self) -> str:
        """The group's name."""
        return self._coordinator.group

    def snapshot(self) -> GroupDescription:
        """The group as it is, or was a second ago at most.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        with self._lock:
            if self._latest is None or self._clock() - self._read_at >= self._fresh_ms:
                self._latest = read_snapshot(
                    self._coordinator, self._broker, on_unknown=self._on_unknown, judged=self._histories.judge
                )
                self._read_at = self._clock()
                self._histories.forget_others(self._latest)
            return self._latest

    def describe(self) -> GroupDescription:
        """The group as Redis has it at this moment. What is left to do is unknown: that is RabbitMQ's to tell, which may
        take a second for thousands of queues.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        return GroupDescription.read(self._coordinator)


class Histories:
    """A short history of each resource."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._of: dict[str, deque[Sample]] = {}

    def judge(self, group: GroupDescription, resource: ResourceDescription) -> Verdict | None:
        """Takes the next sample in, and gives the verdict."""
        it = sample(group, resource)
        kept = self._of.setdefault(resource.name, deque())
        verdict = judge([*kept, it], self._window_ms)
        if not kept or it.at_ms - kept[-1].at_ms >= self._window_ms // SAMPLES:
            kept.append(it)
        while len(kept) > 1 and it.at_ms - kept[1].at_ms >= self._window_ms:
            kept.popleft()
        return verdict

    def forget_others(self, group: GroupDescription) -> None:
        """Drops the histories of resources that are gone."""
        if len(self._of) > len(group.resources):
            present = {it.name for it in group.resources}
            self._of = {name: history for name, history in self._of.items() if name in present}
