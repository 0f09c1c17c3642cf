"""When the end of a channel waits for its queue, in virtual time. What RabbitMQ does is in `test_partition.py`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from cobalance.rabbitmq.partition import unapplied
from cobalance.rabbitmq.partition.acks import Flush
from cobalance.rabbitmq.partition.unapplied import APPLIED_MS, MOST_FRAMES, WITHIN_MS, Unapplied

BURST = Flush((), 1, tuple(range(3, 3 + MOST_FRAMES)))


@attrs.define
class Ending:
    """A channel whose queue answers when it is told to."""

    now: int = 0
    ends: int = 0
    answers: list[Callable[[Any], None]] = attrs.field(factory=list)
    timers: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)
    acks: Unapplied = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        channel: Any = SimpleNamespace(is_open=True, basic_qos=lambda **_: None, basic_consume=self._asked)
        self.acks = Unapplied(channel, "q", "tag", {}, lambda ms, job: self.timers.append((ms, job)))

    def _asked(self, *_: object, callback: Callable[[Any], None], **__: object) -> None:
        self.answers.append(callback)

    def end(self) -> None:
        self.ends += 1

    def waits(self) -> bool:
        return self.acks.wait(self.end)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    it = Ending()
    monkeypatch.setattr(unapplied, "monotonic_ms", lambda: it.now)
    return it


def test_few_acknowledgements_are_not_waited_for(ending: Ending) -> None:
    """Nor many that were sent long ago, or that one frame stands for."""
    ending.acks.note(BURST)
    ending.now = APPLIED_MS + 1
    for tag in range(1, MOST_FRAMES + 1):
        ending.acks.note(Flush((), 1_000 * tag))
    assert not ending.waits()
    assert (ending.answers, ending.timers) == ([], [])


def test_a_burst_is_waited_for_once(ending: Ending) -> None:
    """Until the queue answers, however often it is asked whether the channel may be closed."""
    ending.acks.note(BURST)
    assert [ending.waits(), ending.waits()] == [True, True]
    (answer,) = ending.answers
    answer(None)
    ending.acks.note(BURST)
    assert not ending.waits()
    assert ending.ends == 1


def test_a_queue_that_does_not_answer_holds_nothing_up(ending: Ending) -> None:
    """Its late answer has no effect."""
    ending.acks.note(BURST)
    assert ending.waits()
    ((after_ms, job),) = ending.timers
    assert after_ms == WITHIN_MS
    job()
    assert not ending.waits()
    ending.answers[0](None)
    assert ending.ends == 1
