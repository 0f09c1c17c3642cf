"""What a handler is given at a time, and how often it has failed before."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
from pika.spec import Basic, BasicProperties

from cobalance.rabbitmq.consume.dead_letters import words_of
from cobalance.rabbitmq.consume.earlier_failures import EarlierFailures
from cobalance.rabbitmq.consume.parcels import Parcel
from cobalance.rabbitmq.partition.delivery import Delivery, QueueTenure
from cobalance.rabbitmq.streams.probe import OFFSET_HEADER

TENURE = QueueTenure("q", 1)


def delivery(tag: int, body: bytes = b"", offset: int | None = None) -> Delivery:
    headers = None if offset is None else {OFFSET_HEADER: offset}
    drafts: Any = None  # no reply is written
    method = Basic.Deliver("c", tag, False, "", "q")
    return Delivery(TENURE, method, BasicProperties(headers=headers), body, drafts)


def test_it_is_settled_by_the_first_who_asks() -> None:
    """The handler that ended after all, or whatever gave it up meanwhile."""
    parcel = Parcel((delivery(1),))
    assert not parcel.is_settled
    assert [parcel.settle(), parcel.settle()] == [True, False]
    assert parcel.is_settled


def test_an_id_makes_no_line_of_the_log() -> None:
    """It is its publisher's, who may want the log to say something else."""
    odd = [
        Delivery.fake(message_id="m\nERROR made up"),
        Delivery.fake(message_id=cast("str", b"\xff")),
    ]
    assert [str(Parcel((it,))) for it in odd] == [
        r"message m\nERROR made up of fake-0",
        r"message \xff of fake-0",
    ]
    assert words_of(ValueError("no \x1b[2Jcustomer\nat all")) == r"ValueError: no \x1b[2Jcustomer at all"


def test_what_the_program_has_settled_is_dropped_from_it() -> None:
    """The rest is worked; nothing is when none is left."""
    one, two = delivery(1), delivery(2)
    parcel = Parcel((one, two))
    assert parcel.drop(lambda it: it is one)
    assert (parcel.deliveries, parcel.tag, parcel.is_settled) == ((two,), 2, False)
    assert not parcel.drop(lambda _: True)
    assert parcel.is_settled


def again(tag: int, body: bytes = b"", *, redelivered: bool = True, **properties: Any) -> Delivery:
    """As another channel brings it."""
    drafts: Any = None
    method = Basic.Deliver("c", tag, redelivered, "", "q")
    return Delivery(QueueTenure("q", 2), method, BasicProperties(**properties), body, drafts)


def test_what_comes_again_goes_on_counting_its_failures() -> None:
    """Once, on another channel or on the same, where it was put off."""
    it, put_off = EarlierFailures(9), delivery(2, b"put off")
    it.note([Parcel((delivery(1, b"bad"),), failures=3), Parcel((put_off,), failures=2)])
    it.note([Parcel((delivery(3, b"good"),))])
    assert it.take(again(9, b"good")) == 0
    assert it.take(again(9, b"bad")) == 3
    assert it.take(again(9, b"bad")) == 0
    assert it.take(put_off) == 2


def test_a_message_of_a_stream_is_not_marked_when_it_comes_again() -> None:
    """It is known by its offset."""
    it = EarlierFailures(9, marked=False)
    it.note([Parcel((delivery(2, offset=7),), failures=2)])
    assert it.take(again(1, redelivered=False, headers={OFFSET_HEADER: 8})) == 0
    assert it.take(again(1, redelivered=False, headers={OFFSET_HEADER: 7})) == 2


@pytest.mark.parametrize(
    "other",
    [
        again(1, b"tick", headers={"number": 2}),
        again(1, b"tick", headers={"number": 1}, timestamp=1),
        again(1, b"tick", redelivered=False, headers={"number": 1}),
    ],
    ids=["headers", "properties", "first"],
)
def test_failures_count_for_no_other_message(other: Delivery) -> None:
    """Not for one that is alike but for its headers, nor for one that comes for the first time."""
    it = EarlierFailures(9)
    it.note([Parcel((again(1, b"tick", headers={"number": 1}),), failures=3)])
    assert it.take(attrs.evolve(other, tenure=QueueTenure("q", 3))) == 0
    assert it.take(again(1, b"tick", headers={"x-delivery-count": 1, "number": 1})) == 3


def test_messages_that_never_come_again_are_forgotten() -> None:
    """As when they expire: no more are remembered than were ever unfinished at a time."""
    it = EarlierFailures(2)
    for body in (b"1", b"2", b"1", b"3"):
        it.note([Parcel((delivery(1, body),), failures=1)])
    assert [it.take(again(1, body)) for body in (b"1", b"2", b"3")] == [1, 0, 1]
