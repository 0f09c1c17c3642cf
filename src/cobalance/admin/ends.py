"""How far a group's queues and streams reach."""

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
    """Of one resource; what is not known is None."""

    ready: int | None = None
    """A queue's messages for the next consumer."""
    consumers: int | None = None
    """A queue's."""
    offset: int | None = None
    """Of a stream's last message; -1 when it has none."""

    def lag(self, committed: int | None, in_flight: int | None) -> int | None:
        """How much is still to be done. Of a stream without a committed offset that is not known, nor of a queue of which it is not known
        what is in flight.
        """
        if self.offset is None:
            return None if self.ready is None or in_flight is None else self.ready + in_flight
        return None if committed is None else max(0, self.offset - committed)


def read_ends(resources: Sequence[ResourceDescription], amqp_url: str) -> dict[str, End]:
    """Every resource's; unknown of what is no queue.

    Raises:
        CobalanceError: RabbitMQ cannot be asked.
    """
    unknown = {resource.name: End() for resource in resources}
    return unknown | (_ask(resources, amqp_url) if unknown else {})


def _ask(resources: Sequence[ResourceDescription], amqp_url: str) -> dict[str, End]:
    """A stream is told from a queue only where there is a committed offset: that takes the permission to configure it."""
    committed = [resource.name for resource in resources if resource.committed is not None]
    kinds = streams_among(amqp_url, committed, timeout_ms=TIMEOUT_MS) if committed else {}
    streams = [name for name, is_stream in kinds.items() if is_stream]
    others = [resource.name for resource in resources if resource.name not in streams]
    states = queue_states(amqp_url, others, timeout_ms=TIMEOUT_MS)
    last = read_stream_ends(amqp_url, streams) if streams else {}
    queues = {name: End(ready=it.ready, consumers=it.consumers) if it else End() for name, it in states.items()}
    return queues | {name: End(offset=-1 if offset is None else offset) for name, offset in last.items()}
