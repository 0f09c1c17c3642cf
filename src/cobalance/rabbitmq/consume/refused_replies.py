"""What follows when RabbitMQ refuses a reply: its queue is full, or it takes nothing so large.

Its request has failed as if its handler had, with ``on_failure``, retries and ``on_error``. What is tried again is the
reply alone, since the handler has done its work, and later messages may have been begun meanwhile. The request is not
acknowledged before its reply is confirmed; what is finished behind it is, within a tick while that is being sent, and
else when the channel is closed.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.consume.parcels import Parcel
from cobalance.threads.wakeup import result_of

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.replies import Reply


async def follow_refusal(request: Delivery, reply: Reply, error: CobalanceError, worker: PartitionWorker) -> None:
    """Sends the reply again as often as a failed message is tried again; then applies ``on_error``.

    The request was left by its handler, and is settled here.
    """
    parcel, policy = Parcel((request,)), worker.partitions.policy
    while (pause_ms := await policy.pause_before(parcel, error, worker, lasts=reply.is_unfit)) is not None:
        if not await worker.rest_beside(pause_ms):
            worker.keep(request)
            return
        reply = attrs.evolve(reply, sent=Future())
        try:
            routed = await result_of(worker.partitions.link.replies.send(reply))
        except CobalanceError as failure:
            error = failure
            if not reply.is_refused:
                worker.unanswered(request, error)
                return
        else:
            worker.answered(request, routed=routed)
            return
    await policy.give_up_left(parcel, error, worker)
