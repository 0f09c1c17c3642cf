"""The proof that RabbitMQ keeps a connection, by the clock of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cobalance.rabbitmq.wire.proof import LASTS, Proof

HEARTBEAT_S = 60.0


class Answering:
    """A connection whose only channel answers at once; nothing that is to be done later is done."""

    def open_channel(self, then: Callable[[Any], None]) -> None:
        then(SimpleNamespace(is_open=True, basic_qos=self._answer))

    @staticmethod
    def _answer(*, prefetch_count: int, callback: Callable[[object], None]) -> None:
        del prefetch_count
        callback(None)

    def call_later(self, ms: float, job: Callable[[], None]) -> None:
        """A machine that sleeps does nothing."""


def test_a_proof_is_over_when_a_machine_wakes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ has closed the connection meanwhile, and admitted somebody else."""
    told: list[bool] = []
    proof = Proof(Answering(), HEARTBEAT_S, told.append)  # type: ignore[arg-type]
    proof.begin()
    assert proof.holds
    assert told == [True]
    read, asleep_ns = time.clock_gettime_ns, int(LASTS * HEARTBEAT_S * 1e9)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda it: read(it) + asleep_ns)
    assert not proof.holds
