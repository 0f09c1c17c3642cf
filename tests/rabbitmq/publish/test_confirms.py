"""What a channel has sent and RabbitMQ has not confirmed, without one."""

from __future__ import annotations

import attrs
import pytest
from pika.spec import BasicProperties

from cobalance.rabbitmq.model.encoding import Encoded
from cobalance.rabbitmq.publish.confirms import Confirms, UnconfirmedMessage, refused, unconfirmed


@attrs.define
class Channel:
    """Confirms, and what was settled how, in order."""

    confirms: Confirms = attrs.Factory(Confirms)
    settled: list[tuple[str, str | None]] = attrs.Factory(list)

    def send(self, marks: str) -> None:
        for mark in marks:
            self.confirms.sent(message(mark))

    def confirm(self, tag: int, *, multiple: bool = False) -> None:
        self.confirms.settle(tag, multiple=multiple, settle=lambda it, why: self.settled.append((it.mark, why)))


def message(mark: str) -> UnconfirmedMessage:
    return UnconfirmedMessage(lambda _: 0, mark, f"id-{mark}", b"", Encoded(BasicProperties()))


def test_one_confirm_may_be_for_many() -> None:
    """For all up to its tag that are open, in order, and for none behind it; a single one for that alone."""
    it = Channel()
    it.send("abcde")
    it.confirm(2)
    assert it.settled == [("b", None)]
    it.confirm(4, multiple=True)
    assert it.settled[1:] == [("a", None), ("c", None), ("d", None)]
    assert it.confirms.outstanding
    it.confirm(5)
    assert not it.confirms.outstanding


def test_what_was_returned_is_not_stored_although_it_is_confirmed() -> None:
    """RabbitMQ returns it first, and confirms it then. What is sent again under the same mark is judged by itself."""
    it = Channel()
    it.send("ab")
    it.confirms.returned("a", "no queue")
    it.confirm(2, multiple=True)
    it.send("a")
    it.confirm(3)
    assert it.settled == [("a", "no queue"), ("b", None), ("a", None)]


def test_a_confirm_of_what_is_not_open_is_an_error() -> None:
    """It ends the connection; nothing may count as stored twice."""
    it = Channel()
    it.send("a")
    it.confirm(1)
    with pytest.raises(KeyError):
        it.confirm(1)


def test_what_a_lost_channel_leaves_is_open_no_more() -> None:
    """It is in order, and its outcome is unknown."""
    it = Channel()
    it.send("abc")
    it.confirm(1)
    assert [left.mark for left in it.confirms.abandon()] == ["b", "c"]
    assert not it.confirms.outstanding
    assert it.confirms.abandon() == []


def test_errors_say_whether_it_may_be_there() -> None:
    """A program that publishes again after the second may do so twice."""
    assert refused(message("a"), "full").outcome == "not_executed"
    it = unconfirmed(message("a"), "lost")
    assert it.outcome == "unknown"
    assert "id-a" in str(it)
