"""The ends of a group's queues and streams."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from cobalance.description import ResourceDescription
from cobalance.rabbitmq.streams.extent import read_ends as read_stream_ends
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.topics.broker import queue_states

TIMEOUT_MS = 3_000


@attrs.frozen(kw_only=True)
class End:
    """The end of one resource. None means unknown."""

    ready: int | None = None
    """Messages in a queue that are ready for the next consumer."""
    consumers: int | None = None
    """Consumers of a queue."""
    offset: int | None = None
    """Offset of a stream's last message; -1 if it is empty."""

    def lag(self, committed: int | None, in_flight: int | None) -> int | None:
        """The remaining work. Unknown for a stream without a committed offset, and for a queue whose messages in flight
        are unknown.
        """
        if self.offset is None:
            return None if self.ready is None or in_flight is None else self.ready + in_flight
        return None if committed is None else max(0, self.offset - committed)


def read_ends(resources: Sequence[ResourceDescription], amqp_url: str) -> dict[str, End]:
    """The end of every resource; unknown for what is not a queue.

    Raises:
        CobalanceError: RabbitMQ cannot be queried.
    """
    unknown = {resource.name: End() for resource in resources}
    return unknown | (_ask(resources, amqp_url) if unknown else {})


def _ask(resources: Sequence[ResourceDescription], amqp_url: str) -> dict[str, End]:
    """Distinguishes streams from queues only where there is a committed offset, since that requires the permission to
    configure.
    """
    committed = [resource.name for resource in resources if resource.committed is not None]
    kinds = streams_among(amqp_url, committed, timeout_ms=TIMEOUT_MS) if committed else {}
    streams = [name for name, is_stream in kinds.items() if is_stream]
    others = [resource.name for resource in resources if resource.name not in streams]
    states = queue_states(amqp_url, others, timeout_ms=TIMEOUT_MS)
    last = read_stream_ends(amqp_url, streams) if streams else {}
    queues = {name: End(ready=it.ready, consumers=it.consumers) if it else End() for name, it in states.items()}
    return queues | {name: End(offset=-1 if offset is None else offset) for name, offset in last.items()}
