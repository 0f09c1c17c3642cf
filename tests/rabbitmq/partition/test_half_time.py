"""Until when what has arrived is begun, once a partition was asked back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cobalance.rabbitmq.partition.half_time import HalfTime


def test_half_of_the_time_is_for_what_has_arrived() -> None:
    """The other half is for the handler that runs then."""
    it = HalfTime()
    assert not it.is_over(10_000)  # no deadline is known
    assert it.hear(1_000, 3_000) == 2_000
    assert [it.is_over(now) for now in (1_000, 1_999, 2_000)] == [False, False, True]


def test_a_deadline_that_is_moved_forward_counts_from_when_it_is_heard() -> None:
    """And one that comes again later gives no time back."""
    it = HalfTime()
    it.hear(0, 10_000)
    assert it.hear(1_000, 2_000) == 1_500
    assert it.hear(1_400, 2_000) == 1_500
    assert it.hear(1_400, 60_000) == 1_500


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1))
def test_it_is_never_moved_back_and_leaves_half(heard: list[tuple[int, int]]) -> None:
    """Whatever is heard in whatever order of time."""
    it, now, last = HalfTime(), 0, None
    for later, left in heard:
        now += later
        until = it.hear(now, now + left)
        assert last is None or until <= last
        assert until <= now + left // 2
        last = until
