"""A handler for ``cobalance consume --handler shop:handle``, as the container of these examples has it."""

from cobalance import Delivery


def handle(delivery: Delivery) -> None:
    print(delivery.queue, delivery.body.decode(), flush=True)
