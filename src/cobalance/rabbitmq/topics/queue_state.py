"""What a queue holds, and whether it is certain that it holds nothing.

RabbitMQ answers "no messages, no consumers" also if it does not know: of a quorum queue whose leader has not answered
it within 250 ms, or has none at the moment, and of a stream that is new. Whoever deletes a queue asks :func:`is_unused`.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import attrs
from pika.adapters.blocking_connection import BlockingChannel

from cobalance.errors import Unreachable

IN_DOUBT_S = 0.2
"""An answer that came sooner is the leader's, however long it was on its way."""

AT_WORK_S = 0.1
"""RabbitMQ's own part of an answer that is the leader's. Where it takes longer, the leader may have been silent."""

ROUND_TRIPS = 3
"""The quickest tells the way's part: a machine that is busy for a moment may delay any of them."""

MOST_LOOKS = 20
"""A leader that was silent is asked again this often, which takes five seconds."""

MOST_RETURNED = 1_000
"""As many as may have come back: taking fewer would change their order (`partition/returned.py`)."""

LOOK_S = 0.05
"""The pause between two looks for our own consumer."""

FIRST_MESSAGE_S = 1.0
"""How long a stream's first message is waited for."""

T = TypeVar("T")


@attrs.frozen
class QueueState:
    """The contents of a queue at one moment."""

    ready: int
    """Messages for the next consumer, not counting those prefetched by the current one."""
    consumers: int


class Way:
    """How long a question is on its way to RabbitMQ and back, as it was measured last."""

    def __init__(self) -> None:
        self._took_s = 0.0

    def measure(self, channel: BlockingChannel) -> None:
        self._took_s = min(_timed(lambda: channel.flow(active=True))[1] for _ in range(ROUND_TRIPS))

    def explains(self, took_s: float) -> bool:
        """Whether an answer that took so long is the leader's."""
        return took_s - self._took_s < AT_WORK_S


def declared_state(channel: BlockingChannel, queue: str) -> QueueState:
    """What RabbitMQ says at once: nothing also if it does not know; see above.

    Raises:
        ChannelClosedByBroker: there is no such queue, or it may not be used.
    """
    found = channel.queue_declare(queue, passive=True).method
    return QueueState(found.message_count or 0, found.consumer_count or 0)


def read_state(channel: BlockingChannel, queue: str, way: Way | None = None) -> QueueState:
    """What RabbitMQ says once it knows. A quorum queue that has no leader at the moment counts as empty.

    Args:
        channel: nothing is consumed on it.
        queue: its name.
        way: for several queues, so that it is not measured for each.

    Raises:
        Unreachable: its leader stays silent.
        ChannelClosedByBroker: there is no such queue, or it may not be used.
    """
    way = way or Way()
    for look in range(MOST_LOOKS):
        state, took_s = _timed(partial(declared_state, channel, queue))
        if state != QueueState(0, 0) or took_s < IN_DOUBT_S:
            return state
        if look == 0 and not way.explains(took_s):
            way.measure(channel)
        if way.explains(took_s):
            return state
    raise _unknown(queue)


def is_unused(channel: BlockingChannel, queue: str, kind: str) -> bool:
    """Whether a queue has neither ready messages nor consumers, for certain.

    It is consumed for a moment, unless it is in use at first sight; close the channel then, and what came is back.

    Args:
        channel: of its own.
        queue: its name.
        kind: its type.

    Raises:
        Unreachable: its leader stays silent.
        ChannelClosedByBroker: there is no such queue, or it may not be used.
    """
    if read_state(channel, queue) != QueueState(0, 0):
        return False
    if kind == "stream":
        return _has_no_first_message(channel, queue)
    return kind == "classic" or _is_unused_by_others(channel, queue)


def _has_no_first_message(channel: BlockingChannel, stream: str) -> bool:
    channel.basic_qos(prefetch_count=1)
    arguments = {"x-stream-offset": "first"}
    found = next(channel.consume(stream, arguments=arguments, inactivity_timeout=FIRST_MESSAGE_S), (None,))
    return found[0] is None


def _is_unused_by_others(channel: BlockingChannel, queue: str) -> bool:
    """An answer that counts a consumer is the leader's. Where one at a time is active, ours is not counted beside another:
    so it is cancelled, and the leader has to be there before and after.
    """
    came: list[object] = []
    channel.basic_qos(prefetch_count=MOST_RETURNED)
    for _ in range(2):
        tag = channel.basic_consume(queue, lambda *message: came.append(message))
        _await_leader(channel, queue)
        state = declared_state(channel, queue)  # behind what was on its way to us, which a cancellation would put back
        channel.connection.process_data_events(0)
        if came or state != QueueState(0, 1):
            return False
        channel.basic_cancel(tag)
        if declared_state(channel, queue) != QueueState(0, 0):
            return False
    return True


def _await_leader(channel: BlockingChannel, queue: str) -> None:
    for _ in range(MOST_LOOKS):
        if declared_state(channel, queue).consumers:
            return
        time.sleep(LOOK_S)
    raise _unknown(queue)


def _unknown(queue: str) -> Unreachable:
    return Unreachable(f"RabbitMQ does not know what queue {queue!r} holds: its leader does not answer. Try again.")


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began
