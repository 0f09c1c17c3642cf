"""What a partition's worker does when its channel has ended and nobody asked for it.

=============================  =======================================================================================================
the channel, the consumer      subscribe again under the same tenure, once the old handler has returned; at growing intervals when
or the connection is gone      that does not bring a single message
the queue is gone, which had   give the partition up, so that the journal says what happened ("queue_missing"); whoever is given it
been consumed                  next waits for the queue
no channel is left for it      give the partition up, to somebody who may have one; if nobody has, it waits in growing pauses
the queue is not there yet     keep the partition and look again, at growing intervals: nobody else could do better
the queue is another one, has  halt the partition: an operator must look at it, and no member need fail over it again
no guard, or an unreadable
message
=============================  =======================================================================================================
"""

import logging

import attrs

from cobalance.errors import ChannelLimitReached, ChannelLost, CobalanceError, QueueMissing, TopologyError

log = logging.getLogger("cobalance.rabbitmq")

FIRST_MS, LAST_MS = 50, 5_000


@attrs.frozen
class Verdict:
    """Try again after a pause, or give the tenure up for a reason."""

    pause_ms: int = 0
    give_up: str | None = None


class Losses:
    """The losses of one tenure, one after the other: judged by its worker, told by whoever learns of them first."""

    def __init__(self, group: str, queue: str) -> None:
        self._group, self._queue = group, queue
        self._in_vain = 0
        self._has_consumed = False
        self._missing = False
        self._told: CobalanceError | None = None
        self._told_waiting = False

    def wait_for_others(self) -> None:
        """Logs, once, that RabbitMQ has not let go of another consumer: it is mostly a member that died or froze a moment ago."""
        if not self._told_waiting:
            log.warning(
                "group %s: another connection still has queue %s for itself; it is consumed here as soon as that one lets go. If that "
                "lasts, somebody outside of the group consumes it: rabbitmqctl list_consumers",
                *(self._group, self._queue),
            )
        self._told_waiting = True

    def tell(self, error: CobalanceError, *, connected: bool) -> None:
        """Logs a lost channel, once, as soon as it is known: the running handler may go on for long before it is judged."""
        if error is self._told or not isinstance(error, ChannelLost):
            return
        self._told = error
        if connected:  # else the loss of the connection has been told already
            log.warning("group %s: %s", self._group, error)

    def judge(self, error: CobalanceError, *, consumed: bool, delivered: int, connected: bool) -> Verdict:
        """`consumed`: the subscription had come about; `delivered`: how many messages it brought.

        Raises:
            CobalanceError: it again, when no waiting and nobody else could help.
        """
        self._has_consumed = self._has_consumed or consumed
        self._in_vain = 0 if delivered else self._in_vain + 1
        self.tell(error, connected=connected)
        if isinstance(error, ChannelLost):
            return Verdict(self._pause_ms())
        if isinstance(error, ChannelLimitReached):  # which is told once for all of them
            return Verdict(give_up="channel_limit")
        if isinstance(error, QueueMissing):
            return self._missed(error)
        if isinstance(error, TopologyError):
            kind = type(error).__name__
            resume = f"cobalance group resume {self._group} {self._queue}"
            log.error("group %s: %s The partition is halted; once that is put right: %s", self._group, error, resume)
            return Verdict(give_up=f"halted:{kind}")
        raise error

    def _missed(self, error: QueueMissing) -> Verdict:
        if self._has_consumed:
            log.error(
                "group %s: queue %s was deleted; its partition is given up until it is back", self._group, self._queue
            )
            return Verdict(give_up="queue_missing")
        if not self._missing:
            log.warning("group %s: %s Looking again until it is there.", self._group, error)
        self._missing = True
        return Verdict(self._pause_ms())

    def _pause_ms(self) -> int:
        """None the first time: a channel that is gone once is mostly back at once."""
        return (
            0 if self._in_vain <= 1 and not self._missing else int(min(FIRST_MS * 2 ** min(self._in_vain, 20), LAST_MS))
        )
