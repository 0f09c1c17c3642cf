"""What a partition's core asks of its adapter, carried out in order, and what a gate tells the core."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

import attrs

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.partition.acks import Flush, Progress


class Timer(Enum):
    """Timers cannot be cancelled: one that is not awaited any more has no effect."""

    RETRY = "retry"  # ask for the queue, or the lock, again
    TICK = "tick"  # send the acks that are due
    UNSETTLED = "unsettled"  # say what a halt waits for
    ASK = "ask"  # of a stream: repeat the question that was not answered
    EXAMINE = "examine"  # of a stream: examine a jump again
    DOUBT = "doubt"  # of a stream: nothing came at the position
    LOOK = "look"  # of a stream: look whether it has been left behind


@attrs.frozen
class Turn:
    """Call `turn` soon, on the thread that talks to the broker."""


@attrs.frozen
class Ready:
    """There is something to take, and the last `take` was empty."""


@attrs.frozen
class AskLock:
    """Ask for the lock: `locked`, `lock_refused` or `lock_failed` follows."""


@attrs.frozen
class OpenChannel:
    """Open a channel: `opened`, or `channel_ended`, follows."""


@attrs.frozen
class Subscribe:
    """Send the declarations that prove the guard, and subscribe: `subscribed`, `refused` or `channel_ended` follows."""


@attrs.frozen
class CloseChannel:
    """Close the channel and nothing but the channel."""


@attrs.frozen
class ReleaseLock:
    """Release the lock: `unlocked` follows."""


@attrs.frozen
class SetTimer:
    """Call `fired` after this many ms."""

    timer: Timer
    ms: float


@attrs.frozen
class Subscribed:
    """Report that the partition is consumed."""


@attrs.frozen
class Waits:
    """Report that another consumer has the queue, or the lock."""

    error: CobalanceError


@attrs.frozen
class Drained:
    """Report that everything handed out is finished, and that nothing more is handed out."""


@attrs.frozen
class Warn:
    """Log this."""

    words: str


@attrs.frozen
class End:
    """The tenure has ended at the broker."""

    error: CobalanceError | None
    """Why, if it was not closed in order; then it is unknown which acks arrived."""
    progress: Progress
    asked: bool
    """Whether the program let go of it."""


Action = (
    Turn
    | Ready
    | AskLock
    | OpenChannel
    | Subscribe
    | Flush
    | CloseChannel
    | ReleaseLock
    | SetTimer
    | Subscribed
    | Waits
    | Drained
    | Warn
    | End
)

Actions = Sequence[Action]

NOTHING: tuple[()] = ()

TURN, READY, DRAINED, CLOSE_CHANNEL = (Turn(),), (Ready(),), (Drained(),), (CloseChannel(),)
"""Made once: most events lead to nothing, or to one of these."""


@attrs.frozen
class Admit:
    """A gate's verdict: hand this message out."""

    message: Any


@attrs.frozen
class PassOver:
    """A gate's verdict: this message was processed before. It counts as finished."""


@attrs.frozen
class Halt:
    """A gate's verdict: finish what came before, then end with this error."""

    error: CobalanceError


@attrs.frozen
class GiveUp:
    """A gate's verdict: end with this error at once."""

    error: CobalanceError


PASS_OVER = (PassOver(),)

ADMIT: tuple[Admit] = (Admit(None),)
"""The verdict on the message that the gate was just asked about: made once, since it is nearly always this one."""


class Gate(Protocol):
    """Decides which messages are handed out, by events and actions of its own; queues need none.

    Each method returns verdicts, and actions for the adapter.
    """

    def subscribed(self) -> Sequence[Any]:
        """The consumer is subscribed."""

    def message(self, message: Any) -> Sequence[Any]:
        """A message arrived."""

    def unreadable(self, error: CobalanceError) -> Sequence[Any]:
        """A message arrived that cannot be read."""

    def answered(self, answer: Any) -> Sequence[Any]:
        """The answer to a question of its own."""

    def fired(self, timer: Timer, *, quiet: bool) -> Sequence[Any]:
        """One of its timers. `quiet`: everything that arrived is finished and acknowledged."""
