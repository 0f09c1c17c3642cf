"""Where a stream goes on, judged without a broker: one answer of RabbitMQ's after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cobalance.errors import ChannelLost, MessageUnreadable, OffsetUnknown, PermissionMissing
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.actions import ADMIT, PASS_OVER, Timer
from cobalance.rabbitmq.streams import continuity
from cobalance.rabbitmq.streams.continuity import (
    Answer,
    Ask,
    Continuity,
    GapJudged,
    LeftBehind,
    MeetGap,
    Question,
    Undelivered,
)
from cobalance.rabbitmq.streams.position import BEFORE_FIRST
from proof.partitions.stream_walk import read_on

UNREADABLE = MessageUnreadable("headers")


def reader(after: int = 5) -> Continuity:
    """A subscribed reader; its messages are their offsets."""
    it = Continuity("s", after, int)
    it.subscribed()
    return it


def since(found: int | None, error: Any = None) -> Answer:
    return Answer(Question.SINCE, found, error)


def start(found: int | None, error: Any = None) -> Answer:
    return Answer(Question.START, found, error)


def halted_with(verdicts: Sequence[Any]) -> str:
    (verdict,) = verdicts
    assert isinstance(verdict, act.Halt)
    return str(verdict.error)


def test_the_message_at_the_position_is_dropped_and_what_follows_is_handed_out() -> None:
    """One offset may be missing between two messages: RabbitMQ's own entry at the start of a segment."""
    it = reader()
    assert it.message(5) is PASS_OVER
    assert it.message(6) is ADMIT
    assert it.message(8) is ADMIT
    assert [it.position.at(settled) for settled in range(4)] == [5, 5, 6, 8]


def test_nothing_is_asked_of_a_stream_that_is_read_from_its_first_message() -> None:
    """There is no message at the position to wait for."""
    look = act.SetTimer(Timer.LOOK, continuity.STALL_MS.first)
    assert Continuity("s", BEFORE_FIRST, int).subscribed() == (look,)
    assert Continuity("s", 5, int).subscribed() == (act.SetTimer(Timer.DOUBT, continuity.SUSPICIOUS_MS), look)


def test_what_comes_behind_a_jump_is_held_until_nothing_is_known_to_be_gone() -> None:
    """The message before the jump is still there, so the offsets between were never messages'."""
    it = reader()
    assert it.message(9) == (Ask(Question.SINCE, 5),)
    assert it.message(10) == ()
    assert it.answered(since(5)) == [act.Admit(9), act.Admit(10)]


def test_a_second_jump_among_what_was_held_is_judged_in_its_turn() -> None:
    it = reader()
    it.message(5)
    assert it.message(9) == (Ask(Question.SINCE, 5),)
    for offset in (10, 20, 21):
        it.message(offset)
    assert it.answered(since(5)) == [act.Admit(9), act.Admit(10), Ask(Question.SINCE, 10)]
    assert it.answered(since(10)) == [act.Admit(20), act.Admit(21)]


def test_a_gap_within_the_stream_is_for_the_users_policy() -> None:
    """The retention overtook the reader: go on at the oldest left, or halt."""
    it = reader()
    it.message(5)
    it.message(50)
    assert it.answered(since(50)) == (MeetGap(50),)
    assert it.answered(GapJudged(goes_on=True)) == [act.Admit(50)]
    it.message(90)
    assert it.answered(since(90)) == (MeetGap(90),)
    assert "50 was the last one processed" in halted_with(it.answered(GapJudged(goes_on=False)))


def test_another_stream_of_that_name_halts() -> None:
    """It has older messages, but none at the position."""
    it = reader()
    it.message(9)
    assert it.answered(since(9)) == (Ask(Question.START),)
    assert "has older messages, but none at offset 5" in halted_with(it.answered(start(2)))


def test_what_the_retention_took_at_the_position_is_a_gap() -> None:
    """The oldest message left is behind the position."""
    it = reader()
    it.message(9)
    it.answered(since(9))
    assert it.answered(start(9)) == (MeetGap(9),)


def test_a_slow_rabbitmq_proves_nothing() -> None:
    """It delivers neither what is asked for nor a first message, though one is held: it is asked again, with a word."""
    it = reader()
    it.message(9)
    it.answered(since(None))
    warning, again = it.answered(start(None))
    assert "does not say where it begins" in warning.words
    assert again == act.SetTimer(Timer.EXAMINE, continuity.DOUBT_MS)
    assert it.fired(Timer.EXAMINE, quiet=False) == (Ask(Question.SINCE, 5),)
    it.answered(since(None))
    assert it.answered(start(2)) == (Ask(Question.SINCE, 5),)
    it.answered(since(None))
    assert it.answered(start(None)) == (again,)  # said once


def test_a_question_that_failed_is_repeated_at_growing_intervals() -> None:
    """A lost channel says nothing of the stream; a refusal does."""
    it = reader()
    it.message(9)
    first, second = (it.answered(since(None, ChannelLost("x"))) for _ in range(2))
    assert isinstance(first[0], act.SetTimer)
    assert isinstance(second[0], act.SetTimer)
    assert first[0].ms < second[0].ms
    assert it.fired(Timer.ASK, quiet=False) == (Ask(Question.SINCE, 5),)
    assert "no read" in halted_with(it.answered(since(None, PermissionMissing("no read"))))


def test_an_unreadable_message_hides_no_gap() -> None:
    """Retention took what was next, and the oldest message left cannot be read: it need not be that at the position."""
    it = reader()
    assert it.unreadable(UNREADABLE) is PASS_OVER
    assert it.message(51) == (Ask(Question.SINCE, 5),)
    assert it.answered(since(None, UNREADABLE)) == (Ask(Question.START),)
    assert it.answered(start(None, UNREADABLE)) == (MeetGap(51),)


def test_an_unreadable_message_at_the_position_is_no_gap() -> None:
    """The stream has older ones."""
    it = reader()
    it.unreadable(UNREADABLE)
    it.message(51)
    it.answered(since(None, UNREADABLE))
    assert it.answered(start(2)) == [act.Admit(51)]


def test_an_unreadable_message_behind_the_position_halts() -> None:
    """Also where it is held behind a jump."""
    it = reader()
    it.message(5)
    assert it.unreadable(UNREADABLE) == (act.Halt(UNREADABLE),)
    held = reader()
    held.message(9)
    assert held.unreadable(UNREADABLE) == ()
    assert held.answered(since(5)) == [act.Admit(9), act.Halt(UNREADABLE)]
    assert Continuity("s", BEFORE_FIRST, int).unreadable(UNREADABLE) == (act.Halt(UNREADABLE),)


def doubt(it: Continuity, first: int | None, count: int = 0, error: Any = None) -> Sequence[Any]:
    """One look at a stream that nothing comes from; returns what follows from it."""
    assert it.fired(Timer.DOUBT, quiet=True) == (Ask(Question.DOUBT),)
    verdicts = it.answered(Answer(Question.DOUBT, first, error))
    if verdicts != (Ask(Question.COUNT),):
        return verdicts
    return it.answered(Answer(Question.COUNT, count))


AGAIN = act.SetTimer(Timer.DOUBT, continuity.DOUBT_MS)


def test_a_node_that_lags_behind_is_waited_for() -> None:
    """The leader has the message at the position; only its word, given twice, proves that one is gone."""
    it = reader(150)
    warnings = []
    for count in (200, 0, 151, 100, 0):
        *warned, last = doubt(it, 0, count)
        assert last == AGAIN
        warnings += warned
    assert ["has not got offset 150 yet" in warning.words for warning in warnings] == [True]
    (verdict,) = doubt(it, 0, 150)
    assert isinstance(verdict, act.GiveUp)
    assert isinstance(verdict.error, OffsetUnknown)
    assert "ends before offset 150" in str(verdict.error)
    assert "or an offset behind its end was committed" in str(verdict.error)


@pytest.mark.parametrize("error", [None, ChannelLost("x")])
def test_an_empty_stream_is_doubted_until_something_comes(error: ChannelLost | None) -> None:
    """Or RabbitMQ is slow; what has come in the meantime ends the doubt."""
    it = reader()
    assert doubt(it, None, error=error) == (AGAIN,)
    it.message(5)
    assert it.fired(Timer.DOUBT, quiet=True) == ()
    assert it.answered(Answer(Question.DOUBT, 0)) == ()
    assert it.answered(Answer(Question.COUNT, 1)) == ()


@pytest.mark.parametrize(
    "look",
    [(0, 200), (0, 0), (None,), (None, 0, ChannelLost("x")), (None, 0, PermissionMissing("no read"))],
    ids=["lags", "not counted", "empty", "lost", "forbidden"],
)
def test_a_consumer_that_brings_nothing_for_half_a_minute_is_replaced(look: tuple[Any, ...]) -> None:
    """It may be one of a stream that is gone: the next one looks whether the group has read this one."""
    it = reader(150)
    for _ in range(continuity.LOOKS - 1):
        assert doubt(it, *look)[-1] == AGAIN
    (verdict,) = doubt(it, *look)
    assert isinstance(verdict, act.GiveUp)
    assert isinstance(verdict.error, ChannelLost)
    assert "No message of stream 's' at offset 150" in str(verdict.error)


def test_a_stream_with_nothing_but_stored_offsets_is_waited_for() -> None:
    """That is no reason to replace its consumer every half a minute."""
    it = reader()
    for _ in range(3 * continuity.LOOKS):
        assert doubt(it, None, error=Undelivered("s", 6)) == (AGAIN,)


def test_a_reader_that_rabbitmq_leaves_behind_ends() -> None:
    """Only if nothing came between two looks, everything before is acknowledged, and there is more."""
    it = reader()
    it.message(5)
    busy = act.SetTimer(Timer.LOOK, continuity.STALL_MS.first)
    assert it.fired(Timer.LOOK, quiet=True) == (busy,)  # something came since it began
    assert it.fired(Timer.LOOK, quiet=False) == (busy,)
    for looks, first in ((2, None), (3, 3), (4, 5)):
        assert it.fired(Timer.LOOK, quiet=True) == (Ask(Question.STALL),)
        pause_ms = continuity.STALL_MS.pause(looks)
        assert it.answered(Answer(Question.STALL, first)) == (act.SetTimer(Timer.LOOK, pause_ms),)
    assert it.fired(Timer.LOOK, quiet=True) == (Ask(Question.STALL),)
    assert it.answered(Answer(Question.STALL, 6)) == (LeftBehind(5, 6),)


@pytest.mark.parametrize("seeds", [range(2_000), pytest.param(range(2_000, 100_000), marks=pytest.mark.thorough)])
def test_whatever_rabbitmq_answers_nothing_is_skipped_silently(seeds: range) -> None:
    """Retention, holes, streams created again and lost answers, each history from its seed."""
    for seed in seeds:
        read_on(seed)
