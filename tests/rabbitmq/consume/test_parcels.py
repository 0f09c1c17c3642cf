"""What a handler is given at a time, and how often it has failed before."""

from __future__ import annotations

from typing import Any, cast

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


def test_what_comes_again_goes_on_counting_its_failures() -> None:
    """Once; known by its place in a stream, or else by all that it says."""
    it = EarlierFailures()
    it.note([Parcel((delivery(1, b"bad"),), failures=3), Parcel((delivery(2, offset=7),), failures=2)])
    it.note([Parcel((delivery(3, b"good"),))])
    assert it.take([delivery(9, b"good")]) == 0
    assert it.take([delivery(9, b"bad")]) == 3
    assert it.take([delivery(9, b"bad")]) == 0
    assert it.take([delivery(1, b"other", offset=7)]) == 2


def test_a_batch_has_failed_as_often_as_all_of_it() -> None:
    """One that was not in it before is not given up with the others."""
    it = EarlierFailures()
    it.note([Parcel((delivery(1, b"a"), delivery(2, b"b")), failures=3)])
    assert it.take([delivery(1, b"a"), delivery(2, b"b")]) == 3
    it.note([Parcel((delivery(1, b"a"),), failures=3)])
    assert it.take([delivery(1, b"a"), delivery(2, b"new")]) == 0
