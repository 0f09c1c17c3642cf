"""Each anomaly is found in a history that has it, and nothing is found in one that has none."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from tests.chaos.checker import MEANINGS, judge, reached
from tests.chaos.history import History, Trouble

from cobalance.journal import JournalEntry
from cobalance.lab.diary import DiaryEntry, HandlerRun
from cobalance.lab.message import NumberedMessage

SECOND = 1_000_000_000


def message(number: int) -> NumberedMessage:
    return NumberedMessage("p", number)


def handling(number: int, at_s: float, *, process: str = "a", token: int = 1, **more: object) -> HandlerRun:
    """A tenth of a second's work."""
    begun = int(at_s * SECOND)
    plain = HandlerRun(
        process=process,
        message=message(number),
        partition="p",
        token=token,
        begun_ns=begun,
        ended_ns=begun + SECOND // 10,
    )
    return attrs.evolve(plain, **more)  # type: ignore[arg-type]


def history(runs: Sequence[HandlerRun], **more: object) -> History:
    """Two processes worked one partition, and everything that was published was confirmed."""
    sent = frozenset({it.message for it in runs})
    plain = History(
        partitions=("p",),
        confirmed=sent,
        attempted=sent,
        runs=tuple(runs),
        events=(),
        entries=(),
        troubles=(),
    )
    return attrs.evolve(plain, **more)  # type: ignore[arg-type]


SOUND = (handling(1, 1), handling(2, 2), handling(3, 3, process="b", token=2), handling(4, 4, process="b", token=2))


def names(judged: History) -> set[str]:
    """The anomalies that are found."""
    return {it.name for it in judge(judged).anomalies}


def test_a_planned_handover_is_valid() -> None:
    """Every message once, in order, under rising tokens."""
    verdict = judge(history(SOUND))
    assert verdict.anomalies == ()
    assert (verdict.published, verdict.processed, verdict.tenures) == (4, 4, 2)


COMMITTED = DiaryEntry(process="a", kind="committed", partition="p", token=1, position=7, at_ns=SECOND)

FLAWS: dict[str, History] = {
    "lost-write": history(SOUND, confirmed=frozenset({message(5)}), attempted=frozenset(map(message, range(1, 6)))),
    "unseen": history(SOUND, left_in_queues=1),
    "unpublished": history(SOUND, attempted=frozenset({message(1)})),
    "duplicate": history((*SOUND, handling(4, 5, process="b", token=2))),
    "int-nonmonotonic-poll": history((handling(2, 1), handling(1, 2))),
    "nonmonotonic-poll": history((handling(2, 1), handling(1, 2, process="b", token=2))),
    "int-poll-skip": history((handling(1, 1), handling(3, 2), handling(2, 3))),
    "poll-skip": history((handling(1, 1), handling(3, 2, process="b", token=2), handling(2, 3, process="b", token=2))),
    "side-by-side": history((handling(1, 1), handling(2, 1.05))),
    "inconsistent-offsets": history((handling(1, 1, offset=9), handling(2, 2, offset=9))),
    "overlap": history((handling(1, 1), handling(2, 1.05, process="b", token=2))),
    "token-fell": history((handling(1, 1, token=2), handling(2, 2, process="b", token=1))),
    "committed-fell": history(
        SOUND, events=(COMMITTED, attrs.evolve(COMMITTED, process="b", token=2, position=6, at_ns=2 * SECOND))
    ),
    "died": history(SOUND, failed=("a ended with 1",)),
}


@pytest.mark.parametrize("name", FLAWS)
def test_each_anomaly_is_seen(name: str) -> None:
    """By its name, besides any others that the same flaw implies."""
    assert name in names(FLAWS[name])


def test_every_name_is_tried() -> None:
    """`unsettled` is not a property of a history: the run itself reports it."""
    assert set(FLAWS) | {"unsettled"} == set(MEANINGS)


def test_one_token_of_two_processes_is_seen() -> None:
    """However late the second one comes."""
    assert "token-fell" in names(history((handling(1, 1), handling(2, 2, process="b"))))


def test_an_unfinished_message_may_come_again() -> None:
    """Its process was killed, so it was never acknowledged."""
    assert names(history((handling(1, 1, ended_ns=None), handling(1, 5, process="b", token=2)))) == set()


@pytest.mark.parametrize(
    "excuse",
    [
        {"troubles": (Trouble(kind="kill", process="a", since_ns=SECOND, until_ns=2 * SECOND),)},
        {"events": (DiaryEntry(process="a", kind="lost", partition="p", token=1, at_ns=2 * SECOND),)},
        {"entries": (JournalEntry(id="1-0", seq=1, kind="expired", at_ms=1, resource="p", token=1),)},
    ],
)
def test_duplicates_are_excused_by_what_went_wrong(excuse: dict[str, object]) -> None:
    """A fault of its process, or a tenure that did not end as planned; excused duplicates are counted."""
    verdict = judge(history((handling(1, 1), handling(1, 5, process="b", token=2)), **excuse))
    assert verdict.anomalies == ()
    assert verdict.duplicates_excused == 1


def test_a_deployment_excuses_nothing() -> None:
    """A deployment is planned, so its messages come once."""
    planned = Trouble(kind="deploy", since_ns=0, until_ns=9 * SECOND)
    assert "duplicate" in names(history((handling(1, 1), handling(1, 5, process="b", token=2)), troubles=(planned,)))


def test_a_frozen_process_does_not_work() -> None:
    """What it had begun ends long after another process has taken over: it was frozen in between."""
    frozen = Trouble(kind="freeze", process="a", since_ns=int(1.05 * SECOND), until_ns=8 * SECOND)
    late = handling(1, 1, ended_ns=9 * SECOND)
    assert names(history((late, handling(2, 5, process="b", token=2)), troubles=(frozen,))) == set()
    assert "overlap" in names(history((late, handling(2, 5, process="b", token=2))))


def test_numbers_that_never_came_are_not_skipped() -> None:
    """A publisher that lost its connection goes on with new messages; the last ones may not have arrived."""
    later, sent = handling(9, 9, process="b", token=2), frozenset(map(message, range(1, 10)))
    assert names(history((*SOUND, later), attempted=sent)) == set()


@pytest.mark.parametrize(("claimed_at_ms", "is_anomaly"), [(None, False), (1_500, False), (2_500, True)])
def test_what_redis_forgot_and_nobody_claimed_may_fall(claimed_at_ms: int | None, *, is_anomaly: bool) -> None:
    """A claim restores the committed offset, so then it may not fall; a claim before the loss restores nothing."""
    fallen = (COMMITTED, attrs.evolve(COMMITTED, process="b", token=2, position=6, at_ns=9 * SECOND))
    loss = Trouble(kind="redis-empty", since_ns=2 * SECOND, until_ns=3 * SECOND)
    claim = JournalEntry(id="1-0", seq=1, kind="claimed", at_ms=claimed_at_ms or 0, resource="p", token=1)
    entries = () if claimed_at_ms is None else (claim,)
    assert ("committed-fell" in names(history(SOUND, events=fallen, troubles=(loss,), entries=entries))) is is_anomaly


def test_what_was_not_reached_is_said() -> None:
    """Each kind of fault, and what faults have to lead to."""
    assert list(reached(judge(history(SOUND)), ["kill"])) == [
        "no kill happened",
        "no entry forced was written",
        "no entry cancelled was written",
        "no entry expired was written",
        "no commit was fenced",
    ]
