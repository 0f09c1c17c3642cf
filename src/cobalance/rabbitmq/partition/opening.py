"""How a tenure gets its channel: the lock of a stream, the guard of a queue, and who was first; and its steps along the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from cobalance.errors import CobalanceError, IllegalTransition
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.actions import NOTHING, Actions, Timer
from cobalance.rabbitmq.partition.refusals import Refusals
from cobalance.rabbitmq.partition.states import SPENT, TABLE, Lock, PartitionState, Step


class Opening(ABC):
    """The part of a partition's core that comes before its messages. The rest is in `core.py`."""

    def __init__(self, name: str, *, locks: bool, gate: act.Gate | None) -> None:
        self.name = name
        self.state = PartitionState.IDLE
        self._locks, self._gate = locks, gate
        self._lock = Lock.NONE
        self._has_channel = False  # or has asked for one
        self._refusals = Refusals()

    @property
    def is_spent(self) -> bool:
        """Whether nothing more will be accepted."""
        return self.state in SPENT

    def start(self) -> Actions:
        """The partition was granted; or its turn has come to try again."""
        needs_lock = self._locks and self._lock is not Lock.HELD and not self.is_spent
        after = self._step(Step.LOCK if needs_lock else Step.START)
        if after is PartitionState.LOCKING:
            self._lock = Lock.ASKED
            return (act.AskLock(),)
        return self._open_channel() if after is PartitionState.OPENING else NOTHING

    def locked(self) -> Actions:
        """The lock is ours."""
        after = self._step(Step.LOCKED)
        self._lock = Lock.HELD
        if after is PartitionState.UNLOCKING:
            return self._finish(None)
        return self._open_channel() if after is PartitionState.OPENING else NOTHING

    def lock_refused(self, error: CobalanceError) -> Actions:
        """Another connection has the lock."""
        after = self._step(Step.REFUSE)
        self._lock = Lock.NONE
        return self._finish(None) if after is PartitionState.UNLOCKING else self._wait(error)

    def lock_failed(self, error: CobalanceError) -> Actions:
        """The lock cannot be had at all."""
        if self._lock is not Lock.ASKED and not self.is_spent:
            raise self._illegal("no lock can fail")
        self._lock = Lock.NONE
        return NOTHING if self.state is PartitionState.DRAINING else self._finish(error)

    def unlocked(self) -> Actions:
        """The lock is gone, one way or the other."""
        if self.state not in {PartitionState.UNLOCKING, PartitionState.ENDED}:
            raise self._illegal("no lock can be released")
        self._lock = Lock.NONE
        return self._finish(None)

    def opened(self) -> Actions:
        """The channel is open."""
        return (act.Subscribe(),) if self._step(Step.OPENED) is PartitionState.PROVING else NOTHING

    def subscribed(self) -> Sequence[Any]:
        """ConsumeOk: the guard is proven, and messages may come."""
        if self._step(Step.CONSUME) is not PartitionState.CONSUMING:
            return NOTHING
        return (act.Subscribed(), *(self._gate.subscribed() if self._gate is not None else NOTHING))

    def refused(self, error: CobalanceError) -> Actions:
        """The channel was closed, since another consumer has the queue."""
        if self.state not in {PartitionState.PROVING, PartitionState.DRAINING}:
            return self.channel_ended(error)
        self._step(Step.REFUSE)
        self._has_channel = False
        return self._wait(error)

    def _open_channel(self) -> Actions:
        self._has_channel = True
        return (act.OpenChannel(),)

    def _wait(self, error: CobalanceError) -> Actions:
        if self.state is not PartitionState.WAITING:
            return NOTHING
        again = act.SetTimer(Timer.RETRY, self._refusals.next_pause_ms())
        return (act.Waits(error), again) if self._refusals.count == 1 else (again,)

    @abstractmethod
    def channel_ended(self, error: CobalanceError | None) -> Actions:
        """The channel is closed; without an error, by us."""

    @abstractmethod
    def _finish(self, error: CobalanceError | None) -> Actions:
        """Ends once the lock is free."""

    def _unlock(self) -> Actions:
        if self.state is not PartitionState.UNLOCKING:
            self._step(Step.UNLOCK)
        if self._lock is not Lock.HELD:
            return NOTHING
        self._lock = Lock.RELEASING
        return (act.ReleaseLock(),)

    def _step(self, step: Step) -> PartitionState:
        """Moves along the table.

        Raises:
            IllegalTransition: the step is not possible in this state; nothing has changed.
        """
        after = TABLE[self.state].get(step)
        if after is None:
            raise self._illegal(f"{step.value} cannot happen")
        self.state = after
        return after

    def _illegal(self, words: str) -> IllegalTransition:
        return IllegalTransition(f"{words} to queue {self.name!r}, which is {self.state.value}")
