"""Queues and a group for one test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.rabbitmq.dropin.parts import Broker


@pytest.fixture
def broker(amqp_url: str) -> Iterator[Broker]:
    broker = Broker(amqp_url)
    yield broker
    broker.close()


@pytest.fixture
def group() -> str:
    return f"dropin-{uuid.uuid4().hex[:8]}"
