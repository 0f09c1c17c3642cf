"""``cobalance publish``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from cobalance.cli.options import DEFAULT_AMQP_URL, AmqpUrl
from cobalance.cli.output import remark
from cobalance.errors import UsageError
from cobalance.names import validate_name
from cobalance.rabbitmq import Publisher

Message = tuple[str | bytes | None, bytes]


def publish(
    topic: Annotated[str, Parameter(help="Which one.")],
    body: Annotated[
        str | None, Parameter(help="The message; without it, messages are read from standard input.")
    ] = None,
    /,
    *,
    key: Annotated[
        str | None, Parameter(help="Messages of a key keep their order. Without one, any partition.")
    ] = None,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Publish a message, or each line of standard input: KEY, a tab, BODY; with --key the line is the body."""
    validate_name("topic", topic)
    messages = [(key, body.encode())] if body is not None else _lines(key)
    with Publisher(amqp_url, topic, name="cobalance publish") as publisher:
        outcomes = [publisher.publish(key_of, text, wait=False) for key_of, text in messages]
        for outcome in outcomes:
            outcome.result()
    remark(f"published {len(outcomes)}")


def _lines(key: str | None) -> Iterator[Message]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.rstrip(b"\r\n")
        if key is not None:
            yield key, text
            continue
        own_key, tab, body = text.partition(b"\t")
        if not tab:
            raise UsageError(f"Line {number} of standard input has no tab: write KEY, a tab, BODY, or give --key.")
        yield own_key, body
