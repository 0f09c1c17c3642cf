"""Whether an exchange is there, asked over a connection that is open anyway.

Connecting for a question is dear to RabbitMQ, and writes three lines into its log. To be told that an exchange is
missing is an error there, and is logged as well: ask for one that is expected.
"""

from concurrent.futures import Future
from contextlib import suppress

from pika.channel import Channel

from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.pika_internals import bare_close

WAIT_S = 10.0


def is_there(connection: BrokerConnection, exchange: str) -> bool:
    """Whether RabbitMQ says that there is such an exchange; False also if it does not answer. Blocks."""
    answer = Future[bool]()

    def tell(found: bool) -> None:
        connection.remove_end_listener(ended)
        if not answer.done():
            answer.set_result(found)

    def ended(_: str) -> None:
        tell(False)

    def ask() -> None:
        connection.add_end_listener(ended)
        connection.lend_channel(look, lambda *_: tell(False), lambda _: tell(False))

    def look(channel: Channel) -> None:
        def found(_: object) -> None:
            tell(True)
            bare_close(channel)

        channel.exchange_declare(exchange, passive=True, callback=found)

    if connection.submit(ask):
        with suppress(TimeoutError):
            return answer.result(WAIT_S)
    return False
