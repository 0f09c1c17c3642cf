"""The core of a partition, one event after the other: what it does, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cobalance.errors import ChannelLost, IllegalTransition, MessageUnreadable, UsageError
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import Flush, Progress
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.partition.backlog import Outcome
from cobalance.rabbitmq.partition.core import UNSETTLED_MS, PartitionCore
from cobalance.rabbitmq.partition.refusals import BACKOFF_MS
from cobalance.rabbitmq.partition.states import PartitionState
from cobalance.rabbitmq.streams.continuity import Continuity

LOST, IN_USE, UNREADABLE = ChannelLost("lost"), ChannelLost("in use"), MessageUnreadable("headers")
TICK = act.SetTimer(Timer.TICK, 50.0)


def consuming(**rules: Any) -> PartitionCore:
    """A subscribed partition."""
    core = PartitionCore("q", **rules)
    assert [*core.start(), *core.opened(), *core.subscribed()] == [
        act.OpenChannel(),
        act.Subscribe(),
        act.Subscribed(),
    ]
    return core


def working(count: int, **rules: Any) -> PartitionCore:
    """A partition whose first messages were all taken."""
    core = consuming(**rules)
    for number in range(1, count + 1):
        core.message(number, 0)
    assert core.take() == [*range(1, count + 1)]
    return core


def ended(actions: Sequence[Any]) -> act.End:
    """The end that they report last."""
    end = actions[-1]
    assert isinstance(end, act.End)
    return end


def test_it_tells_whoever_came_in_vain_and_ticks_from_the_first_message() -> None:
    """Once: a burst crosses over as one."""
    core = consuming()
    assert core.take() == []
    assert [*core.message("a", 0)] == [act.Ready(), TICK]
    assert core.message("b", 0) == ()
    assert core.take() == ["a", "b"]
    assert core.message("c", 0) == ()  # nobody has come for it yet


def test_acks_leave_by_count_and_by_tick() -> None:
    """One ack for the prefix without gaps."""
    core = working(5, ack_every=2)
    assert core.done(1) == ()
    assert core.done(3) == ()  # behind a gap: it counts once the gap is closed
    assert [*core.done(2)] == [act.Turn()]
    assert core.done(4) == ()  # the turn is on its way
    assert [*core.turn()] == [Flush((), 4)]
    core.done(5)
    assert [*core.fired(Timer.TICK, 50)] == [Flush((), 5), TICK]
    assert core.fired(Timer.TICK, 100) == ()
    assert core.acks.progress == Progress(5, 5)


def test_ticks_go_on_while_anything_is_unfinished() -> None:
    """And begin again with the next message."""
    core = working(1)
    assert [*core.fired(Timer.TICK, 50)] == [TICK]
    core.done(1)
    core.fired(Timer.TICK, 100)
    core.fired(Timer.TICK, 150)
    assert [*core.message("b", 200)] == [TICK]


def test_a_release_waits_for_what_is_worked_and_flushes_before_the_close() -> None:
    """Each step once, in this order."""
    core = working(3)
    core.done(1)
    assert [*core.release()] == [act.Turn()]
    assert [*core.turn()] == [Flush((), 1)]  # what was finished by then; the rest waits for the close
    assert core.message("late", 0) == ()
    assert core.done(2) == ()
    assert [*core.done(3)] == [act.Drained(), act.Turn()]
    assert [*core.turn()] == [Flush((), 3), act.CloseChannel()]
    assert core.state is PartitionState.CLOSING
    assert core.channel_ended(None) == (act.End(None, Progress(3, 3), asked=True),)
    assert core.take() == []


@pytest.mark.parametrize(("finish_buffer", "rest"), [(False, []), (True, ["b"])])
def test_a_drain_may_finish_what_has_arrived(finish_buffer: bool, rest: list[str]) -> None:
    """But nothing that arrives later."""
    core = consuming()
    core.message("a", 0)
    core.take()
    core.message("b", 0)
    core.drain(finish_buffer=finish_buffer)
    core.message("c", 0)
    assert core.take() == rest
    assert core.take() == []


def test_a_paused_partition_hands_nothing_out_and_drains_without_its_buffer() -> None:
    core = consuming()
    core.message("a", 0)
    core.pause()
    assert core.take() == []
    assert [*core.drain(finish_buffer=True)] == [act.Turn(), act.Drained()]


def test_an_abort_closes_while_a_handler_runs_and_its_late_end_drains() -> None:
    """Its message is redelivered."""
    core = working(2)
    core.done(1)
    assert [*core.abort()] == [act.Turn()]
    assert [*core.turn()] == [Flush((), 1), act.CloseChannel()]
    assert core.channel_ended(None) == (act.End(None, Progress(2, 1), asked=True),)
    assert [*core.done(2)] == [act.Drained()]
    assert core.acks.progress == Progress(2, 1)


def test_a_queue_in_use_is_asked_for_again_at_growing_intervals() -> None:
    """It is reported once."""
    core = PartitionCore("q")
    core.start()
    core.opened()
    first = act.SetTimer(Timer.RETRY, BACKOFF_MS.pause(1))
    assert [*core.refused(IN_USE)] == [act.Waits(IN_USE), first]
    assert [*core.fired(Timer.RETRY, 10)] == [act.OpenChannel()]
    core.opened()
    assert [*core.refused(IN_USE)] == [act.SetTimer(Timer.RETRY, BACKOFF_MS.pause(2))]
    assert ended([*core.abort(), *core.turn()]).error is None
    assert core.fired(Timer.RETRY, 30) == ()  # nobody waits for it any more


def test_a_queue_that_somebody_else_keeps_is_asked_for_ever_more_rarely() -> None:
    """A stranger may have it for days. A former holder of ours lets go within a session, and is not waited for in vain: no
    pause is longer than a sixtieth of the wait before it, or a second.
    """
    core, pauses, waited_ms = PartitionCore("q"), [], 0.0
    core.start()
    while waited_ms < 3_600_000:
        core.opened()
        again = core.refused(IN_USE)[-1]
        assert isinstance(again, act.SetTimer)
        assert again.ms <= max(BACKOFF_MS.longest, waited_ms / 60)
        pauses.append(again.ms)
        waited_ms += again.ms
        core.fired(Timer.RETRY, int(waited_ms))
    assert pauses[:8] == [BACKOFF_MS.pause(number) for number in range(1, 9)]
    assert pauses[-1] == 30_000
    assert len(pauses) < 400


def test_letting_go_before_the_start_ends_at_once() -> None:
    """A start that was on its way does nothing."""
    for let_go in (PartitionCore.abort, PartitionCore.release):
        core = PartitionCore("q")
        assert let_go(core) == (act.Drained(), act.End(None, Progress(0, 0), asked=True))
        assert core.start() == ()
        assert core.turn() == ()


def test_a_lost_channel_ends_the_tenure_and_nobody_asked() -> None:
    """Which acks arrived is unknown."""
    core = working(1)
    assert core.channel_ended(LOST) == (act.End(LOST, Progress(1, 0), asked=False),)
    assert core.connection_ended(LOST) == ()
    assert [*core.done(1)] == [act.Drained()]


def test_a_channel_that_is_lost_while_it_closes_was_asked_to() -> None:
    """But whether the last acks arrived is unknown."""
    core = working(1)
    core.abort()
    core.turn()
    assert ended(core.channel_ended(LOST)) == act.End(LOST, Progress(1, 0), asked=True)


def test_a_drained_partition_without_a_channel_loses_nothing_with_the_connection() -> None:
    """It never consumed."""
    core = PartitionCore("q")
    core.drain()
    assert ended(core.connection_ended(LOST)).error is None


def test_an_unreadable_message_halts_once_all_before_it_is_finished() -> None:
    """The program hears what it waits for."""
    core = consuming()
    core.message("a", 0)
    assert [*core.unreadable(UNREADABLE, 0)] == [act.SetTimer(Timer.UNSETTLED, UNSETTLED_MS)]
    assert core.message("b", 0) == ()
    assert core.take() == ["a"]
    (warning,) = core.fired(Timer.UNSETTLED, 0)
    assert isinstance(warning, act.Warn)
    assert "stops as soon as 1 older messages are acknowledged: headers" in warning.words
    assert [*core.done(1)] == [act.Turn()]
    assert [*core.turn()] == [
        Flush((), 1),
        act.CloseChannel(),
        act.Drained(),
        act.End(UNREADABLE, Progress(1, 1), asked=False),
    ]


def test_an_unreadable_first_message_halts_at_once() -> None:
    core = consuming()
    assert ended(core.unreadable(UNREADABLE, 0)).error is UNREADABLE


def test_what_is_given_back_is_not_finished_by_this_tenure() -> None:
    """It counts as not delivered."""
    core = working(4)
    core.done(1)
    assert core.give_back(2) == ()
    assert [*core.done(2)] == [act.Drained()]
    assert core.acks.progress.delivered == 2


def test_kept_messages_end_what_may_be_acknowledged() -> None:
    """They come again, with everything behind them, unless acks go ahead at the close."""
    for ahead, last in ((False, Flush((), 1)), (True, Flush((), 1, (3,)))):
        core = working(3, acks_ahead_at_close=ahead)
        core.done(1)
        core.settle(2, Outcome.LEFT)
        core.settle(2, Outcome.KEPT)
        core.done(3)
        core.abort()
        assert [*core.turn()] == [last, act.CloseChannel()]


def test_a_message_cannot_be_settled_twice() -> None:
    """That is an error of the program's, which hears of it."""
    core = working(2)
    core.settle(1, Outcome.REJECTED)
    for again in (Outcome.REJECTED, Outcome.LEFT):
        with pytest.raises(ValueError, match="was settled before"):
            core.settle(1, again)


def test_a_channel_that_was_never_asked_for_cannot_end() -> None:
    with pytest.raises(IllegalTransition, match="no channel can end"):
        PartitionCore("q").channel_ended(LOST)


@pytest.mark.parametrize("event", ["lock_failed", "unlocked"])
def test_a_lock_that_was_never_asked_for_has_no_fate(event: str) -> None:
    """Nothing changes."""
    core = consuming()
    with pytest.raises(IllegalTransition, match="no lock can"):
        getattr(core, event)(*([LOST] if event == "lock_failed" else []))
    assert core.state is PartitionState.CONSUMING


# Streams


def locking() -> PartitionCore:
    core = PartitionCore("s", locks=True, gate=Continuity("s", 0, int))
    assert [*core.start()] == [act.AskLock()]
    return core


def test_a_lock_comes_before_the_channel_and_goes_after_it() -> None:
    """The next holder may come once the tenure has ended."""
    core = locking()
    assert [*core.locked(), *core.opened()] == [act.OpenChannel(), act.Subscribe()]
    core.subscribed()
    assert [*core.abort(), *core.turn()] == [act.Turn(), act.Drained(), act.CloseChannel()]
    assert [*core.channel_ended(None)] == [act.ReleaseLock()]
    assert core.state is PartitionState.UNLOCKING
    assert core.unlocked() == (act.End(None, Progress(0, 0), asked=True),)


def test_a_lock_that_another_has_is_asked_for_again() -> None:
    core = locking()
    assert core.lock_refused(IN_USE)[0] == act.Waits(IN_USE)
    assert [*core.fired(Timer.RETRY, 10)] == [act.AskLock()]
    assert ended(core.lock_failed(LOST)).error is LOST


@pytest.mark.parametrize("answer", ["locked", "lock_refused", "lock_failed"])
def test_a_lock_under_way_is_waited_for_and_not_kept(answer: str) -> None:
    """Whatever the answer is."""
    core = locking()
    core.release()
    core.turn()
    assert core.state is PartitionState.UNLOCKING
    actions = getattr(core, answer)(*([] if answer == "locked" else [LOST]))
    if answer == "locked":
        assert [*actions] == [act.ReleaseLock()]
        actions = core.unlocked()
    assert ended(actions).error is None


def test_the_message_at_the_position_gives_credit_and_is_not_counted_as_brought() -> None:
    """It would use up a prefetch of one."""
    core = consuming_stream()
    assert [*core.message(0, 0)] == [Flush((), 1)]
    assert core.passed_over == 1
    core.message(1, 0)
    assert core.take() == [1]


def test_a_message_of_a_stream_cannot_be_rejected() -> None:
    core = consuming_stream()
    core.message(0, 0)
    core.message(1, 0)
    core.take()
    with pytest.raises(UsageError, match="cannot dead-letter"):
        core.settle(2, Outcome.REJECTED)


def consuming_stream() -> PartitionCore:
    core = PartitionCore("s", gate=Continuity("s", 0, int))
    for event in (core.start, core.opened, core.subscribed):
        event()
    return core


# -- kept after all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish_buffer", [False, True])
def test_a_partition_that_is_kept_goes_on_with_what_was_held(finish_buffer: bool) -> None:
    """In order, whether it had arrived before the drain or came later; acks and ticks go on, too."""
    core = working(2)
    core.message(3, 0)
    core.drain(finish_buffer=finish_buffer)
    core.turn()
    core.fired(Timer.TICK, 0)
    assert core.done(1) == ()
    core.message(4, 0)
    assert core.take() == ([3] if finish_buffer else [])
    assert [*core.go_on()] == [act.Turn()]
    assert [*core.turn()] == [Flush((), 1), TICK]
    assert core.state is PartitionState.CONSUMING
    assert core.take() == ([4] if finish_buffer else [3, 4])
    for tag in (2, 3, 4):
        core.done(tag)
    assert [*core.drain()] == [act.Turn(), act.Drained()]


def test_what_was_put_down_is_the_first_to_be_handed_out_again() -> None:
    """It waits before what arrived behind it. If the partition is not kept, the close returns it."""
    core = working(1)
    core.message(2, 0)
    core.message(3, 0)
    core.message(4, 0)
    core.drain(finish_buffer=True)
    assert core.take(2) == [2, 3]
    assert core.put_down([2, 3]) == ()
    assert core.take() == []
    core.go_on()
    assert core.take() == [2, 3, 4]
    core.drain(finish_buffer=True)
    core.done(1)
    core.done(2)
    assert core.put_down([3, 4]) == (act.Drained(),)
    with pytest.raises(IllegalTransition, match="going on cannot happen"):
        core.go_on()


def test_what_is_put_down_by_a_partition_that_cannot_go_on_is_given_back() -> None:
    core = working(2)
    core.drain(finish_buffer=True)
    core.settle(1, Outcome.PUT_BACK)
    core.release()
    assert core.put_down([2]) == (act.Drained(),)
    assert core.take() == []


def drained(core: PartitionCore) -> None:
    core.done(1)


def given_back(core: PartitionCore) -> None:
    core.give_back(1)


def returned(core: PartitionCore) -> None:
    core.settle(1, Outcome.PUT_BACK)


def released(core: PartitionCore) -> None:
    core.release()


def lost(core: PartitionCore) -> None:
    core.channel_ended(LOST)


def unreadable(core: PartitionCore) -> None:
    core.unreadable(UNREADABLE, 0)


@pytest.mark.parametrize("what", [drained, given_back, returned, released, lost, unreadable])
def test_a_partition_that_let_go_of_something_does_not_go_on(what: Any) -> None:
    """Only a new channel brings that again."""
    core = working(1)
    core.drain()
    may = [core.may_go_on]
    what(core)
    assert [*may, core.may_go_on] == [True, False]
    with pytest.raises(IllegalTransition, match="going on cannot happen"):
        core.go_on()


def test_what_is_behind_requests_that_wait_for_their_replies_is_acknowledged() -> None:
    """With a tick, as far as nothing else is open; a reply that may not have arrived has its request redelivered."""
    core = working(7)
    core.settle(1, Outcome.REPLYING)
    core.done(2)
    core.settle(3, Outcome.REPLYING)
    core.done(4)
    core.done(6)
    assert [*core.fired(Timer.TICK, 0)] == [Flush((), None, (2, 4)), TICK]
    core.settle(1, Outcome.GONE)
    core.done(5)
    core.settle(3, Outcome.KEPT)
    assert [*core.fired(Timer.TICK, 0)] == [Flush((), 1), TICK]
    assert core.acks.committed == 3


def test_a_lost_channel_waits_for_no_reply() -> None:
    """Its request is redelivered: the handover is ready. Nor does it for one that is sent later."""
    core = working(2)
    core.settle(1, Outcome.REPLYING)
    core.drain()
    assert [*core.channel_ended(LOST)] == [act.End(LOST, Progress(1, 0), asked=False)]
    assert [*core.settle(2, Outcome.REPLYING)] == [act.Drained()]
    assert core.settle(1, Outcome.GONE) == ()
    assert core.acks.idle
