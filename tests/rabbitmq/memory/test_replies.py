"""RabbitMQ's direct reply-to: a name that is not a queue, whose consumer gets the replies."""

from __future__ import annotations

from typing import Any

import pytest
from pika.exceptions import UnroutableError
from pika.spec import BasicProperties
from tests.rabbitmq.memory.clients import Place, Refused

REPLY_TO = "amq.rabbitmq.reply-to"


def test_who_asks_gets_the_reply(at: Place) -> None:
    """On the channel that asked, by a name that RabbitMQ puts into the request."""
    queue, asking, answering = at.queue("classic"), at.client(), at.client()
    asking.consume(REPLY_TO, auto_ack=True)
    asking.publish(queue, "question", reply_to=REPLY_TO)
    request = answering.wait_for(queue)
    name = request.properties.reply_to or ""
    assert name.startswith(f"{REPLY_TO}.")
    answering.channel.basic_publish("", name, b"answer")
    assert asking.bodies(1) == ["answer"]
    with pytest.raises(UnroutableError):
        answering.publish(name, "mandatory")
    assert asking.bodies(1) == ["mandatory"]
    asking.close_channel()
    answering.channel.basic_publish("", name, b"lost")


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda it: it.basic_consume(REPLY_TO, print), "reply consumer cannot acknowledge"),
        (
            lambda it: [it.basic_consume(REPLY_TO, print, auto_ack=True) for _ in range(2)],
            "reply consumer already set",
        ),
        (
            lambda it: it.basic_publish("", "q", b"", BasicProperties(reply_to=REPLY_TO)),
            "fast reply consumer does not exist",
        ),
    ],
    ids=["acks", "twice", "nobody"],
)
def test_replies_have_one_consumer(at: Place, ask: Any, why: str) -> None:
    """Which does not acknowledge, and is there before the request."""
    assert at.refusal(ask) == Refused(406, f"PRECONDITION_FAILED - {why}")
