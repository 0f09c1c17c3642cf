"""How a partition's worker reacts when its channel ends unexpectedly. ``wire/failures.py`` says which reply code is which
error; ``ConsumerGroup.read_again`` whether a queue with other arguments can be consumed as it is now.

=============================  =======================================================================================
channel, consumer or           subscribe again in the same tenure once the old handler has returned; at growing
connection lost (any other     intervals if that brings no message
406, ``consumer_timeout``)
queue declared again with       consume it as it is now; the worker has read it again, and asks for no verdict
other arguments, and it can
be worked like that
queue deleted after it         give the partition up, so that the journal records why ("queue_missing"); the next
was consumed                   holder waits for the queue
no channel left for it         give the partition up to a member that may have one; if none has, it waits at growing
                               intervals
queue not there yet            keep the partition and check again at growing intervals: no other member could do better
a permission is missing        give the partition up ("permission_missing") to a member that may have it; if none has, it
                               waits at growing intervals
queue differs, and cannot be   halt the partition: an operator must look at it, and no other member should fail on it
consumed as it is; has no
guard or cannot be used
(540); unreadable message
anything else                  the member ends: it could work no queue
=============================  =======================================================================================
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from cobalance.backoff import Backoff
from cobalance.coordinator.advice import command, from_earliest
from cobalance.errors import (
    ChannelLimitReached,
    ChannelLost,
    CobalanceError,
    OffsetUnknown,
    PermissionMissing,
    QueueMissing,
    TopologyError,
    UsageError,
    sentence,
)
from cobalance.group.clock import monotonic_ms

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.link import Link

log = logging.getLogger("cobalance.rabbitmq")

BACKOFF_MS = Backoff(50, 5_000)

GRANTED_UNCONNECTED = 10
"""A member that was granted a partition while unconnected waits so many times less than one that has lost RabbitMQ."""

UNCONNECTED, STILL_UNCONNECTED = "unconnected", "still_unconnected"
"""Why a partition is given up by a member that has lost RabbitMQ, and by one that was granted it meanwhile. The latter
counts against the partition: while nobody has RabbitMQ, it waits in growing pauses, and does not go round.
"""


def granted_patience_ms(unconnected_ms: int) -> int:
    """How long that is: never nothing, which would be over even while RabbitMQ is there."""
    return max(1, unconnected_ms // GRANTED_UNCONNECTED)


def log_unconnected(group: str, queue: str, patience_ms: int) -> None:
    log.warning(
        "group %s: not connected to RabbitMQ for %s ms, or only for moments; giving up %s, so that a connected member can take it",
        *(group, patience_ms, queue),
    )


class Unconnected:
    """For how long a tenure has gone without RabbitMQ. A connection that comes and goes does not end that: only one that
    something was acknowledged on, or that has lasted.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._since = self._connected_at = self._connection = self._acknowledged = 0

    def look(self, acknowledged: int = 0) -> int:
        """Returns for how many milliseconds, just after a loss, or without a connection; otherwise 0.

        `acknowledged` counts what the tenure has so far.
        """
        now, is_open, connection = monotonic_ms(), self._link.connection.is_open, self._link.reconnection.losses
        is_lost = not is_open or bool(self._connected_at and self._connection != connection)
        if is_lost and self._connected_at:
            if acknowledged > self._acknowledged or now - self._connected_at >= self._link.lasting_ms:
                self._since = 0
            self._connected_at = 0
        if is_lost:
            self._since = self._since or now
        if is_open and not self._connected_at:
            self._connected_at, self._connection, self._acknowledged = now, connection, acknowledged
        return now - self._since if is_lost else 0


def halted(group: str, queue: str, error: CobalanceError, key_prefix: str) -> str:
    """Logs that a partition is halted over this error; returns the reason to give it up for."""
    resume, begin = command("group resume", group, queue, key_prefix=key_prefix), ""
    if isinstance(error, OffsetUnknown):
        begin = f"; or begin at its oldest message: {from_earliest(group, queue, key_prefix)}"
    log.error(
        "group %s: %s The partition is halted; once that is put right: %s", group, sentence(error), resume + begin
    )
    return f"halted:{type(error).__name__}"


@attrs.frozen
class AfterLoss:
    """Try again after a pause, or give up the tenure for a reason."""

    pause_ms: int = 0
    give_up: str | None = None


class ChannelLosses:
    """The channel losses of one tenure. Its worker judges each; whichever part notices it first logs it."""

    def __init__(self, group: str, queue: str, *, key_prefix: str, lock: str | None = None) -> None:
        self._group, self._queue, self._lock, self._key_prefix = group, queue, lock, key_prefix
        self._in_vain = 0
        self._has_consumed = False
        self._missing = False
        self._logged: CobalanceError | None = None
        self._logged_waiting = False

    def wait_for_others(self) -> None:
        """Logs once that another consumer still holds the queue, or the queue that is a stream's lock: mostly a member that
        died or froze a moment ago.
        """
        if not self._logged_waiting and self._lock is not None:
            log.warning(
                "group %s: another connection still has queue '%s', which is the lock of stream %s: it is read here once that one lets go. "
                "If that lasts, see whose it is: rabbitmqctl list_queues name owner_pid; without an owner, delete it. A group of this name "
                "in another Redis has the same lock: give one of them another key_prefix or virtual host",
                *(self._group, self._lock, self._queue),
            )
        elif not self._logged_waiting:
            log.warning(
                "group %s: another connection still has queue %s for itself; it is consumed here once that one lets go. If that "
                "lasts, somebody outside of the group consumes it: rabbitmqctl list_consumers",
                *(self._group, self._queue),
            )
        self._logged_waiting = True

    def tell(self, error: CobalanceError, *, connected: bool) -> None:
        """Logs a lost channel once, as soon as it is known: the handler may run for long before the loss is judged."""
        if error is self._logged or not isinstance(error, ChannelLost):
            return
        self._logged = error
        if connected:  # otherwise the loss of the connection has been logged
            log.warning("group %s: %s", self._group, error)

    def judge(self, error: CobalanceError, *, consumed: bool, delivered: int, connected: bool) -> AfterLoss:
        """Decides what to do after a loss.

        `consumed`: the subscription was established; `delivered`: how many messages it brought.

        Raises:
            CobalanceError: the same error, if it does not concern this queue alone.
        """
        self._has_consumed = self._has_consumed or consumed
        self._in_vain = 0 if delivered else self._in_vain + 1
        self.tell(error, connected=connected)
        if isinstance(error, ChannelLost):
            return AfterLoss(self._pause_ms())
        if isinstance(error, ChannelLimitReached):  # logged once for all queues
            return AfterLoss(give_up="channel_limit")
        if isinstance(error, QueueMissing):
            return self._missed(error)
        if isinstance(error, PermissionMissing):
            return self._forbidden(error)
        if isinstance(error, TopologyError | UsageError):
            return AfterLoss(give_up=halted(self._group, self._queue, error, self._key_prefix))
        raise error

    def _forbidden(self, error: PermissionMissing) -> AfterLoss:
        log.error(
            "group %s: %s The partition is given up. Members try it again, with pauses of up to five minutes; once that is put right, at "
            "once with: %s",
            *(
                self._group,
                sentence(error),
                command("group resume", self._group, self._queue, key_prefix=self._key_prefix),
            ),
        )
        return AfterLoss(give_up="permission_missing")

    def _missed(self, error: QueueMissing) -> AfterLoss:
        if self._has_consumed:
            log.error(
                "group %s: queue %s was deleted; its partition is given up until it is back. What is published to it meanwhile fails; or, if "
                "another queue is bound to its exchange under the same key, such as another group's own, it goes there alone",
                *(self._group, self._queue),
            )
            return AfterLoss(give_up="queue_missing")
        if not self._missing:
            log.warning("group %s: %s Looking again until it is there.", self._group, sentence(error))
        self._missing = True
        return AfterLoss(self._pause_ms())

    def _pause_ms(self) -> int:
        """No pause the first time: a lost channel usually comes back at once."""
        return 0 if self._in_vain <= 1 and not self._missing else int(BACKOFF_MS.pause(self._in_vain + 1))
