"""The transition table of one partition's tenure at the broker, for classic queues, quorum queues and streams.

A tenure has one channel with one consumer. It opens the channel, has the broker prove the queue's guard, and consumes:
messages arrive in order, wait in a buffer, are handed to handlers in order, may be finished in any order, and are
acknowledged up to the first that is unfinished. Three things end it.

- *Finish, drain and close*: asked back, it finishes what has arrived, and may still be kept. Then it hands nothing more
  out, waits for what is being worked, sends the acks, and closes the channel and nothing but the channel. CloseOk is the proof that the broker has every ack, and that all else is back in its
  place, so the next holder may come. An abort is the same without the wait.
- *Halt*: there is a message that nobody can read, or a place where a stream does not go on as it did. Everything before
  it is finished and acknowledged, then the tenure ends with the reason.
- *Loss*: the broker, or the connection, ends the channel. Which acks arrived is unknown; the rest is redelivered.

Two things can make it wait: another consumer that holds the queue, and another reader that holds the lock of a stream.
Both are tried again. A lock that is held is released last, as the next holder may come once this tenure has ended.

Handlers are not part of the table. They may return in any state, also after the end: nobody else can know that their
work is over. The diagram in the README is drawn from this table.
"""

from __future__ import annotations

from enum import Enum

import attrs

from cobalance.errors import CobalanceError


class PartitionState(Enum):
    """The state of a tenure at the broker."""

    IDLE = "idle"
    """Not started. Left by `start`, or by letting go before it."""
    LOCKING = "locking"
    """A stream's lock has been asked for. Waits for RabbitMQ's answer."""
    OPENING = "opening"
    """The channel has been asked for. Waits until it is open."""
    PROVING = "proving"
    """The declarations that prove the guard, and the subscription, are sent. ConsumeOk is the answer to all of them."""
    WAITING = "waiting for the broker"
    """Another consumer has the queue, or the lock. Left by a timer, which tries again, or by letting go."""
    CONSUMING = "consuming"
    """Subscribed. With a single active consumer, messages need not flow: an older one may be active."""
    HALTING = "halting"
    """Takes no more from the broker. Ends once all that came before is finished."""
    FINISHING = "finishing"
    """Asked back. Finishes what was taken and what has arrived; what arrives from here on waits, and so do acks. Left by a
    drain, or by going on as before, if it is kept after all."""
    DRAINING = "draining"
    """Takes no more from the broker, and sends no more acks. Waits for what is being worked, then to be closed."""
    CLOSING = "closing"
    """The last acks and Channel.Close have been sent. Waits for CloseOk."""
    UNLOCKING = "unlocking"
    """The channel is gone. Waits until the lock is released, or refused."""
    ENDED = "ended"
    """The channel is gone, and every unacknowledged message is back in the queue. Nothing leads out of it."""


@attrs.frozen
class PartitionEvent:
    """A change of a tenure at the broker, reported on the I/O thread."""

    state: PartitionState
    """WAITING, CONSUMING, or an ENDED that we did not ask for."""
    error: CobalanceError | None = None
    """The reason, unless it is CONSUMING."""


class Lock(Enum):
    """The lock of a stream, if it is to be held meanwhile."""

    NONE = "none"
    ASKED = "asked"
    HELD = "held"
    RELEASING = "releasing"


class Step(Enum):
    """What can happen to a tenure at the broker."""

    START = "start"  # the channel is asked for: at the grant, or again after a refusal
    LOCK = "lock"  # the lock is asked for first
    LOCKED = "locked"  # the lock is granted
    OPENED = "opened"  # the channel is open
    CONSUME = "consume"  # ConsumeOk
    REFUSE = "refuse"  # another consumer, or reader, was first
    RECEIVE = "receive"  # a message arrives
    HALT = "halt"  # the next message cannot be worked
    FINISH = "finish"  # the partition is asked back
    GO_ON = "go on"  # it is kept after all, and nothing that it was sent has been let go of
    DRAIN = "drain"  # the partition is released, given up or aborted, or asked back before it consumes
    CLOSE = "close"  # it is drained, or aborted, and has a channel to close
    UNLOCK = "unlock"  # the channel is gone, the lock is not
    END = "end"  # all is gone


_S, _E = PartitionState, Step

_LATE = (_E.START, _E.LOCKED, _E.OPENED, _E.CONSUME, _E.REFUSE, _E.RECEIVE, _E.DRAIN)
"""What was on its way when the tenure was drained or ended: nothing follows from it."""

TABLE: dict[PartitionState, dict[Step, PartitionState]] = {
    _S.IDLE: {
        _E.START: _S.OPENING,
        _E.LOCK: _S.LOCKING,
        _E.DRAIN: _S.DRAINING,
        _E.END: _S.ENDED,
    },
    _S.LOCKING: {
        _E.LOCKED: _S.OPENING,
        _E.REFUSE: _S.WAITING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,  # a failure of ours; the answer may still be a lock to release
        _E.END: _S.ENDED,
    },
    _S.OPENING: {
        _E.OPENED: _S.PROVING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.PROVING: {
        _E.CONSUME: _S.CONSUMING,
        _E.REFUSE: _S.WAITING,
        _E.RECEIVE: _S.PROVING,  # a quorum queue's first messages may overtake ConsumeOk
        _E.HALT: _S.HALTING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.WAITING: {
        _E.START: _S.OPENING,
        _E.LOCK: _S.LOCKING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.CONSUMING: {
        _E.RECEIVE: _S.CONSUMING,
        _E.HALT: _S.HALTING,
        _E.FINISH: _S.FINISHING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.FINISHING: {
        _E.RECEIVE: _S.FINISHING,
        _E.FINISH: _S.FINISHING,
        _E.GO_ON: _S.CONSUMING,
        _E.DRAIN: _S.DRAINING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.HALTING: {
        _E.CONSUME: _S.HALTING,
        _E.RECEIVE: _S.HALTING,
        _E.DRAIN: _S.DRAINING,  # whoever comes next meets the same message
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.DRAINING: {
        **dict.fromkeys(_LATE, _S.DRAINING),
        _E.CLOSE: _S.CLOSING,
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.CLOSING: {
        **dict.fromkeys(_LATE, _S.CLOSING),
        _E.UNLOCK: _S.UNLOCKING,
        _E.END: _S.ENDED,
    },
    _S.UNLOCKING: {
        **dict.fromkeys(_LATE, _S.UNLOCKING),
        _E.END: _S.ENDED,
    },
    _S.ENDED: dict.fromkeys(_LATE, _S.ENDED),
}

SPENT = frozenset({_S.DRAINING, _S.CLOSING, _S.UNLOCKING, _S.ENDED})
"""States in which nothing more is accepted from the broker, and acks wait for the close."""

UNSUBSCRIBED = frozenset({_S.IDLE, _S.LOCKING, _S.OPENING, _S.PROVING, _S.WAITING, _S.UNLOCKING, _S.ENDED})
"""States in which it is not known to be the queue's consumer."""

LIVE = frozenset({_S.PROVING, _S.CONSUMING, _S.HALTING})
"""States in which acks are sent as they become due."""

RECEIVING = frozenset({_S.PROVING, _S.CONSUMING, _S.FINISHING})
"""States in which messages are accepted from the broker."""

ACKNOWLEDGING = LIVE | {_S.FINISHING, _S.DRAINING}
"""States in which acks may still be sent."""
