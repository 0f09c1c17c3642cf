"""Where the reading of a stream has come to."""

from __future__ import annotations

from cobalance.rabbitmq.streams.position import Position


def test_it_is_the_last_message_without_a_gap_before_it() -> None:
    """Tags count what arrived, offsets have holes; what has arrived is not processed yet."""
    it = Position(10)
    for offset in (11, 14, 15):
        it.arrived(offset)
    assert [it.at(settled) for settled in (0, 1, 2)] == [10, 11, 14]
    assert it.at(2) == 14
    assert it.at(3) == 15


def test_what_is_sent_again_from_before_it_does_not_turn_it_back() -> None:
    """RabbitMQ sends whole chunks: the messages before the one that was asked for come, too, and are passed over."""
    it = Position(10)
    for offset in (8, 9, 10, 11):
        it.arrived(offset)
    assert [it.at(settled) for settled in (1, 2, 3, 4)] == [10, 10, 10, 11]


def test_an_offset_has_a_last_tag() -> None:
    """Everything up to it was committed by the user; what is behind it was not."""
    it = Position(10)
    for offset in (11, 14, 15):
        it.arrived(offset)
    assert [it.last_tag(offset) for offset in (10, 11, 13, 14, 99)] == [0, 1, 1, 2, 3]
    it.at(2)
    assert [it.last_tag(offset) for offset in (14, 15)] == [2, 3]
