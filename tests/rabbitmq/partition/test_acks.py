"""Acknowledgements: only the gapless prefix, in as few frames as possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalance.rabbitmq.partition.acks import AckTracker, Flush, Progress
from cobalance.rabbitmq.partition.tag_set import TagSet


def delivered(count: int, every: int = 50) -> AckTracker:
    """A tracker with `count` messages handed out."""
    tracker = AckTracker(every)
    tracker.deliver(count)
    return tracker


def test_in_order_completions_become_one_ack() -> None:
    tracker = delivered(3)
    for tag in (1, 2, 3):
        tracker.done(tag)
    assert tracker.flush() == Flush((), 3)
    assert tracker.flush() == Flush((), None)
    assert tracker.progress == Progress(3, 3)


def test_a_gap_holds_back_what_finished_behind_it() -> None:
    """Acknowledging 3 while 1 is unfinished would lose 1 in a crash, or reorder it."""
    tracker = delivered(3)
    tracker.done(3)
    tracker.done(2)
    assert tracker.flush() == Flush((), None)
    tracker.done(1)
    assert tracker.flush() == Flush((), 3)


def test_at_a_close_only_what_is_unfinished_is_left() -> None:
    """Messages finished behind a gap were held back until then; rejected ones are gone, and are not acknowledged."""
    tracker = delivered(6)
    for tag in (2, 5):
        tracker.done(tag)
    tracker.reject(4)
    tracker.leave(3)
    tracker.keep(3)
    assert tracker.flush() == Flush((4,), None)
    tracker.ahead = True
    assert tracker.flush() == Flush((), None, (2, 5))
    assert tracker.progress == Progress(5, 3)


def test_a_flush_is_due_every_so_many() -> None:
    """The count starts again with each flush."""
    tracker = delivered(6, every=3)
    assert [tracker.done(tag) for tag in (1, 2, 3, 4)] == [False, False, True, True]
    tracker.flush()
    assert [tracker.done(tag) for tag in (5, 6)] == [False, False]


def test_rejects_go_at_once_and_never_name_an_ack() -> None:
    """RabbitMQ closes the channel if an ack names a tag that it does not hold."""
    tracker = delivered(4)
    tracker.done(1)
    tracker.reject(2)
    tracker.reject(4)
    assert tracker.flush() == Flush((2, 4), 1)
    assert tracker.progress == Progress(4, 3)
    tracker.done(3)
    assert tracker.flush() == Flush((), 3)
    assert tracker.progress == Progress(4, 4)


def test_what_was_not_begun_can_be_given_back() -> None:
    """It counts as never handed out."""
    tracker = delivered(5)
    tracker.done(1)
    tracker.done(3)
    tracker.give_back(2)
    assert tracker.progress.delivered == 3
    tracker.done(2)
    assert tracker.idle


def test_what_was_settled_of_what_is_given_back_stays_settled() -> None:
    """The messages between are redelivered, and those behind the last one that was settled count as not handed out."""
    tracker = delivered(9)
    tracker.done(1)
    tracker.done(4)
    tracker.leave(6)
    tracker.leave(8)
    tracker.keep(8)
    tracker.give_back(7)
    assert tracker.progress.delivered == 6 - 2  # 3 and 5 come again
    tracker.gone(6)
    tracker.done(2)
    assert tracker.idle
    tracker.ahead = True
    assert tracker.flush() == Flush((), 2, (4, 6))
    for tag in (3, 5, 7):
        with pytest.raises(ValueError, match="settled before, or never handed out"):
            tracker.done(tag)


def test_what_could_not_be_sent_to_the_dead_letters_is_open_again() -> None:
    tracker = delivered(2)
    tracker.leave(1)
    tracker.stay(1)
    tracker.done(1)
    tracker.done(2)
    assert tracker.flush() == Flush((), 2)


@given(st.lists(st.sampled_from(["open", "done", "leave", "keep"]), min_size=1, max_size=9), st.integers(1, 9))
def test_giving_back_agrees_with_a_broker(states: list[str], count: int) -> None:
    """Once nothing is under way, exactly what was not settled comes again, whatever else happened."""
    tracker = delivered(len(states))
    for tag, state in enumerate(states, start=1):
        if state != "open":
            tracker.done(tag) if state == "done" else tracker.leave(tag)
            if state == "keep":
                tracker.keep(tag)
    count = min(count, len(states))
    tracker.give_back(count)
    settled = {tag for tag, state in enumerate(states, start=1) if state == "done"}
    for tag, state in enumerate(states, start=1):
        if state == "leave":
            tracker.gone(tag)
            settled.add(tag)
        if state == "open" and tag <= len(states) - count:
            tracker.done(tag)
            settled.add(tag)
    assert tracker.idle
    held, tracker.ahead = set(range(1, len(states) + 1)), True
    flush = tracker.flush()
    held -= {tag for tag in held if tag <= (flush.ack or 0)} | set(flush.singles)
    assert held == set(range(1, len(states) + 1)) - settled


def test_what_was_committed_ahead_is_not_given_back() -> None:
    """The user declared it processed, though it was not begun; only what comes behind it is given back."""
    tracker = delivered(5)
    assert tracker.done_up_to(3) == 3
    tracker.give_back(4)
    assert tracker.progress.delivered == 3
    assert tracker.flush().ack == 3
    assert tracker.idle


def test_what_is_on_its_way_to_the_dead_letters_holds_up_what_is_behind_it() -> None:
    """It holds them up until it has arrived; meanwhile it cannot be settled in any other way."""
    tracker = delivered(3)
    tracker.leave(1)
    tracker.done(2)
    tracker.done(3)
    for settle in (tracker.done, tracker.reject, tracker.leave):
        with pytest.raises(ValueError, match="settled before"):
            settle(1)
    assert (tracker.flush().ack, tracker.idle) == (None, False)
    tracker.gone(1)
    assert (tracker.flush().ack, tracker.idle) == (3, True)


def test_what_could_not_be_sent_there_comes_again() -> None:
    """It is finished, but neither it nor anything behind it is acknowledged."""
    tracker = delivered(4)
    tracker.done(1)
    tracker.leave(2)
    tracker.done(3)
    tracker.keep(2)
    tracker.give_back(1)
    assert (tracker.flush(), tracker.idle) == (Flush((), 1), True)
    assert tracker.progress == Progress(2, 1)


def test_what_comes_again_does_not_count_as_handed_out() -> None:
    """Otherwise the release would be refused, as more was handed out than acknowledged."""
    tracker = delivered(3)
    tracker.done(1)
    tracker.done(2)
    tracker.put_back(3)
    assert tracker.flush() == Flush((), 2)
    assert tracker.progress == Progress(2, 2)


@pytest.mark.parametrize("tag", [0, 1, 3])
def test_settling_twice_or_unseen_is_an_error(tag: int) -> None:
    """It would acknowledge another message; it raises and changes nothing."""
    tracker = delivered(2)
    tracker.done(1)
    with pytest.raises(ValueError, match="settled before, or never handed out"):
        tracker.done(tag)
    with pytest.raises(ValueError, match="settled before, or never handed out"):
        tracker.reject(tag)
    assert tracker.flush() == Flush((), 1)


def test_everything_up_to_a_tag_is_settled_at_once() -> None:
    """Each may still be marked as done afterwards; messages that were not handed out are unaffected."""
    tracker = delivered(5)
    tracker.done(2)
    assert tracker.done_up_to(3) == 2
    assert tracker.settled == 3
    for tag in (1, 2, 3):
        tracker.done(tag)
    assert tracker.done_up_to(1) == 0
    assert tracker.done_up_to(99) == 2
    assert tracker.flush().ack == 5
    assert tracker.idle


def test_what_has_to_be_answered_first_is_not_settled_with_the_others() -> None:
    """A request in between holds up what is behind it, until it is finished by itself."""
    tracker = delivered(4)
    assert tracker.done_up_to(4, besides=[2]) == 3
    assert (tracker.is_open(2), tracker.idle) == (True, False)
    assert tracker.flush() == Flush((), 1)
    tracker.done(2)
    assert tracker.flush() == Flush((), 4)


@given(
    st.permutations(range(1, 13)),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_agrees_with_a_broker_for_any_order(order: list[int], rejects: list[bool], flushes: list[bool]) -> None:
    """No frame settles an unfinished message or names a tag that the broker does not hold; all are settled."""
    tracker, held, finished = delivered(12), set(range(1, 13)), set[int]()
    for tag, reject, flush in zip(order, rejects, flushes, strict=True):
        (tracker.reject if reject else tracker.done)(tag)
        finished.add(tag)
        if flush:
            apply_to_broker(tracker.flush(), held, finished)
    apply_to_broker(tracker.flush(), held, finished)
    assert not held
    assert tracker.idle
    assert not tracker.outstanding
    assert tracker.progress == Progress(12, 12)


def apply_to_broker(flush: Flush, held: set[int], finished: set[int]) -> None:
    """Applies the frames as a broker does, and checks them."""
    for tag in flush.rejects:
        assert tag in held
        held.remove(tag)
    if flush.ack is not None:
        assert flush.ack in held
        settled = {tag for tag in held if tag <= flush.ack}
        assert settled <= finished
        held -= settled


def test_what_overtakes_costs_no_more_the_more_it_is() -> None:
    """Millions may finish while one message is tried again: each flush is about what is new, and nothing is kept of each."""
    tracker = AckTracker(ahead=True)
    tracker.deliver(2_001)
    for first in range(2, 2_002, 100):
        for tag in range(first, first + 100):
            tracker.done(tag)
        assert tracker.flush().singles == tuple(range(first, first + 100))
        assert not tracker._newly_ahead
        assert len(tracker._ahead._starts) == len(tracker._left_broker._starts) == 1
    tracker.done(1)
    assert tracker.flush() == Flush((), 1)
    assert (tracker.progress, len(tracker._ahead), len(tracker._left_broker)) == (Progress(2_001, 2_001), 0, 0)


@given(st.lists(st.tuples(st.sampled_from(["add", "pop_run", "discard_up_to", "gap_before"]), st.integers(1, 24))))
def test_a_tag_set_is_a_set(steps: list[tuple[str, int]]) -> None:
    it, model = TagSet(), set[int]()
    for what, tag in steps:
        if what == "add":
            it.add(tag)
            model.add(tag)
        elif what == "pop_run" and tag - 1 not in model:
            end = it.pop_run(tag)
            gone = set(range(tag, end + 1))
            assert gone <= model
            assert end + 1 not in model
            model -= gone
        elif what == "discard_up_to":
            it.discard_up_to(tag)
            model = {other for other in model if other > tag}
        elif what == "gap_before":
            assert it.gap_before(tag) == max(set(range(tag + 1)) - model)
        assert {other for other in range(26) if other in it} == model
        assert (len(it), it.last) == (len(model), max(model, default=0))


def test_a_reject_ahead_of_a_gap_puts_no_acks_off() -> None:
    """It has left already, and counts on both sides."""
    tracker = AckTracker(2)
    tracker.deliver(5)
    tracker.reject(5)
    tracker.done(1)
    tracker.flush()
    assert not tracker.done(3)
    assert tracker.done(2), "two are finished and not acknowledged"
