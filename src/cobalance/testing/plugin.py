"""Pytest fixtures: put ``pytest_plugins = ["cobalance.testing.plugin"]`` in ``conftest.py``."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from cobalance.testing.broker import Broker
from cobalance.testing.churn import Churn

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count(1)


@pytest.fixture
def cobalance_broker() -> Iterator[Broker]:
    """An empty in-process RabbitMQ for one test."""
    broker = Broker(f"pytest-{next(_numbers)}")
    yield broker
    broker.close()


@pytest.fixture
def cobalance_group(cobalance_broker: Broker) -> Iterator[Churn]:
    """A group on that broker, with ``join leave crash hang wake expire lose_redis``. Raises what ended a member at the
    end of the test.
    """
    churn = Churn("group", cobalance_broker)
    yield churn
    churn.close()
