"""Looks at a group again and again, for any number of watchers, and remembers enough for verdicts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cobalance.coordinator.client import Coordinator
from cobalance.description import GroupDescription, ResourceDescription, Verdict
from cobalance.group.clock import monotonic_ms
from cobalance.operate.backlog import Broker, OnUnknown
from cobalance.operate.group_snapshot import read_snapshot, say_nothing
from cobalance.operate.verdict import WINDOW_MS, Sample, judge, sample
from cobalance.threads.forks import ForkSafe

T = TypeVar("T")

FRESH_MS = 1_000
"""Within this time every watcher gets the same snapshot."""

LOOK_MS = 8_000
"""For all that RabbitMQ is asked in a look, at one group or at many: Prometheus gives up a scrape after 10 s."""

AT_ONCE = 8
"""Groups that are looked at side by side."""

SAMPLES = 12
"""Samples in a window, besides the latest: enough to see that something falls or rises."""


class Watch(ForkSafe):
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
        super().__init__()
        self._latest: GroupDescription | None = None
        self._silent: set[str] = set()
        self._read_at = 0

    @property
    def group(self) -> str:
        """The group's name."""
        return self._coordinator.group

    def snapshot(self, *, within_ms: int = LOOK_MS) -> GroupDescription:
        """The group as it is, or was a second ago at most.

        Args:
            within_ms: how long RabbitMQ may take. What it has not told by then is unknown, and asked last the next time.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        with self._lock:
            if self._latest is None or self._clock() - self._read_at >= self._fresh_ms:
                self._latest = read_snapshot(
                    self._coordinator,
                    self._broker,
                    on_unknown=self._on_unknown,
                    judged=self._histories.judge,
                    within_ms=within_ms,
                    silent=self._silent,
                )
                self._read_at = self._clock()
                self._histories.forget_others(self._latest)
                self._silent &= {it.name for it in self._latest.resources}
            return self._latest

    def describe(self) -> GroupDescription:
        """The group as Redis has it at this moment. What is left to do is unknown: that is RabbitMQ's to tell, which may
        take a second for thousands of queues.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        return GroupDescription.read(self._coordinator)


class Looks:
    """Looks at many groups, side by side and within one time. Groups that took long come last the next time, so that
    those whose queues hang hold up no others.
    """

    def __init__(self, within_ms: int = LOOK_MS, *, at_once: int = AT_ONCE) -> None:
        self._within_ms, self._at_once = within_ms, at_once
        self._took_ms: dict[str, int] = {}

    def read(self, names: Collection[str], read: Callable[[str, int], T]) -> Sequence[T]:
        """What ``read(name, within_ms)`` gives for each group, in their order; raises what it raises."""
        give_up_at = monotonic_ms() + self._within_ms

        def one(name: str) -> T:
            began = monotonic_ms()
            try:
                return read(name, max(0, give_up_at - began))
            finally:
                self._took_ms[name] = monotonic_ms() - began

        self._took_ms = {name: self._took_ms.get(name, 0) for name in names}
        with ThreadPoolExecutor(self._at_once, "cobalance-look") as pool:
            asked = {name: pool.submit(one, name) for name in sorted(names, key=self._took_ms.__getitem__)}
            try:
                return [asked[name].result() for name in names]
            finally:
                pool.shutdown(cancel_futures=True)


class Histories:
    """A short history of each resource."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._of: dict[str, deque[Sample]] = {}

    def judge(self, group: GroupDescription, resource: ResourceDescription) -> Verdict | None:
        """Takes the next sample in, and gives the verdict."""
        it = sample(group, resource)
        kept = self._of.setdefault(resource.name, deque())
        if kept and it.at_ms < kept[-1].at_ms - self._window_ms:  # Redis has lost its data, and its clock is behind
            kept.clear()
        while len(kept) > 1 and it.at_ms - kept[1].at_ms >= self._window_ms:
            kept.popleft()
        verdict = judge([*kept, it], self._window_ms)
        if it.lag is not None and (not kept or it.at_ms - kept[-1].at_ms >= self._window_ms // SAMPLES):
            kept.append(it)
        return verdict

    def forget_others(self, group: GroupDescription) -> None:
        """Drops the histories of resources that are gone."""
        if len(self._of) > len(group.resources):
            present = {it.name for it in group.resources}
            self._of = {name: history for name, history in self._of.items() if name in present}
