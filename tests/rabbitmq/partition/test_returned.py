"""For how long the rest of what came back is waited for, in virtual time. What RabbitMQ sends is in `test_partition.py`."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cobalance.rabbitmq.partition.returned import WITHIN_MS, Returned


def test_a_rest_that_keeps_coming_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Large messages take longer than a queue that stands still is given."""
    timers: list[tuple[float, Callable[[], None]]] = []
    channel: Any = SimpleNamespace(is_open=True, queue_declare=lambda *_, **__: None)
    it = Returned(channel, "q", 2, "tag", lambda *_: None, lambda ms, job: timers.append((ms, job)))
    ended: list[bool] = []
    it.take_rest(0, lambda: ended.append(True))
    for _ in range(3):
        it.note(redelivered=True)
        ((ms, look),) = timers
        timers.clear()
        look()
        assert (ms, ended) == (WITHIN_MS, [])
    timers[0][1]()
    assert ended == [True]
    assert [it.levelno for it in caplog.records] == [logging.WARNING]
