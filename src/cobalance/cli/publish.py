"""``cobalance publish``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Annotated

from cyclopts import Parameter

from cobalance.cli.options import AmqpUrl, ConnectTimeout, Json
from cobalance.cli.output import print_json, remark
from cobalance.errors import Unreachable, UsageError
from cobalance.group.patience import with_patience
from cobalance.names import validate_name
from cobalance.rabbitmq import Publisher
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL

Message = tuple[str | bytes | None, bytes]

MOST_RANGES = 20
"""Of lines, in one command."""


def publish(
    topic: Annotated[str, Parameter(help="The topic.")],
    body: Annotated[
        str | None, Parameter(help="The message; without it, messages are read from standard input.")
    ] = None,
    /,
    *,
    key: Annotated[
        str | None, Parameter(help="Messages with the same key stay in order. Without a key, any partition is used.")
    ] = None,
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    connect_timeout: ConnectTimeout = 0,
) -> None:
    """Publish a message, or each line of standard input: KEY, a tab, BODY. With --key, the line is the body.

    If it fails half-way, it says which lines still have to be published.
    """
    validate_name("topic", topic)
    with ExitStack() as stack:
        publisher = with_patience(
            lambda: stack.enter_context(Publisher(amqp_url, topic, name="cobalance publish")),
            connect_timeout / 1000,
            lambda error: isinstance(error, Unreachable),
        )
        if body is not None:
            publisher.publish(key, os.fsencode(body))
            count = 1
        else:
            count = _publish(_lines(key), publisher)
        if json:
            print_json({"topic": topic, "published": count})
        else:
            remark(f"published {count}")


def _publish(lines: Iterable[Message], publisher: Publisher) -> int:
    """Returns the number of messages. If publishing ends early, it first says which of them are not published."""
    outcomes: list[Future[int]] = []
    try:
        for key, text in lines:
            outcomes.append(publisher.publish(key, text, wait=False))
        for outcome in outcomes:
            outcome.result()
    except BaseException:
        failed = [number for number, outcome in enumerate(outcomes, 1) if outcome.exception() is not None]
        remark(
            f"lines confirmed: {len(outcomes) - len(failed)} of {len(outcomes)} sent. To publish the others: "
            f"sed -n '{rest_of(failed, len(outcomes))}' FILE, piped into the same command"
        )
        raise
    return len(outcomes)


def rest_of(failed: Sequence[int], sent: int) -> str:
    """These lines, and all after the last one that was sent, in sed's notation."""
    ranges: list[list[int]] = []
    for number in [*failed, sent + 1]:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    *inner, (first, _) = ranges
    if len(inner) > MOST_RANGES:  # some lines are published twice then
        return f"{failed[0]},$p"
    return "".join(f"{a}p;" if a == b else f"{a},{b}p;" for a, b in inner) + f"{first},$p"


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
