"""For how long the rest of what came back is waited for, in virtual time. What RabbitMQ sends is in `test_partition.py`."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from cobalance.rabbitmq.partition import returned
from cobalance.rabbitmq.partition.returned import WITHIN_MS, Returned


@attrs.define
class Waiting:
    """For the rest; RabbitMQ answers when it is told to."""

    now: int = 0
    has_ended: bool = False
    answers: list[Callable[[Any], None]] = attrs.field(factory=list)
    timers: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)
    rest: Returned = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        channel: Any = SimpleNamespace(is_open=True, queue_declare=self._asked)
        self.rest = Returned(channel, "q", 100, "tag", lambda *_: None, lambda ms, job: self.timers.append((ms, job)))

    def _asked(self, *_: object, callback: Callable[[Any], None], **__: object) -> None:
        self.answers.append(callback)

    def begin(self) -> None:
        self.rest.take_rest(0, lambda: setattr(self, "has_ended", True))

    def answer(self) -> None:
        """There is more, and we are counted."""
        self.answers.pop()(SimpleNamespace(method=SimpleNamespace(message_count=1, consumer_count=1)))

    def pass_ms(self, ms: float) -> None:
        """The timers that were set before, and are due by then, are over."""
        self.now += int(ms)
        due, self.timers = self.timers, []
        for after_ms, job in due:
            assert after_ms <= ms
            job()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    it = Waiting()
    monkeypatch.setattr(returned, "monotonic_ms", lambda: it.now)
    return it


def test_a_rest_that_keeps_coming_is_waited_for(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """Large messages take longer than a queue that stands still is given."""
    waiting.begin()
    for _ in range(3):
        waiting.answer()
        waiting.rest.note(redelivered=True)
        waiting.pass_ms(WITHIN_MS)
        assert not waiting.has_ended
    waiting.answer()
    waiting.pass_ms(WITHIN_MS)
    assert waiting.has_ended
    assert [it.levelno for it in caplog.records] == [logging.WARNING]


def test_a_message_that_takes_longer_is_waited_for(waiting: Waiting) -> None:
    """RabbitMQ's answer comes behind it. Once it answers, and nothing comes, nothing is waited for."""
    waiting.rest.note(redelivered=True)
    waiting.begin()
    for _ in range(3):
        waiting.pass_ms(WITHIN_MS)
        assert not waiting.has_ended
    waiting.answer()
    waiting.pass_ms(WITHIN_MS)
    assert waiting.has_ended
