"""A ``cobalance publish`` that fails half-way says which lines were published, and how to publish the others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli_process import cobalance
from tests.consumers import bodies_in, channel, new_topic

from cobalance.cli.publish import rest_of


def test_a_line_that_cannot_be_read(amqp_url: str) -> None:
    """The lines before it are published, and it is where to continue."""
    with new_topic(amqp_url, 1) as topic:
        lines = "a\t1\na\t2\nno key\na\t4\n"
        ended = cobalance("publish", topic.name, stdin=lines, environment={"COBALANCE_AMQP_URL": amqp_url})
        assert bodies_in(amqp_url, topic.queue_names[0]) == ["1", "2"]
    assert ended.code == 2
    told, error = ended.err.splitlines()
    assert (
        told == "lines confirmed: 2 of 2 sent. To publish the others: sed -n '3,$p' FILE, piped into the same command"
    )
    assert "Line 3 of standard input has no tab" in error


def test_a_body_that_is_no_utf_8(amqp_url: str) -> None:
    """It is published byte by byte as the shell passes it on, as it would be from standard input."""
    with new_topic(amqp_url, 1) as topic:
        outcome = cobalance("publish", topic.name, "caf\udce9", environment={"COBALANCE_AMQP_URL": amqp_url})
        assert outcome.code == 0, outcome.err
        with channel(amqp_url) as it:
            body: Any = it.basic_get(topic.queue_names[0], auto_ack=True)[2]
        assert body == b"caf\xe9"


def test_a_partition_that_takes_nothing(amqp_url: str) -> None:
    """Lines for other partitions are published, even if they come after the failed ones."""
    with new_topic(amqp_url, 2) as topic:
        keys = {topic.partition_of(key.encode()): key for key in "abcdefgh"}
        with channel(amqp_url) as it:
            it.queue_unbind(topic.queue_names[0], topic.name, topic.routing_key(0))
        lines = "".join(f"{keys[partition]}\t{n}\n" for n, partition in enumerate([1, 0, 1, 0, 0, 1], 1))
        ended = cobalance("publish", topic.name, stdin=lines, environment={"COBALANCE_AMQP_URL": amqp_url})
        assert bodies_in(amqp_url, topic.queue_names[1]) == ["1", "3", "6"]
    assert ended.code == 1
    assert ended.err.startswith("lines confirmed: 3 of 6 sent. To publish the others: sed -n '2p;4,5p;7,$p' FILE")


FAILED, DONE = False, True


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], "1,$p"),
        ([DONE, FAILED], "2,$p"),
        ([FAILED, DONE, FAILED, FAILED], "1p;3,$p"),
        ([FAILED, DONE] * 50, "1,$p"),
    ],
)
def test_the_rest_in_words_of_sed(outcomes: list[bool], expected: str) -> None:
    """If there were too many ranges, some lines are published twice."""
    assert rest_of([number for number, done in enumerate(outcomes, 1) if not done], len(outcomes)) == expected
